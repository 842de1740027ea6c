"""The example of policy gradient: it learns, and learns the same wherever its trials run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium
import numpy as np
import pytest

import trio_cogment.rl as tc

PATH = Path(__file__).resolve().parents[2] / "examples" / "cartpole" / "policy_gradient.py"


@pytest.fixture(name="example")
def _example() -> Any:
    spec = importlib.util.spec_from_file_location("policy_gradient", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remembers all that the environment says, bit by bit."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.said: list[Any] = []

    def reset(self, **arguments: Any) -> Any:
        observation, info = super().reset(**arguments)
        self.said.append((observation.tobytes(), info))
        return observation, info

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        self.said.append((action, observation.tobytes(), float(reward).hex(), *rest))
        return observation, reward, *rest


def trajectories(example: Any, env: Any, episodes: int, seed: int = 1) -> list[Any]:
    with env:
        recorded = Recorded(env)
        example.learn(recorded, seed, episodes)
    return recorded.said


@contextmanager
def over_grpc(example: Any) -> Iterator[Any]:
    """Give what makes the environment of `--grpc`; the processes end with the block."""
    with (
        example.server("services", "orchestrator", "--lifecycle_port=0", "--actor_port=0") as orchestrator,
        example.server("rl", "serve", "CartPole-v1", "--port=0") as environment,
    ):
        yield lambda: tc.make(environment, orchestrator=orchestrator)


def test_trajectories_are_those_of_the_bare_environment(example: Any) -> None:
    bare = trajectories(example, gymnasium.make("CartPole-v1"), 12)
    assert len(bare) > 150
    assert trajectories(example, tc.make("CartPole-v1"), 12) == bare
    assert trajectories(example, tc.make("CartPole-v1"), 12, seed=2) != bare


def test_trajectories_over_grpc_are_equal(example: Any) -> None:
    here = trajectories(example, tc.make("CartPole-v1"), 8)
    with over_grpc(example) as make:
        assert trajectories(example, make(), 8) == here


@pytest.mark.soak
def test_long_trajectories_over_grpc_are_equal(example: Any) -> None:
    here = trajectories(example, tc.make("CartPole-v1"), 120)
    with over_grpc(example) as make:
        assert trajectories(example, make(), 120) == here


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_learns(example: Any, seed: int) -> None:
    began = perf_counter()
    returns = example.train(seed)
    assert perf_counter() - began <= 60, "seconds, on a machine that does nothing else"
    assert np.mean(returns[:50]) <= 40
    assert np.mean(returns[-50:]) >= 150
