"""Runs whose environments are those of the field: made here, wherever they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import trio_cogment.rl as tc
from tests.environments._games import Rps
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.platform import open_platform


def played(seed: int, options: dict[str, Any] | None = None) -> tuple[float, int]:
    """Play CartPole without trials, always to the right; return the return and the number of steps."""
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=seed, options=options)
    total, steps, over = 0.0, 0, False
    while not over:
        _, reward, terminated, truncated, _ = env.step(1)
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    return total, steps


SEATS: dict[str, Any] = {"player_0": tc.policy(lambda _value: 1)}


@pytest.mark.parametrize("hosting", ["inline", "thread"])
async def test_an_id(hosting: str) -> None:
    results = await tc.run_trials_async(6, environment="CartPole-v1", seats=SEATS, seeds=3, parallel=3, hosting=hosting)
    expected = [played(seed) for seed in range(3, 9)]
    assert results.returns_of("player_0").tolist() == [total for total, _ in expected]
    assert (results.ticks - 1).tolist() == [steps for _, steps in expected]
    assert results.terminated.all()


@pytest.mark.parametrize(
    "environment", [lambda: gymnasium.make("CartPole-v1"), lambda **kwargs: gymnasium.make("CartPole-v1", **kwargs)]
)
async def test_a_function(environment: Callable[..., Any]) -> None:
    results = await tc.run_trials_async(2, environment=environment, seats=SEATS, seeds=[4, 4])
    assert results.returns_of("player_0").tolist() == [played(4)[0]] * 2


async def test_an_environment_that_is_made_already() -> None:
    env = gymnasium.make("CartPole-v1")
    results = await tc.run_trials_async(2, environment=env, seats=SEATS, seeds=4)
    assert results.returns_of("player_0").tolist() == [played(4)[0], played(5)[0]]


async def test_arguments_and_options() -> None:
    results = await tc.run_trials_async(
        2,
        environment="FrozenLake-v1",
        arguments={"is_slippery": False},
        seats={"player_0": tc.policy(_walk())},
    )
    assert results.returns_of("player_0").tolist() == [1.0, 1.0]
    options = {"low": -0.2, "high": -0.19}
    low = await tc.run_trials_async(3, environment="CartPole-v1", options=options, seats=SEATS, seeds=0)
    assert (low.ticks - 1).tolist() == [played(seed, options)[1] for seed in range(3)]
    assert played(0, options) != played(0)


def _walk() -> Callable[[Any], int]:
    """The way over the frozen lake, by the square that one stands on."""
    way = {0: 2, 1: 2, 2: 1, 6: 1, 10: 1, 14: 2}
    return lambda square: way[int(square)]


async def test_rewards_in_double_precision() -> None:
    async with open_platform(tc.RL_SPEC, store="memory:") as platform:
        seats: dict[str, Any] = {"player_0": tc.policy(lambda _value: np.zeros(1, np.float32))}
        results = await tc.run_trials_async(
            1, on=platform, environment="Pendulum-v1", seats=seats, seeds=2, max_steps=20
        )
    env = gymnasium.make("Pendulum-v1")
    env.reset(seed=2)
    rewards = [float(env.step(np.zeros(1, np.float32))[1]) for _ in range(int(results.ticks[0]) - 1)]
    assert results.truncated.all()
    assert results.returns_of("player_0").tolist() == [sum(rewards)]
    assert sum(np.array(rewards, np.float32).tolist()) != sum(rewards), "a sum of the wire's rewards is another one"


async def test_several_agents() -> None:
    seats: dict[str, Any] = {"player_0": tc.policy(lambda _value: 1), "player_1": tc.random(seed=1)}
    results = await tc.run_trials_async(5, environment=Rps, seats=seats, seeds=1, parallel=2)
    assert results.actors == ("player_0", "player_1")
    assert not results.failures
    assert results.ticks.tolist() == [4] * 5
    assert (results.returns.sum(axis=1) == 0).all()
    assert set(results.returns_of("player_0")) > {0.0}


async def test_the_result_of_a_seed_depends_on_that_only() -> None:
    async def returns(n: int, seeds: Any, parallel: int) -> dict[Any, Any]:
        # One object for both: no agent draws from the other's part, either.
        both = tc.random(seed=1)
        seats = {"player_0": both, "player_1": both}
        results = await tc.run_trials_async(
            n, environment="rps_v2", seats=seats, seeds=seeds, parallel=parallel, check=True
        )
        return {result.seed: dict(result.returns) for result in results.trials}

    together = await returns(20, 100, 4)
    assert len({each["player_0"] for each in together.values()}) > 2
    assert await returns(20, range(119, 99, -1), 7) == together
    assert await returns(1, [111], 1) == {111: together[111]}


class Explorer:
    """Draws by the seed that it gets for its trial."""

    def reset(self, seed: int | None = None) -> None:
        self.seed = seed
        self._rng = np.random.default_rng(seed)

    def __call__(self, _observation: Any) -> int:
        return int(self._rng.integers(3))


async def test_a_policy_that_draws_by_the_seed_of_its_trial() -> None:
    """At one site or two, alone or beside others, in whatever order."""
    seats = {"player_0": tc.policy(Explorer), "player_1": tc.policy(Explorer)}
    every: dict[str, Any] = {"environment": Rps, "seats": seats}
    expected = await tc.run_trials_async(12, **every, seeds=range(12), parallel=1)
    async with open_platform(tc.RL_SPEC) as one, open_platform(tc.RL_SPEC) as two:
        for seeds in (range(12), range(11, -1, -1)):
            results = await tc.run_trials_async(12, on=[one, two], **every, seeds=seeds, parallel=5)
            assert not results.failures
            assert (results.returns[np.argsort(results.seeds)] == expected.returns).all()
    assert (expected.returns != 0).any(), "the two of them draw otherwise"
    again = await tc.run_trials_async(12, **every)
    assert not again.failures, "without seeds they draw as they like"


async def test_everybody_needs_a_seat() -> None:
    with pytest.raises(InvalidArgumentError, match="seats: expected one for each actor, none for 'player_0'"):
        await tc.run_trials_async(1, environment="CartPole-v1")
    with pytest.raises(NotFoundError, match="Nothing-v0"):
        await tc.run_trials_async(1, environment="Nothing-v0", seats=SEATS)


@pytest.mark.usefixtures("quiet")
async def test_a_run_of_an_environment_that_breaks() -> None:
    """It costs its trial; the next one gets a new environment."""

    class Brittle(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            if seed == 1:
                raise RuntimeError("out of order")
            return super().reset(seed=seed, options=options)

    results = await tc.run_trials_async(
        3, environment=lambda: Brittle(gymnasium.make("CartPole-v1")), seats=SEATS, seeds=0
    )
    assert [failure.seed for failure in results.failures] == [1]
    assert "out of order" in results.failures[0].error
