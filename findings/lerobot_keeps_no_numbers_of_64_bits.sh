#!/usr/bin/env bash
# What LeRobot reads of a float64 feature is float32: times of day are off by up to a minute.
#
# Versions:  lerobot==0.4.4, torch and datasets (that it brings)
# Guessed:   a feature that was declared and stored as float64 comes back as float64, one of int32 as int32, and one of the
#            shape (1,) with that shape.
# Behaviour: the Parquet file has all 64 bits; the item that the data set gives has not: each row goes through
#            torch.tensor() of Python's numbers, so floats are float32, whole numbers int64, and (1,) is (). A time of
#            1790000001.123 s comes back as 1790000000.0, and the next 63 seconds do as well.
# Matters:   times at which cameras, people or servers did something, positions in large numbers and exact rewards are
#            rounded between the disk and the learner, though features, file and metadata all say float64.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install lerobot==0.4.4
HF_HUB_OFFLINE=1 HF_HOME="$folder/hub" "$folder/venv/bin/python" -W ignore - "$folder/set" 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import sys

import numpy as np
import pyarrow.parquet as pq
from lerobot.datasets.lerobot_dataset import LeRobotDataset

TIMES = [1_790_000_000.123, 1_790_000_001.123, 1_790_000_050.5]
features = {
    "wall": {"dtype": "float64", "shape": (1,), "names": None},
    "state": {"dtype": "float64", "shape": (2,), "names": None},
    "action": {"dtype": "int32", "shape": (1,), "names": None},
}
made = LeRobotDataset.create(repo_id="a/b", fps=10, root=sys.argv[1], features=features, use_videos=False)
for time in TIMES:
    made.add_frame({"wall": np.array([time]), "state": np.array([1 / 3, time]), "action": np.array([1], np.int32), "task": "x"})
made.save_episode()
made.finalize()
loaded = LeRobotDataset("a/b", root=sys.argv[1])
stored = pq.read_table(next(loaded.root.glob("data/*/*.parquet")))["wall"].to_pylist()
found = [loaded[number] for number in range(3)]
print("stored:", stored, " read:", [float(item["wall"]) for item in found])
print({key: (str(found[0][key].dtype), tuple(found[0][key].shape)) for key in features})
assert stored == TIMES, "it behaves otherwise now"
assert [float(item["wall"]) for item in found] == [1_790_000_000.0] * 3, "it behaves otherwise now"
assert str(found[0]["state"].dtype) == "torch.float32" and found[0]["wall"].shape == (), "it behaves otherwise now"
assert str(found[0]["action"].dtype) == "torch.int64", "it behaves otherwise now"
PYTHON
