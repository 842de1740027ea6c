#!/usr/bin/env bash
# Games of agents with Gymnasium's interface tell their own time limits as terminated.
#
# Versions:  rware==2.0.0, lbforaging==2.0.0, gymnasium==1.4.0
# Guessed:   a game that stops after its maximum of steps, with nothing reached, is truncated and not terminated, as
#            Gymnasium's interface has it since 0.26.
# Behaviour: both say terminated=True, truncated=False: the warehouse after 500 steps without a delivery, level-based
#            foraging after 50 in which nobody moved and all the food is there.
# Matters:   a learner that does not bootstrap at a termination learns that time running out is worth nothing, and data
#            sets say that each such episode came to its end.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install rware==2.0.0 lbforaging==2.0.0 gymnasium==1.4.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnasium
import lbforaging  # registers its games
import rware  # so does this

ended = {}
for name in ("rware-tiny-2ag-v2", "Foraging-8x8-2p-1f-v3"):
    game = gymnasium.make(name, disable_env_checker=True)
    game.reset(seed=1)
    steps, over, rewards = 0, False, 0.0
    while not over:
        _, reward, terminated, truncated, _ = game.step((0, 0))  # nobody does anything
        steps, over, rewards = steps + 1, terminated or truncated, rewards + sum(reward)
    ended[name] = (steps, float(rewards), bool(terminated), bool(truncated))
print(ended)
expected = {"rware-tiny-2ag-v2": (500, 0.0, True, False), "Foraging-8x8-2p-1f-v3": (50, 0.0, True, False)}
assert ended == expected, "it behaves otherwise now"
PYTHON
