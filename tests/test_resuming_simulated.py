"""Trials that go on, on a virtual clock: processes die, freeze, stop and come back, and the database fails.

An account beside the database knows which writes it has taken, of which attempt, and when: the trials are compared with
it at the end of each run.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import pytest
import trio

from trio_cogment import Participants, Platform, open_platform
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.config import DatastoreConfig, OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import CogmentError, TrialFailedError, UnavailableError
from trio_cogment.rpc import serve
from trio_cogment.sdk import ActorSession, EnvironmentSession, actor_params, trial_params
from trio_cogment.servers.datastore import Datastore, TrialEnd, datastore_services
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import RELEASED, SampleWrite, TrialWrite, Write
from trio_cogment.testing import Outcome, World
from trio_cogment.testing.conformance.trial_store import get, read

Sim: TypeAlias = Callable[[Callable[[World], Awaitable[None]]], Outcome[None]]

LAST_TICK = 15
TRIAL_IDS = ("a", "b", "c")
TOTALS = [b"%d" % sum(range(tick)) for tick in range(LAST_TICK + 1)]
PARAMS = trial_params([actor_params("ann", "cls", implementation="adds")], environment="sum")
#: A trial may be interrupted often here.
CONFIG = PlatformConfig(
    orchestrator=OrchestratorConfig(resume=True, resume_attempts=1000, resume_patience_seconds=300),
    datastore=DatastoreConfig(abandoned_after_seconds=25, abandoned_after_start_seconds=45),
)


class Account:
    """What the database has taken, as told by the side that has it.

    Attributes:
        attempts: of each trial, the attempts that have written to it, in the order of time.
        acknowledged: of each trial, the highest tick whose sample was confirmed to an attempt that was alive.
    """

    def __init__(self) -> None:
        self.attempts: defaultdict[str, list[int]] = defaultdict(list)
        self.acknowledged: defaultdict[str, int] = defaultdict(lambda: -1)

    def takes(self, writes: Sequence[Write], refused: Mapping[int, str]) -> None:
        """Take note of a batch that is in the database."""
        for index, write in enumerate(writes):
            if index in refused:
                continue
            assert write.attempt, f"{write}: every write here is of an attempt"
            attempts = self.attempts[write.trial_id]
            # Of a trial that was taken over nobody but who has it, or takes it over next, writes any more.
            expected = len(attempts) + 1 if isinstance(write, TrialWrite) and write.takes_over else len(attempts)
            if isinstance(write, TrialWrite) and write.attempt == len(attempts) + 1:
                attempts.append(write.attempt)
                assert write.takes_over or write.attempt == 1
                expected = write.attempt
            assert write.attempt == expected, f"{write}: the trial is at attempt {len(attempts)}"

    def confirms(self, writes: Sequence[Write], refused: Mapping[int, str]) -> None:
        """Take note of a batch that was confirmed to who has written it."""
        for index, write in enumerate(writes):
            if index not in refused and isinstance(write, SampleWrite) and write.state != TrialState.ENDED:
                self.acknowledged[write.trial_id] = max(self.acknowledged[write.trial_id], write.tick_id)


class Process:
    """The database as a process has it, which may die or freeze at any moment, or be told that the database is away.

    Attributes:
        is_dead: nothing of the process reaches the database any more.
        moving: the process runs; a frozen one goes on later, and does not know.
        away_until: the database answers nobody.
    """

    def __init__(self, store: MemoryStore, account: Account, rng: random.Random) -> None:
        self._store = store
        self._account = account
        self._rng = rng
        self.is_dead = False
        self.moving = trio.Event()
        self.moving.set()
        self.away_until = 0.0

    async def _pass(self) -> None:
        await trio.sleep(self._rng.uniform(0.001, 0.2))
        await self.moving.wait()
        if self.is_dead or trio.current_time() < self.away_until:
            raise UnavailableError("the database does not answer")

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        await self._pass()
        refused = await self._store.apply(writes)
        self._account.takes(writes, refused)
        await self._pass()  # what was done, and not confirmed
        self._account.confirms(writes, refused)
        return refused

    async def trial(self, trial_id: str) -> Any:
        await self._pass()
        return await self._store.trial(trial_id)

    async def trials(self, **options: Any) -> Any:
        await self._pass()
        return await self._store.trials(**options)

    async def open_logged(self) -> list[str]:
        await self._pass()
        return await self._store.open_logged()

    async def samples(self, *arguments: Any, **options: Any) -> Any:
        await self._pass()
        return await self._store.samples(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Run:
    """One run: a database that lasts, and processes one after the other."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.stream("deaths")
        self.account = Account()
        self.store = MemoryStore(1 << 30)
        self.frozen: list[Process] = []
        #: With which tick the attempts of each trial have begun.
        self.begun: defaultdict[str, list[int]] = defaultdict(list)
        #: The longest that an environment needs for a tick.
        self.slowest = 1.0
        self.wrong: list[str] = []

    async def environment(self, process: Process, session: EnvironmentSession) -> None:
        trial_id, taken = session.trial_id, session.take_up()
        past = () if taken is None else taken.past[:-1]
        total = sum(int(tick.actions[0]) for tick in past)
        first = 0 if taken is None else taken.tick_id
        if first < self.account.acknowledged[trial_id]:
            self.wrong.append(f"{trial_id}: tick {first}: {self.account.acknowledged[trial_id]} was acknowledged")
        self.begun[trial_id].append(first)
        attempt = len(self.account.attempts[trial_id])
        await session.start([("*", b"%d" % total)])
        async for event in session.all_events():
            if event.actions is not None:
                self.lives(process, trial_id, attempt, f"has the actions of tick {session.tick_id}")
                total += int(event.actions[0].payload)
                await trio.sleep(self.rng.uniform(0.1, self.slowest))
                finish = session.end if session.tick_id + 1 == LAST_TICK else session.produce_observations
                await finish([("*", b"%d" % total)])

    async def actor(self, process: Process, session: ActorSession) -> None:
        attempt = len(self.account.attempts[session.trial_id])
        async for event in session.all_events():
            if event.observation is not None:
                self.lives(process, session.trial_id, attempt, f"shows tick {event.observation.tick_id}")
                await trio.sleep(self.rng.uniform(0.0, 0.3))
                await session.do_action(b"%d" % event.observation.tick_id)

    def lives(self, process: Process, trial_id: str, attempt: int, what: str) -> None:
        """Take note that an attempt goes on: nobody else may have the trial then."""
        has = len(self.account.attempts[trial_id])
        if attempt != has and not process.is_dead and process not in self.frozen:
            self.wrong.append(f"{trial_id}: attempt {attempt} {what}, and the trial is at attempt {has}")

    async def is_over(self) -> bool:
        trials = [await self.store.trial(trial_id) for trial_id in TRIAL_IDS]
        return all(trial is not None and trial.end is TrialEnd.ENDED for trial in trials)

    async def main(self) -> None:
        async with trio.open_nursery() as nursery:
            number = 0
            while not await self.is_over():
                number += 1
                process = Process(self.store, self.account, self.rng)
                how = self.rng.choice(["killed", "killed", "frozen", "stopped", "away"]) if number < 8 else "lasts"
                self.world.history.record("world", how)
                self.world.sometimes(how)
                await nursery.start(self.live, process, how)
                await trio.sleep(self.rng.uniform(0.0, 5.0))
            for process in self.frozen:
                process.moving.set()
            nursery.cancel_scope.deadline = trio.current_time() + 60
        await self.check()

    async def live(self, process: Process, how: str, *, task_status: trio.TaskStatus[None]) -> None:
        """Be a process until it dies, or its trials are over; then the next one may begin."""
        participants = Participants()
        participants.register_environment(partial(self.environment, process), "sum")
        participants.register_actor(partial(self.actor, process), "adds")
        with trio.CancelScope() as scope:
            async with self.world.open_platform(participants, store=process, config=CONFIG) as platform:
                platform.reached_at("grpc://here:9000")
                await self.start_missing(platform)
                if how == "away":
                    await trio.sleep(self.rng.uniform(0.0, 4.0))
                    process.away_until = trio.current_time() + self.rng.uniform(1.0, 40.0)
                await self.last(how)
                if how == "stopped":
                    await platform.stop()
                elif how == "frozen":
                    # It is believed to be dead, and comes back when others have its trials.
                    process.moving = trio.Event()
                    self.frozen.append(process)
                    task_status.started()
                    await process.moving.wait()
                    await trio.sleep_forever()
                elif how != "lasts":
                    process.is_dead = True
                    scope.cancel()
        task_status.started()

    async def start_missing(self, platform: Platform) -> None:
        for trial_id in TRIAL_IDS:
            if await self.store.trial(trial_id) is None:
                try:
                    await platform.controller.start_trial(PARAMS, trial_id=trial_id)
                except CogmentError as error:
                    self.world.history.record("world", f"{trial_id}: {error}")

    async def last(self, how: str) -> None:
        longest = 600.0 if how == "lasts" else self.rng.uniform(0.0, 10.0)
        with trio.move_on_after(longest):
            async with self.store.watch() as watch:
                while not await self.is_over():
                    await watch.changed()

    async def check(self) -> None:
        assert not self.wrong
        for trial_id in TRIAL_IDS:
            trial = await get(self.store, trial_id)
            assert trial.end is TrialEnd.ENDED, f"{trial_id}: {trial.end.name}: {trial.outcome!r}"
            rows = [StoredTrialSample.FromString(row.data) for row in await read(self.store, trial_id)]
            assert [row.tick_id for row in rows] == list(range(LAST_TICK + 1))
            assert [row.payloads[row.actor_samples[0].observation] for row in rows] == TOTALS
            assert trial.attempt == len(self.account.attempts[trial_id])
            assert trial.endpoint != RELEASED
            if len(self.begun[trial_id]) > 1:
                self.world.sometimes("a trial goes on")


@pytest.mark.sim(seeds=8)
def test_every_tick_is_there_once_whatever_dies(sim: Sim) -> None:
    """Nothing is written by an attempt that was replaced, and every trial comes to the end that it would have had."""

    async def run(world: World) -> None:
        await Run(world).main()

    sim(run)


#: Of virtual time; by then everybody has lasted for some minutes.
_LONGEST_SECONDS = 1000.0


class RunElsewhere(Run):
    """One run of two orchestrators over a network, and a datastore in a process of its own, each of which dies."""

    async def main(self) -> None:
        self.slowest = self.rng.choice([1.0, 12.0, 12.0, 12.0])
        async with trio.open_nursery() as nursery:
            await nursery.start(self.datastores)
            for name in ("one", "two"):
                nursery.start_soon(self.orchestrators, name)
            with trio.move_on_after(_LONGEST_SECONDS):
                async with self.store.watch() as watch:
                    while not await self.is_over():
                        await watch.changed()
            nursery.cancel_scope.cancel()
        await self.check()

    async def datastores(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve the database by one process after the other."""
        machine = self.world.network.host("store")
        for number in itertools.count():
            process = Process(self.store, self.account, self.rng)
            with machine.running():
                async with Datastore(process, config=CONFIG.datastore) as datastore, trio.open_nursery() as nursery:
                    listening = [machine.listen(9003)]
                    await nursery.start(serve, datastore_services(datastore), listening)
                    if not number:
                        task_status.started()
                    await trio.sleep(self.rng.uniform(1.0, 60.0) if number < 3 else math.inf)
                    self.world.sometimes("the datastore dies")
                    process.is_dead = True
                    machine.crash()
            await trio.sleep(self.rng.uniform(0.0, 20.0))
            machine.restart()

    async def orchestrators(self, name: str) -> None:
        """Be orchestrators of one endpoint, one process after the other."""
        machine = self.world.network.host(name)
        for number in itertools.count():
            how = self.rng.choice(["killed", "stopped", "parted", "parted"]) if number < 4 else "lasts"
            self.world.history.record(name, how)
            process = Process(self.store, self.account, self.rng)
            with machine.running():
                await self.orchestrate(name, process, how)
            machine.restart()
            await trio.sleep(self.rng.uniform(0.0, 8.0))

    async def orchestrate(self, name: str, process: Process, how: str) -> None:
        """Be an orchestrator until it dies."""
        participants = Participants()
        participants.register_environment(partial(self.environment, process), "sum")
        participants.register_actor(partial(self.actor, process), "adds")
        config = replace(CONFIG, orchestrator=replace(CONFIG.orchestrator, datastore="grpc://store:9003"))
        network = self.world.network
        async with open_platform(participants, host=self.world.host(name), config=config) as platform:
            platform.reached_at(f"grpc://{name}:9000")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.keep_starting, platform)
                await trio.sleep(math.inf if how == "lasts" else self.rng.uniform(0.5, 12.0))
                nursery.cancel_scope.cancel()
            self.world.sometimes(f"an orchestrator: {how}")
            if how == "parted":
                network.partition([name], ["store"])
                await trio.sleep(self.rng.uniform(5.0, 90.0))
                network.heal([name], ["store"])
                await trio.sleep(self.rng.uniform(0.0, 45.0))
            if how == "stopped":
                await platform.stop()
            else:
                process.is_dead = True
                network.host(name).crash()

    async def keep_starting(self, platform: Platform) -> None:
        while True:
            await self.start_missing(platform)
            await trio.sleep(1.0)


@pytest.mark.sim(seeds=10)
def test_the_same_of_orchestrators_whose_datastore_is_another_process(sim: Sim) -> None:
    """Two orchestrators and the datastore die and come back in any order, and are parted from each other."""

    async def run(world: World) -> None:
        await RunElsewhere(world).main()

    sim(run)


#: Beside the time of a tick: a promise.
_LONGEST_GAP_SECONDS = 1.0
_TICK_SECONDS = 0.05
#: When one that is cut off shows nothing more: it notices in 10 s, and plays on for `datalog_grace_seconds`.
_LAST_SHOWN_SECONDS = 20.0
_DRAINED = tuple(f"t{number}" for number in range(50))


class Two:
    """Two orchestrators at a datastore elsewhere, on a virtual clock.

    Args:
        world: has three machines: `one`, `two`, and `store`.
        ticks: of each trial.

    Attributes:
        asked: when the actor of each trial was asked, tick by tick.
        places: at which of them that was.
    """

    def __init__(self, world: World, ticks: int = 2 * LAST_TICK) -> None:
        self.world = world
        self.ticks = ticks
        self.store = MemoryStore(1 << 30)
        self.asked: defaultdict[str, list[float]] = defaultdict(list)
        self.places: defaultdict[str, list[str]] = defaultdict(list)

    async def environment(self, session: EnvironmentSession) -> None:
        session.take_up()
        await session.start([("*", b"")])
        async for event in session.all_events():
            if event.actions is not None:
                await trio.sleep(_TICK_SECONDS)
                finish = session.end if session.tick_id + 1 == self.ticks else session.produce_observations
                await finish([("*", b"")])

    async def actor(self, place: str, session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                self.asked[session.trial_id].append(trio.current_time())
                self.places[session.trial_id].append(place)
                await session.do_action(b"")

    @asynccontextmanager
    async def orchestrator(self, name: str) -> AsyncIterator[Platform]:
        participants = Participants()
        participants.register_environment(self.environment, "sum")
        participants.register_actor(partial(self.actor, name), "adds")
        config = replace(CONFIG, orchestrator=replace(CONFIG.orchestrator, datastore="grpc://store:9003"))
        with self.world.network.host(name).running():
            async with open_platform(participants, host=self.world.host(name), config=config) as platform:
                platform.reached_at(f"grpc://{name}:9000")
                yield platform

    @asynccontextmanager
    async def playing(self, trial_ids: Sequence[str]) -> AsyncIterator[Platform]:
        """Let the first one play trials; it is there for the time of the block. Then wait until they have ended."""
        machine = self.world.network.host("store")
        async with trio.open_nursery() as nursery, Datastore(self.store, config=CONFIG.datastore) as datastore:
            with machine.running():
                listening = [machine.listen(9003)]
                await nursery.start(serve, datastore_services(datastore), listening)
            async with self.orchestrator("two"):
                async with self.orchestrator("one") as platform:
                    for trial_id in trial_ids:
                        await platform.controller.start_trial(PARAMS, trial_id=trial_id)
                    await trio.sleep(10 * _TICK_SECONDS)
                    yield platform
                async with self.store.watch() as watch:
                    while [trial for trial in await self.store.open_logged() if trial in trial_ids]:
                        await watch.changed()
            nursery.cancel_scope.cancel()
        for trial_id in trial_ids:
            trial = await get(self.store, trial_id)
            assert (trial.end, trial.samples_count, trial.attempt) == (TrialEnd.ENDED, self.ticks + 1, 2)
            assert set(self.places[trial_id]) == {"one", "two"}


@pytest.mark.sim(seeds=1)
def test_fifty_trials_stand_still_for_a_second_at_most_when_their_orchestrator_is_stopped(sim: Sim) -> None:
    """The time that the program waits for something; on a busy machine its own work is added."""

    async def run(world: World) -> None:
        two = Two(world)
        async with two.playing(_DRAINED) as one:
            await one.stop()
        for trial_id in _DRAINED:
            gap = max(later - earlier for earlier, later in itertools.pairwise(two.asked[trial_id]))
            assert gap <= _LONGEST_GAP_SECONDS + _TICK_SECONDS, trial_id

    sim(run)


@pytest.mark.sim(seeds=1)
def test_an_orchestrator_that_is_cut_off_waits_before_another_one_has_its_trial(sim: Sim) -> None:
    """It plays on for a while, in case the datastore comes back; no tick is shown at two places at a time."""

    async def run(world: World) -> None:
        two, cut = Two(world, ticks=1000), (["one"], ["store"])
        async with two.playing(["t"]) as one:
            asked, places = two.asked["t"], two.places["t"]
            world.network.partition(*cut)
            await trio.sleep(5)
            world.network.heal(*cut)
            await trio.sleep(20)
            gap = max(later - earlier for earlier, later in itertools.pairwise(asked))
            assert gap <= _LONGEST_GAP_SECONDS
            began = trio.current_time()
            world.network.partition(*cut)
            while places[-1] != "two":  # noqa: ASYNC110  it is the other one's turn some time
                await trio.sleep(0.1)
            shown = places.index("two")
            assert asked[shown - 1] <= began + _LAST_SHOWN_SECONDS
            assert asked[shown] >= began + CONFIG.datastore.abandoned_after_seconds
            world.network.heal(*cut)
            with pytest.raises(TrialFailedError, match="it goes on elsewhere: trial 't': attempt 1 may not write it"):
                await one.controller.wait_trial("t")
        assert places == sorted(places)  # nothing more of it once the other one has the trial

    sim(run)
