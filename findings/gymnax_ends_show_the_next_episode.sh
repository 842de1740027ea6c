#!/usr/bin/env bash
# gymnax 1.0: the observation beside an end is the first of the next episode, and a step has six values.
#
# Versions:  gymnax==1.0.1 (with six==1.17.0, which it needs and does not bring)
# Guessed:   env.step returns five values, (observation, state, reward, done, info), and the observation that comes with
#            done is the last one of the episode.
# Behaviour: there are six, as done has become terminated and truncated. With an end, observation and state are those of
#            a reset that has been made already; the last observation is in info['final_observation'].
# Matters:   what is stored as the terminal observation is of another episode; code for gymnax 0 that unpacks five
#            values with a star takes truncated for infos.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install gymnax==1.0.1 six==1.17.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnax
import jax
import numpy as np

env, params = gymnax.make("CartPole-v1")
key = jax.random.PRNGKey(0)
_, state = env.reset(key, params)
over = False
while not over:
    result = env.step(key, state, 1, params)
    assert len(result) == 6, "it behaves otherwise now"
    observation, state, _, terminated, truncated, info = result
    over = bool(terminated) or bool(truncated)
shown, last = np.asarray(observation), np.asarray(info["final_observation"])
print("shown:", shown, "last:", last, bool(terminated), bool(truncated))
assert np.abs(shown).max() <= 0.05, "it behaves otherwise now"  # as after a reset
assert np.abs(last).max() > 0.2, "it behaves otherwise now"  # as where the pole has fallen
PYTHON
