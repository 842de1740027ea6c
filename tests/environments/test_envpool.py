"""Environments of EnvPool: a small package stands for it here, whose pools take their seed when they are made."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.environments.making import make_environment


class Pool:
    """Draws its observations; an episode ends after three steps, by a limit. Its arrays are used again."""

    def __init__(self, seed: int, sides: int = 100) -> None:
        self.observation_space = gymnasium.spaces.Box(0, sides, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.config = {"max_num_players": 1, "seed": seed}
        self.generator = np.random.default_rng(seed)
        self.seen = np.zeros((1, 2), np.float32)
        self.count = 0
        self.closed = False

    def reset(self) -> Any:
        self.count = 0
        return self._seen()

    def _seen(self) -> Any:
        self.seen[:] = self.generator.integers(0, 100, (1, 2))
        ids = np.zeros(1, np.int32)
        return self.seen, {"env_id": ids, "players": {"env_id": ids}, "elapsed_step": np.array([self.count], np.int32)}

    def step(self, action: Any) -> Any:
        assert action.shape == (1,)
        self.count += 1
        value, info = self._seen()
        return value, np.ones(1, np.float32), np.zeros(1, bool), np.array([self.count == 3]), info

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("envpool")

    def make(task: str, *, env_type: str, num_envs: int, seed: int, **arguments: Any) -> Pool:
        assert (env_type, num_envs) == ("gymnasium", 1)
        return Pool(seed, **arguments)

    vars(package).update(make=make, list_all_envs=lambda: ["Draw-v1"])
    monkeypatch.setitem(sys.modules, "envpool", package)


def played(env: Any, seed: int | None) -> list[Any]:
    told = [env.reset(seed, None)["player_0"]]
    while not env.over:
        told.append(env.step({"player_0": 1})["player_0"])
    return told


def values(told: list[Any]) -> list[list[float]]:
    return [one.value.tolist() for one in told]


def test_a_seed_is_an_episode_and_no_two_pools_play_the_same() -> None:
    env: Any = make_environment("envpool/Draw-v1")
    other: Any = make_environment("envpool/Draw-v1")
    first = played(env, 5)
    pool = env.pool
    assert values(played(other, 5)) == values(first)
    assert values(played(env, None)) != values(first), "without a seed the pool goes on"
    assert env.pool is pool
    assert values(played(env, 5)) == values(first), "arrays that the pool uses again are copied"
    assert pool.closed
    assert (first[-1].terminated, first[-1].truncated, first[-1].reward) == (False, True, 1.0)
    assert first[-1].info == {"elapsed_step": 3}
    unseeded: list[Any] = [make_environment("envpool/Draw-v1") for _ in range(2)]
    assert values(played(unseeded[0], None)) != values(played(unseeded[1], None))


@pytest.mark.parametrize(
    ("name", "arguments", "error", "text"),
    [
        ("Drw-v1", {}, NotFoundError, "did you mean 'Draw-v1'"),
        ("Draw-v1", {"num_envs": 3}, InvalidArgumentError, "num_envs: expected none: each trial has a pool of one"),
        ("Draw-v1", {"colour": 3}, InvalidArgumentError, "unexpected keyword argument 'colour'"),
    ],
)
def test_what_cannot_be_made(name: str, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make_environment(f"envpool/{name}", **arguments)


def test_options_and_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="options: expected none"):
        make_environment("envpool/Draw-v1").reset(1, {"lives": 2})
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingExtraError, match="envpool is not installed: pip install envpool"):
        make_environment("envpool/Draw-v1")
