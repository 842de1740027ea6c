"""Reads, writes and lists properties with the published library: `properties.py PORT FILE`, which gets what it found.

It plays a trial with another actor, `friend`, and a world named `plaza`.
"""

import json
import sys
from pathlib import Path

import grpc
import numpy as np
from dm_env_rpc.v1 import connection, dm_env_adaptor
from dm_env_rpc.v1.extensions import properties


def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001  which one it is, is what is looked at
        return type(error).__name__
    return "nothing"


def main(port, file):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        opened = connection.Connection(channel)
        extension = properties.PropertiesExtension(opened)
        found = {"version": extension["server.version"], "before": sorted(extension.specs())}
        environment, world = dm_env_adaptor.create_and_join_world(opened, {"world_name": "plaza"}, {})
        found |= {"world": world, "worlds": list(extension["worlds"]), "joined": sorted(extension.specs())}
        environment.reset()
        found |= {"trial": extension["trial.id"], "actors": list(extension["trial.actors"])}
        (spec,) = (each for each in extension.list("feedback") if each.key == "feedback.friend")
        found["feedback"] = [spec.readable, spec.writable, spec.listable, str(spec.spec.dtype)]
        extension["feedback.friend"] = np.float32(2)
        extension["messages.out.friend"] = "hello"
        found["ticks"] = []
        for _ in range(3):
            environment.step({"paddle": np.int8(0)})
            found["ticks"].append(int(extension["trial.tick"]))
        (message,) = extension["messages.in"]
        found["message"] = message.type_url
        found["unknown"] = refused(extension.read, "nonsense")
        found["not readable"] = refused(extension.read, "messages.out.friend")
        found["not writable"] = refused(extension.write, "trial.tick", np.int64(1))
        found["not listable"] = refused(extension.list, "trial.tick")
        found["wrong value"] = refused(extension.write, "feedback.friend", "much")
        environment.close()
        opened.close()
    file.with_suffix(".new").write_text(json.dumps(found))
    file.with_suffix(".new").rename(file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
