#!/usr/bin/env bash
# The first step in a Tianshou ReplayBuffer decides the types of all: later numbers are cut to whole ones.
#
# Versions:  tianshou==2.0.1, numpy==2.4.6
# Guessed:   a step whose numbers do not fit into the buffer's arrays is refused, or the arrays get a type that holds them,
#            as that of rewards does.
# Behaviour: an info of 0, or an action of 0, in the first step makes the column one of whole numbers. 0.75 and 0.5 after
#            it are stored as 0, and True for 3, without a word.
# Matters:   scores, distances and actions of many environments are 0 in the first step. What is learnt from and saved then
#            has zeros, although every step was right when it was added.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install tianshou==2.0.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import numpy as np
from tianshou.data import Batch, ReplayBuffer


def stored(first: float | int) -> tuple[list[float], list[float]]:
    buffer = ReplayBuffer(size=4)
    for value in (first, 0.75):
        step = Batch(
            obs=np.zeros(2, np.float32),
            act=value,
            rew=value,
            terminated=False,
            truncated=False,
            obs_next=np.zeros(2, np.float32),
            info={"score": value},
        )
        buffer.add(step)
    assert buffer.rew[:2].tolist() == [0.0, 0.75]
    return buffer.act[:2].tolist(), buffer.info.score[:2].tolist()


print("first 0.0:", stored(0.0), " first 0:", stored(0))
assert stored(0.0) == ([0.0, 0.75], [0.0, 0.75]), "it behaves otherwise now"
assert stored(0) == ([0, 0], [0, 0]), "it behaves otherwise now"
PYTHON
