#!/usr/bin/env bash
# The same env_seed of Melting Pot, with the same actions, plays one of several episodes.
#
# Versions:  dm-meltingpot==2.4.1, dmlab2d==1.0.2
# Guessed:   a substrate whose builder is given an env_seed, and every generator of Python and NumPy a state, plays the same
#            episode for the same actions; it is two-dimensional, on one thread, and has no other source of chance.
# Behaviour: it plays one of several: twelve builds of clean_up from one configuration and one seed differ within eight steps;
#            other substrates have two or three episodes for a seed.
# Matters:   a run cannot be repeated from its seeds; two agents that are compared "on the same seeds" are not, and a test
#            of reproducibility passes now and then.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install dmlab2d==1.0.2 dm-env==1.6 chex==0.1.92 dm-tree==0.1.10 immutabledict==4.3.1 \
  ml-collections==1.1.0 networkx==3.6.1 opencv-python-headless==5.0.0.93 pandas==3.1.1 reactivex==6.1.0
# The build fetches models of bots, which no substrate needs, unless it finds them in the folder for temporary files.
mkdir "$folder/assets"
tar -czf "$folder/meltingpot-assets-2.3.0.tar.gz" -C "$folder" assets
TMPDIR=$folder "$folder/venv/bin/pip" --quiet install --no-deps dm-meltingpot==2.4.1
"$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import sys
from collections import Counter
from unittest import mock

import numpy as np

sys.modules["tensorflow"] = mock.MagicMock()  # runs the models of bots alone

from meltingpot import substrate
from meltingpot.utils.substrates import builder

NAME = "clean_up"
BUILDS, STEPS = 12, 8
config = substrate.get_config(NAME)
# The map, with what is drawn for it, is made once: every substrate is built of the same.
settings = config.lab2d_settings_builder(roles=config.default_player_roles, config=config)


def played(seed):
    env = builder.builder(settings, env_seed=seed)
    seen = [env.reset()]
    drawn = np.random.default_rng(0)
    for _ in range(STEPS):
        specs = sorted(env.action_spec().items())
        seen.append(env.step({name: drawn.integers(spec.minimum, spec.maximum + 1) for name, spec in specs}))
    env.close()
    return b"".join(np.ascontiguousarray(one.observation["WORLD.RGB"]).tobytes() for one in seen)


episodes = Counter(played(7) for _ in range(BUILDS))
print(f"{NAME}: {BUILDS} builds with one seed play {len(episodes)} episodes, {sorted(episodes.values())} times each")
assert len(episodes) > 1, "it behaves otherwise now"
PYTHON
