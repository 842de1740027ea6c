"""Plays with numbers by the published library's adaptor: `play_numbers.py PORT SEQUENCES FILE`.

The file gets, for each sequence, the trial's id and the time steps: their type, what was seen, the reward, and what was
given then.
"""

import json
import sys
from pathlib import Path

import grpc
import numpy as np
from dm_env_rpc.v1 import connection, dm_env_adaptor
from dm_env_rpc.v1.extensions import properties


def main(port, sequences, file):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        opened = connection.Connection(channel)
        environment, _ = dm_env_adaptor.create_and_join_world(opened, {"world_name": "numbers"}, {})
        extension = properties.PropertiesExtension(opened)
        found = []
        for _ in range(sequences):
            steps, step = [], environment.reset()
            trial = str(extension["trial.id"])
            while True:
                seen = step.observation["observation"].tolist()
                number = None if step.last() else (sum(seen) * 7 + 2) % 10
                reward = None if step.reward is None else float(step.reward)
                steps.append({"type": step.step_type.name, "seen": seen, "reward": reward, "number": number})
                if step.last():
                    break
                step = environment.step({"action": np.int64(number)})
            found.append({"trial": trial, "steps": steps})
        environment.close()
        opened.close()
    file.with_suffix(".new").write_text(json.dumps(found))
    file.with_suffix(".new").rename(file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
