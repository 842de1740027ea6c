"""Seats of functions, in trials."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import trio
from trio.testing import MockClock

from tests.seats.games import NAME, STEPS, Duel, play, playing
from trio_cogment import rl
from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError
from trio_cogment.spaces import Box, Discrete, Observation


async def test_random_keeps_to_the_mask_and_to_the_turns(autojump_clock: MockClock) -> None:
    game, seats = Duel(), {"player_0": rl.random(1), "player_1": rl.random(2)}
    async with playing(game, seats) as platform:
        await play(platform, seats)
    (taken,) = game.taken
    assert {agent: len(actions) for agent, actions in taken.items()} == STEPS
    for actions in taken.values():
        assert all(action == 1 or (action == 3 and step % 2 == 1) for step, action in enumerate(actions))
    turns = Duel(turns=True)
    async with playing(turns, seats) as platform:
        await play(platform, seats)
    assert {agent: len(actions) for agent, actions in turns.taken[0].items()} == {"player_0": 2, "player_1": 2}


async def drawn(seed: int | None, *reseeds: int | None, same: bool = False) -> list[dict[str, Any]]:
    """Play one trial after each reseeding (None: without one); return what was drawn."""
    game = Duel(masks=False, action_space=Discrete(1000))
    one = rl.random(seed)
    seats: dict[str, rl.Seat] = {"player_0": one, "player_1": one if same else rl.policy(lambda _: 0)}
    async with playing(game, seats) as platform:
        for reseed in reseeds:
            if reseed is not None:
                for seat in seats.values():
                    seat.reseed(reseed)
            await play(platform, seats)
    return game.taken


async def test_random_draws_go_on_and_begin_anew_when_reseeded(autojump_clock: MockClock) -> None:
    first = await drawn(5, None, None)
    assert first == await drawn(5, None, None) != await drawn(6, None, None)
    assert first[0] != first[1]
    assert await drawn(None, None) != await drawn(None, None)
    again = await drawn(5, 7, None, 7, 8)
    assert again[0] == again[2] != again[3]
    assert again[0] != again[1]
    assert (await drawn(5, 7))[0] == again[0] != first[0]
    assert (await drawn(6, 7))[0] != again[0]
    assert await drawn(None, 7) == await drawn(None, 7)


async def test_one_random_seat_draws_differently_for_two_agents(autojump_clock: MockClock) -> None:
    (taken,) = await drawn(5, None, same=True)
    assert taken["player_0"] != taken["player_1"][:3]


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_seeds_that_are_none(seed: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="seed: expected an integer that is not negative"):
        rl.random(seed)


async def test_policies(autojump_clock: MockClock) -> None:
    """A sync function of the value, and an async one that takes the observation, too."""
    seen: list[Observation] = []

    async def careful(value: Any, observation: Observation) -> Any:
        await trio.sleep(3600)
        seen.append(observation)
        assert value == observation.value
        return np.flatnonzero(observation.action_mask)[-1]

    game, seats = Duel(), {"player_0": rl.policy(lambda value: int(value) % 3), "player_1": rl.policy(careful)}
    async with playing(game, seats) as platform:
        await play(platform, seats)
    assert game.taken == [{"player_0": [0, 1, 2], "player_1": [1, 3, 1, 3, 1]}]
    assert [observation.reward for observation in seen] == [None, 1, 3, 1, 3]
    assert {observation.action_space for observation in seen} == {Discrete(4)}
    assert {observation.observation_space for observation in seen} == {Discrete(100)}


class Counting:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, value: Any, bonus: int = 0) -> int:
        self.count += 1
        return self.count % 4 + bonus


class Resetting(Counting):
    def reset(self) -> None:
        self.count = 0


class Patient(Counting):
    async def __call__(self, value: Any, bonus: int = 0) -> int:  # type: ignore[override]  # awaited by who asks
        await trio.lowlevel.checkpoint()
        return super().__call__(value, bonus)


@pytest.mark.parametrize(
    ("function", "second"),
    [(Patient, [1, 2, 3]), (Counting, [1, 2, 3]), (Resetting(), [1, 2, 3]), (Counting(), [0, 1, 2])],
)
async def test_policies_with_state(function: Any, second: list[int], autojump_clock: MockClock) -> None:
    """An object is told of each trial's begin; of a class each trial has an object."""
    game, seats = Duel(), {"player_0": rl.policy(function), "player_1": rl.random()}
    async with playing(game, seats) as platform:
        await play(platform, seats)
        await play(platform, seats)
    assert [taken["player_0"] for taken in game.taken] == [[1, 2, 3], second]


async def test_a_policy_is_async_always_or_never(autojump_clock: MockClock, quiet: None) -> None:
    async def later() -> int:
        await trio.lowlevel.checkpoint()
        return 1

    seats = {"player_0": rl.random(), "player_1": rl.policy(lambda value: later() if value == 2 else 1)}
    async with playing(Duel(), seats) as platform:
        outcome = await play(platform, seats, check=False)
    assert "actor 'player_1': action: expected one at once, as before, got coroutine" in str(outcome)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (7, "action: expected 0 to 3, got 7"),
        (None, "action: expected an integer, got NoneType"),
        (np.zeros(2), "action: expected an integer, got an array"),
    ],
)
async def test_an_action_that_is_none_ends_its_trial_alone(
    autojump_clock: MockClock, quiet: None, answer: Any, text: str
) -> None:
    answers = [answer, 1]
    seats = {"player_0": rl.random(), "player_1": rl.policy(lambda _: answers[0])}
    async with playing(Duel(), seats) as platform:
        outcome = await play(platform, seats, check=False)
        assert outcome.failed
        assert f"environment '{NAME}', actor 'player_1': {text}" in str(outcome)
        del answers[0]
        await play(platform, seats)


async def test_an_optional_seat_that_fails_is_replaced_by_its_default(autojump_clock: MockClock, quiet: None) -> None:
    def fail(value: Any) -> int:
        if value == 1:
            raise ValueError("no idea")
        return 2

    game = Duel()
    seats = {"player_0": rl.random(), "player_1": rl.policy(fail, optional=True, default=3)}
    async with playing(game, seats) as platform:
        await play(platform, seats)
    assert game.taken[0]["player_1"] == [2, 3, 3, 3, 3]


async def test_a_policy_that_takes_too_long_is_lost(autojump_clock: MockClock, quiet: None) -> None:
    async def sleeps(_: Any) -> int:
        await trio.sleep(10)
        return 1

    seats = {"player_0": rl.random(), "player_1": rl.policy(sleeps, response_timeout_seconds=5)}
    async with playing(Duel(), seats) as platform:
        assert (await play(platform, seats, check=False)).failed


def test_what_is_no_policy() -> None:
    with pytest.raises(InvalidArgumentError, match="policy: expected a function of the observation, got 3"):
        rl.policy(3)
    with pytest.raises(InvalidArgumentError, match="default: expected the action that an optional seat takes"):
        rl.policy(abs, optional=True)
    with pytest.raises(InvalidArgumentError, match="response_timeout_seconds: expected seconds"):
        rl.policy(abs, response_timeout_seconds=-1)


def test_a_default_action_has_to_be_in_the_action_space() -> None:
    seat = rl.policy(abs, optional=True, default=9)
    assert seat.actor_params("player_1", environment=NAME).HasField("default_action")
    with pytest.raises(rl.SeatError, match="environment 'duel', actor 'player_1': default: expected 0 to 3, got 9"):
        seat.actor_params("player_1", environment=NAME, action_space=Discrete(4))


async def test_a_mask_that_is_none_of_the_space(autojump_clock: MockClock, quiet: None) -> None:
    seats = {"player_0": rl.random(), "player_1": rl.random()}
    async with playing(Duel(action_space=Box(0, 1, (2,))), seats) as platform:
        outcome = await play(platform, seats, check=False)
    assert "action_mask: expected no mask for a space Box, which has none" in str(outcome)


def test_without_numpy_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['numpy'] = None; from trio_cogment.rl import random"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert f"MissingExtraError: {MissingExtraError.of('numpy', 'arrays')}" in done.stderr
