"""Steps as Stable-Baselines3 has them, beside a vector environment of Gymnasium that restarts within the step."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import trio_cogment.rl as tc
from tests.rl.views.environments import Counter, Masked
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError
from trio_cogment.rl.views.restarting import RestartingEnvs
from trio_cogment.spaces import SpaceError

NONE = [None] * 3


@pytest.fixture
def counters() -> Iterator[tuple[RestartingEnvs, Any]]:
    vector = tc.make_vec(Counter, 3)
    yield RestartingEnvs(vector.envs), vector
    vector.close()


@pytest.mark.parametrize(
    ("name", "steps"),
    [("CartPole-v1", None), ("Pendulum-v1", 20), ("FrozenLake-v1", None), ("Blackjack-v1", None)],
)
def test_steps_are_those_of_gymnasium_that_restart_within(name: str, steps: int | None) -> None:
    """Blackjack's observations are tuples; FrozenLake's time limit comes with an end, or without."""
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make(name, max_episode_steps=steps)] * 3, autoreset_mode=AutoresetMode.SAME_STEP
    )
    vector = tc.make_vec(name, 3, max_episode_steps=steps)
    ours = RestartingEnvs(vector.envs)
    expected, told = theirs.reset(seed=5)
    assert data_equivalence(ours.reset([5, 6, 7], NONE), expected)
    theirs.action_space.seed(2)
    ended = 0
    for _ in range(100):
        actions = theirs.action_space.sample()
        expected, rewards, terminations, truncations, told = theirs.step(actions)
        ours.send(actions)
        found, own_rewards, dones, infos = ours.receive()
        assert data_equivalence(found, expected)
        assert own_rewards.dtype == np.float32
        assert (own_rewards == rewards.astype(np.float32)).all()
        assert (dones == terminations | truncations).all()
        for number, info in enumerate(infos):
            assert info["TimeLimit.truncated"] == (truncations[number] and not terminations[number])
            assert ("terminal_observation" in info) == dones[number]
            if dones[number]:
                ended += 1
                assert data_equivalence(info["terminal_observation"], told["final_obs"][number])
    assert ended > 3
    theirs.close()
    vector.close()


def test_infos_of_the_end_and_of_the_beginning(counters: tuple[RestartingEnvs, Any]) -> None:
    steps, _ = counters
    steps.reset(NONE, [{"lap": 1}, {}, None])
    assert steps.reset_infos == [{"options": {"lap": 1}}, {"options": {}}, {"options": {}}]
    for _ in range(5):
        steps.send(np.zeros(3, int))
        _, _, dones, infos = steps.receive()
    assert dones.all()
    assert [info["terminal_observation"][0] for info in infos] == [5, 5, 5]
    assert steps.reset_infos == [{"options": {}}] * 3


def test_what_is_returned_belongs_to_the_caller(counters: tuple[RestartingEnvs, Any]) -> None:
    steps, _ = counters
    first = steps.reset(NONE, NONE)
    first[:] = 99
    steps.send(np.zeros(3, int))
    assert steps.receive()[0][:, 0].tolist() == [1, 1, 1]


def test_bad_input(counters: tuple[RestartingEnvs, Any]) -> None:
    steps, vector = counters
    with pytest.raises(FailedPreconditionError, match="expected a reset first"):
        steps.send(np.zeros(3, int))
    with pytest.raises(FailedPreconditionError, match="step_wait: expected step_async first"):
        steps.receive()
    steps.reset(NONE, NONE)
    with pytest.raises(InvalidArgumentError, match="actions: expected 3, got 2"):
        steps.send(np.zeros(2, int))
    with pytest.raises(InvalidActionError, match="action: expected 0 to 2, got 3"):
        steps.send(np.array([0, 0, 3]))
    steps.send(np.zeros(3, int))
    with pytest.raises(FailedPreconditionError, match="step_async: expected step_wait first"):
        steps.send(np.zeros(3, int))
    assert steps.receive()[0][:, 0].tolist() == [1, 1, 1]
    vector.envs[1].environment.spoiled = True
    steps.send(np.zeros(3, int))
    with pytest.raises(InvalidEnvironmentError, match="NaN"):
        steps.receive()
    vector.envs[1].environment.spoiled = False
    steps.reset(NONE, NONE)
    steps.send(np.zeros(3, int))
    assert steps.receive()[0][:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", Masked.KINDS)
def test_masks_of_every_step(kind: str) -> None:
    view, vector = tc.make(Masked, kind=kind), tc.make_vec(Masked, 2, kind=kind)
    view.reset()
    action = {"Discrete": 1, "MultiDiscrete": np.array([0, 1]), "MultiBinary": np.array([0, 1, 1], np.int8)}[kind]
    for _ in range(3):
        found = view.action_masks()
        assert found.dtype == np.bool_
        assert found.tolist() == view.environment.row
        view.step(action)
    vector.reset()
    assert np.stack(vector.call("action_masks")).tolist() == [view.environment.row] * 2
    view.close()
    vector.close()


def test_masks_change_and_may_be_missing() -> None:
    env, free = Masked(), tc.make("CartPole-v1")
    view = tc.make(env)
    view.reset()
    env.mask = np.array([1, 0, 0, 0], np.int8)
    with pytest.raises(tc.EpisodeFailedError, match="is not allowed"):
        view.step(1)
    view.reset()
    assert view.action_masks().tolist() == [True, False, False, False]
    free.reset()
    assert free.action_masks().tolist() == [True, True]
    view.close()
    free.close()
    real = tc.make("Pendulum-v1")
    with pytest.raises(SpaceError, match="expected a space Discrete, MultiDiscrete or MultiBinary, got Box"):
        real.action_masks()
    real.close()


@pytest.mark.skipif(importlib.util.find_spec("stable_baselines3") is not None, reason="Stable-Baselines3 is there")
def test_without_stable_baselines3() -> None:
    with pytest.raises(MissingExtraError, match="stable_baselines3 is not installed: pip install stable-baselines3"):
        tc.SB3VecEnv  # noqa: B018  the name is resolved now
