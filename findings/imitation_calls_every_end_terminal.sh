#!/usr/bin/env bash
# imitation's rollouts say of episodes that a time limit cut off that they are terminal.
#
# Versions:  imitation==1.0.1, stable-baselines3==2.2.1, gymnasium==0.29.1 (which it pins), torch==2.14.1, datasets==5.0.1,
#            numpy==2.4.6
# Guessed:   Trajectory.terminal, "does this trajectory end in a terminal state", is False where TimeLimit has truncated.
# Behaviour: it is True, and `dones` of the flattened transitions as well; that it was the limit is in the infos alone, which
#            are left out by default. What was float32 comes back as float64 from serialize.save and load.
# Matters:   a critic or reward model that is learnt from these demonstrations takes the time limit for a state without
#            value; data sets made of them say that each episode came to its end.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install imitation==1.0.1 stable-baselines3==2.2.1 gymnasium==0.29.1 torch==2.14.1 datasets==5.0.1 \
  numpy==2.4.6
"$folder/venv/bin/python" -W ignore - "$folder/saved" 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import sys

import gymnasium
import numpy as np
from imitation.data import rollout, serialize
from imitation.data.wrappers import RolloutInfoWrapper
from stable_baselines3.common.vec_env import DummyVecEnv

env = DummyVecEnv([lambda: RolloutInfoWrapper(gymnasium.make("CartPole-v1", max_episode_steps=5))])
until = rollout.make_sample_until(min_episodes=3)
found = rollout.rollout(None, env, until, rng=np.random.default_rng(0), exclude_infos=False)
limits = [bool(one.infos[-1]["TimeLimit.truncated"]) for one in found]
dones = rollout.flatten_trajectories(found).dones
print("cut off by the limit:", limits, " terminal:", [one.terminal for one in found], " dones:", int(dones.sum()))
assert all(limits) and all(one.terminal for one in found), "it behaves otherwise now"
assert dones.sum() == len(found), "it behaves otherwise now"
serialize.save(sys.argv[1], found)
types = found[0].obs.dtype, serialize.load(sys.argv[1])[0].obs.dtype
print(*types)
assert types == (np.float32, np.float64), "it behaves otherwise now"
PYTHON
