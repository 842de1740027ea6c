"""A worker: this many episodes of this many steps on standard output, then an exit code."""

import json
import sys


def main(episodes, steps, code):
    for number in range(episodes):
        for index in range(steps):
            print(json.dumps({"type": "step", "episode": number, "step": index, "action": index % 2, "reward": 0.5}))
        print("a line that is none")
        line = {"type": "episode", "episode": number, "total_reward": steps / 2, "steps": steps}
        print(json.dumps(line), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
