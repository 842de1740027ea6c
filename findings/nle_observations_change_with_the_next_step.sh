#!/usr/bin/env bash
# NetHack's environment gives the same arrays with every observation: those of before change with the next step.
#
# Versions:  nle==1.3.0, gymnasium==1.2.0 (which it pins)
# Guessed:   an observation that is kept stays as it was, as of Gymnasium's own environments: each step gives new arrays.
# Behaviour: all steps give the same objects, which NetHack writes into. After a step, the observation before it is the
#            one after it, and after a reset the last one of the episode before is the first one of the next.
# Matters:   a list of observations, or a replay buffer that does not copy, has one observation as many times as there
#            were steps; differences of two are zero. Shapes and types are right, and learning goes on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install nle==1.3.0 gymnasium==1.2.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnasium
import nle  # noqa: F401  # registers the environments
import numpy as np

env = gymnasium.make("NetHackScore-v0", disable_env_checker=True)
env.unwrapped.seed(3, 3, False)
first, _ = env.reset()
kept, copied = [first], [{key: value.copy() for key, value in first.items()}]
for action in [1, 2, 3, 4] * 5:
    found, *_ = env.step(action)
    kept.append(found)
    copied.append({key: value.copy() for key, value in found.items()})
moved = sum(not np.array_equal(one["blstats"], copied[0]["blstats"]) for one in copied)
same = sum(np.array_equal(one["blstats"], kept[0]["blstats"]) for one in kept)
print(f"{moved} of {len(copied)} differ from the first when copied; {same} of {len(kept)} kept ones are equal")
assert moved > 0 and same == len(kept), "it behaves otherwise now"
assert all(np.shares_memory(one["chars"], first["chars"]) for one in kept), "it behaves otherwise now"
PYTHON
