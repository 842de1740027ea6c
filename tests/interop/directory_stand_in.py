"""A directory as a process: `python directory_stand_in.py --records FOLDER [--tls FOLDER]`.

Its port is told in `directory.port`; what is registered, and who asked what, is in `directory.json` at any time.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import trio

from trio_cogment.api.directory_pb2 import ServiceEndpoint, ServiceType
from trio_cogment.rpc import open_listeners, serve, server_tls
from trio_cogment.testing.directory import FakeDirectory


def write(path: Path, content: Any) -> None:
    """Write a JSON file so that a reader sees it whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1))
    os.replace(part, path)


def told(directory: FakeDirectory) -> dict[str, Any]:
    return {
        "entries": [
            {
                "id": number,
                "type": ServiceType.Name(entry.data.details.type),
                "protocol": ServiceEndpoint.Protocol.Name(entry.data.endpoint.protocol),
                "host": entry.data.endpoint.host,
                "port": entry.data.endpoint.port,
                "properties": dict(entry.data.details.properties),
                "token": entry.token,
                "hidden": entry.hidden,
            }
            for number, entry in directory.entries.items()
        ],
        "requests": directory.methods(),
    }


async def keep_told(directory: FakeDirectory, path: Path) -> None:
    known: dict[str, Any] = {}

    def changed() -> bool:
        return told(directory) != known

    while True:
        await directory.wait_until(changed)
        known = told(directory)
        write(path, known)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True, type=Path)
    parser.add_argument("--tls", type=Path)
    args = parser.parse_args()

    tls = None
    if args.tls:
        tls = server_tls(args.tls / "chain.pem", args.tls / "key.pem", client_roots=args.tls / "roots.pem")
    directory = FakeDirectory(check_services=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_told, directory, args.records / "directory.json")
        listeners = await open_listeners("127.0.0.1", tls=tls)
        serving = await nursery.start(serve, [directory.service()], listeners)
        write(args.records / "directory.port", serving.ports[0])


if __name__ == "__main__":
    trio.run(main)
