#!/usr/bin/env bash
# With SuperSuit's pad_action_space an action that an agent does not have becomes its action 0.
#
# Versions:  supersuit==3.11.0, pettingzoo==1.27.0, gymnasium==1.4.0
# Guessed:   an action beyond an agent's own is refused, or clipped to its last one.
# Behaviour: it becomes 0, whatever action that is: of Discrete(2) padded to Discrete(4), 2 and 3 are 0. Nothing tells
#            it, in infos neither.
# Matters:   a shared policy draws padded actions; the trajectory then has another action than the game saw. Where
#            action 0 is fire or fold, and not a no-op, half of an agent's random moves are that.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install supersuit==3.11.0 pettingzoo==1.27.0 gymnasium==1.4.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import supersuit
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Two(ParallelEnv):
    """Notes the actions that it gets; `a` has two, `b` has four."""

    metadata = {"name": "two"}
    possible_agents = ["a", "b"]
    render_mode = None

    def observation_space(self, agent):
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2 if agent == "a" else 4)

    def _told(self):
        return {agent: np.zeros(2, np.float32) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._told(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.got = dict(actions)
        no = dict.fromkeys(self.agents, False)
        return self._told(), dict.fromkeys(self.agents, 0.0), no, dict(no), {agent: {} for agent in self.agents}


game = Two()
padded = supersuit.pad_action_space_v0(game)
padded.reset(seed=1)
got = []
for action in range(4):
    *_, infos = padded.step({"a": action, "b": action})
    got.append((int(game.got["a"]), int(game.got["b"]), infos["a"]))
print(padded.action_space("a"), got)
assert padded.action_space("a") == spaces.Discrete(4), "it behaves otherwise now"
assert got == [(0, 0, {}), (1, 1, {}), (0, 2, {}), (0, 3, {})], "it behaves otherwise now"
PYTHON
