"""TorchRL's own check of specs and rollouts, on trials."""

from __future__ import annotations

import pytest

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
