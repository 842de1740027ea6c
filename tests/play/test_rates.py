"""People in trials whose ticks end by the clock."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.play.pages import Counting, page, params
from tests.play.test_server import game, seats_of, server_of
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.games import Game
from trio_cogment.seats.presence import Outcome, SeatRules


def at_rate(hz: float, *, observe_every: int = 0, hold_action: bool = False) -> Game:
    made = params("ann")
    made.environment.tick_hz = hz
    made.actors[0].observe_every, made.actors[0].hold_action = observe_every, hold_action
    return game("ann", params=made, seat=SeatRules(outcome=Outcome.DEFAULT, action_seconds=1))


async def test_who_does_not_act_in_time_acts_by_default(autojump_clock: MockClock) -> None:
    environment = Counting(4)
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, at_rate(0.5))
        async with page(seat.serve_page) as socket:
            seen = await socket.read_until(lambda message: message.get("asked") is not None)
            assert (socket.welcome["tick_hz"], socket.welcome["observe_every"]) == (0.5, 1)
            left = seen["seconds"]
            assert left is not None
            assert left <= 2
            began = trio.current_time()
            await socket.say(type="act", tick=seen["asked"], action={"value": 4})
            following = await socket.read_until(lambda message: (message.get("asked") or 0) > seen["asked"])
            assert trio.current_time() - began == pytest.approx(left), "the tick ends at its time"
            passed = await socket.read_until(lambda message: (message.get("asked") or 0) > following["asked"])
            await socket.say(type="act", tick=following["asked"], action={"value": 5})
            assert (await socket.read_until(lambda message: message["type"] == "late"))["tick"] == following["asked"]
            await socket.say(type="act", tick=passed["asked"], action={"value": 6})
            await socket.read_until(lambda message: message["type"] == "dismissed")
    acted = [value for [value] in environment.actions]
    assert [acted[tick["asked"]] for tick in (seen, following, passed)] == [4, 9, 6]


async def test_in_short_ticks_people_steer(autojump_clock: MockClock) -> None:
    """What they do counts from the tick in which it arrives."""
    environment = Counting(40)
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, at_rate(20, hold_action=True))
        async with page(seat.serve_page) as socket:
            seen = await socket.read_until(lambda message: message.get("asked") is not None)
            assert seen["seconds"] is None, "nobody can read how much is left of 50 ms"
            await trio.sleep(0.23)  # the network, and the person
            await socket.say(type="act", tick=seen["asked"], action={"value": 4})
            await socket.read_until(lambda message: message["type"] == "dismissed")
    acted = [value for [value] in environment.actions]
    first = acted.index(4)
    assert seen["asked"] + 4 <= first <= seen["asked"] + 6
    assert acted == [9] * first + [4] * (40 - first)


async def test_what_was_seen_long_ago_is_not_steered_by(autojump_clock: MockClock) -> None:
    environment = Counting(60)
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, at_rate(20))
        async with page(seat.serve_page) as socket:
            seen = await socket.read_until(lambda message: message.get("asked") is not None)
            await trio.sleep(1.5)
            await socket.say(type="act", tick=seen["asked"], action={"value": 4})
            assert (await socket.read_until(lambda message: message["type"] == "late"))["tick"] == seen["asked"]
            await socket.read_until(lambda message: message["type"] == "dismissed")
    assert environment.actions == [[9]] * 60


async def test_people_are_shown_every_nth_tick(autojump_clock: MockClock) -> None:
    environment = Counting(60)
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, at_rate(20, observe_every=30))
        async with page(seat.serve_page) as socket:
            seen = await socket.read_until(lambda message: message.get("asked") == 30)
            assert seen["seconds"] is not None
            assert seen["seconds"] == pytest.approx(1.5)
            await trio.sleep(1)
            await socket.say(type="act", tick=30, action={"value": 4})
            await socket.read_until(lambda message: message["type"] == "dismissed")
    acted = [value for [value] in environment.actions]
    assert acted == [9] * 50 + [4] * 10


def test_people_need_a_default_action_there() -> None:
    made = params("ann")
    made.environment.tick_hz = 20
    made.actors[0].ClearField("default_action")
    with pytest.raises(InvalidArgumentError, match=r"actor 'ann': expected a default action, because ticks end by"):
        game("ann", params=made)
