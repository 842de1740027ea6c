"""A training loop in one file runs on trials as it stands, and learns the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

import trio_cogment.rl as tc

pytestmark = pytest.mark.rl_peers

ENVS = 4


def bare() -> Any:
    return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * ENVS)


def trials_one_by_one() -> Any:
    return gymnasium.vector.SyncVectorEnv([lambda: tc.make("CartPole-v1")] * ENVS)


def trials_at_once() -> Any:
    return tc.make_vec("CartPole-v1", num_envs=ENVS)


@pytest.mark.parametrize("make", [trials_one_by_one, trials_at_once])
def test_the_loop_is_the_same_but_for_the_constructor(make: Callable[[], Any]) -> None:
    from tests.rl_peers.ppo import train

    expected, parameters = train(bare, 5)
    assert len(expected) > 20
    found, others = train(make, 5)
    assert found == expected
    assert others.tobytes() == parameters.tobytes()
