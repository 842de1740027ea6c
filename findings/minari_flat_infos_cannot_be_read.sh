#!/usr/bin/env bash
# Minari stores an info of one number a step in "arrow" and "parquet" data sets, and cannot read it back.
#
# Versions:  minari==0.5.4, pyarrow==26.0.1, gymnasium==1.4.0, numpy==2.4.0
# Guessed:   infos that are arrays, one entry a step, come back from each data format as they were given.
# Behaviour: with data_format="hdf5" they do. With "arrow" and "parquet" an array of two dimensions, or a plain list,
#            comes back as well; an array of one dimension is stored without a word, and every later access to an
#            episode of that data set raises ValueError: invalid literal for int() with base 10: b''.
# Matters:   the usual infos are one number a step ("prob", "lives", a mask's sum). The data set is written, listed and
#            counted, and its episodes are lost to Minari: nothing is seen before somebody trains on it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "minari[hdf5,arrow]==0.5.4" pyarrow==26.0.1 gymnasium==1.4.0 numpy==2.4.0 pillow
MINARI_DATASETS_PATH="$folder/sets" "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

GIVEN = {"flat": np.arange(3), "table": np.arange(6.0).reshape(3, 2), "list": [0, 1, 2]}
seen = {}
for form in ("hdf5", "arrow", "parquet"):
    for name, info in GIVEN.items():
        episode = EpisodeBuffer(
            id=0,
            seed=1,
            observations=np.zeros((3, 2), np.float32),
            actions=np.zeros(2, np.int64),
            rewards=[1.0, 2.0],
            terminations=[False, True],
            truncations=[False, False],
            infos={"x": info},
        )
        data_set = minari.create_dataset_from_buffers(
            f"{form.replace('5', '')}/{name}-v0",
            [episode],
            observation_space=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
            action_space=gymnasium.spaces.Discrete(2),
            data_format=form,
        )
        assert data_set.total_steps == 2
        try:
            seen[form, name] = np.array_equal(data_set[0].infos["x"], info)
        except ValueError as error:
            seen[form, name] = str(error)
        print(form, name, "->", "as given" if seen[form, name] is True else seen[form, name])
RAISED = "invalid literal for int() with base 10: b''"
odd = {("arrow", "flat"): RAISED, ("parquet", "flat"): RAISED}
assert all(seen[key] == odd.get(key, True) for key in seen), "it behaves otherwise now"
PYTHON
