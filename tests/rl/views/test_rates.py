"""Views of trials whose ticks end by the clock, where a step is an ordinary function that waits."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

import trio_cogment.rl as tc
from trio_cogment.base.errors import InvalidArgumentError

#: Nobody waits for so long, unless what is waited for does not come.
PATIENCE_SECONDS = 60.0


class Counter(gymnasium.Env[Any, Any]):
    """Shows how many steps there were; each is worth 1."""

    def __init__(self, steps: int = 1000, tells_at: int = 0) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 10_000, (1,), np.int64)
        self.action_space = gymnasium.spaces.Discrete(9)
        self.actions: list[int] = []
        self.told = threading.Event()
        self._steps, self._tells_at = steps, tells_at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.actions.clear()
        return np.array([0]), {}

    def step(self, action: Any) -> Any:
        self.actions.append(int(action))
        count = len(self.actions)
        if count == self._tells_at:
            self.told.set()
        return np.array([count]), 1.0, count == self._steps, False, {}


def test_the_clock_goes_on_while_nobody_steps() -> None:
    """The next step has the newest observation, and the rewards of all ticks; its own action was late."""
    inner = Counter(tells_at=10)
    view = tc.make(inner, rate=tc.Rate(tick_hz=200, default=3))
    observation, _ = view.reset()
    assert observation[0] == 0
    assert inner.told.wait(PATIENCE_SECONDS)
    observation, reward, *_ = view.step(7)
    count = int(observation[0])
    assert count >= 10
    assert reward == count
    assert inner.actions[:count] == [3] * count, "what answers the first observation is none for a later tick"
    view.close()


def test_an_action_in_time_is_held() -> None:
    inner = Counter(tells_at=15)
    view = tc.make(inner, rate=tc.Rate(tick_hz=20, default=3, hold_action=True))
    view.reset()
    # Sooner or later one is in time, also where the processor is busy.
    for _ in range(200):
        view.step(5)
        if 5 in inner.actions:
            break
    first = inner.actions.index(5)
    assert inner.told.wait(PATIENCE_SECONDS)
    view.step(5)
    taken = list(inner.actions)
    assert taken[:first] == [3] * first
    assert set(taken[first:]) == {5}
    view.close()


def test_the_end_waits_for_a_step() -> None:
    inner = Counter(steps=5, tells_at=5)
    view = tc.make(inner, rate=tc.Rate(tick_hz=200, default=0))
    view.reset()
    assert inner.told.wait(PATIENCE_SECONDS)
    total, ended = 0.0, False
    while not ended:
        observation, reward, ended, _, _ = view.step(1)
        total += reward
    assert observation[0] == total == 5
    view.reset()
    assert view.step(1)[0][0] >= 1
    view.close()


def test_without_a_thread_the_clock_stands_still_between_two_steps() -> None:
    """So nobody is late; the rate is how fast steps are made."""
    inner = Counter()
    view = tc.make(inner, rate=tc.Rate(tick_hz=500, default=0), thread=False)
    view.reset()
    for number in range(1, 6):
        observation, reward, *_ = view.step(number)
        assert (int(observation[0]), reward) == (number, 1.0)
    assert inner.actions == [1, 2, 3, 4, 5]
    view.close()


def test_agents_have_default_actions_of_their_own() -> None:
    view = tc.make_parallel("rps_v2", rate=tc.Rate(tick_hz=500, default={"player_0": 1, "player_1": 2}), thread=False)
    params = view._match._params
    defaults = [actor.default_action.content for actor in params.actors]
    assert params.environment.tick_hz == 500
    assert defaults[0] != defaults[1]
    view.reset()
    view.step({"player_0": 0, "player_1": 0})
    view.close()


def test_other_seats_are_observed_every_nth_tick() -> None:
    shown: list[int] = []

    def slow(value: Any) -> int:
        shown.append(1)
        return 2

    seats = {"player_1": tc.policy(slow).observed(3)}
    view = tc.make_parallel("rps_v2", seats=seats, max_cycles=8)
    view.reset()
    for _ in range(7):
        view.step({"player_0": 0})
    assert len(shown) == 3
    view.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tick_hz": 0, "default": 0}, "rate: tick_hz: expected ticks a second, more than 0"),
        ({"tick_hz": 10, "default": None}, "rate: default: expected the action of an agent that has not acted"),
    ],
)
def test_what_is_no_rate(options: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidArgumentError, match=error):
        tc.Rate(**options)


def test_a_default_that_is_no_action() -> None:
    with pytest.raises(InvalidArgumentError, match="rate: default: "):
        tc.make(Counter(), rate=tc.Rate(tick_hz=10, default=99))
    with pytest.raises(InvalidArgumentError, match="every: expected how manieth tick"):
        tc.random().observed(-1)
