"""Stable-Baselines3 on trials: its checker, PPO with the same returns as on the bare environment, and the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import trio_cogment.rl as tc
from tests.docs.blocks import blocks_of, steps_of
from tests.docs.running import Runner

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rl-stable-baselines.md"

pytestmark = pytest.mark.rl_peers


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
@pytest.mark.filterwarnings("ignore:We recommend you to use a symmetric and normalized Box:UserWarning")
def test_check_env(name: str) -> None:
    """Its warnings are errors, as all are, but for one about Pendulum's own actions."""
    from stable_baselines3.common.env_checker import check_env

    env = tc.make(name)
    try:
        check_env(env)
    finally:
        env.close()


def learned(make: Callable[[], Any], seed: int) -> tuple[list[float], Any]:
    """Return the returns of the episodes in which PPO learns, and what it does afterwards."""
    import numpy as np
    from stable_baselines3 import PPO
    from stable_baselines3.common.monitor import Monitor

    env = Monitor(make())
    try:
        model = PPO("MlpPolicy", env, seed=seed, device="cpu", n_steps=256)
        model.learn(1024)
        probe = np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4)
        return env.get_episode_rewards(), model.predict(probe, deterministic=True)[0].tolist()
    finally:
        env.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_ppo_is_the_same_on_bare_cartpole_and_on_trials(seed: int) -> None:
    bare = learned(lambda: gymnasium.make("CartPole-v1"), seed)
    assert len(bare[0]) > 20
    assert learned(lambda: tc.make("CartPole-v1"), seed) == bare


def test_the_comparison_can_fail() -> None:
    assert learned(lambda: tc.make("CartPole-v1"), 1) != learned(lambda: tc.make("CartPole-v1"), 2)


@pytest.mark.timeout(300)
async def test_the_page(tmp_path: Path) -> None:
    blocks = [replace(block, marks={}) for block in blocks_of(PAGE.name, PAGE.read_text(encoding="utf-8"))]
    assert len(blocks) == 6
    await Runner(tmp_path).run(steps_of(blocks))
