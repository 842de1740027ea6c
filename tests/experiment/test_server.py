"""An experiment that is going on: pages without a browser, real trials, a file, on a clock of the tests."""

from __future__ import annotations

import csv
import gc
import importlib
import io
import json
import sys
import weakref
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_cogment import open_platform
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.experiment.definition import Dropout, Experiment, People, Waiting
from trio_cogment.experiment.demo import AutomaticParticipant, MemorySocket, play_demo
from trio_cogment.experiment.experiment_file import load_experiment
from trio_cogment.experiment.overview import overview
from trio_cogment.experiment.participant_table import Step
from trio_cogment.experiment.server import ExperimentServer, open_experiment
from trio_cogment.experiment.store import opened_store
from trio_cogment.experiment.tables import EVENT_KINDS, tables_of
from trio_cogment.experiment.trials import ExperimentTrials
from trio_cogment.play.server import open_play
from trio_cogment.seats.presence import PresenceState

EXAMPLE = Path(__file__).parents[2] / "examples" / "experiment"


def resolve(name: str) -> Any:
    """Return what a name of the example stands for."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(EXAMPLE))
    try:
        return getattr(importlib.import_module(module), attribute)
    finally:
        sys.path.remove(str(EXAMPLE))


def example(**changes: Any) -> Experiment:
    return replace(load_experiment(EXAMPLE / "experiment.yaml"), **changes)


@asynccontextmanager
async def running(
    path: Path,
    experiment: Experiment | None = None,
    *,
    config: PlayConfig | None = None,
    agents: Mapping[str, Any] | None = None,
    models: Path | None = None,
    people: bool = True,
) -> AsyncIterator[ExperimentServer]:
    """Have the example go on, with its file; `agents` are found by their names in place of those of a module."""
    experiment = experiment or example()
    known = agents or {}
    trials = ExperimentTrials(experiment, lambda name: known[name] if name in known else resolve(name), people=people)
    begun = 1_700_000_000
    host = Host(runner=inline_runner, wall_clock=lambda: round((begun + trio.current_time()) * 1e9))
    with trio.fail_after(100_000), opened_store(path / "test.db", experiment.name) as store:  # of virtual time
        async with (
            open_platform(trials.participants, host=host, model_registry=models) as platform,
            open_play(platform, host=host) as play,
            open_experiment(experiment, trials, play, platform, store, host=host, config=config) as server,
        ):
            play.link_of = lambda trial_id, actor, _sources: f"/{trial_id}/{actor}"
            yield server
        await trials.aclose()


def events_of(path: Path) -> list[tuple[str, str, dict[str, Any]]]:
    with opened_store(path / "test.db", "meeting") as store:
        found = [(each.participant, each.what, each.detail) for each in store.events()]
    assert {what for _, what, _ in found} <= set(EVENT_KINDS)  # the codebook knows each
    return found


@asynccontextmanager
async def page(server: ExperimentServer, **enter: Any) -> AsyncIterator[MemorySocket]:
    """Have a page open for the time of the block."""
    socket = MemorySocket()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_page, socket)
        await socket.say(type="enter", **enter)
        yield socket
        nursery.cancel_scope.cancel()


async def state(socket: MemorySocket, wanted: Callable[[dict[str, Any]], Any] = lambda message: True) -> dict[str, Any]:
    """Return the next state of a page of which this is true."""
    while True:
        message = await socket.read()
        if message["type"] == "experiment" and wanted(message):
            return message


async def until_said(socket: MemorySocket, kind: str) -> dict[str, Any]:
    """Return the next message of this type."""
    while (message := await socket.read())["type"] != kind:
        pass
    return message


async def until(server: ExperimentServer, wanted: Callable[[], Any]) -> None:
    """Wait until something is so in the server."""
    while not wanted():
        await server.change.wait()


async def test_two_programs_go_from_consent_to_the_code(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server:
        assert await play_demo(server, 2, Random(1)) == {"complete": 2}
        ids = list(server.machine.people)
        assert server.machine.groups[1].condition == "follows"
    events = events_of(tmp_path)
    for who in ids:
        what = Counter(kind for each, kind, _ in events if each == who)
        assert what["page"] == what["answered"] == 5
        assert what["action"] == 10  # of two trials
        assert what["seat"] == 2
        assert what["out"] == what["page opened"] == what["page closed"] == 1
    actors = {who: [detail["actor"] for each, kind, detail in events if kind == "seat" and each == who] for who in ids}
    assert sorted(actors.values()) == [["ann", "bob"], ["bob", "ann"]]  # they have changed places
    actions = [detail for _, kind, detail in events if kind == "action"]
    assert {detail["tick"] for detail in actions} == set(range(5))
    assert all(detail["action"] in (0, 1, 2) and detail["page_ms"] > 0 for detail in actions)
    [answers] = [
        detail["answers"]
        for who, kind, detail in events
        if (who, kind) == (ids[0], "answered") and detail["page"] == "check"
    ]
    assert answers == {"rule": "If all three choose the same place"}


async def test_many_programs_are_in_balanced_groups(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server:
        assert await play_demo(server, 12, Random(2)) == {"complete": 12}
        assert server.machine.counts() == {"follows": 3, "stubborn": 3}


async def test_a_page_that_is_loaded_again_is_where_it_was(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server:
        async with page(server) as socket:
            first = await state(socket)
            assert first["page"]["name"] == "consent"
            assert "<strong>another person</strong>" in first["page"]["html"]
            await socket.say(type="turn", page="consent", agrees=True)
            await state(socket, lambda message: message.get("page", {}).get("name") == "instructions")
        async with page(server, ticket=first["welcome"]["ticket"]) as socket:
            again = await state(socket)
            assert (again["id"], again["page"]["name"]) == (first["id"], "instructions")
        assert list(server.machine.people) == [first["id"]]


async def test_a_second_tab_takes_the_place_over(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server:
        async with page(server) as first:
            ticket = (await state(first))["welcome"]["ticket"]
            async with page(server, ticket=ticket) as second:
                await state(second)
                told = await first.read()
                assert told == {"type": "dismissed", "reason": "taken over"}
                [row] = overview(server)["people"]  # listed once
                assert row["here"]
                await second.say(type="turn", page="consent", agrees=True)
                await state(second, lambda message: message["page"]["name"] == "instructions")
        assert len(server.machine.people) == 1
    assert [kind for _, kind, _ in events_of(tmp_path)].count("tab changed") == 1


async def test_reloads_reconnections_and_changes_of_tabs_are_told_apart(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Also where the server has not heard yet that the connection before is gone."""

    ticket = ""
    async with running(tmp_path) as server:
        async with trio.open_nursery() as pages:
            for tab, again in (
                ("one", False),
                ("one", False),  # loaded again
                ("one", True),
                ("two", False),
                ("one", True),  # it did not know that it had no place any more
            ):
                socket = MemorySocket()
                pages.start_soon(server.serve_page, socket)
                await socket.say(type="enter", ticket=ticket, tab=tab, again=again)
                ticket = (await state(socket))["welcome"]["ticket"]
            pages.cancel_scope.cancel()
        async with page(server, ticket=ticket, tab="one", again=True) as socket:
            await state(socket)
    # And of a page that knows another server.
    async with running(tmp_path) as server:
        async with page(server, ticket=ticket, tab="one", again=True) as socket:
            await state(socket)
        async with page(server, ticket=ticket, tab="three") as socket:  # nobody was there any more
            await state(socket)
    assert [what for _, what, _ in events_of(tmp_path) if what in ("page opened", "tab changed", "reconnected")] == [
        *("page opened", "page opened", "reconnected", "tab changed", "tab changed", "reconnected"),
        *("reconnected", "page opened"),
    ]
    with opened_store(tmp_path / "test.db", "meeting") as store:
        [row] = csv.DictReader(io.StringIO(tables_of(example(), store)["participants.csv"].decode(), newline=""))
    assert (row["pages_opened"], row["tab_changes"], row["reconnections"]) == ("5", "2", "3")


async def test_nothing_is_recorded_of_who_has_declined(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server:
        async with page(server) as socket:
            ticket = (await state(socket))["welcome"]["ticket"]
            await socket.say(type="turn", page="consent", agrees=False)
            assert "Nothing more is recorded" in (await state(socket))["end"]["html"]
            async with page(server, ticket=ticket) as second:
                assert (await state(second))["end"]["name"] == "declined"
        async with page(server, ticket=ticket, again=True) as socket:
            assert (await state(socket))["end"]["name"] == "declined"
    recorded = [what for who, what, _ in events_of(tmp_path) if who]
    assert recorded[-1] == "out"
    assert recorded.count("page opened") == 1


async def test_answers_that_make_no_sense_are_refused_and_nothing_is_lost(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path) as server, page(server) as socket:
        await state(socket)
        for said in (
            {"type": "turn", "page": "consent", "answers": {"x": 1}, "agrees": True},
            {"type": "turn", "page": "consent", "answers": [], "agrees": True},
            {"type": "turn", "page": 3},
            {"type": "way"},
            {"type": "enter"},
            {"type": "turn", "page": "consent", "answers": {"x": {"y": 1}}},
        ):
            await socket.say(**said)
            assert (await socket.read())["type"] == "refused"
        await socket.say(type="turn", page="consent", agrees=True)
        await state(socket, lambda message: message["page"]["name"] == "instructions")
        await socket.say(type="turn", page="instructions")
        check = await state(socket, lambda message: message["page"]["name"] == "check")
        assert "correct" not in json.dumps(check)
        await socket.say(type="turn", page="check", answers={"rule": "Always"})
        assert (await state(socket))["page"]["failed"] == 1
        await socket.say(type="turn", page="check", answers={"rule": "Always"})
        assert (await state(socket))["end"]["name"] == "screened"


async def test_taking_somebody_out_is_at_their_screen_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server, page(server) as socket:
        who = (await state(socket))["id"]
        for name in ("consent", "instructions"):
            await socket.say(type="turn", page=name, agrees=True)
        await state(socket, lambda message: message.get("page", {}).get("name") == "check")
        server.tell("Please go on.", who)
        assert await socket.read() == {"type": "note", "text": "Please go on."}
        began = trio.current_time()
        server.take_out(who)
        assert (await state(socket))["end"]["name"] == "removed"
        assert trio.current_time() == began
        with pytest.raises(NotFoundError):
            server.take_out("nobody")


async def test_notes_of_researchers_are_there_after_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server, page(server) as ann, page(server) as bob:
        first, second = await state(ann), await state(bob)
        server.tell("For all.")
        server.tell("For you alone.", first["id"])
    async with running(tmp_path) as server:
        for before, notes in ((first, ["For all.", "For you alone."]), (second, ["For all."])):
            async with page(server, ticket=before["welcome"]["ticket"]) as socket:
                assert (await state(socket))["welcome"]["notes"] == notes


async def test_who_closes_the_page_for_good_ends_the_group_and_the_other_is_paid(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path) as server:
        stays, goes = (AutomaticParticipant(server, Random(k)) for k in (1, 2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays.run)
            with trio.CancelScope() as scope:

                async def watch() -> None:
                    await until(server, lambda: goes.id and server.machine.people[goes.id].step is Step.PLAYING)
                    await trio.sleep(0.15)
                    scope.cancel()

                nursery.start_soon(watch)
                await goes.run()
        assert stays.end == "partial"
        assert server.machine.people[goes.id].end == "gone"
        assert server.experiment.end("partial").code == "MEET-PART"


async def test_who_closes_the_page_between_trials_holds_up_the_group_for_the_grace(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """And not for the time of the page; the others see it run down, as in a trial."""
    async with running(tmp_path, example(dropout=Dropout(grace_seconds=5))) as server:
        people = [AutomaticParticipant(server, Random(k)) for k in (1, 2)]
        async with trio.open_nursery() as nursery:
            for each in people:
                nursery.start_soon(each.run)
            await until(server, lambda: server.machine.groups and server.machine.groups[1].trial == 1)
            nursery.cancel_scope.cancel()
        async with page(server, ticket=people[0].ticket) as socket:

            def other(message: dict[str, Any]) -> dict[str, Any]:
                return next((each for each in message.get("group", []) if not each["you"]), {})

            async with page(server, ticket=people[1].ticket):
                await state(socket, lambda message: other(message).get("state") == "reading")
            began = trio.current_time()
            away = other(await state(socket, lambda message: other(message).get("state") == "away"))
            assert 0 < away["seconds"] <= 5
            assert (await state(socket, lambda message: message["step"] == "finishing"))["early"]
            assert trio.current_time() - began <= 5
        assert server.machine.people[people[1].id].end == "gone"


@pytest.mark.parametrize(("tell", "told"), [(True, "bot"), (False, "here")])
async def test_the_others_see_the_time_run_down(
    tell: bool, told: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Until the grace is over; then they are told that a bot plays, if the file says so."""
    experiment = example(dropout=Dropout(then="bot", grace_seconds=5, tell=tell))
    async with running(tmp_path, experiment) as server, page(server) as socket:
        goes = AutomaticParticipant(server, Random(1))

        def has_sat_down() -> bool:
            seat = server.seat_of(goes.id) if goes.id else None
            return seat is not None and seat.state is PresenceState.HELD

        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes.run)
            for name in ("consent", "instructions"):
                await socket.say(type="turn", page=name, agrees=True)
            answers = {"rule": "If all three choose the same place"}
            await socket.say(type="turn", page="check", answers=answers, agrees=True)
            await until(server, has_sat_down)
            nursery.cancel_scope.cancel()  # the page is closed

        def other(message: dict[str, Any]) -> dict[str, Any]:
            [found] = [each for each in message["group"] if not each["you"]]
            return dict(found)

        began = trio.current_time()
        away = other(await state(socket, lambda message: "group" in message and other(message)["state"] == "away"))
        assert 0 < away["seconds"] <= 5
        await state(socket, lambda message: other(message)["state"] == told)
        assert trio.current_time() - began <= 5


async def test_a_bot_takes_the_place_of_who_has_gone(tmp_path: Path, autojump_clock: MockClock) -> None:
    experiment = example(dropout=Dropout(then="bot", grace_seconds=5))
    async with running(tmp_path, experiment) as server:
        stays = AutomaticParticipant(server, Random(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays.run)
            async with page(server) as socket:
                who = (await state(socket))["id"]
                for name in ("consent", "instructions"):
                    await socket.say(type="turn", page=name, agrees=True)
                await socket.say(
                    type="turn", page="check", answers={"rule": "If all three choose the same place"}, agrees=True
                )
                await state(socket, lambda message: message["step"] == "playing")
                await socket.say(type="leave")
                assert (await state(socket, lambda message: message["step"] == "out"))["end"]["name"] == "left"
        assert stays.end == "complete"
        assert server.machine.people[who].end == "left"


async def test_a_server_that_is_stopped_between_trials_goes_on(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The file has everything: who is where, what was answered, and the link that people have."""
    people: list[AutomaticParticipant] = []
    async with running(tmp_path) as server:
        key = server.key
        people = [AutomaticParticipant(server, Random(k)) for k in (1, 2)]
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for each in people:
                    nursery.start_soon(each.run)
                await until(server, lambda: server.machine.groups and server.machine.groups[1].trial == 1)
                scope.cancel()
        steps = {each.step for each in server.machine.people.values()}
        assert steps <= {Step.PREPARING, Step.READY}
    await trio.sleep(3600)
    async with running(tmp_path) as server:
        assert server.key == key
        async with trio.open_nursery() as nursery:
            for old in people:
                again = AutomaticParticipant(server, Random(old.id))
                again.ticket = old.ticket
                nursery.start_soon(again.run)
        assert {each.end for each in server.machine.people.values()} == {"complete"}
        assert sorted(server.machine.people) == sorted(each.id for each in people)
    events = events_of(tmp_path)
    kinds = Counter(kind for _, kind, _ in events)
    assert (kinds["server started"], kinds["server stopped"], kinds["trial started"]) == (2, 2, 2)
    assert kinds["action"] == 20
    pages = Counter((who, detail["page"]) for who, kind, detail in events if kind == "answered")
    assert set(pages.values()) == {1}  # each answer is stored once


async def test_a_server_that_is_stopped_in_a_trial_plays_it_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server:
        people = [AutomaticParticipant(server, Random(k)) for k in (1, 2)]
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for each in people:
                    nursery.start_soon(each.run)
                await until(server, lambda: server.machine.groups and server.machine.groups[1].playing)
                await trio.sleep(0.25)
                scope.cancel()
    async with running(tmp_path) as server:
        async with trio.open_nursery() as nursery:
            for old in people:
                again = AutomaticParticipant(server, Random(old.id))
                again.ticket = old.ticket
                nursery.start_soon(again.run)
        assert {each.end for each in server.machine.people.values()} == {"complete"}
    kinds = Counter(kind for _, kind, _ in events_of(tmp_path))
    assert (kinds["trial lost"], kinds["trial started"]) == (1, 3)


async def test_the_file_of_another_experiment_is_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path):
        pass
    with pytest.raises(FailedPreconditionError, match="is of the experiment 'meeting', and the file's name is 'other'"):
        async with running(tmp_path, example(name="other")):
            pass


async def test_a_file_that_has_changed_is_refused_while_somebody_is_on_the_way(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    plan = example()
    shorter = replace(plan, before=plan.before[:2])
    async with running(tmp_path, plan) as server, page(server) as socket:
        assert (await state(socket))["page"]["name"] == "consent"
    refused = pytest.RaisesExc(FailedPreconditionError, match="of those who began with them 1 are on their way")
    with pytest.RaisesGroup(refused, flatten_subgroups=True):
        async with running(tmp_path, shorter):
            pass
    # Texts may change.
    async with running(tmp_path, replace(plan, title="Another title")) as server:
        [who] = server.machine.people
        server.take_out(who)
    async with running(tmp_path, shorter) as server:
        assert server.machine.people[who].end == "removed"


async def test_the_end_of_a_trial_is_shown_for_less_than_the_next_action_takes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    plan = example()
    first, second = plan.trials
    in_a_row = replace(plan, trials=[first, replace(second, pages=[], action_seconds=6)])
    for experiment, expected in ((plan, 10), (in_a_row, 3)):
        async with running(tmp_path / str(expected), experiment) as server:
            assert server._end_seconds(0, "follows") == expected
            assert server._end_seconds(1, "follows") == 10


async def test_going_on_after_a_trial_is_an_event_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server, page(server) as socket:
        who = (await state(socket))["id"]
        await socket.say(type="go on", at=1)  # no trial has ended
        await socket.say(type="ping", sent=1, took=1)
        await until_said(socket, "pong")
        server.machine.people[who].trial = 1
        await socket.say(type="go on", at=12.5)
        await socket.say(type="go on", at=13)
        await socket.say(type="go on", at="soon")
        refused = await until_said(socket, "refused")
        assert "at: expected milliseconds" in refused["reason"]
    went = [
        (each, detail["trial"], detail["page_ms"]) for each, what, detail in events_of(tmp_path) if what == "went on"
    ]
    assert went == [(who, 0, 12.5)]


async def test_people_with_ids_of_a_platform(tmp_path: Path, autojump_clock: MockClock) -> None:
    people = People(id="query:PID", keep_out=frozenset(["before"]), parameters=frozenset(["source"]))
    ends = {"unmatched": replace(example().end("unmatched"), redirect="https://example.com/?pid={PID}&x={source}")}
    experiment = example(participants=people, ends=ends, before=[], waiting=Waiting(size=2, way_out_seconds=0))
    async with running(tmp_path, experiment) as server:
        async with page(server) as socket:
            assert "expected PID=... in it" in (await socket.read())["reason"]
        async with page(server, parameters={"PID": "before"}) as socket:
            assert (await state(socket))["end"]["name"] == "refused"
        async with page(server, parameters={"PID": "a b", "other": "secret"}) as socket:
            assert (await state(socket))["waiting"] == {"here": 1, "size": 2, "shortage": "let_go", "way_out_in": 0.0}
            await socket.say(type="way out")
            end = (await state(socket, lambda message: message["step"] == "out"))["end"]
            assert end["redirect"] == "https://example.com/?pid=a%20b&x="
        assert list(server.machine.people) == ["a b"]
        assert server.parameters_of("a b") == {}  # what the file does not name is not kept, and the id is there


@pytest.mark.parametrize(
    ("more", "kept", "left_out"),
    [
        ({"token": "z" * 4096}, ["PID", "token"], None),
        ({"token": "z" * 4097, "a": "\0"}, ["PID"], ["token", "a"]),
        ({"n" * 65: "x", "a": ""}, ["PID", "a"], ["n" * 64]),
        ({str(k): "x" for k in range(40)}, ["PID", *map(str, range(31))], [*map(str, range(31, 40))]),
        (dict.fromkeys("abcde", "z" * 4000), ["PID", *"abcd"], ["e"]),
    ],
)
async def test_long_or_many_parameters_of_a_link_keep_nobody_out(
    more: dict[str, str], kept: list[str], left_out: list[str] | None, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, example(participants=People(id="query:PID"))) as server:
        async with page(server, parameters={"PID": "ann", **more}) as socket:
            assert (await state(socket))["id"] == "ann"
        assert list(server.parameters_of("ann")) == kept
    [opened] = [detail for _, what, detail in events_of(tmp_path) if what == "page opened"]
    assert opened.get("parameters_left_out") == left_out


@pytest.mark.parametrize("who", ["x" * 129, "a\0", "a\nb"])
async def test_an_id_that_cannot_be_used_is_named(who: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    experiment = example(participants=People(id="query:PID"))
    async with running(tmp_path, experiment) as server, page(server, parameters={"PID": who}) as socket:
        assert "PID: expected 1 to 128 characters that can be printed" in (await socket.read())["reason"]


async def test_people_with_codes_and_with_links(tmp_path: Path, autojump_clock: MockClock) -> None:
    allowed = frozenset(["ann-7", "bob-9"])
    async with running(tmp_path, example(participants=People(id="code", allow=allowed))) as server:
        async with page(server) as socket:
            assert (await state(socket))["step"] == "code"
            await socket.say(type="enter", code="ann-8")
            assert (await state(socket))["wrong"]
            await socket.say(type="enter", code=" Ann-7 ")
            assert (await state(socket))["id"] == "ann-7"
        async with page(server) as socket:
            await state(socket)
            for _ in range(4):
                await socket.say(type="enter", code="x")
                await state(socket)
            await socket.say(type="enter", code="x")
            assert (await socket.read())["reason"] == "wrong codes"
    (tmp_path / "links").mkdir()
    async with running(tmp_path / "links", example(participants=People(id="link", allow=allowed))) as server:
        assert list(server.links()) == ["ann-7", "bob-9"]
        async with page(server, parameters={"participant": "ann-7", "signature": "x"}) as socket:
            assert "not one of this study" in (await socket.read())["reason"]
        async with page(server, parameters=server.link_parameters("ann-7")) as socket:
            assert (await state(socket))["id"] == "ann-7"
            assert server.parameters_of("ann-7") == {"participant": "ann-7"}


async def test_nothing_is_kept_in_memory_of_what_was_seen_in_trials(tmp_path: Path, autojump_clock: MockClock) -> None:
    trials: list[weakref.ref[Any]] = []

    async def look(server: ExperimentServer) -> None:
        while True:
            trials.extend(weakref.ref(each) for each in server._running.values())
            await server.change.wait()

    async with running(tmp_path) as server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look, server)
            assert await play_demo(server, 2, Random(1)) == {"complete": 2}
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        gc.collect()
        assert trials
        assert not [each for each in trials if each() is not None]


async def test_people_that_come_and_go_keep_nobody_out(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, config=PlayConfig(max_participants=10)) as server:
        for _ in range(50):
            async with page(server) as socket:
                await state(socket)
        assert len(server.machine.people) <= 10
        assert await play_demo(server, 4, Random(1)) == {"complete": 4}
        ids = set(server.machine.people)
    with opened_store(tmp_path / "test.db", "meeting") as store:
        assert {each.id for each in store.participants()} == ids
        assert {each.participant for each in store.events()} - {""} == ids


async def test_what_researchers_see_and_do(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as server, page(server) as socket:
        who = (await state(socket))["id"]
        seen = overview(server)
        [row] = seen["people"]
        assert (row["id"], row["step"], row["page"], row["here"]) == (who, "reading", "consent", True)
        assert (seen["steps"], seen["conditions"]) == ({"reading": 1}, {"follows": 0, "stubborn": 0})
        server.tell("Hello, all.")
        assert (await socket.read())["text"] == "Hello, all."
        change = server.change
        server.close_waiting_room(True)
        assert change.is_set()
        assert (await state(socket))["end"]["name"] == "unmatched"
        seen = overview(server)
        assert (seen["closed"], seen["ends"], seen["steps"]) == (True, {"unmatched": 1}, {})
        with zipfile.ZipFile(io.BytesIO(await server.archive())) as archive:
            assert sorted(archive.namelist()) == sorted(
                [*(f"{name}.csv" for name in ("participants", "answers", "events", "actions", "trials")), "codebook.md"]
            )
            assert who in archive.read("participants.csv").decode()
        for wrong in ("", " ", "x" * 2001):
            with pytest.raises(InvalidArgumentError, match="text: expected 1 to 2000 characters"):
                server.tell(wrong)
        server.close_waiting_room(False)
        assert not overview(server)["closed"]
