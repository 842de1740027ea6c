"""TorchRL's own check of specs and rollouts, on trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import trio_cogment.rl as tc

pytestmark = pytest.mark.rl_peers


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_gym_wrapper(name: str) -> None:
    from torchrl.envs import GymWrapper
    from torchrl.envs.utils import check_env_specs

    env = GymWrapper(tc.make(name))
    try:
        check_env_specs(env)
    finally:
        env.close()


def test_choices_are_one_hot_unless_they_are_asked_for_as_numbers() -> None:
    from torchrl.envs import GymWrapper

    shapes = []
    for options in ({}, {"categorical_action_encoding": True}):
        env = GymWrapper(tc.make("CartPole-v1"), **options)
        shapes.append(tuple(env.action_spec.shape))
        env.close()
    assert shapes == [(2,), ()]


def test_gym_wrapper_seeds() -> None:
    """Rollouts with equal seeds and actions are those of the bare environment."""
    import gymnasium
    import torch
    from torchrl.envs import GymWrapper

    rollouts = []
    for made in (gymnasium.make("CartPole-v1"), tc.make("CartPole-v1")):
        env = GymWrapper(made)
        env.set_seed(3)
        torch.manual_seed(3)
        rollouts.append(env.rollout(60))
        env.close()
    bare, ours = rollouts
    assert len(bare) == len(ours) > 5
    assert torch.equal(bare["next", "observation"], ours["next", "observation"])
    assert torch.equal(bare["next", "reward"], ours["next", "reward"])


@pytest.mark.filterwarnings("ignore:PettingZoo in TorchRL is tested using:UserWarning")
def test_pettingzoo_wrapper() -> None:
    from torchrl.envs import PettingZooWrapper
    from torchrl.envs.utils import check_env_specs

    env = PettingZooWrapper(tc.make_parallel("rps_v2"), use_mask=False)
    try:
        check_env_specs(env)
        assert env.group_map == {"player": ["player_0", "player_1"]}
    finally:
        env.close()


class Elimination(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Five steps; one of two agents is out after the second."""

    def __init__(self) -> None:
        self.metadata = {"name": "elimination_v0"}
        self.render_mode = None
        self.possible_agents = ["a_0", "b_0"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-9, 9, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents, self.steps = list(self.possible_agents), 0
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.steps += 1
        here = list(self.agents)
        out = {agent: self.steps == (2 if agent == "a_0" else 5) for agent in here}
        self.agents = [agent for agent in here if not out[agent]]
        seen = {agent: np.full(1, self.steps, np.float32) for agent in here}
        return seen, dict.fromkeys(here, 1.0), out, dict.fromkeys(here, False), {agent: {} for agent in here}


@pytest.mark.filterwarnings("ignore:PettingZoo in TorchRL is tested using:UserWarning")
def test_pettingzoo_wrapper_to_the_end_of_all() -> None:
    """By default it ends with the first who is out: docs/peers.md."""
    from torchrl.envs import PettingZooWrapper

    for options, steps in (({}, 2), ({"done_on_any": False}, 5)):
        env = PettingZooWrapper(tc.make_parallel(Elimination), use_mask=True, **options)
        assert len(env.rollout(10)) == steps
        env.close()
