"""Trials of experiments that go on: the server dies at any moment, the next one is at the last stored tick again."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.experiment.test_server import example, page, resolve, state, until
from tests.test_resuming import Mortal
from trio_cogment import Platform, open_platform
from trio_cogment.base.config import DatastoreConfig, OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import NotFoundError, UnavailableError
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.experiment.definition import Dropout, Experiment
from trio_cogment.experiment.demo import AutomaticParticipant, MemorySocket
from trio_cogment.experiment.overview import overview
from trio_cogment.experiment.server import ExperimentServer, open_experiment
from trio_cogment.experiment.store import Batch, Event, ExperimentStore
from trio_cogment.experiment.tables import EVENT_KINDS, tables_of
from trio_cogment.experiment.trials import ExperimentTrials
from trio_cogment.play.server import open_play
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import EndWrite, TrialEnd
from trio_cogment.testing.conformance.trial_store import get, read

#: Of a trial of the example, with that of its end.
TICKS = 6


class MortalFile(ExperimentStore):
    """The file of an experiment as a process has it that may die: from then on nothing of it arrives."""

    is_dead = False

    def write(self, batch: Batch) -> None:
        if self.is_dead:
            raise UnavailableError("the process is dead")
        super().write(batch)


@dataclass
class Study:
    """An experiment with what outlives its servers.

    Attributes:
        path: of the folder with the file.
        experiment: see there.
        agents: by their names in the file, in place of those of a module.
        trials: are kept here.
    """

    path: Path
    experiment: Experiment = field(default_factory=example)
    agents: Mapping[str, Any] = field(default_factory=dict)
    trials: MemoryStore = field(default_factory=lambda: MemoryStore(1 << 30))

    @asynccontextmanager
    async def running(self, *, stops: bool = False, resume: bool = True) -> AsyncIterator[Running]:
        """Have a server; unless it stops in order, it dies at the end of the block at the latest."""
        trials = ExperimentTrials(
            self.experiment, lambda name: self.agents[name] if name in self.agents else resolve(name)
        )
        begun = 1_700_000_000
        host = Host(runner=inline_runner, wall_clock=lambda: round((begun + trio.current_time()) * 1e9))
        config = PlatformConfig(
            orchestrator=OrchestratorConfig(resume=resume),
            datastore=DatastoreConfig(abandoned_after_seconds=25, abandoned_after_start_seconds=45),
        )
        mortal, file = Mortal(self.trials), MortalFile(self.path / "test.db")
        file.open()
        with trio.fail_after(100_000):  # of virtual time
            async with (
                open_platform(trials.participants, host=host, config=config, store=mortal) as platform,
                open_play(platform, host=host) as play,
                open_experiment(self.experiment, trials, play, platform, file, host=host) as server,
            ):
                play.link_of = lambda trial_id, actor, _sources: f"/{trial_id}/{actor}"
                yield Running(server, platform, mortal, file)
                if stops:
                    await platform.stop()
                mortal.is_dead = file.is_dead = not stops
            file.close()
        await trials.aclose()

    def events(self) -> list[Event]:
        file = ExperimentStore(self.path / "test.db")
        file.open()
        found = list(file.events())
        file.close()
        assert {each.what for each in found} <= set(EVENT_KINDS)  # the codebook knows each
        return found

    def table(self, name: str) -> list[dict[str, str]]:
        file = ExperimentStore(self.path / "test.db")
        file.open()
        content = tables_of(self.experiment, file)[f"{name}.csv"].decode()
        file.close()
        return list(csv.DictReader(io.StringIO(content, newline="")))

    async def check_complete(self, groups: int = 1) -> None:
        """See that every tick of every trial is there once, and in the tables, and that each trial has ended well."""
        people, actions = self.table("participants"), self.table("actions")
        assert {row["end"] for row in people} == {"complete"}
        lost = {each.detail.get("trial_id") for each in self.events() if each.what == "trial lost"}
        played = [each.detail["trial_id"] for each in self.events() if each.what == "trial started"]
        counted = [trial_id for trial_id in played if trial_id not in lost]
        assert len(counted) == len(set(counted))
        for trial_id in counted:
            ticks = [int(row["tick"]) for row in actions if row["trial_id"] == trial_id]
            assert Counter(ticks) == dict.fromkeys(range(TICKS - 1), 2), trial_id
            samples = await read(self.trials, trial_id)
            assert [each.tick_id for each in samples] == list(range(TICKS))
            assert (await get(self.trials, trial_id)).end.name == "ENDED"
        assert len(counted) == groups * len(self.experiment.trials)
        assert sum(int(row["actions"]) for row in people) == len(actions)


@dataclass
class Running:
    """A server of a study."""

    server: ExperimentServer
    platform: Platform
    trials: Mortal
    file: MortalFile

    def die(self) -> None:
        """Have nothing reach the disk any more."""
        self.trials.is_dead = self.file.is_dead = True


async def until_tick(study: Study, running: Running, tick_id: int) -> str:
    """Wait until a group is at a tick of its first trial, and those before it are stored; return the trial's id."""
    server = running.server
    await until(server, lambda: server.machine.groups and server.machine.groups[1].trial_id)
    trial_id = server.machine.groups[1].trial_id
    async with study.trials.watch(trial_id) as watch:
        while (trial := await study.trials.trial(trial_id)) is None or trial.samples_count < tick_id + 1:
            await watch.changed()
    return trial_id


async def take_part(running: Running, people: list[AutomaticParticipant], *, until_over: Any = None) -> None:
    """Have programs take part until they are at an end, or something else is over."""
    async with trio.open_nursery() as nursery:

        async def all_of_them() -> None:
            async with trio.open_nursery() as inner:
                for each in people:
                    inner.start_soon(each.run)
            nursery.cancel_scope.cancel()

        nursery.start_soon(all_of_them)
        if until_over is not None:
            await until_over()
            nursery.cancel_scope.cancel()


def again(running: Running, people: list[AutomaticParticipant], **options: Any) -> list[AutomaticParticipant]:
    """Return the same people, as their pages open their connections again, at another server."""
    found = []
    for number, person in enumerate(people):
        other = AutomaticParticipant(running.server, Random(100 + number), **options)
        other.ticket, other.id = person.ticket, person.id
        found.append(other)
    return found


async def interrupted(study: Study, tick_id: int, *, stops: bool = False) -> tuple[str, list[AutomaticParticipant]]:
    """Have two programs play until a tick of the first trial, when the server dies or stops; return who they are."""
    trial_id = ""
    async with study.running(stops=stops) as running:
        people = [AutomaticParticipant(running.server, Random(k)) for k in (1, 2)]

        async def reached() -> None:
            nonlocal trial_id
            trial_id = await until_tick(study, running, tick_id)
            if not stops:
                running.die()

        if stops:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take_part, running, people)
                await reached()
                await running.platform.stop()
                nursery.cancel_scope.cancel()
        else:
            await take_part(running, people, until_over=reached)
    return trial_id, people


@pytest.mark.parametrize("stops", [False, True])
async def test_a_trial_goes_on_at_the_last_stored_tick(stops: bool, tmp_path: Path, autojump_clock: MockClock) -> None:
    study = Study(tmp_path)
    trial_id, people = await interrupted(study, 2, stops=stops)
    last = (await get(study.trials, trial_id)).samples_count - 1
    assert last >= 2
    await trio.sleep(300)  # longer than an unattended trial is waited for
    async with study.running() as running:
        [group] = overview(running.server)["groups"]
        assert (group["playing"], group["interrupted"]) == (False, True)
        await take_part(running, again(running, people))
    await study.check_complete()
    found = {each.what: each.detail for each in study.events() if each.what.startswith("trial ")}
    assert "trial lost" not in found
    assert found["trial interrupted"] == {"trial": 0, "trial_id": trial_id}
    on = found["trial goes on"]
    assert (on["trial_id"], on["tick"], on["attempt"]) == (trial_id, last, 2)
    params = (await get(study.trials, trial_id)).params.properties
    assert (params["resume.tick"], params["resume.owner"]) == (str(last), "meeting")


async def test_it_waits_until_everybody_is_back_and_says_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    study = Study(tmp_path)
    trial_id, people = await interrupted(study, 1)
    before = (await get(study.trials, trial_id)).samples_count
    async with study.running() as running:
        first, second = people
        async with page(running.server, ticket=first.ticket, again=True) as socket:
            waits = await state(socket)
            assert (waits["step"], waits["interrupted"], waits["trials_done"]) == ("ready", True, 0)
            await trio.sleep(50)  # shorter than those who are away have
            assert (await get(study.trials, trial_id)).samples_count == before
            async with page(running.server, ticket=second.ticket, again=True):
                seat = (await state(socket, lambda message: message.get("seat")))["seat"]
                assert (seat["trial"], seat["number"]) == (trial_id, 1)


async def test_a_group_whose_people_stay_away_ends_and_so_does_its_trial(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    study = Study(tmp_path)
    trial_id, people = await interrupted(study, 1)
    async with study.running() as running:
        person, gone = again(running, people)[:1], people[1].id
        await take_part(running, person)
        assert person[0].end == "partial"
        assert running.server.machine.people[gone].end == "gone"
        await trio.sleep(1)
    assert (await get(study.trials, trial_id)).end.name == "ABNORMAL"
    assert b"have not come back" in (await get(study.trials, trial_id)).outcome


async def test_who_stayed_away_has_a_stand_in_again_and_may_come_back(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Nobody waits for somebody in whose place another one acted before the server died."""
    study = Study(tmp_path, example(dropout=Dropout(then="bot", bot="random", grace_seconds=20)))
    async with study.running() as running:
        stays, goes = (AutomaticParticipant(running.server, Random(k), pause_seconds=5) for k in (1, 2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays.run)
            with trio.CancelScope() as scope:

                async def leave() -> None:
                    await until_tick(study, running, 0)
                    scope.cancel()

                nursery.start_soon(leave)
                await goes.run()
            await until(running.server, lambda: running.server.machine.groups[1].absent == [goes.id])
            trial_id = running.server.machine.groups[1].trial_id
            await running.server.flush()
            running.die()
            nursery.cancel_scope.cancel()
    async with study.running() as running:
        began = trio.current_time()
        [stays] = again(running, [stays], pause_seconds=5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays.run)
            await until(running.server, lambda: running.server.machine.groups[1].playing)
            assert trio.current_time() - began < 5  # nobody has been waited for
            await until(running.server, lambda: running.server.machine.groups[1].absent == [goes.id])
            await until(running.server, lambda: running.server.seat_of(goes.id))
            seat = running.server.seat_of(goes.id)
            assert seat is not None
            await trio.sleep(1)
            assert seat.state.value == "absent"
            nursery.start_soon(seat.serve_page, MemorySocket())
            await until(running.server, lambda: running.server.machine.groups[1].absent == [])
            assert seat.state.value == "held"
            nursery.cancel_scope.cancel()
    [on] = [each.detail for each in study.events() if each.what == "trial goes on"]
    assert on["trial_id"] == trial_id


class Unlike:
    """An environment that plays otherwise each time: its past cannot be played again."""

    made = 0

    def __new__(cls, **arguments: Any) -> Any:
        meeting = resolve("coordination:Meeting")

        class Other(meeting):  # type: ignore[misc, valid-type]  # found at runtime
            def step(self, actions: Any) -> Any:
                observations, *rest = super().step(actions)
                return ({agent: (cls.made + each) % 3 for agent, each in observations.items()}, *rest)

        cls.made += 1
        return Other(**arguments)


async def test_what_cannot_be_taken_up_is_played_again_from_its_beginning(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = example()
    plans = [replace(each, environment="unlike") for each in experiment.trials]
    study = Study(tmp_path, replace(experiment, trials=plans), {"unlike": Unlike})
    trial_id, people = await interrupted(study, 3)
    async with study.running() as running:
        await take_part(running, again(running, people))
    await study.check_complete()
    [lost] = [each.detail for each in study.events() if each.what == "trial lost"]
    assert lost["trial_id"] == trial_id
    assert "tick" in lost["reason"]
    assert "plays its trial again" in caplog.text
    assert (await get(study.trials, trial_id)).end.name != "OPEN"


async def test_what_cannot_be_prepared_any_more_is_played_again_and_does_not_stay_open(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(tmp_path)
    trial_id, people = await interrupted(study, 3)
    prepare = ExperimentTrials.prepare

    async def gone(*arguments: Any) -> Any:
        if arguments[-1] is not None:
            raise NotFoundError("there is no version 3 of the model")
        return await prepare(*arguments)

    monkeypatch.setattr(ExperimentTrials, "prepare", gone)
    async with study.running() as running:
        await take_part(running, again(running, people))
    await study.check_complete()
    [lost] = [each.detail for each in study.events() if each.what == "trial lost"]
    assert lost == {"trial": 0, "trial_id": trial_id, "reason": "there is no version 3 of the model"}
    trial = await get(study.trials, trial_id)
    assert trial.end.name == "ABNORMAL"
    assert b"there is no version 3 of the model" in trial.outcome


async def test_an_end_that_is_in_the_samples_alone_is_told_apart(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    study = Study(tmp_path)
    trial_id, people = await interrupted(study, 3)
    await study.trials.apply([EndWrite(trial_id, TrialEnd.ENDED)])
    async with study.running() as running:
        await take_part(running, again(running, people))
    assert (
        f"group 1 plays trial {trial_id!r} again, from its beginning: trial {trial_id!r}: it has ended" in caplog.text
    )
    assert "another process" not in caplog.text


async def test_a_file_may_want_trials_to_be_played_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    study = Study(tmp_path, example(after_restart="again"))
    trial_id, people = await interrupted(study, 2)
    async with study.running() as running:
        await take_part(running, again(running, people))
    kinds = [each.what for each in study.events()]
    assert kinds.count("trial lost") == 1
    assert "trial goes on" not in kinds
    assert trial_id not in {row["trial_id"] for row in study.table("actions")[-20:]}


async def simulated(seed: int, path: Path) -> None:
    """Two groups play; the server dies or stops at moments that are drawn."""
    draw = Random(seed)
    study = Study(path)
    deaths, seen = draw.randint(1, 4), 0
    stored: dict[str, int] = {}
    people: list[AutomaticParticipant] = []
    for life in range(deaths + 1):
        stops, lasts = draw.random() < 0.25, draw.choice([draw.uniform(0, 1.2), draw.uniform(0, 4)])
        async with study.running(stops=stops or life == deaths) as running:
            pause_seconds = draw.choice([0.1, 0.4])
            if people:
                people = again(running, people, pause_seconds=pause_seconds)
            else:
                drawn = [Random(10 * seed + k) for k in range(4)]
                people = [AutomaticParticipant(running.server, each, pause_seconds=pause_seconds) for each in drawn]

            async def end(running: Running = running, lasts: float = lasts, stops: bool = stops) -> None:
                await trio.sleep(lasts)
                if stops:
                    await running.platform.stop()
                    return
                running.die()

            await take_part(running, people, until_over=end if life < deaths else None)
        events = study.events()
        for each in events[seen:]:
            if each.what == "trial goes on":
                # Nothing that was stored is asked again, but the last tick.
                assert each.detail["tick"] == max(stored[each.detail["trial_id"]] - 1, 0)
        seen = len(events)
        stored = {name: (await get(study.trials, name)).samples_count for name in await study.trials.open_logged()}
        await trio.sleep(draw.choice([0, 100]))
    await study.check_complete(2)


@pytest.mark.parametrize("seed", range(5))
async def test_a_server_may_die_at_any_moment(seed: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    await simulated(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5, 300))
async def test_a_server_may_die_at_any_moment_many_times(seed: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    await simulated(seed, tmp_path)
