#!/usr/bin/env bash
# An observation of SuperSuit's frame_stack changes when the next step is made: all steps give the same array.
#
# Versions:  supersuit==3.11.0, gymnasium==1.4.0, pettingzoo==1.27.0
# Guessed:   an observation stays as it is, as those of Gymnasium's own FrameStackObservation and of the environment below do.
# Behaviour: each step shifts the frames within the array that it gave before, and gives that again: what reset gave is, after
#            three steps, what the third gave; in a ParallelEnv for every agent, too.
# Matters:   whoever keeps observations (a replay buffer, a list, `obs` beside `next_obs`) has the newest one each time; where
#            a buffer copies at once, a transition's observation still is its next one if the step is made before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install supersuit==3.11.0 gymnasium==1.4.0 pettingzoo==1.27.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnasium
import numpy as np
import supersuit
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from pettingzoo import ParallelEnv


def kept(env):
    """Return the first observation as it was, as it is after three steps, and the last one."""
    first, _ = env.reset(seed=1)
    was = np.array(first)
    for _ in range(3):
        last = env.step(1)[0]
    return was, first, last


class Two(ParallelEnv):
    metadata = {"name": "two"}
    possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def told(self):
        return {agent: np.full(2, self.count, np.float32) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.count = list(self.possible_agents), 1
        return self.told(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.count += 1
        no = dict.fromkeys(self.agents, False)
        return self.told(), dict.fromkeys(self.agents, 0.0), no, no, {agent: {} for agent in self.agents}


was, first, last = kept(FrameStackObservation(gymnasium.make("CartPole-v1"), 3))
assert np.array_equal(first, was), "Gymnasium's own changes, too"
was, first, last = kept(supersuit.frame_stack_v1(gymnasium.make("CartPole-v1"), 3))
print("first observation, then:", was.round(3).tolist())
print("the same, three steps on:", first.round(3).tolist())
assert first is last and not np.array_equal(first, was), "it behaves otherwise now"
game = supersuit.frame_stack_v1(Two(), 3)
begun, _ = game.reset()
was = {agent: value.copy() for agent, value in begun.items()}
later = game.step({"a": 0, "b": 0})[0]
changed = {agent: begun[agent] is later[agent] and not np.array_equal(begun[agent], was[agent]) for agent in begun}
print("changed for the agents of a ParallelEnv:", changed)
assert all(changed.values()), "it behaves otherwise now"
PYTHON
