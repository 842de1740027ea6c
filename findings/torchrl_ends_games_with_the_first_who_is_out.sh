#!/usr/bin/env bash
# TorchRL's wrapper ends a PettingZoo game of simultaneous moves with the first agent that is out.
#
# Versions:  torchrl==0.14.1, pettingzoo==1.27.0, gymnasium==1.4.0, torch==2.13.0
# Guessed:   a rollout goes on while agents take part: PettingZoo's parallel games go on without those that have ended, and
#            the wrapper has masks for them.
# Behaviour: `done` is any agent's end by default: of a game of five steps in which one of two agents is out after the
#            second, a rollout has two steps, and the other's end is never seen. With done_on_any=False it has five.
# Matters:   in games of elimination what is learnt and stored ends with the first loss: nobody ever wins, and returns of
#            those who stay are cut off as if that were the rule of the game.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install torchrl==0.14.1 pettingzoo==1.27.0 gymnasium==1.4.0 torch==2.13.0
"$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from torchrl.envs import PettingZooWrapper


class Elimination(ParallelEnv):
    metadata = {"name": "elimination_v0"}
    possible_agents = ["a_0", "b_0"]
    render_mode = None

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.steps += 1
        here = list(self.agents)
        out = {agent: self.steps == (2 if agent == "a_0" else 5) for agent in here}
        self.agents = [agent for agent in here if not out[agent]]
        seen = {agent: np.full(1, self.steps, np.float32) for agent in here}
        return seen, dict.fromkeys(here, 1.0), out, dict.fromkeys(here, False), {agent: {} for agent in here}


def steps(**options) -> int:
    return len(PettingZooWrapper(Elimination(), use_mask=True, **options).rollout(10))


print("by default", steps(), "with done_on_any=False", steps(done_on_any=False))
assert (steps(), steps(done_on_any=False)) == (2, 5), "it behaves otherwise now"
PYTHON
