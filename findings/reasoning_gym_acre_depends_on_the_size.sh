#!/usr/bin/env bash
# In reasoning-gym's acre the first tasks of a seed depend on how many there are.
#
# Versions:  reasoning-gym==0.1.25
# Guessed:   create_dataset(name, size=8, seed=42) begins with the tasks of size=4: each is drawn from the seed and its
#            place, as in all others.
# Behaviour: acre draws all of its tasks together, so that another size gives other tasks in the same places. Of
#            chain_sum and others the first four are the same.
# Matters:   a task that is stored as name, seed and index is another one if the data set was longer, and training and
#            test sets of one seed overlap in an unknown way.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install reasoning-gym==0.1.25
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import reasoning_gym


def questions(name: str, size: int) -> list[str]:
    tasks = reasoning_gym.create_dataset(name, size=size, seed=42)
    return [tasks[place]["question"] for place in range(4)]


same = {name: questions(name, 4) == questions(name, 8) for name in ("chain_sum", "countdown", "acre")}
print(same, "again:", questions("acre", 4) == questions("acre", 4))
assert same == {"chain_sum": True, "countdown": True, "acre": False}, "it behaves otherwise now"
assert questions("acre", 4) == questions("acre", 4), "it behaves otherwise now"
PYTHON
