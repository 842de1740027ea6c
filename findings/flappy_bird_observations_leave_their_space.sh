#!/usr/bin/env bash
# FlappyBird's first observation is outside of its own space, by the last bit of a float.
#
# Versions:  flappy-bird-gymnasium==0.4.0, gymnasium==1.4.0, numpy==2.4.6
# Guessed:   observations are in the observation space, a Box of 0 to 1: the distances of its lidar are divided by the
#            largest.
# Behaviour: some are 1.0000000000000002: observation_space.contains() says no from the first reset on, with every seed.
# Matters:   whoever checks observations, as recorders, servers and checkers do, refuses the environment; whoever clips
#            or rounds stores something else than was seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install flappy-bird-gymnasium==0.4.0 gymnasium==1.4.0 numpy==2.4.6
SDL_VIDEODRIVER=dummy "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import flappy_bird_gymnasium  # registers the game
import gymnasium

game = gymnasium.make("FlappyBird-v0", disable_env_checker=True)
seen = [game.reset(seed=seed)[0] for seed in range(5)]
print(game.observation_space, [repr(float(one.max())) for one in seen])
assert not any(game.observation_space.contains(one) for one in seen), "it behaves otherwise now"
assert all(1 < one.max() < 1 + 1e-12 and one.min() >= 0 for one in seen), "it behaves otherwise now"
PYTHON
