"""Seats and lobbies in running trials: pages without a browser, on a clock of the tests."""

from __future__ import annotations

import gc
import json
import logging
import math
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import Int64Value
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.play.pages import SPEC, Counting, Socket, page, params, platform_of, seven
from trio_cogment import open_platform
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError
from trio_cogment.dashboard._views import sample_row
from trio_cogment.platform import Platform
from trio_cogment.play.games import Game
from trio_cogment.play.lobby import Lobby
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.play.lobby_table import MemberState
from trio_cogment.play.seat import PageSeat
from trio_cogment.play.server import PlayServer, open_play
from trio_cogment.play.views import View
from trio_cogment.rl.datasets.ticks import tick_of
from trio_cogment.sdk import ActorSession, EnvironmentSession
from trio_cogment.seats.presence import Outcome, PresenceState, SeatRules


def game(*people: str, **options: Any) -> Game:
    options.setdefault("lobby", LobbyRules(seats=len(people)))
    options.setdefault("params", params(*people))
    return Game(**{"name": "counting", "bot": "seven", **options})


@asynccontextmanager
async def server_of(
    environment: Counting, *games: Game, config: PlayConfig | None = None
) -> AsyncIterator[tuple[Platform, PlayServer]]:
    # Virtual time: a test that waits for what does not come fails at once.
    with trio.fail_after(100_000):
        async with platform_of(environment) as platform, open_play(platform, games, config=config) as server:
            server.link_of = lambda trial_id, actor, _sources: f"/{trial_id}/{actor}"
            yield platform, server


async def seats_of(server: PlayServer, played: Game) -> list[PageSeat]:
    links, _ = await server.start(played, len(played.people()), False)
    return [server.seat(*link(())[1:].split("/")) for link in links]


async def act(socket: Socket, number: int = 1) -> dict[str, Any]:
    """Act as soon as the page is asked; return what it saw."""
    while (asked := socket.state.get("asked")) is None or asked <= socket.acted:
        await socket.read()
    socket.acted = asked
    await socket.say(type="act", tick=asked, action={"value": str(number)})
    return socket.state


async def test_a_person_plays_a_trial(autojump_clock: MockClock) -> None:
    environment, played = Counting(3), game("ann")
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, played)
        async with page(seat.serve_page) as socket:
            first = await act(socket)
            assert socket.welcome["actor"] == "ann"
            assert socket.welcome["receivers"] == ["env"]
            assert first["parts"] == [{"name": "", "kind": "text", "text": "tick 0"}]
            assert [each["name"] for each in socket.form["fields"]] == ["value"]
            second = await act(socket, 2)
            assert "form" not in second  # it is the same
            await act(socket, 3)
            last = await socket.read_until(lambda message: message.get("over"))
            assert last["over"]["cause"] == "environment"
            assert last["parts"][0]["text"] == "tick 3"
            assert (await socket.read())["reason"] == "over"
        async with page(seat.serve_page) as socket:  # who looks again
            assert (await socket.read())["over"]
    assert environment.actions == [[1], [2], [3]]


@pytest.mark.parametrize("there", [True, False])
async def test_a_seat_can_be_given_up_for_somebody(there: bool, autojump_clock: MockClock) -> None:
    """As by its page, and without waiting for one that is gone."""
    async with server_of(Counting(10**6)) as (_, server):
        [seat] = await seats_of(server, game("ann", seat=SeatRules(outcome=Outcome.LOSS, grace_seconds=1000)))
        async with page(seat.serve_page) as socket:
            await act(socket)
            if there:
                seat.resign()
                told = await socket.read_until(lambda message: message["type"] == "dismissed")
                assert told["reason"] == "left"
        if not there:
            await trio.testing.wait_all_tasks_blocked()
            assert seat.state is PresenceState.AWAY
            seat.resign()
        assert seat.state is PresenceState.LEFT


async def test_a_seat_that_there_is_not_is_not_waited_for_where_no_trial_goes_on(autojump_clock: MockClock) -> None:
    async with server_of(Counting()) as (_, server):
        before = trio.current_time()
        with pytest.raises(NotFoundError, match="there is no such seat"):
            await server.seat_in_time("counting-1", "ann")
        assert trio.current_time() == before


@pytest.fixture
def resuming(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str, TrialParams], None]]:
    """A platform that goes on with trials; what is told of them."""
    told: list[Callable[[str, TrialParams], None]] = []
    monkeypatch.setattr(Platform, "resumes", property(lambda _: True))
    monkeypatch.setattr(Platform, "on_resumed", lambda _, tell: told.append(tell))
    return told


async def test_trials_that_may_go_on_have_their_game_and_a_seed(resuming: list[Any], autojump_clock: MockClock) -> None:
    seeds: list[int] = []

    def with_seed(params: TrialParams, seed: int) -> None:
        seeds.append(seed)
        params.properties["seed"] = str(seed)

    async with server_of(Counting()) as (platform, server):
        for _ in range(2):
            [seat] = await seats_of(server, game("ann", with_seed=with_seed))
            [info] = await platform.controller.trial_infos([seat.trial_id])
            assert info.properties["seed"] == str(seeds[-1])
            assert "counting" in info.properties.values()
    assert len(set(seeds)) == 2


async def test_people_come_back_to_a_trial_that_goes_on(
    resuming: list[Callable[[str, TrialParams], None]], autojump_clock: MockClock
) -> None:
    """By the links that they have; without them it ends in the end."""
    environment, played = Counting(10**6), game("ann")
    async with server_of(environment, played) as (platform, server):
        [seat] = await seats_of(server, played)
        [info] = await platform.controller.trial_infos([seat.trial_id])
        await platform.controller.terminate_trial(seat.trial_id, hard=True)
        [tell] = resuming
        tell("another", params("ann"))  # of no game here
        with pytest.raises(UnavailableError, match="the game will be back in a moment"):
            await server.seat_in_time("another", "ann")
        going_on = params("ann")
        going_on.properties.update(info.properties)
        trial_id = await platform.controller.start_trial(params=going_on)
        found: list[PageSeat] = []

        async def come_back() -> None:
            found.append(await server.seat_in_time(trial_id, "ann"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_back)
            await trio.testing.wait_all_tasks_blocked()
            before = trio.current_time()
            tell(trial_id, going_on)
        assert trio.current_time() == before
        async with page(found[0].serve_page) as socket:
            await act(socket)
            await act(socket)
        with trio.fail_after(10_000):
            await platform.controller.wait_trial_state(trial_id)


async def test_seats_are_counted_by_who_is_there(autojump_clock: MockClock) -> None:
    async with server_of(Counting(1)) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        assert server.figures()["seats"] == {"open": 1, "held": 0, "away": 0, "absent": 0, "left": 0}
        async with page(seat.serve_page) as socket:
            await socket.read()
            assert server.figures()["seats"]["held"] == 1
            await act(socket)
            await socket.read_until(lambda message: message.get("over"))
        assert not any(server.figures()["seats"].values())


async def test_a_page_is_greeted_with_all_that_it_shows_besides_observations(autojump_clock: MockClock) -> None:
    rules = SeatRules(outcome=Outcome.DEFAULT, grace_seconds=20, action_seconds=8)
    played = game("ann", "bob", seat=rules, title="Count", labels=["up"], again=True, renderer=b"<p>")
    async with server_of(Counting(5)) as (_, server):
        ann, bob = await seats_of(server, played)
        assert server.renderer(ann.trial_id) == b"<p>"
        assert server.renderer("other") == b""
        async with page(ann.serve_page) as socket, page(bob.serve_page) as other:
            seen = await socket.read_until(lambda message: message.get("asked") is not None)
            assert (seen["type"], seen["state"], seen["tick"], seen["asked"], seen["seconds"]) == (
                "seat",
                "held",
                0,
                0,
                8,
            )
            assert "over" not in seen
            assert socket.welcome == {
                "trial": ann.trial_id,
                "actor": "ann",
                "title": "Count",
                "receivers": ["bob", "env"],
                "renderer": True,
                "again": True,
                "total": 0.0,
                "grace": 20,
                "history": [],
            }
            await other.read_until(lambda message: message.get("asked") is not None)
            await other.say(type="message", to="ann", text="hello")
            notice = await socket.read_until(lambda message: message["type"] == "message")
            assert {**notice, "blob": None} == {
                "type": "message",
                "from": "bob",
                "text": "hello",
                "number": 1,
                "blob": None,
            }
        async with page(ann.serve_page) as socket:
            await socket.read()
            assert socket.welcome["history"] == [{"type": "message", "from": "bob", "text": "hello", "number": 1}]
            assert socket.form


async def test_what_is_too_large_to_be_shown_is_told_by_its_size(autojump_clock: MockClock) -> None:
    async with server_of(Counting(5), config=PlayConfig(max_blob_bytes=10)) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        view = View(parts=[], blobs=[("image/png", bytes(11)), ("image/png", bytes(10))])
        seat._without_large(view)
        assert view.blobs == [("text/plain", b"11 bytes, too large to be shown"), ("image/png", bytes(10))]


async def test_a_reload_in_the_middle_keeps_the_seat(autojump_clock: MockClock) -> None:
    environment, played = Counting(4), game("ann")
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, played)
        for number in range(4):
            async with page(seat.serve_page) as socket:
                seen = await act(socket, number)
                assert seen["parts"][0]["text"] == f"tick {number}"
                while socket.state["tick"] == number:
                    await socket.read()
            if number < 3:
                assert seat.state is PresenceState.AWAY
                await trio.sleep(20)  # less than the grace
    assert environment.actions == [[0], [1], [2], [3]]


async def test_a_second_page_takes_over_and_the_first_is_told(autojump_clock: MockClock) -> None:
    async with server_of(Counting()) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        async with page(seat.serve_page) as first, trio.open_nursery() as nursery:
            await first.read_until(lambda message: message.get("asked") is not None)
            second = Socket()
            nursery.start_soon(seat.serve_page, second)
            told = await first.read_until(lambda message: message["type"] == "dismissed")
            assert told["reason"] == "taken over"
            await act(second)
            await second.read_until(lambda message: message.get("tick") == 1)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("outcome", "number"), [(Outcome.DEFAULT, 9), (Outcome.BOT, 7)])
async def test_closing_beyond_the_grace(outcome: Outcome, number: int, autojump_clock: MockClock) -> None:
    environment, played = Counting(4), game("ann", seat=SeatRules(outcome=outcome))
    async with server_of(environment) as (platform, server):
        [seat] = await seats_of(server, played)
        async with page(seat.serve_page) as socket:
            await act(socket, 1)
            await socket.read_until(lambda message: message.get("tick") == 1)
        await trio.sleep(29)
        assert environment.actions == [[1]]
        outcome_of_trial = await platform.controller.wait_trial(seat.trial_id)
        assert not outcome_of_trial.failed
    assert environment.actions == [[1], [number], [number], [number]]


async def test_closing_beyond_the_grace_loses_the_seat(autojump_clock: MockClock) -> None:
    environment, played = Counting(4), game("ann", seat=SeatRules(outcome=Outcome.LOSS))
    async with server_of(environment) as (platform, server):
        [seat] = await seats_of(server, played)
        async with page(seat.serve_page) as socket:
            await act(socket, 1)
        outcome = await platform.controller.wait_trial(seat.trial_id, check=False)
        assert outcome.participant == "ann"
        assert seat.state is PresenceState.LEFT
        async with page(seat.serve_page) as socket:
            assert (await socket.read())["reason"] == "left"


async def test_an_optional_actor_that_is_lost_ends_no_trial(autojump_clock: MockClock) -> None:
    environment = Counting(3)
    played = game("ann", params=params("ann", agents=["agent"], optional=True))
    async with server_of(environment) as (platform, server):
        [seat] = await seats_of(server, played)
        async with page(seat.serve_page) as socket:
            await socket.read()
            await socket.say(type="resign")
            await socket.read_until(lambda message: message["type"] == "dismissed")
        assert not (await platform.controller.wait_trial(seat.trial_id)).failed
    assert environment.actions == [[9, 7]] * 3


async def test_somebody_comes_back_and_relieves_the_bot(autojump_clock: MockClock) -> None:
    environment = Counting(40)
    played = game("ann", "bob", seat=SeatRules(outcome=Outcome.BOT, action_seconds=10))
    async with server_of(environment) as (_, server):
        ann, bob = await seats_of(server, played)
        async with page(bob.serve_page) as other:
            async with page(ann.serve_page) as socket:
                await socket.read()
            for _ in range(12):
                await trio.sleep(4)
                await act(other, 2)
            assert ann.state is PresenceState.ABSENT
            async with page(ann.serve_page) as socket:
                await act(socket, 5)
                await act(other, 2)
                await socket.read_until(lambda message: message["tick"] == len(environment.actions))
    assert [5, 2] in environment.actions
    assert [7, 2] in environment.actions


async def test_a_bot_is_told_that_it_is_over(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """At the end of the trial, and when the person is back, whose turn it is then."""
    caplog.set_level(logging.INFO, "trio_cogment")
    environment, ended = Counting(3), []

    async def slow(session: ActorSession[Any, Any, Any]) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await trio.sleep(1)
                await session.do_action(Int64Value(value=8))
        ended.append(trio.current_time())

    async with server_of(environment) as (platform, server):
        platform.participants.register_actor(slow, "slow", ["player"])
        [seat] = await seats_of(server, game("ann", bot="slow", seat=SeatRules(outcome=Outcome.BOT)))
        async with page(seat.serve_page) as socket:
            await socket.read()
        await trio.sleep(30.5)  # the grace is over, and the bot thinks
        async with page(seat.serve_page) as socket:
            await trio.sleep(5)
            assert len(ended) == 1
            assert environment.actions == []
            await act(socket, 5)
        await platform.controller.wait_trial(seat.trial_id)
        await trio.sleep(5)
    assert environment.actions == [[5], [8], [8]]
    assert len(ended) == 2
    said = [record.getMessage() for record in caplog.records if record.name == "trio_cogment.play.seat"]
    assert [text.partition("'ann': ")[2] for text in said] == [
        "the person is here",
        "the page is gone; the trial waits for it",
        "the person stays away; a bot or the default action acts",
        "the person is here",
        "the page is gone; the trial waits for it",
        "the person stays away; a bot or the default action acts",
    ]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(("bot", "why"), [("failing", "the bot failed: "), ("leaving", "the bot has left")])
async def test_a_bot_that_fails_or_leaves_loses_the_seat(
    bot: str, why: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    played = Game(name="counting", bot=bot, params=params("ann"), seat=SeatRules(outcome=Outcome.BOT))
    async with server_of(Counting()) as (platform, server):
        [seat] = await seats_of(server, played)
        assert (await platform.controller.wait_trial(seat.trial_id, check=False)).participant == "ann"
    assert f"trial {seat.trial_id!r}, actor 'ann': {why}" in caplog.text


def who_acted(actor: Any) -> str | None:
    return None if actor.stand_in is None else str(actor.stand_in.value)


@pytest.mark.parametrize("outcome", [Outcome.BOT, Outcome.DEFAULT])
async def test_who_has_acted_is_stored_and_told_to_nobody_else(outcome: Outcome, autojump_clock: MockClock) -> None:
    environment = Counting(4)
    played = game("ann", "bob", seat=SeatRules(outcome=outcome))
    heard = []
    with trio.fail_after(100_000):
        async with open_platform(SPEC, store="memory:") as platform, open_play(platform) as server:
            platform.participants.register_environment(environment)
            platform.participants.register_actor(seven, "seven", ["player"])
            server.link_of = lambda trial_id, actor, _sources: f"/{trial_id}/{actor}"
            ann, bob = await seats_of(server, played)
            async with page(bob.serve_page) as to_bob:
                async with page(ann.serve_page) as to_ann:
                    await act(to_ann)
                await act(to_bob)
                await act(to_bob)
                await to_bob.read_until(lambda message: message.get("asked") == 2)
                await wait_all_tasks_blocked()  # somebody has acted for ann; she is back before she is asked again
                async with page(ann.serve_page) as to_ann:
                    await act(to_bob)
                    await act(to_ann)
                    await act(to_bob)
            for seat in (ann, bob):  # the end, with everything so far
                async with page(seat.serve_page) as socket:
                    heard += (await socket.read())["welcome"]["history"]
            await platform.controller.wait_trial(ann.trial_id)
            datastore = platform.datastore_client()
            samples = [sample async for sample in datastore.samples(ann.trial_id)]
            rows = [sample_row(sample) for sample in samples]
    told = [None, outcome.value, outcome.value, None, None]
    assert [who_acted(sample.actors["ann"]) for sample in samples] == told
    assert [who_acted(sample.actors["bob"]) for sample in samples] == [None] * 5
    assert [who_acted(tick_of(sample).actors["ann"]) for sample in samples] == told
    assert [row["actors"]["ann"].get("standIn") for row in rows] == told
    assert not any("messages" in row for row in rows)
    assert heard == environment.messages == []


async def test_a_page_that_is_closed_while_the_trial_ends(autojump_clock: MockClock) -> None:
    """The seat takes no more tasks then."""
    async with server_of(Counting(1)) as (platform, server):
        ann, bob = await seats_of(server, game("ann", "bob"))
        async with page(bob.serve_page) as to_bob:
            async with page(ann.serve_page) as to_ann:
                await act(to_ann)
            await act(to_bob)
        assert (await platform.controller.wait_trial(ann.trial_id)).ticks == 2
    assert ann.state is bob.state is PresenceState.OVER


async def test_an_action_has_a_time_limit(autojump_clock: MockClock) -> None:
    environment = Counting(3)
    played = game("ann", seat=SeatRules(outcome=Outcome.DEFAULT, action_seconds=2))
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, played)
        async with page(seat.serve_page) as socket:
            seen = await socket.read_until(lambda message: message.get("asked") is not None)
            assert seen["seconds"] == 2
            late = await socket.read_until(lambda message: message.get("tick") == 1)
            assert (late["asked"], late["seconds"]) == (1, 2)
            await socket.say(type="act", tick=0, action={"value": 4})
            assert (await socket.read_until(lambda message: message["type"] == "late"))["tick"] == 0
            await socket.read_until(lambda message: message["type"] == "dismissed")
    assert environment.actions == [[9]] * 3


async def test_feedback_goes_to_others(autojump_clock: MockClock) -> None:
    environment = Counting(2)
    async with server_of(environment) as (_, server):
        ann, bob = await seats_of(server, game("ann", "bob"))
        async with page(ann.serve_page) as to_ann, page(bob.serve_page) as to_bob:
            for socket in (to_ann, to_bob):
                await socket.read_until(lambda message: message.get("asked") is not None)
            assert to_ann.welcome["receivers"] == ["bob", "env"]
            await to_ann.say(type="message", to="env", text="hello")
            await to_ann.say(type="message", to="bob", text="<b>hello</b>")
            await to_ann.say(type="reward", to="bob", value=-0.1)
            sent = [await to_ann.read_until(lambda message: message["type"] == "sent") for _ in range(3)]
            assert [(each["to"], each["what"]) for each in sent] == [
                *(("env", "message"), ("bob", "message"), ("bob", "reward")),
            ]
            said = await to_bob.read_until(lambda message: message["type"] == "message")
            assert (said["from"], said["text"]) == ("ann", "<b>hello</b>")
            for _ in range(2):
                await act(to_ann)
                await act(to_bob)
            reward = await to_bob.read_until(lambda message: message["type"] == "reward")
            assert (reward["value"], reward["from"], reward["total"]) == (-0.1, ["ann"], -0.1)
            await to_ann.say(type="message", to="nobody", text="x")
            refused = await to_ann.read_until(lambda message: message["type"] in ("refused", "dismissed"))
            assert refused["type"] == "dismissed" or "to: expected one of bob, env" in refused["reason"]
    assert environment.messages == [("ann", "hello")]


async def test_a_reward_is_for_the_tick_that_the_person_sees(autojump_clock: MockClock) -> None:
    async with server_of(Counting(3)) as (platform, server):
        ann, bob = await seats_of(server, game("ann", "bob"))
        rewarded: list[tuple[int, float]] = []
        before = ActorSession.add_reward_nowait

        def note(session: Any, value: float, confidence: float, to: Any, **more: Any) -> None:
            rewarded.append((more.get("tick_id", -1), value))
            before(session, value, confidence, to, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ActorSession, "add_reward_nowait", note)
            async with page(ann.serve_page) as to_ann, page(bob.serve_page) as to_bob:
                for tick in range(2):
                    while to_ann.state.get("asked") != tick:
                        await to_ann.read()
                    await to_ann.say(type="reward", to="bob", value=tick + 1)
                    await to_ann.read_until(lambda message: message["type"] == "sent")
                    await act(to_ann)
                    await act(to_bob)
        assert rewarded == [(0, 1), (1, 2)]
        await platform.controller.terminate_trial(ann.trial_id, hard=True)


async def test_what_a_page_of_a_lobby_says_is_refused_at_a_seat_but_for_its_greeting(
    autojump_clock: MockClock,
) -> None:
    async with server_of(Counting()) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        async with page(seat.serve_page) as socket:
            await socket.say(type="hello", ticket="", automated=False)
            await socket.say(type="ping", sent=1)
            # What is answered first is not the greeting.
            assert (await socket.read_until(lambda message: message["type"] != "seat"))["type"] == "pong"
            await socket.say(type="ready")
            refused = await socket.read_until(lambda message: message["type"] == "refused")
            assert refused["reason"] == "expected what a page of a seat says"


NONSENSE = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b'{"type":"nothing"}',
    b'{"type":["act"]}',
    b'{"type":"act","tick":-1}',
    b'{"type":"act","tick":1.5,"action":{}}',
    b'{"type":"act","tick":true,"action":{}}',
    b'{"type":"act","tick":99999999999999999999,"action":{}}',
    b'{"type":"act","tick":0,"action":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"type":"act","tick":0,"action":' + b"[" * 60 + b"]" * 60 + b"}",
    b'{"type":"reward","to":"env","value":NaN}',
    b'{"type":"reward","to":"env","value":1e999}',
    b'{"type":"reward","to":7,"value":1}',
    b'{"type":"message","to":"env","text":"' + b"x" * 5000 + b'"}',
    b'{"type":"message","to":"env","text":"\\ud800"}',
    b'{"type":"ping"}',
    b'{"type":"hello","ticket":"' + b"x" * 100 + b'"}',
]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=range(len(NONSENSE)))
async def test_nonsense_is_refused_and_the_page_goes_on(nonsense: bytes, autojump_clock: MockClock) -> None:
    environment = Counting(1)
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        async with page(seat.serve_page) as socket:
            await socket.say_bytes(nonsense)
            refused = await socket.read_until(lambda message: message["type"] == "refused")
            assert "expected" in refused["reason"]
            await act(socket)
            await socket.read_until(lambda message: message.get("over"))
    assert environment.actions == [[1]]


@pytest.mark.parametrize("action", [None, 7, [], {"value": "x"}, {"other": 1}, {"value": 10**30}, {"value": [1]}])
async def test_an_action_that_is_none_is_refused(action: Any, autojump_clock: MockClock) -> None:
    async with server_of(Counting(1)) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        async with page(seat.serve_page) as socket:
            await socket.read_until(lambda message: message.get("asked") is not None)
            await socket.say(type="act", tick=0, action=action)
            refused = await socket.read_until(lambda message: message["type"] == "refused")
            assert refused["reason"].startswith("action: ")
            await act(socket)
            await socket.read_until(lambda message: message.get("over"))


async def test_a_page_that_sends_too_much_nonsense_is_closed(autojump_clock: MockClock) -> None:
    async with server_of(Counting()) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        socket = Socket()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seat.serve_page, socket)
            nursery.start_soon(socket.read_until, lambda message: False)
            for _ in range(20):
                await socket.say_bytes(b"?")
            await trio.testing.wait_all_tasks_blocked()
            assert seat.state is PresenceState.AWAY
            nursery.cancel_scope.cancel()


async def test_a_message_that_is_too_long_is_refused(autojump_clock: MockClock) -> None:
    async with server_of(Counting(), config=PlayConfig(max_page_message_bytes=100)) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        async with page(seat.serve_page) as socket:
            await socket.say_bytes(json.dumps({"type": "message", "to": "env", "text": "x" * 200}).encode())
            refused = await socket.read_until(lambda message: message["type"] == "refused")
            assert refused["reason"] == "expected 100 bytes at most"


async def test_a_page_that_floods_is_closed(autojump_clock: MockClock) -> None:
    config = PlayConfig(page_burst=10, page_messages_per_second=1)
    async with server_of(Counting(), config=config) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        socket = Socket()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seat.serve_page, socket)
            nursery.start_soon(socket.read_until, lambda message: False)
            for number in range(11):
                await socket.say(type="ping", sent=number)
            await trio.testing.wait_all_tasks_blocked()
            assert seat.state is PresenceState.AWAY
            nursery.cancel_scope.cancel()


async def test_a_page_that_says_nothing_counts_as_gone(autojump_clock: MockClock) -> None:
    async with server_of(Counting(), config=PlayConfig(page_silence_seconds=40)) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        async with page(seat.serve_page) as socket:
            await socket.read()
            await trio.sleep(39)
            before = seat.state
            await trio.sleep(2)
            assert (before, seat.state) == (PresenceState.HELD, PresenceState.AWAY)


async def test_a_page_that_never_reads_harms_nothing(autojump_clock: MockClock) -> None:
    environment = Counting(500)
    played = game("ann", "bob", seat=SeatRules(outcome=Outcome.DEFAULT, action_seconds=0.1))
    async with server_of(environment, config=PlayConfig(max_notices=5)) as (platform, server):
        ann, bob = await seats_of(server, played)
        async with page(ann.serve_page) as stalled, page(bob.serve_page) as other:
            stalled.reads = trio.Event()
            for number in range(50):
                await other.say(type="message", to="ann", text=str(number))
                await act(other, 1)
            stalled.reads.set()
            # It gets the newest state, and not each one.
            states = []
            while True:
                seen = await stalled.read()
                if seen["type"] == "lost":
                    assert seen["count"] >= 40
                elif seen["type"] == "seat":
                    states.append(seen["tick"])
                elif seen.get("text") == "49":
                    break
            assert len(states) <= 4
            assert states[-1] >= 49
        await platform.controller.wait_trial(ann.trial_id)
    assert len(environment.actions) == 500


async def test_a_page_measures_its_latency(autojump_clock: MockClock) -> None:
    async with server_of(Counting()) as (_, server):
        [seat] = await seats_of(server, game("ann"))
        async with page(seat.serve_page) as socket:
            await socket.say(type="ping", sent=12.5, took=40)
            assert (await socket.read_until(lambda message: message["type"] == "pong"))["sent"] == 12.5


async def test_seats_are_forgotten_in_the_end(autojump_clock: MockClock) -> None:
    async with server_of(Counting(1), config=PlayConfig(max_finished_seats=1)) as (platform, server):
        played = game("ann", seat=SeatRules(outcome=Outcome.DEFAULT, come_seconds=1))
        found = []
        for _ in range(3):
            [seat] = await seats_of(server, played)
            await platform.controller.wait_trial(seat.trial_id)
            await trio.sleep(1)
            found.append(seat)
        for seat in found[:2]:
            with pytest.raises(NotFoundError):
                server.seat(seat.trial_id, "ann")
        assert server.seat(found[2].trial_id, "ann") is found[2]


async def test_little_is_kept_of_a_seat_whose_trial_is_over(autojump_clock: MockClock) -> None:
    """What was seen last, for those who look again, as long as there is room; nothing of a seat that nobody took."""
    played = game("ann", seat=SeatRules(outcome=Outcome.DEFAULT, come_seconds=1))
    async with server_of(Counting(2), config=PlayConfig(max_finished_bytes=150)) as (platform, server):
        found = []
        for comes in (True, False, True, True):
            [seat] = await seats_of(server, played)
            own = seat.seat
            assert own is not None
            mailbox = own.mailbox
            if comes:
                async with page(seat.serve_page) as socket:
                    await act(socket)
                    await act(socket)
                    await socket.read_until(lambda message: message.get("over"))
            await platform.controller.wait_trial(seat.trial_id, check=False)
            await trio.sleep(0.1)
            assert (seat.kept_bytes > 0) == comes
            assert seat.seat is None
            assert mailbox.observation is None
            assert not hasattr(seat, "_codec")
            found.append(seat)
        assert 2 * found[0].kept_bytes <= 150 < 3 * found[0].kept_bytes
        assert server._finished_bytes == 2 * found[0].kept_bytes
        with pytest.raises(NotFoundError):
            server.seat(found[0].trial_id, "ann")
        async with page(server.seat(found[2].trial_id, "ann").serve_page) as socket:
            again = await socket.read_until(lambda message: message.get("over"))
            assert (again["tick"], again["parts"][0]["text"]) == (2, "tick 2")


async def test_a_seat_lets_go_of_those_who_listen_when_its_trial_is_over(autojump_clock: MockClock) -> None:
    """They know the trial, with all of its observations, and many seats are kept for those who look again."""

    class Listener:
        def __init__(self) -> None:
            self.told: list[Any] = []

        def on_event(self, what: str, detail: dict[str, Any]) -> None:
            self.told.append(detail.get("state"))

        def on_change(self) -> None:
            self.told.append("changed")

    async with server_of(Counting(1)) as (platform, server):
        [seat] = await seats_of(server, game("ann"))
        listener = Listener()
        told, known = listener.told, weakref.ref(listener)
        seat.on_event, seat.on_change = listener.on_event, listener.on_change
        del listener
        async with page(seat.serve_page) as socket:
            await act(socket)
            await socket.read_until(lambda message: message.get("over"))
        await platform.controller.wait_trial(seat.trial_id)
        gc.collect()
        assert told[-2:] == ["over", "changed"]
        assert known() is None
        assert server.seat(seat.trial_id, "ann") is seat


async def test_the_end_of_the_house_ends_trials(autojump_clock: MockClock) -> None:
    async with platform_of(Counting()) as platform:
        async with open_play(platform) as server:
            server.link_of = lambda trial_id, actor, _sources: f"/{trial_id}/{actor}"
            [seat] = await seats_of(server, game("ann"))
            async with page(seat.serve_page) as socket:
                await socket.read()
        assert (await platform.controller.wait_trial(seat.trial_id, check=False)).participant == "ann"


def refusing(patched: pytest.MonkeyPatch, content: bytes, error: Exception) -> None:
    """Have this action not be sent, as if the orchestrator did not read."""
    before = ActorSession.do_action_nowait

    def send(session: Any, action: Any = None) -> None:
        if action == content:
            raise error
        before(session, action)

    patched.setattr(ActorSession, "do_action_nowait", send)


async def test_an_action_that_cannot_be_sent_is_asked_as_before(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Counting(1)
    refusing(monkeypatch, Int64Value(value=5).SerializeToString(), ResourceExhaustedError("nobody reads"))
    async with server_of(environment) as (_, server):
        [seat] = await seats_of(server, game("ann", seat=SeatRules(outcome=Outcome.DEFAULT, action_seconds=10)))
        async with page(seat.serve_page) as socket:
            await act(socket, 5)
            assert (await socket.read_until(lambda message: message["type"] == "refused"))["reason"] == "nobody reads"
            assert seat._asked == 0
            assert seat._seconds_left() == 10  # and its time runs again
            await socket.say(type="act", tick=0, action={"value": "6"})
            await socket.read_until(lambda message: message.get("over"))
    assert environment.actions == [[6]]


@pytest.mark.parametrize("error", [ResourceExhaustedError("nobody reads"), RuntimeError("a bug")])
async def test_a_substitute_whose_action_cannot_be_sent_ends_this_seat_and_no_other(
    error: Exception, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment = Counting(2)
    refusing(monkeypatch, Int64Value(value=9).SerializeToString(), error)
    async with server_of(environment) as (platform, server):
        [lost] = await seats_of(server, game("ann", seat=SeatRules(outcome=Outcome.DEFAULT, come_seconds=5)))
        [other] = await seats_of(server, game("bob"))
        async with page(other.serve_page) as socket:
            assert (await platform.controller.wait_trial(lost.trial_id, check=False)).participant == "ann"
            await act(socket, 1)
            await act(socket, 2)
            await socket.read_until(lambda message: message.get("over"))
        async with page(lost.serve_page) as socket:
            assert (await socket.read())["over"]["cause"] == "failed"
    known = not isinstance(error, RuntimeError)
    assert lost.failure == ("nobody reads" if known else "unexpected failure; the server's log has the details")
    assert f"actor 'ann': the seat was lost: {lost.failure}" in caplog.text
    assert ("a bug" in caplog.text) is not known
    assert environment.actions == [[1], [2]]


async def test_the_end_of_the_server_is_told_to_pages(autojump_clock: MockClock) -> None:
    async with platform_of(Counting()) as platform, trio.open_nursery() as nursery:
        socket = Socket()
        async with open_play(platform) as server:
            server.link_of = lambda trial_id, actor, _sources: f"/{trial_id}/{actor}"
            [seat] = await seats_of(server, game("ann"))
            nursery.start_soon(seat.serve_page, socket)
            await socket.read_until(lambda message: message.get("asked") is not None)
        assert (await socket.read_until(lambda message: message["type"] == "dismissed"))["reason"] == "over"
        assert seat.state is PresenceState.OVER


# Lobbies


def ticketed(socket: Socket, ticket: str = "", *, automated: bool = False) -> Any:
    return socket.say(type="hello", ticket=ticket, automated=automated)


async def in_state(socket: Socket, state: MemberState) -> dict[str, Any]:
    return await socket.read_until(lambda message: message.get("state") == state.value)


PAIR = LobbyRules(seats=2, wait_seconds=60, away_seconds=10)


async def test_people_wait_and_play(autojump_clock: MockClock) -> None:
    environment, played = Counting(2), game("ann", "bob", lobby=PAIR, title="Counting", text="Count to two.")
    async with server_of(environment, played) as (_, server):
        lobby = server.lobby("counting")
        async with page(lobby.serve_page) as first, page(lobby.serve_page) as second:
            await ticketed(first)
            welcome = (await first.read())["welcome"]
            assert (welcome["title"], welcome["text"]) == ("Counting", "Count to two.")
            await first.say(type="ready")
            waiting = await in_state(first, MemberState.READY)
            assert waiting == {
                "type": "lobby",
                "state": "ready",
                "ready": 1,
                "reading": 0,
                "away": 0,
                "bots": 0,
                "seats": 2,
                "shortage": PAIR.shortage.value,
                "seconds": 60,
                "blob": [],
            }
            await trio.sleep(10)
            await ticketed(second)
            seen = await first.read_until(lambda message: message["reading"] == 1)  # live
            assert seen["seconds"] == 50
            await second.say(type="ready")
            links = [
                (await socket.read_until(lambda message: message.get("link")))["link"] for socket in (first, second)
            ]
            seats = [server.seat(*link[1:].split("/")) for link in links]
            assert [seat.actor for seat in seats] == ["ann", "bob"]
            # Who comes back to the lobby gets the link again.
            async with page(lobby.serve_page) as again:
                await ticketed(again, welcome["ticket"])
                assert (await again.read_until(lambda message: message.get("link")))["link"] == links[0]
                assert (await first.read_until(lambda message: message["type"] == "dismissed"))["reason"]
                async with page(seats[0].serve_page) as ann, page(seats[1].serve_page) as bob:
                    for _ in range(2):
                        await act(ann)
                        await act(bob)
                    await ann.read_until(lambda message: message.get("over"))
                await in_state(again, MemberState.PLAYED)


@pytest.mark.parametrize(
    ("shortage", "actions"), [(Shortage.BOTS, [[1, 7]]), (Shortage.FEWER, [[1]]), (Shortage.GIVE_UP, [])]
)
async def test_too_few_people(shortage: Shortage, actions: list[list[int]], autojump_clock: MockClock) -> None:
    environment = Counting(1)
    rules = LobbyRules(seats=2, wait_seconds=60, shortage=shortage)
    config = PlayConfig(page_silence_seconds=1000)  # a browser's page sends pings
    async with server_of(environment, game("ann", "bob", lobby=rules), config=config) as (_, server):
        lobby = server.lobby("counting")
        async with page(lobby.serve_page) as socket:
            await ticketed(socket)
            await socket.say(type="ready")
            await in_state(socket, MemberState.READY)
            if shortage is Shortage.GIVE_UP:
                await in_state(socket, MemberState.TIMED_OUT)
                await socket.say(type="ready")
                await in_state(socket, MemberState.TIMED_OUT)
            else:
                link = (await socket.read_until(lambda message: message.get("link")))["link"]
                async with page(server.seat(*link[1:].split("/")).serve_page) as seat:
                    await act(seat)
                    await seat.read_until(lambda message: message.get("over"))
    assert environment.actions == actions


async def seated(lobby: Lobby, socket: Socket) -> str:
    """Be ready, and return the link of the seat."""
    await ticketed(socket)
    await socket.say(type="ready")
    return str((await socket.read_until(lambda message: message.get("link")))["link"])


def running(platform: Platform) -> list[str]:
    """Return the owners of the trials that run."""
    return [trial.owner for trial in platform.orchestrator.trials if trial.state != TrialState.ENDED]


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("way", ["closed", "left"])
async def test_a_seat_that_is_never_taken_frees_its_trial(
    outcome: Outcome, way: str, autojump_clock: MockClock
) -> None:
    played = game("ann", seat=SeatRules(outcome=outcome))
    async with server_of(Counting(10**6), played) as (platform, server):
        lobby = server.lobby("counting")
        for _ in range(3):  # and again
            async with page(lobby.serve_page) as socket:
                await seated(lobby, socket)
                assert running(platform) == ["lobby:counting"]  # its own, and nobody else's
                if way == "left":
                    await socket.say(type="resign")
                    await in_state(socket, MemberState.LEFT)
                    await trio.sleep(0.01)
                    assert running(platform) == []
            if way == "closed":
                await trio.sleep(4.5)
                assert running(platform) == ["lobby:counting"]  # a page is being loaded
                await trio.sleep(0.6)
                assert running(platform) == []


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_seat_that_was_left_frees_its_trial(outcome: Outcome, autojump_clock: MockClock) -> None:
    played = game("ann", seat=SeatRules(outcome=outcome))
    async with server_of(Counting(10**6), played) as (platform, server):
        async with page(server.lobby("counting").serve_page) as socket:
            link = await seated(server.lobby("counting"), socket)
        async with page(server.seat(*link[1:].split("/")).serve_page) as socket:
            await act(socket)
            await trio.sleep(60)  # its page of the lobby has gone for long
            assert running(platform) == ["lobby:counting"]
            await socket.say(type="resign")
            await socket.read_until(lambda message: message["type"] == "dismissed")
            await trio.sleep(0.01)
            assert running(platform) == []


async def test_a_trial_whose_people_have_gone_waits_for_them(autojump_clock: MockClock) -> None:
    """Its bots play on meanwhile; as long as one of them is there it is none of this."""
    rules = SeatRules(outcome=Outcome.BOT, grace_seconds=30)
    played = game("ann", "bob", seat=rules, lobby=LobbyRules(seats=2))

    async def pace(session: ActorSession[Any, Any, Any]) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                await trio.sleep(1)
                await session.do_action(Int64Value(value=7))

    async with server_of(Counting(10**6)) as (platform, server):
        platform.participants.register_actor(pace, "pace", ["player"])
        lobby = await server.open_lobby(replace(played, bot="pace"))
        async with page(lobby.serve_page) as first, page(lobby.serve_page) as second:
            await ticketed(first)
            await first.say(type="ready")
            other = await seated(lobby, second)
            link = (await first.read_until(lambda message: message.get("link")))["link"]
        seats = [server.seat(*each[1:].split("/")) for each in (link, other)]
        async with page(seats[0].serve_page) as ann:
            async with page(seats[1].serve_page) as bob:
                await act(ann)
                await act(bob)
            await trio.sleep(60)  # one of them has gone
            assert seats[1].state is PresenceState.ABSENT
        await trio.sleep(30 + 50)
        async with page(seats[0].serve_page):  # in time
            await trio.sleep(60)
        assert running(platform) == ["lobby:counting"]
        await trio.sleep(30 + 61)
        assert running(platform) == []


async def test_the_way_out_of_a_lobby_and_who_is_away(autojump_clock: MockClock) -> None:
    async with server_of(Counting(), game("ann", "bob", lobby=PAIR)) as (_, server):
        lobby = server.lobby("counting")
        async with page(lobby.serve_page) as stays:
            await ticketed(stays)
            async with page(lobby.serve_page) as goes:
                await ticketed(goes)
                ticket = (await goes.read())["welcome"]["ticket"]
                await goes.say(type="ready")
                await stays.read_until(lambda message: message["ready"] == 1)
            await stays.read_until(lambda message: message["away"] == 1)
            async with page(lobby.serve_page) as back:
                await ticketed(back, ticket)
                await in_state(back, MemberState.READY)
                await back.say(type="resign")
                await in_state(back, MemberState.LEFT)
        assert lobby.state_of(ticket) is MemberState.LEFT


async def test_a_place_that_was_kept_for_too_long(autojump_clock: MockClock) -> None:
    async with server_of(Counting(), game("ann", "bob", lobby=PAIR)) as (_, server):
        lobby = server.lobby("counting")
        async with page(lobby.serve_page) as socket:
            await ticketed(socket)
            ticket = (await socket.read())["welcome"]["ticket"]
        await trio.sleep(11)
        assert lobby.state_of(ticket) is MemberState.LEFT
        async with page(lobby.serve_page) as socket:
            await ticketed(socket, ticket)
            await in_state(socket, MemberState.LEFT)


async def test_bots_in_a_lobby_begin_no_time(autojump_clock: MockClock) -> None:
    async with server_of(Counting(), game("ann", "bob", lobby=PAIR)) as (_, server):
        lobby = server.lobby("counting")
        async with page(lobby.serve_page) as bot, page(lobby.serve_page) as person:
            await ticketed(bot, automated=True)
            seen = await in_state(bot, MemberState.READY)
            assert seen["seconds"] is None
            await ticketed(person)
            await person.say(type="ready")
            assert (await person.read_until(lambda message: message.get("link")))["link"].endswith("/ann")


async def test_a_forged_ticket_is_a_new_person(autojump_clock: MockClock) -> None:
    async with server_of(Counting(), game("ann", "bob", lobby=PAIR)) as (_, server):
        async with page(server.lobby("counting").serve_page) as socket:
            await ticketed(socket, "<script>")
            ticket = (await socket.read())["welcome"]["ticket"]
            assert len(ticket) == 48
            await socket.say(type="hello", ticket="")
            assert "once" in (await socket.read_until(lambda message: message["type"] == "refused"))["reason"]
        async with page(server.lobby("counting").serve_page) as socket:
            await socket.say(type="ready")
            assert "hello first" in (await socket.read())["reason"]


async def test_a_trial_that_cannot_start_is_told(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "trio_cogment")
    wrong = params("ann")
    wrong.environment.endpoint = "cogment://discover?__implementation=none"
    async with (
        server_of(Counting(), game("ann", params=wrong)) as (_, server),
        page(server.lobby("counting").serve_page) as socket,
    ):
        await ticketed(socket)
        await socket.say(type="ready")
        await in_state(socket, MemberState.FAILED)


async def test_a_start_that_fails_ends_no_other(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "trio_cogment")

    async def start(_game: Game, _people: int, _bots: bool) -> Any:
        raise RuntimeError("planted")

    async with server_of(Counting(3), game("ann")) as (_, server):
        broken = await server.open_lobby(game("bob", name="broken"), start)
        [seat] = await seats_of(server, server.lobby("counting").game)
        async with page(seat.serve_page) as other, page(broken.serve_page) as socket:
            await act(other)
            await ticketed(socket)
            await socket.say(type="ready")
            await in_state(socket, MemberState.FAILED)
            await act(other, 2)


def without_default(name: str) -> TrialParams:
    found = params(name)
    found.actors[0].ClearField("default_action")
    return found


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "<b>"},
        {"name": "a/b"},
        {"params": params(agents=["agent"])},
        {"lobby": LobbyRules(seats=3)},
        {"bot": "", "seat": SeatRules(outcome=Outcome.BOT)},
        {"params": without_default("ann"), "seat": SeatRules(outcome=Outcome.DEFAULT)},
    ],
)
def test_games_have_to_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        Game(**{"name": "counting", "params": params("ann"), "bot": "seven", **wrong})


async def test_rewards_are_told_and_added_as_people_read_them(autojump_clock: MockClock) -> None:
    """They have 32 bits: -0.1 is -0.10000000149011612 in 64."""
    environment = Counting(3)
    async with server_of(environment) as (_, server):
        ann, bob = await seats_of(server, game("ann", "bob"))
        async with page(ann.serve_page) as to_ann, page(bob.serve_page) as to_bob:
            told = []
            for _ in range(2):
                await act(to_ann)
                await to_ann.say(type="reward", to="bob", value=-0.1)
                await act(to_bob)
                told.append(await to_bob.read_until(lambda message: message["type"] == "reward"))
            assert [(one["value"], one["total"]) for one in told] == [(-0.1, -0.1), (-0.1, -0.2)]


async def test_a_reward_of_several_is_their_mean_as_people_read_it(autojump_clock: MockClock) -> None:
    """In 32 bits the mean of 0.3 and -0.1 is 0.10000001."""
    environment = Counting(3)
    async with server_of(environment) as (_, server):
        ann, bob, cat = await seats_of(server, game("ann", "bob", "cat"))
        async with page(ann.serve_page) as to_ann, page(bob.serve_page) as to_bob, page(cat.serve_page) as to_cat:
            told = []
            for _ in range(2):
                for one, value in ((to_ann, 0.3), (to_cat, -0.1)):
                    await act(one)
                    await one.say(type="reward", to="bob", value=value)
                    await one.read_until(lambda message: message["type"] == "sent")
                await act(to_bob)
                told.append(await to_bob.read_until(lambda message: message["type"] == "reward"))
            assert [(one["from"], one["value"], one["total"]) for one in told] == [
                (["ann", "cat"], 0.1, 0.1),
                (["ann", "cat"], 0.1, 0.2),
            ]


@pytest.mark.parametrize(("value", "told"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
async def test_a_reward_that_is_no_number_takes_nobody_from_the_page(
    autojump_clock: MockClock, value: float, told: str
) -> None:
    """Participants of a trial may send any; who gets it goes on."""

    class Spiteful(Counting):
        async def __call__(self, session: EnvironmentSession[Any, Any, Any]) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(super().__call__, session)
                await trio.sleep(1)
                await session.add_reward(value, 1.0, "ann")

    async with server_of(Spiteful(3)) as (_, server):
        [ann] = await seats_of(server, game("ann"))
        async with page(ann.serve_page) as socket:
            await trio.sleep(2)
            await act(socket)
            reward = await socket.read_until(lambda message: message["type"] == "reward")
            assert (reward["value"], reward["total"]) == (told, told)
            await act(socket, 2)


async def test_what_comes_with_the_end_is_told_once(autojump_clock: MockClock) -> None:
    """The page that the end is shown gets everything so far; a notice that waited for it then is in there."""
    async with server_of(Counting(1)) as (_, server):
        ann, bob = await seats_of(server, game("ann", "bob"))
        async with page(ann.serve_page) as to_ann, page(bob.serve_page) as to_bob:
            await to_bob.read_until(lambda message: message.get("asked") is not None)
            to_bob.reads = trio.Event()
            await to_ann.read_until(lambda message: message.get("asked") is not None)
            await to_ann.say(type="reward", to="bob", value=0.5)
            await act(to_ann)
            await to_bob.say(type="act", tick=0, action={"value": "1"})
            await to_ann.read_until(lambda message: message["type"] == "dismissed")
            to_bob.reads.set()
            shown: list[Any] = []
            while (message := await to_bob.read())["type"] != "dismissed":
                shown = message["welcome"]["history"] if "welcome" in message else [*shown, message]
    assert [each["type"] for each in shown] == ["reward"]
