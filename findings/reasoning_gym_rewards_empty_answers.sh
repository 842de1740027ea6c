#!/usr/bin/env bash
# reasoning-gym's scorers reward an empty answer in some tasks, and give 0 for the entry's own answer in others.
#
# Versions:  reasoning-gym==0.1.25
# Guessed:   score_answer() gives 1 for the answer that the entry itself has, and 0 for an empty one.
# Behaviour: of countdown and puzzle24 an empty answer is worth 0.01. The entries of rush_hour and graph_color have no
#            answer, None, which scores 0.
# Matters:   rewards of a policy that says nothing are not 0, and differ by task; and whoever tests a server or a store
#            by sending the reference answers finds tasks that none of them solves.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install reasoning-gym==0.1.25
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import reasoning_gym

empty, own = {}, {}
for name in ("countdown", "puzzle24", "chain_sum", "rush_hour", "graph_color"):
    tasks = reasoning_gym.create_dataset(name, size=3, seed=42)
    entries = [tasks[place] for place in range(3)]
    empty[name] = {tasks.score_answer("", entry) for entry in entries}
    own[name] = {tasks.score_answer(entry["answer"], entry) for entry in entries}
print("empty:", empty, "own:", own)
assert empty["chain_sum"] == {0.0}, "it behaves otherwise now"
assert all(min(empty[name]) > 0 for name in ("countdown", "puzzle24")), "it behaves otherwise now"
assert own["chain_sum"] == own["countdown"] == {1.0}, "it behaves otherwise now"
assert own["rush_hour"] == own["graph_color"] == {0.0}, "it behaves otherwise now"
PYTHON
