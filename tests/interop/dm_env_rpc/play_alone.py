"""Plays catch with the published library's adaptor: `play_alone.py PORT SEQUENCES FILE`, which gets all time steps."""

import json
import sys
from pathlib import Path

import grpc
import numpy as np
from dm_env_rpc.v1 import connection, dm_env_adaptor


def main(port, sequences, file):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        opened = connection.Connection(channel)
        environment, _ = dm_env_adaptor.create_and_join_world(opened, {}, {})
        found = []
        for sequence in range(sequences):
            steps = []
            while not steps or steps[-1]["type"] != "LAST":
                step = environment.step({"paddle": np.int8((sequence + len(steps)) % 3 - 1)})
                reward = None if step.reward is None else float(step.reward)
                discount = None if step.discount is None else float(step.discount)
                board = step.observation["board"].tolist()
                steps.append({"type": step.step_type.name, "reward": reward, "discount": discount, "board": board})
            found.append(steps)
        environment.close()
        opened.close()
    file.with_suffix(".new").write_text(json.dumps(found))
    file.with_suffix(".new").rename(file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
