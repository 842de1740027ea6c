"""Agents in an experiment: stored models, language models with time-outs, researchers; and groups that get smaller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.experiment.test_server import events_of, example, page, resolve, running, state, until
from trio_cogment import open_platform
from trio_cogment import rl as tc
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.experiment.definition import Dropout, Experiment
from trio_cogment.experiment.demo import AutomaticParticipant, MemorySocket, play_demo
from trio_cogment.experiment.overview import overview
from trio_cogment.experiment.participant_table import Step
from trio_cogment.experiment.trials import ExperimentTrials
from trio_cogment.play.seat import PageSeat
from trio_cogment.seats.presence import PresenceState

STATION = 2


def played_by(robot: str, **changes: Any) -> Experiment:
    """Return the example with one condition, in which this plays the agent."""
    plan = example()
    trials = [replace(trial, bots={"robot": robot}, agents_argument="agents") for trial in plan.trials]
    return replace(plan, conditions=[replace(plan.conditions[0], name="all", bots={})], trials=trials, **changes)


@pytest.mark.parametrize(("reference", "version"), [("meeting@2", 2), ("meeting", 3)])
async def test_a_stored_model_plays_at_a_version(
    reference: str, version: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Which one that was is an event, so a study can say it."""
    folder = tmp_path / "models"
    async with open_platform(RL_SPEC, model_registry=folder) as platform:
        for data in (b"0", b"2", b"1"):
            await platform.model_registry_client().store("meeting", data)

    def load(data: bytes) -> Any:
        return lambda observation: int(data)

    agents = {"agents:stored": tc.model(reference, load)}
    async with running(tmp_path, played_by("agents:stored"), agents=agents, models=folder) as server:
        assert await play_demo(server, 2, Random(1)) == {"complete": 2}
    started = [detail for _, what, detail in events_of(tmp_path) if what == "trial started"]
    assert [each["policies"] for each in started] == [{"robot": f"meeting@{version}"}] * 2


async def test_a_version_that_is_not_there_ends_the_group_and_people_are_paid(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    agents = {"agents:stored": tc.model("meeting@7", lambda data: lambda observation: 0)}
    async with running(tmp_path, played_by("agents:stored"), agents=agents, models=tmp_path / "models") as server:
        assert await play_demo(server, 2, Random(1)) == {"partial": 2}


async def answers_slowly(prompt: str) -> str:
    """Answer as a language model, until a time is over; then say nothing, and the default is taken."""
    assert "You are robot" in prompt
    with trio.move_on_after(5):
        if "3" not in prompt:  # a round has been played
            await trio.sleep_forever()
        return f"I go to the station: {STATION}"
    return ""


async def says_nothing(prompt: str) -> str:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    ("seat", "chosen"),
    [
        # Each answer has its time: the default is taken once, and the agent goes on.
        (tc.text(answers_slowly, retries=0, default=0), {0, STATION}),
        # One that is never heard of again is given up, and the trial goes on with its default.
        (tc.text(says_nothing, optional=True, default=1, response_timeout_seconds=5), {1}),
    ],
    ids=["an answer", "the agent"],
)
async def test_a_language_model_has_a_time_limit(
    seat: tc.Seat, chosen: set[int], tmp_path: Path, autojump_clock: MockClock
) -> None:
    chosen_by_robot: set[int] = set()

    class Watched(resolve("coordination:Meeting")):  # type: ignore[misc]  # the example's module is not on the path
        def step(self, actions: dict[str, Any]) -> Any:
            chosen_by_robot.add(int(actions["robot"]))
            return super().step(actions)

    agents = {"agents:model": seat, "coordination:Meeting": Watched}
    async with running(tmp_path, played_by("agents:model"), agents=agents) as server:
        assert await play_demo(server, 2, Random(1)) == {"complete": 2}
    assert chosen_by_robot == chosen


@asynccontextmanager
async def seat_page(seat: PageSeat) -> AsyncIterator[MemorySocket]:
    """Have a page at a seat for the time of the block."""
    socket = MemorySocket()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.serve_page, socket)
        yield socket
        nursery.cancel_scope.cancel()


async def test_a_researcher_plays_an_agent(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The trial waits for the researcher; people are not told; what the researcher did is an event."""
    experiment = played_by("wizard", dropout=Dropout(then="end", grace_seconds=20))
    async with running(tmp_path, experiment) as server:
        async with trio.open_nursery() as nursery:
            people = [AutomaticParticipant(server, Random(k)) for k in (1, 2)]
            for each in people:
                nursery.start_soon(each.run)
            await until(server, lambda: server.wizard_seats(1))
            assert overview(server)["groups"][0]["wizards"] == [{"agent": "robot", "state": "open"}]
            assert server.wizard_link(1, "robot").endswith("/robot")
            with pytest.raises(NotFoundError, match="group 1 has no agent 'ann' to play now"):
                server.wizard_link(1, "ann")
            async with seat_page(server.wizard_seat(1, "robot")) as socket:
                acted = -1
                while acted < 4:
                    message = await socket.read()
                    if message["type"] == "seat" and message["asked"] is not None and message["asked"] > acted:
                        assert message["parts"][0]["kind"] == "text"  # what the environment shows, as people see it
                        acted = message["asked"]
                        await socket.say(type="act", tick=acted, action=STATION)
            # Nobody sits down for the second trial: after the grace a bot plays.
            await until(server, lambda: server.wizard_seats(1).get("robot") is PresenceState.ABSENT)
        assert {each.end for each in people} == {"complete"}
    events = events_of(tmp_path)
    actions = [detail for _, what, detail in events if what == "wizard" and detail["did"] == "action"]
    assert [(each["actor"], each["tick"], each["action"]) for each in actions] == [
        ("robot", k, STATION) for k in range(5)
    ]
    assert all(who for who, what, _ in events if what in ("action", "seat", "presence"))


async def test_programs_that_try_an_experiment_out_wait_for_no_researcher(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, played_by("wizard"), people=False) as server:
        assert await play_demo(server, 2, Random(1)) == {"complete": 2}
        assert trio.current_time() < 30


async def test_a_group_goes_on_with_fewer(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The trial is played again without who has left, and those who stay are told."""
    experiment = played_by("random", dropout=Dropout(then="fewer", grace_seconds=5))
    async with running(tmp_path, experiment) as server:
        stays, goes = (AutomaticParticipant(server, Random(k)) for k in (1, 2))
        states: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays.run)
            with trio.CancelScope() as scope:

                async def watch() -> None:
                    await until(server, lambda: goes.id and server.machine.people[goes.id].step is Step.PLAYING)
                    await trio.sleep(0.15)
                    scope.cancel()

                nursery.start_soon(watch)
                await goes.run()
            await until(server, lambda: server.machine.people[goes.id].step is Step.OUT)
            async with page(server, ticket=stays.ticket) as socket:
                seen = await state(socket, lambda message: "group" in message)
                states = [member["state"] for member in seen["group"]]
                assert {member["role"] for member in seen["group"]} == {"ann", "bob"}
            stays.end = ""
            nursery.start_soon(stays.run)
        assert sorted(states) == ["gone", "here"]
        assert stays.end == "complete"
        assert server.machine.people[goes.id].end == "gone"
    events = events_of(tmp_path)
    # The first one was cut short, and is played again; the second one is without who has gone.
    assert [detail["trial"] for _, what, detail in events if what == "trial started"] == [0, 0, 1]
    seats = [(who, detail["trial"]) for who, what, detail in events if what == "seat"]
    assert seats.count((goes.id, 0)) == 1
    assert (goes.id, 1) not in seats


async def test_a_trial_goes_on_with_a_bot_and_the_next_one_is_with_fewer(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    experiment = played_by("random", dropout=Dropout(then="fewer", meanwhile="bot", grace_seconds=5))
    states: set[tuple[int, str]] = set()
    async with running(tmp_path, experiment) as server:
        stays, goes = (AutomaticParticipant(server, Random(k)) for k in (1, 2))

        async def watch() -> None:
            machine = server.machine
            while True:
                await server.change.wait()
                if 1 not in machine.groups:
                    continue
                if server.seat_of(goes.id) and machine.people[goes.id].step is not Step.OUT:
                    server.take_out(goes.id)
                seen = server._group_view(machine.groups[1], machine.people[stays.id])
                states.update((machine.groups[1].trial, each["state"]) for each in seen if not each["you"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            async with trio.open_nursery() as both:
                both.start_soon(stays.run)
                both.start_soon(goes.run)
            nursery.cancel_scope.cancel()
        assert (stays.end, server.machine.people[goes.id].end) == ("complete", "removed")
    assert {(0, "bot"), (1, "gone")} <= states
    assert (0, "gone") not in states
    events = events_of(tmp_path)
    assert [detail["trial"] for _, what, detail in events if what == "trial started"] == [0, 1]
    assert {detail["by"] for who, what, detail in events if what == "stand-in" and who == goes.id} == {"bot"}
    actors = {who for who, what, detail in events if what == "seat" and detail["trial"] == 1}
    assert actors == {stays.id}


@pytest.mark.parametrize(
    ("robot", "changes", "error"),
    [
        ("agents:far", {}, "expected an agent that lives in this server"),
        ("agents:number", {}, "expected random, wizard, or MODULE:NAME of a function or a seat; got 'agents:number'"),
        ("random", {"dropout": Dropout(then="bot", bot="wizard")}, "dropout: bot: expected random, or MODULE:NAME"),
        ("random", {"dropout": Dropout(then="bot", bot="agents:stored")}, "a seat that is the same in all trials"),
    ],
)
def test_agents_that_cannot_be(robot: str, changes: dict[str, Any], error: str) -> None:
    agents = {
        "agents:far": tc.endpoint("grpc://localhost:9000"),
        "agents:number": 7,
        "agents:stored": tc.model("meeting", lambda data: lambda observation: 0),
    }
    with pytest.raises(InvalidArgumentError, match=error):
        ExperimentTrials(played_by(robot, **changes), lambda name: agents[name] if name in agents else resolve(name))


def test_labels_that_are_not_as_many_as_the_actions_are_refused() -> None:
    plan = example()
    trials = [replace(trial, labels=["park", "museum"]) for trial in plan.trials]
    with pytest.raises(InvalidArgumentError, match="trial 'first': labels: expected 3, one for each action of 'ann'"):
        ExperimentTrials(replace(plan, trials=trials), resolve)


def test_an_environment_that_cannot_be_smaller_is_refused() -> None:
    experiment = played_by("random", dropout=Dropout(then="fewer"))

    class Fixed(resolve("coordination:Meeting")):  # type: ignore[misc]  # the example's module is not on the path
        def __init__(self, rounds: int, agents: Any = None, render_mode: Any = None) -> None:
            super().__init__(rounds)

    with pytest.raises(InvalidArgumentError, match=r"agents_argument: expected agents=\['ann', 'robot'\] to make"):
        ExperimentTrials(experiment, lambda name: Fixed)
    with pytest.raises(InvalidArgumentError, match="trial 'first': agents_argument: expected the argument"):
        replace(experiment, trials=example().trials)
    with pytest.raises(InvalidArgumentError, match="least: expected 2 at most, as many as a group has; got 3"):
        replace(experiment, dropout=Dropout(then="fewer", least=3))
