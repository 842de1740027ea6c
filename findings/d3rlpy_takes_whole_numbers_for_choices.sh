#!/usr/bin/env bash
# d3rlpy takes actions of float32 for choices of a discrete space, if those in the data set are whole numbers.
#
# Versions:  d3rlpy==2.8.1, torch==2.14.1, gymnasium==1.0.0 (which it pins), numpy==2.4.6
# Guessed:   an action space is discrete or continuous by the type of the actions: two numbers of float32 for each step are
#            continuous.
# Behaviour: it goes by the values: actions of float32 of the shape (10, 2) that are -1, 0 or 1 are ActionSpace.DISCRETE of
#            the size 2. One action of 0.5 among them makes it CONTINUOUS.
# Matters:   an expert that goes full throttle, brakes or rests, as bang-bang controllers and people with a keyboard do, is a
#            data set of another kind: the first column, or whatever fits, is learnt as the number of a choice, and the same
#            program takes another turn when one more episode is added.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install d3rlpy==2.8.1 torch==2.14.1 gymnasium==1.0.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import numpy as np
from d3rlpy.dataset import MDPDataset

ends = np.zeros(10, np.float32)
ends[-1] = 1


def kind_of(actions: np.ndarray) -> tuple[str, int]:
    made = MDPDataset(np.zeros((10, 3), np.float32), actions, np.zeros(10, np.float32), ends)
    return made.dataset_info.action_space.name, made.dataset_info.action_size


whole = np.tile(np.array([[-1, 0], [1, 1]], np.float32), (5, 1))
broken = whole.copy()
broken[3, 1] = 0.5
found, other = kind_of(whole), kind_of(broken)
print(whole.dtype, whole.shape, found, "one of 0.5 among them:", other)
assert found[0] == "DISCRETE" and other == ("CONTINUOUS", 2), "it behaves otherwise now"
PYTHON
