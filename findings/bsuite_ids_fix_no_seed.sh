#!/usr/bin/env bash
# An id of bsuite names no seed in some experiments: cartpole/0 begins otherwise each time.
#
# Versions:  bsuite==0.3.6, dm-env==1.6, numpy==2.4.6
# Guessed:   an id, such as cartpole/0 of cartpole/0 to cartpole/19, names one environment with its seed, as that of
#            catch or of bandit does: it begins and goes on alike each time that it is loaded.
# Behaviour: cartpole's twenty settings are all {'seed': None}: two loads of one id begin differently, and the twenty
#            ids are one setting. bandit/0 has its seed.
# Matters:   a run that is stored with its bsuite id can not be played again, and a comparison by id compares nothing
#            but the number of repetitions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install bsuite==0.3.6 dm-env==1.6 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import bsuite
import numpy as np
from bsuite import sweep


def beginnings(name: str) -> list[bytes]:
    return [np.asarray(bsuite.load_from_id(name).reset().observation).tobytes() for _ in range(4)]


settings = {str(sweep.SETTINGS[name]) for name in sweep.CARTPOLE}
different = len(set(beginnings("cartpole/0")))
seeds = [sweep.SETTINGS[name].get("mapping_seed") for name in sweep.BANDIT]
print(settings, different, seeds[:3])
assert settings == {"{'seed': None}"}, "it behaves otherwise now"
assert different == 4, "it behaves otherwise now"
assert None not in seeds, "it behaves otherwise now"
PYTHON
