"""Trials that go on at another orchestrator: after a death, after a stop, and never at two."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment import Participants, Platform, open_platform
from trio_cogment.access import Quotas
from trio_cogment.api.common_pb2 import EndOfTrial, TrialParams, TrialState
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import QuotaError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.taking_up import broken_off
from trio_cogment.resuming import STEPS, Candidate, Notice, Resuming, Step, candidate
from trio_cogment.sdk import ActorSession, EnvironmentSession, StoredSample, actor_params, trial_params
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import RELEASED, StoredTrial, TrialEnd, TrialWrite
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.testing.conformance.trial_store import get

LAST_TICK = 12


class Table:
    """The participants of a sum that grows by its tick in each tick, and what a test does in the middle of it.

    Attributes:
        asked: at the observation of which tick `on_tick` is called, once.
        ticks: those that the actor has seen, in the order of time.
    """

    def __init__(self, asked: int = -1, on_tick: Callable[[], None] | None = None, *, takes_up: bool = True) -> None:
        self.asked = asked
        self.on_tick = on_tick
        self.takes_up = takes_up
        self.ticks: list[int] = []

    async def environment(self, session: EnvironmentSession) -> None:
        taken = session.take_up() if self.takes_up else None
        total = 0
        if taken is not None:
            total = sum(int(tick.actions[0]) for tick in taken.past[:-1])
        await session.start([("*", b"%d" % total)])
        async for event in session.all_events():
            if event.actions is None:
                continue
            total += int(event.actions[0].payload)
            finish = session.end if session.tick_id + 1 == LAST_TICK else session.produce_observations
            await finish([("*", b"%d" % total)])

    async def actor(self, session: ActorSession) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is None:
                continue
            tick_id = event.observation.tick_id
            self.ticks.append(tick_id)
            if tick_id == self.asked and self.on_tick is not None:
                asked, self.on_tick = self.on_tick, None
                asked()
                await trio.sleep_forever()
            await session.do_action(b"%d" % tick_id)

    def participants(self) -> Participants:
        made = Participants()
        made.register_environment(self.environment, "sum")
        made.register_actor(self.actor, "adds")
        return made


PARAMS = trial_params([actor_params("a", "cls", implementation="adds")], environment="sum")
TOTALS = [b"%d" % sum(range(tick)) for tick in range(LAST_TICK + 1)]


class Mortal:
    """A storage as a process has it that may die: from then on nothing of that process reaches it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        if name in ("exclusive", "release_abandoned"):
            raise AttributeError(name)
        if self.is_dead:
            raise UnavailableError("the process is dead")
        return getattr(self._store, name)


@asynccontextmanager
async def orchestrator(
    store: Any, table: Table, endpoint: str = "grpc://here:9000", **settings: Any
) -> AsyncIterator[Platform]:
    config = PlatformConfig(orchestrator=OrchestratorConfig(**{"resume": True, "farewell_seconds": 0.5, **settings}))
    async with open_platform(table.participants(), store=store, config=config) as platform:
        platform.reached_at(endpoint)
        yield platform


async def killed(
    store: MemoryStore,
    tick_id: int,
    trial_id: str = "t",
    branch: tuple[str, int] | None = None,
    params: TrialParams = PARAMS,
    **settings: Any,
) -> None:
    """Run a trial until a tick, in a process that is killed there."""
    mortal = Mortal(store)
    reached = trio.Event()
    table = Table(tick_id, reached.set)
    with trio.CancelScope() as scope:
        async with orchestrator(mortal, table, **settings) as platform:
            if branch is None:
                await platform.controller.start_trial(params, trial_id=trial_id)
            else:
                await platform.controller.start_branch(*branch, trial_id=trial_id)
            await reached.wait()
            await stored(store, trial_id, tick_id - 1 - (0 if branch is None else branch[1]))
            mortal.is_dead = True
            scope.cancel()
    assert (await get(store, trial_id)).end is TrialEnd.OPEN


async def stored(store: MemoryStore, trial_id: str, samples: int) -> None:
    """Wait until a trial has so many samples."""
    with trio.fail_after(10):
        async with store.watch(trial_id) as watch:
            while (await get(store, trial_id)).samples_count < samples:
                await watch.changed()


async def over(platform: Platform, trial_id: str = "t") -> list[StoredSample]:
    """Wait until a trial has ended that somebody goes on with; return its samples."""
    client = platform.datastore_client()
    with trio.fail_after(8):
        async for _ in client.samples([trial_id], follow=True):
            pass
        # Who has followed it saw the last tick of the attempt before, too.
        return [sample async for sample in client.samples([trial_id], partial=True)]


def totals(samples: list[StoredSample]) -> list[Any]:
    return [sample.actors["a"].observation for sample in samples]


@pytest.mark.parametrize(("what", "notice"), list(itertools.product(Candidate, Notice)))
def test_every_pair_has_its_step(what: Candidate, notice: Notice) -> None:
    """Only what nobody runs and nobody has ended is touched, and what may not go on is ended."""
    step = STEPS[what, notice]
    assert (step is Step.TAKE_OVER) is (what is Candidate.LEFT)
    assert (step is Step.END) is (what is Candidate.SPENT and notice is Notice.LEFT_OPEN)


@pytest.mark.parametrize(
    ("end", "attempt", "runs_here", "expected"),
    [
        (TrialEnd.OPEN, 1, True, Candidate.HERE),
        (TrialEnd.ENDED, 1, False, Candidate.OVER),
        (TrialEnd.OPEN, 0, False, Candidate.UNCOUNTED),
        (TrialEnd.OPEN, 3, False, Candidate.SPENT),
        (TrialEnd.OPEN, 2, False, Candidate.LEFT),
        (TrialEnd.ABNORMAL, 2, False, Candidate.LEFT),
    ],
)
def test_candidates(end: TrialEnd, attempt: int, runs_here: bool, expected: Candidate) -> None:
    trial = StoredTrial(1, "t", "me", PARAMS, 3, TrialState.RUNNING, end, logged=True, attempt=attempt)
    assert candidate(trial, runs_here=runs_here, most_attempts=3) is expected


@pytest.mark.parametrize("tick_id", [0, 1, 5, LAST_TICK - 1])
async def test_a_trial_goes_on_after_the_death_of_its_orchestrator(tick_id: int) -> None:
    """It goes on with the last stored tick: the rest is what it would have been, and every tick is there once."""
    store = MemoryStore(1 << 30)
    await killed(store, tick_id)
    stored = (await get(store, "t")).samples_count
    table = Table()
    async with orchestrator(store, table) as platform:
        samples = await over(platform)
        assert [sample.tick_id for sample in samples] == list(range(LAST_TICK + 1))
        assert totals(samples) == TOTALS
        first = max(0, stored - 1)
        assert table.ticks == list(range(first, LAST_TICK + 1))
        trial = await get(store, "t")
        assert dict(trial.params.properties) == {"resume.attempt": "2", "resume.tick": str(first)}
        assert (trial.end, trial.attempt) == (TrialEnd.ENDED, 2)
        (info,) = await platform.controller.trial_infos(["t"])
        assert dict(info.properties) == dict(trial.params.properties)


@pytest.mark.parametrize("tick_id", [4, 5, 8])
async def test_a_branch_goes_on_with_what_was_before_it(tick_id: int) -> None:
    """Its own samples begin with its first tick; what is before is read of the trial of which it is a branch."""
    store = MemoryStore(1 << 30)
    async with orchestrator(store, Table()) as platform:
        await platform.controller.start_trial(PARAMS, trial_id="first")
        await over(platform, "first")
    await killed(store, tick_id, branch=("first", 4))
    had = (await get(store, "t")).samples_count
    table = Table()
    async with orchestrator(store, table) as platform:
        samples = await over(platform)
    assert [sample.tick_id for sample in samples] == list(range(4, LAST_TICK + 1))
    assert totals(samples) == TOTALS[4:]
    assert table.ticks == list(range(4 + max(0, had - 1), LAST_TICK + 1))
    properties = (await get(store, "t")).params.properties
    assert (properties["branch.trial"], properties["branch.tick"], properties["resume.attempt"]) == ("first", "4", "2")


@pytest.mark.parametrize(("owner", "reads"), [("token:ann", True), ("token:mallory", False), ("", True)])
async def test_a_branch_is_not_given_the_past_of_somebody_elses_trial(owner: str, reads: bool) -> None:
    """Its properties may have come into the store by whatever way; what this process has started may read all."""
    store = MemoryStore(1 << 30)
    async with orchestrator(store, Table()) as platform:
        await platform.orchestrator.start_trial(trial_id="first", user_id="a", params=PARAMS, account="token:ann")
        await over(platform, "first")
    params = TrialParams()
    params.CopyFrom(PARAMS)
    params.properties.update({"branch.trial": "first", "branch.tick": "4"})
    await store.apply([TrialWrite("t", "m", params, True, owner, RELEASED, 1)])
    table = Table()
    async with orchestrator(store, table) as platform:
        samples = await over(platform)
    if reads:
        assert totals(samples) == TOTALS[4:]
    else:
        assert not samples
        assert not table.ticks
        assert "it belongs to somebody else" in EndOfTrial.FromString((await get(store, "t")).outcome).reason


#: Whoever starts a trial, with an endpoint that a name leads to, and what is kept of that one's limits.
LIMITS = {"resume.reach": "192.0.2.7", "resume.quotas": "trials=1", "resume.run": "run-3"}


@pytest.mark.parametrize("endpoint", ["grpc://127.0.0.1:1", "cogment://discover"])
async def test_a_trial_that_goes_on_is_bound_by_the_limits_of_who_has_started_it(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a peer's endpoint would lead anywhere after a restart, and its quotas would count no more."""
    store = MemoryStore(1 << 30)
    mortal, reached = Mortal(store), trio.Event()
    params = TrialParams()
    params.CopyFrom(PARAMS)
    params.datalog.endpoint = "cogment://discover"
    named = params.actors.add(name="b", actor_class="cls", endpoint=endpoint, implementation="adds")
    named.optional = True
    named.initial_connection_timeout = 0.1
    given: dict[str, Any] = {
        "account": "token:ann",
        "quotas": Quotas(trials=1),
        "run_id": "run-3",
        "reach": "192.0.2.7",
    }
    with trio.CancelScope() as scope:
        async with orchestrator(mortal, Table(5, reached.set)) as platform:
            await platform.orchestrator.start_trial(trial_id="t", user_id="a", params=params, **given)
            await reached.wait()
            await stored(store, "t", 4)
            mortal.is_dead = True
            scope.cancel()
    names = endpoint.startswith("grpc")
    kept = {name: value for name, value in LIMITS.items() if names or name != "resume.reach"}
    assert dict((await get(store, "t")).params.properties) == kept
    seen: dict[str, Any] = {}
    reached = trio.Event()
    start_trial = Orchestrator.start_trial

    async def start(self: Orchestrator, **arguments: Any) -> str:
        seen.update(arguments)
        return await start_trial(self, **arguments)

    monkeypatch.setattr(Orchestrator, "start_trial", start)
    async with orchestrator(store, Table(8, reached.set)) as platform:
        with trio.fail_after(8):
            await reached.wait()
        trial = platform.orchestrator.trials.get("t")
        assert trial is not None
        assert (trial.holding.account, trial.holding.quotas, trial.holding.run_id) == (
            "token:ann",
            Quotas(trials=1),
            "run-3",
        )
        assert seen["reach"] == (LIMITS["resume.reach"] if names else None)
        with pytest.raises(QuotaError, match="the quota of 1 trials"):
            await platform.orchestrator.start_trial(user_id="a", params=PARAMS, **given)
    assert (await get(store, "t")).attempt >= 2


async def test_nothing_goes_on_unless_it_is_asked_for() -> None:
    store = MemoryStore(1 << 30)
    await killed(store, 3)
    table = Table()
    async with orchestrator(store, table, resume=False):
        await trio.sleep(1)
        assert (await get(store, "t")).attempt == 1
        assert not table.ticks


async def test_an_environment_that_cannot_go_on_ends_its_trial_and_says_so() -> None:
    store = MemoryStore(1 << 30)
    await killed(store, 3)
    async with orchestrator(store, Table(takes_up=False)) as platform:
        await over(platform)
    trial = await get(store, "t")
    assert trial.end is TrialEnd.ENDED
    assert "cannot be taken up at a tick" in EndOfTrial.FromString(trial.outcome).reason


async def test_after_its_last_attempt_a_trial_is_ended() -> None:
    store = MemoryStore(1 << 30)
    await killed(store, 3)
    async with orchestrator(store, Table(), resume_attempts=1) as platform:
        await over(platform)
    trial = await get(store, "t")
    assert (trial.end, trial.attempt) == (TrialEnd.ABNORMAL, 2)
    end = EndOfTrial.FromString(trial.outcome)
    assert EndCause.of(end.cause) is EndCause.NOT_STARTED
    assert "it has had 1 attempts that broke off" in end.reason


async def test_of_two_orchestrators_one_goes_on_with_a_trial() -> None:
    store = MemoryStore(1 << 30)
    await killed(store, 4)
    left = await get(store, "t")
    await store.apply([TrialWrite("t", left.user_id, left.params, True, left.owner, RELEASED, left.attempt)])
    tables = Table(), Table()
    async with (
        orchestrator(store, tables[0], "grpc://one:9000") as platform,
        orchestrator(store, tables[1], "grpc://two:9000"),
    ):
        assert totals(await over(platform)) == TOTALS
        assert (await get(store, "t")).attempt == 2
    assert sorted(len(table.ticks) > 0 for table in tables) == [False, True]


async def test_an_attempt_that_was_replaced_ends_and_leaves_its_successor_alone() -> None:
    """It was believed to be dead, and comes back: its participants are told, and nothing of it is stored."""
    store = MemoryStore(1 << 30)
    waits = trio.Event()
    first, second = Table(4, waits.set), Table()
    async with orchestrator(store, first, "grpc://first:1") as platform:
        await platform.controller.start_trial(PARAMS, trial_id="t")
        await waits.wait()
        await stored(store, "t", 3)
        async with orchestrator(store, second, "grpc://second:1") as other:
            assert other.datastore is not None
            assert other.orchestrator.running_trials == 0
            # What a lease, or another process, comes to believe.
            await trio.testing.wait_all_tasks_blocked()
            take_up = other.datastore._leases.take_up
            assert take_up is not None
            assert await take_up("t")
            assert totals(await over(other)) == TOTALS
            assert platform.datastore is not None
            for run in platform.orchestrator.runs:
                run.trial.hard_end("a sample that comes too late")
            with trio.fail_after(10):
                await platform.orchestrator._running.wait_value(0)
            trial = await get(store, "t")
            assert (trial.end, trial.attempt, trial.samples_count) == (TrialEnd.ENDED, 2, LAST_TICK + 1)
            assert b"too late" not in trial.outcome


async def test_a_stop_hands_trials_over_without_losing_a_tick() -> None:
    store = MemoryStore(1 << 30)
    waits = trio.Event()
    first, second = Table(6, waits.set), Table()
    async with orchestrator(store, second, "grpc://second:1") as other:
        async with orchestrator(store, first, "grpc://first:1") as platform:
            await platform.controller.start_trial(PARAMS, trial_id="t")
            await waits.wait()
            await platform.stop()
            assert platform.orchestrator.lost_samples == 0
        samples = await over(other)
        assert totals(samples) == TOTALS
        assert [sample.tick_id for sample in samples] == list(range(LAST_TICK + 1))
        assert second.ticks == list(range(6, LAST_TICK + 1))


async def test_a_trial_whose_environment_cannot_go_on_ends_with_the_stop() -> None:
    store = MemoryStore(1 << 30)
    waits = trio.Event()
    table = Table(3, waits.set, takes_up=False)
    async with orchestrator(store, table) as platform:
        await platform.controller.start_trial(PARAMS, trial_id="t")
        await waits.wait()
    trial = await get(store, "t")
    assert (trial.end, trial.attempt) == (TrialEnd.ENDED, 1)
    assert EndCause.of(EndOfTrial.FromString(trial.outcome).cause) is EndCause.SERVER_STOPPED


def excluding(field: str) -> TrialParams:
    params = TrialParams()
    params.CopyFrom(PARAMS)
    params.datalog.endpoint = "cogment://discover"
    params.datalog.exclude_fields.append(field)
    return params


@pytest.mark.parametrize("field", ["info", "Observations", "actions"])
async def test_a_trial_whose_samples_have_no_actions_ends_with_the_stop(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(1 << 30)
    waits = trio.Event()
    table = Table(3, waits.set)
    async with orchestrator(store, table) as platform:
        await platform.controller.start_trial(excluding(field), trial_id="t")
        assert f"trial t: nobody can go on with it: its samples have no {field.lower()} (datalog" in caplog.text
        await waits.wait()
    trial = await get(store, "t")
    assert (trial.end, trial.attempt, trial.endpoint) == (TrialEnd.ENDED, 1, "grpc://here:9000")


@pytest.mark.parametrize("field", ["info", "Observations", "actions"])
async def test_a_trial_whose_samples_have_no_actions_is_ended_after_a_death(field: str) -> None:
    store = MemoryStore(1 << 30)
    await killed(store, 4, params=excluding(field))
    async with orchestrator(store, Table()) as platform:
        await over(platform)
    trial = await get(store, "t")
    assert (trial.end, trial.attempt) == (TrialEnd.ABNORMAL, 2)
    assert (
        f"it could not go on: its samples have no {field.lower()} (dat" in EndOfTrial.FromString(trial.outcome).reason
    )


class Slow(Table):
    """The same with a second for each action."""

    async def actor(self, session: ActorSession) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                self.ticks.append(event.observation.tick_id)
                await trio.sleep(1)
                await session.do_action(b"%d" % event.observation.tick_id)


async def test_a_trial_waits_while_a_storage_that_others_share_cannot_be_reached(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """They may take the trial over meanwhile: two attempts would show people two different games."""
    store, table = MemoryStore(1 << 30), Slow()
    mortal = Mortal(store)
    async with orchestrator(mortal, table) as platform:
        await platform.controller.start_trial(PARAMS, trial_id="t")
        await trio.sleep(4.5)
        mortal.is_dead = True
        await trio.sleep(5)
        seen = list(table.ticks)
        assert len(seen) < LAST_TICK
        await trio.sleep(60)
        assert table.ticks == seen
        mortal.is_dead = False
        with trio.fail_after(60):
            await platform.controller.wait_trial("t")
    assert table.ticks == list(range(LAST_TICK + 1))
    assert (await get(store, "t")).samples_count == LAST_TICK + 1


class NeverReady(Table):
    """The same with an environment that does nothing: it says only that it was called."""

    def __init__(self, called: trio.Event) -> None:
        super().__init__()
        self.called = called

    async def environment(self, _session: EnvironmentSession) -> None:
        self.called.set()
        await trio.sleep_forever()


@pytest.mark.parametrize("branch", [False, True], ids=["trial", "branch"])
async def test_a_trial_that_has_not_begun_is_handed_over(branch: bool) -> None:
    """The next one begins it: what waits for somebody when the server stops is not lost."""
    store = MemoryStore(1 << 30)
    if branch:
        async with orchestrator(store, Table()) as platform:
            await platform.controller.start_trial(PARAMS, trial_id="first")
            await over(platform, "first")
    asked = trio.Event()
    async with orchestrator(store, NeverReady(asked)) as platform:
        if branch:
            await platform.controller.start_branch("first", 4, trial_id="t")
        else:
            await platform.controller.start_trial(PARAMS, trial_id="t")
        await asked.wait()
    trial = await get(store, "t")
    assert (trial.end, trial.endpoint, trial.samples_count) == (TrialEnd.OPEN, RELEASED, 0)
    table = Table()
    async with orchestrator(store, table) as platform:
        samples = await over(platform)
    first = 4 if branch else 0
    assert totals(samples) == TOTALS[first:]
    assert table.ticks == list(range(first, LAST_TICK + 1))


async def test_an_attempt_that_has_not_begun_is_handed_over() -> None:
    """The stored tick with which it would have gone on stays as it is."""
    store = MemoryStore(1 << 30)
    await killed(store, 5)
    had = (await get(store, "t")).samples_count
    asked = trio.Event()
    async with orchestrator(store, NeverReady(asked)):
        await asked.wait()
    trial = await get(store, "t")
    assert (trial.end, trial.endpoint, trial.samples_count) == (TrialEnd.OPEN, RELEASED, had)
    async with orchestrator(store, Table()) as platform:
        assert totals(await over(platform)) == TOTALS


async def test_a_trial_whose_client_actor_has_not_come_is_handed_over() -> None:
    """It waits for the same one at the next orchestrator."""
    store = MemoryStore(1 << 30)
    params = trial_params([actor_params("a", "cls", endpoint="cogment://client")], environment="sum")
    async with orchestrator(store, Table()) as platform:
        await platform.controller.start_trial(params, trial_id="t")
    table = Table()
    async with orchestrator(store, table) as platform, trio.open_nursery() as nursery:
        waits = trio.Event()
        platform.on_resumed(lambda _trial_id, _params: waits.set())
        with trio.fail_after(10):
            await waits.wait()
        nursery.start_soon(partial(platform.join_trial, "t", table.actor, actor_name="a"))
        assert totals(await over(platform)) == TOTALS
        nursery.cancel_scope.cancel()


async def test_an_interrupted_trial_is_not_begun_anew_under_its_id() -> None:
    """Starting it again meanwhile is refused; what is stored stays, and it goes on."""
    store = MemoryStore(1 << 30)
    await killed(store, 8)
    had = (await get(store, "t")).samples_count
    async with orchestrator(store, Table(), resume_attempts=10) as platform:
        # Before anybody has looked, and while it is being started.
        for _ in range(2):
            with pytest.raises(RpcError, match="an interrupted trial that goes on by itself") as refused:
                await platform.controller.start_trial(PARAMS, trial_id="t")
            assert refused.value.code is StatusCode.ALREADY_EXISTS
            assert (await get(store, "t")).samples_count == had
        samples = await over(platform)
        assert totals(samples) == TOTALS
        assert (await get(store, "t")).attempt == 2


async def test_without_resume_an_interrupted_trial_is_begun_anew() -> None:
    store = MemoryStore(1 << 30)
    await killed(store, 8)
    async with orchestrator(store, Table(), resume=False) as platform:
        assert await platform.controller.start_trial(PARAMS, trial_id="t") == "t"
        assert totals(await over(platform)) == TOTALS


async def test_each_time_that_the_datastore_is_away_is_said_once(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """Not again with every try, but the next time it is away."""
    away = trio.Event()

    class Unsteady:
        times = 0

        def on_abandoned(self, _take_up: object) -> None:
            pass

        async def tell_left(self, _endpoint: str, _found: object) -> None:
            self.times += 1
            if self.times == 6:
                away.set()
            if self.times == 4:
                await trio.sleep(3600)
            raise UnavailableError("it is away")

    async with open_platform(Participants()) as platform, trio.open_nursery() as nursery:
        resuming = Resuming(platform.orchestrator, Unsteady())  # type: ignore[arg-type]  # as far as it is called
        nursery.start_soon(resuming.run)
        resuming.begin()
        await away.wait()
        await resuming.stop()
    assert sum("could not be looked for" in record.message for record in caplog.records if record.levelno > 20) == 2


async def test_stops_that_hand_a_trial_over_are_no_attempts_that_broke_off() -> None:
    """Rolling restarts end no healthy trial, and deaths count anew after each."""
    store = MemoryStore(1 << 30)
    await killed(store, 3)
    for tick_id in (4, 5, 6):
        reached = trio.Event()
        async with orchestrator(store, Table(tick_id, reached.set), resume_attempts=2):
            await reached.wait()
        trial = await get(store, "t")
        assert (trial.end, trial.endpoint) == (TrialEnd.OPEN, RELEASED)
        assert trial.params.properties["resume.released"] == str(trial.attempt)
    assert (await get(store, "t")).attempt == 4
    async with orchestrator(store, Table(), resume_attempts=2) as platform:
        assert totals(await over(platform)) == TOTALS


@pytest.mark.parametrize(
    ("attempt", "released", "count"), [(1, None, 1), (7, None, 7), (7, "7", 0), (9, "7", 2), (1, "7", 0), (3, "x", 3)]
)
def test_attempts_that_broke_off_are_counted_since_the_last_release(
    attempt: int, released: str | None, count: int
) -> None:
    assert broken_off(attempt, {} if released is None else {"resume.released": released}) == count


async def test_a_claim_that_is_given_back_is_no_attempt_that_broke_off() -> None:
    """Restarts while people are away do not use up the attempts at their trial."""
    store = MemoryStore(1 << 30)
    await killed(store, 3)
    owned = await get(store, "t")
    owned.params.properties["resume.owner"] = "study"
    await store.apply([TrialWrite("t", "me", owned.params, True, "", owned.endpoint, owned.attempt)])
    for number in range(3):
        async with orchestrator(store, Table(), resume_attempts=2) as platform:
            assert platform.resuming is not None
            await platform.resuming.claim("t")
            assert (await get(store, "t")).attempt == number + 2


async def test_a_trial_with_a_gap_is_not_handed_over() -> None:
    """Nobody could go on with it: it ends with its orchestrator, and says that samples were lost."""
    store = MemoryStore(1 << 30)
    waits = trio.Event()
    async with orchestrator(store, Table(4, waits.set)) as platform:
        await platform.controller.start_trial(PARAMS, trial_id="t")
        await waits.wait()
        [run] = platform.orchestrator.runs
        can = [run.can_be_handed_over]
        assert run._datalog is not None
        run._datalog._count_lost(1)
        assert [*can, run.can_be_handed_over] == [True, False]
    trial = await get(store, "t")
    end = EndOfTrial.FromString(trial.outcome)
    assert (trial.end, EndCause.of(end.cause), end.samples_lost) == (TrialEnd.ENDED, EndCause.SERVER_STOPPED, 1)
