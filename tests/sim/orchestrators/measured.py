"""Many small trials at an orchestrator with little room: what is measured of them, and which of them it remembers.

Everybody is in one process, where messages take no time. So what must be measured follows to the microsecond from what
participants did and were told, and which starts are refused, which ids are free and which ended trials are known from
when trials began and ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import trio

from tests.helpers import END, LAST, LAST_ACK, NORMAL, Everything, Script, observation_set, start_environment
from trio_cogment.api.common_pb2 import Action, ActorInitialOutput, ActorRunTrialOutput, TrialParams, TrialState
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput
from trio_cogment.api.orchestrator_pb2 import TrialListEntry
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import InvalidArgumentError, ResourceExhaustedError, RpcError, StatusCode
from trio_cogment.base.metrics import OrchestratorGauges
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import InProcessChannel, ServerCall
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._trial_run import TrialRun
from trio_cogment.testing import World

ACCOUNTS = ("", "alice", "bob")
IDS = [f"t{number}" for number in range(8)]
CLASSES = {"a": "player", "b": "player", "c": "referee"}
STARTS = 30
KIB = 1024
MOST_PROPERTY_BYTES = 2000
#: Of what waits for a watcher.
MOST_WATCH_BYTES = 150
#: How long `b`, who is optional, may take for an action.
PATIENCE_SECONDS = 1.0
#: Of two figures that are the same.
PRECISION = 1e-6


@dataclass(eq=False)
class Played:
    """One trial: how it is to go, and what has been seen of it.

    Attributes:
        ticks: after which its environment ends it.
        step: what the environment takes for a tick.
        thinks: what each actor takes for an action.
        vanishes: who leaves at its second observation; empty: nobody.
        logged: it has a data log.
        bad: its parameters are refused.
        held_back: for how many ticks its samples are.
        property_bytes: of its properties.
        size: about what it takes, as the server counts.
        fails: it cannot start.
        shown: when each tick's observations came.
        answered: when the newest actions came.
        state: the newest that has been announced.
        logged_ticks: those that its data log got.
    """

    trial_id: str
    account: str
    began: float
    ticks: int
    step: float
    thinks: dict[str, float]
    vanishes: str
    logged: bool
    bad: bool
    held_back: int
    property_bytes: int
    size: int = 0
    fails: bool = False
    shown: list[float] = field(default_factory=list)
    answered: float | None = None
    state: int = 0
    logged_ticks: list[int] = field(default_factory=list)


@dataclass
class Figures:
    """Measurements: those that are made (it is the orchestrator's `OrchestratorMetrics`), or those that should be."""

    ticks: int = 0
    answers: list[float] = field(default_factory=list)
    lasted: list[float] = field(default_factory=list)
    actions: list[tuple[str, float]] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    rates: Counter[str] = field(default_factory=Counter)
    trials: list[float] = field(default_factory=list)
    collections: list[float] = field(default_factory=list)
    read: Callable[[], OrchestratorGauges] = field(default=lambda: OrchestratorGauges({}, 0, 0, 0))

    def attach(self, read: Callable[[], OrchestratorGauges]) -> None:
        self.read = read

    def tick_began(self) -> None:
        self.ticks += 1

    def tick_answered(self, latency_seconds: float) -> None:
        self.answers.append(latency_seconds)

    def tick_lasted(self, seconds: float) -> None:
        self.lasted.append(seconds)

    def actor_acted(self, actor_class: str, latency_seconds: float) -> None:
        self.actions.append((actor_class, latency_seconds))

    def participant_lost(self, kind: str) -> None:
        self.lost[kind] += 1

    def samples_emitted(self, count: int) -> None:
        self.samples += count

    def rate_kept(self, missed_ticks: int, late_actions: int, absent_actions: int) -> None:
        self.rates.update(missed=missed_ticks, late=late_actions, absent=absent_actions)

    def trial_ended(self, seconds: float) -> None:
        self.trials.append(seconds)

    def collected(self, seconds: float) -> None:
        self.collections.append(seconds)

    def check(self, expected: Figures) -> None:
        """Compare with what should have been measured."""
        for what in ("ticks", "lost", "samples"):
            assert getattr(self, what) == getattr(expected, what), (
                f"{what}: {getattr(self, what)} were measured, there were {getattr(expected, what)}"
            )
        for what in ("answers", "lasted", "trials"):
            _same(what, [("", one) for one in getattr(self, what)], [("", one) for one in getattr(expected, what)])
        _same("actions", self.actions, expected.actions)
        assert not any(self.collections), self.collections  # virtual time does not go on while trials are forgotten


def _same(what: str, measured: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    pairs = list(zip(sorted(measured), sorted(expected), strict=False))
    wrong = [pair for pair in pairs if pair[0][0] != pair[1][0] or abs(pair[0][1] - pair[1][1]) > PRECISION]
    assert len(measured) == len(expected), f"{what}: {len(measured)} were measured, there were {len(expected)}"
    assert not wrong, f"{what}: {wrong[0][0]} was measured, it was {wrong[0][1]}"


class Remembered:
    """Which ended trials are known, by their ids: the rules of `OrchestratorConfig`."""

    def __init__(self, config: OrchestratorConfig) -> None:
        self._config = config
        self._ended: dict[str, float] = {}
        self._starts = 0

    def start(self) -> None:
        """One more has been let in."""
        every = self._config.gc_frequency
        if every is not None:
            self._starts += 1
            if self._starts >= every:
                self._starts = 0
                self._ended.clear()

    def end(self, trial_id: str, now: float) -> None:
        self._ended.pop(trial_id, None)  # it is the newest now
        self._ended[trial_id] = now
        while len(self._ended) > self._config.max_ended_trials:
            del self._ended[next(iter(self._ended))]

    def known(self, now: float) -> set[str]:
        age = self._config.ended_trial_age_seconds
        return {trial_id for trial_id, ended in self._ended.items() if ended + age > now}


class Play:
    """Trials, their participants, and what is expected."""

    def __init__(self, world: World, config: OrchestratorConfig) -> None:
        self.world = world
        self.config = config
        self.rng = world.rng
        self.measured = Figures()
        self.expected = Figures()
        self.remembered = Remembered(config)
        self.trials: list[Played] = []
        self.newest: dict[str, Played] = {}
        self.changes: list[TrialListEntry] = []
        self._sizes: dict[TrialRun, int] = {}
        self._promised: dict[TrialRun, int] = {}
        self.orchestrator: Orchestrator

    # Participants

    async def environment(self, call: ServerCall) -> None:
        played = self._of(call)
        actors = await start_environment(call)
        await self._show(call, played, actors)
        ending = False
        async for message in call:
            if message.state == END:
                return
            ending = ending or message.state == LAST
            if not message.HasField("action_set"):
                continue
            if not ending:  # the last actions are not ordinary ones
                self._answered(played, message.action_set.tick_id)
            if played.vanishes == "env" and len(played.shown) == 2:
                self.expected.lost["environment"] += played.state != TrialState.ENDED
                raise RpcError(StatusCode.ABORTED, "it leaves")
            await trio.sleep(played.step)
            if played.state == TrialState.ENDED:
                return
            if len(played.shown) >= played.ticks and not ending:
                ending = True
                await call.send(EnvRunTrialOutput(state=LAST))
            await self._show(call, played, actors)
            if ending:
                await call.send(EnvRunTrialOutput(state=LAST_ACK))

    async def _show(self, call: ServerCall, played: Played, actors: int) -> None:
        if played.state != TrialState.ENDED:
            played.shown.append(trio.current_time())
            self.expected.ticks += 1
        await call.send(observation_set(actors, b"o", len(played.shown) - 1))

    def _answered(self, played: Played, tick_id: int) -> None:
        """Note that the actions of a tick have come."""
        now = trio.current_time()
        if played.state != TrialState.RUNNING:
            return
        self.expected.answers.append(now - played.shown[tick_id])
        if played.answered is not None:
            self.expected.lasted.append(now - played.answered)
        played.answered = now

    async def actor(self, call: ServerCall) -> None:
        played = self._of(call)
        first = (await call.receive()).init_input
        name, actor_class = first.actor_name, first.actor_class
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        ending = False
        async for message in call:
            if message.state == END:
                return
            ending = ending or message.state == LAST
            if not message.HasField("observation"):
                continue
            tick_id = message.observation.tick_id
            if ending:
                await call.send(ActorRunTrialOutput(state=LAST_ACK))
                continue
            if played.vanishes == name and tick_id == 1:
                self.expected.lost["actor"] += played.state != TrialState.ENDED
                raise RpcError(StatusCode.ABORTED, "it leaves")
            await trio.sleep(played.thinks[name])
            now = trio.current_time()
            if played.state == TrialState.ENDED:
                return
            if len(played.shown) == tick_id + 1 and (name != "b" or now < played.shown[tick_id] + PATIENCE_SECONDS):
                self.expected.actions.append((actor_class, now - played.shown[tick_id]))
            await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=tick_id, content=b"a")))

    async def datalog(self, call: ServerCall) -> None:
        played = self._of(call)
        async for message in call:
            if message.HasField("sample"):
                played.logged_ticks.append(message.sample.info.tick_id)
                self.expected.samples += 1

    def _of(self, call: ServerCall) -> Played:
        return self.newest[call.metadata.texts(TRIAL_ID)[0]]

    # What is asked

    async def start(self) -> None:
        """Ask for a trial: whether it starts follows from what there is."""
        rng, now = self.rng, trio.current_time()
        trial_id, account = rng.choice(IDS), rng.choice(ACCOUNTS)
        names = rng.sample(list(CLASSES), rng.randint(1, 3))
        played = Played(
            trial_id,
            account,
            began=now,
            ticks=rng.randint(1, 5),
            step=rng.uniform(0.01, 0.5),
            thinks={name: rng.uniform(0.01, 1.5 if name == "b" else 0.8) for name in names},
            vanishes=rng.choice(["", "", "", "env", *names]),
            logged=rng.random() < 0.5,
            bad=rng.random() < 0.2,
            held_back=rng.choice([0, 0, 2, 3, 5]),
            property_bytes=rng.choice([0, 100, 1000, MOST_PROPERTY_BYTES, MOST_PROPERTY_BYTES + 1]),
        )
        params = params_of(played)
        played.size = 10 * KIB + 6 * KIB * (len(params.actors) + 1) + 2 * params.ByteSize()
        expected = self._expected(played)
        before = {*self.orchestrator.runs}
        played.fails = expected != "started"
        if expected in ("started", "bad", "too large"):
            self.remembered.start()
            self.trials.append(played)
            self.newest[trial_id] = played
        try:
            answer = await self.orchestrator.start_trial(trial_id=trial_id, account=account, params=params)
            happened = {trial_id: "started", "": "taken"}[answer]
        except ResourceExhaustedError as error:
            happened = "full" if "too many trials" in str(error) else "too large"
        except InvalidArgumentError:
            happened = "bad"
        assert happened == expected, f"the start of {trial_id} for {account!r}: {happened}, expected: {expected}"
        self.world.sometimes(happened)
        if happened == "started" and self.orchestrator.runs[-1] not in self._sizes:
            # A ninth of what is left, but 64 KiB at least, for those who hold back more than two ticks.
            left = self.config.max_all_held_back_bytes - sum(
                self._promised[run] for run in self._sizes if run in before
            )
            promise = max(64 * KIB, min(self.config.max_held_back_bytes, left // 9)) if played.held_back > 2 else 0
            self._sizes[self.orchestrator.runs[-1]] = played.size
            self._promised[self.orchestrator.runs[-1]] = promise
        promised = sum(self._promised[run] for run in self.orchestrator.runs)
        lent = self.orchestrator.room.held_back.used
        assert lent == promised, f"{lent} bytes are promised for samples, not {promised}"
        used = self.orchestrator.room.used
        sizes = [self._sizes[run] for run in self.orchestrator.runs]
        assert used == (len(sizes), 0, sum(sizes)), f"{used} are counted, the trials take {sizes}"

    def _expected(self, played: Played) -> str:
        running = [run.trial.owner for run in self.orchestrator.runs]
        of_account = running.count(played.account) if played.account else 0
        if played.trial_id in self.known():
            return "taken"
        if len(running) >= self.config.max_trials or of_account >= self.config.max_peer_trials:
            return "full"
        sizes = [(run.trial.owner, self._sizes[run]) for run in self.orchestrator.runs]
        of_all, of_own = sum(size for _, size in sizes), sum(size for owner, size in sizes if owner == played.account)
        if of_all + played.size > self.config.max_trials_bytes or (
            played.account and of_own + played.size > self.config.max_peer_trials_bytes
        ):
            return "too large"
        return "bad" if played.bad or played.property_bytes > MOST_PROPERTY_BYTES else "started"

    async def end_some(self) -> None:
        """End trials that run, one way or the other."""
        while True:
            await trio.sleep(self.rng.uniform(0.2, 2))
            running = [trial for trial in self.orchestrator.trials if not trial.over]
            if running:
                trial = self.rng.choice(running)
                trial.hard_end("somebody asked for it") if self.rng.random() < 0.4 else trial.soft_end()

    async def watch_lazily(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Read nothing: what waits is bounded, and what there was room for can still be read."""
        with self.orchestrator.watchers.subscribe([], False, []) as watch:
            task_status.started()
            room, kept = MOST_WATCH_BYTES, 0
            while kept == len(self.changes):
                await trio.sleep(self.rng.uniform(0.1, 0.4))
                for change in self.changes[kept:]:
                    room -= change.ByteSize()
                    if room < 0:
                        break
                    kept += 1
                assert watch.queued_entries == kept, f"{watch.queued_entries} entries wait, not {kept}"
                assert watch.has_ended == (kept < len(self.changes)), f"{kept} of {len(self.changes)} entries wait"
            assert [await anext(watch) for _ in range(kept)] == self.changes[:kept]
            with pytest.raises(ResourceExhaustedError, match="watch_queue_bytes"):
                await anext(watch)
            self.world.sometimes("a watcher gives up")

    async def watch(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Follow the states of trials."""
        with self.orchestrator.watchers.subscribe([], False, []) as watch:
            task_status.started()
            async for entry in watch:
                self.changes.append(entry)
                played, now = self.newest[entry.trial_id], trio.current_time()
                played.state = entry.state
                if entry.state == TrialState.ENDED and not played.fails:
                    self.remembered.end(entry.trial_id, now)
                    self.expected.trials.append(now - played.began)

    # What is known

    def known(self) -> set[str]:
        """Return the ids of the trials that run, and of those that are remembered."""
        running = {played.trial_id for played in self.newest.values() if played.state not in (0, TrialState.ENDED)}
        return running | self.remembered.known(trio.current_time())

    def check(self) -> None:
        """The orchestrator knows whom it should; the gauges tell their states."""
        known = {trial.trial_id for trial in self.orchestrator.trials}
        assert known == self.known(), f"{sorted(known)} are known, not {sorted(self.known())}"
        states = Counter(TrialState.Name(self.newest[trial_id].state) for trial_id in known)
        told = self.measured.read()
        assert Counter(told.trials) == states, f"the gauges tell of {told.trials}, there are {states}"
        assert (told.queued_samples, told.queued_messages, told.lost_samples) == (0, 0, 0), told

    async def check_now_and_then(self) -> None:
        while True:
            await trio.sleep(self.rng.uniform(0.1, 0.6))
            self.check()


def params_of(played: Played) -> TrialParams:
    """Return the parameters of a trial: bad ones have everybody twice."""
    names = [*played.thinks] * (2 if played.bad else 1)
    actors = [
        actor_params(
            name, CLASSES[name], optional=name == "b", response_timeout_seconds=PATIENCE_SECONDS * (name == "b")
        )
        for name in names
    ]
    datalog = "cogment://discover" if played.logged else ""
    properties = {"p": "v" * (played.property_bytes - 1)} if played.property_bytes else {}
    return trial_params(
        actors,
        environment_name="env",
        datalog_endpoint=datalog,
        properties=properties,
        nb_buffered_ticks=played.held_back,
    )


async def measured_trials(world: World) -> None:
    """Play, and compare."""
    rng = world.stream("limits")
    config = OrchestratorConfig(
        max_trials=rng.randint(2, 6),
        max_peer_trials=rng.randint(1, 3),
        max_trials_bytes=rng.choice([60 * KIB, 120 * KIB, 1000 * KIB]),
        max_peer_trials_bytes=rng.choice([45 * KIB, 1000 * KIB]),
        max_held_back_bytes=200 * KIB,
        max_all_held_back_bytes=2000 * KIB,
        watch_queue_bytes=MOST_WATCH_BYTES,
        max_properties_bytes=MOST_PROPERTY_BYTES,
        max_ended_trials=rng.choice([0, 1, 2, 4, 100]),
        ended_trial_age_seconds=rng.choice([1.3, 5.7, 60.0]),
        gc_frequency=rng.choice([None, None, 0, 1, 3]),
    )
    play = Play(world, config)
    services = [
        Script(play.environment).environment(),
        Script(play.actor).actor(),
        Script(play.datalog).datalog(),
    ]
    async with InProcessChannel(services) as local:
        orchestrator = play.orchestrator = Orchestrator(
            config=config, local=Everything(local), metrics=play.measured, host=world.host("orchestrator")
        )
        async with orchestrator, trio.open_nursery() as nursery:
            await nursery.start(play.watch)
            await nursery.start(play.watch_lazily)
            nursery.start_soon(play.check_now_and_then)
            nursery.start_soon(play.end_some)
            for _ in range(STARTS):
                await trio.sleep(world.rng.uniform(0.05, 1))
                await play.start()
            with trio.fail_after(60):
                while orchestrator.running_trials:  # noqa: ASYNC110  virtual time is free
                    await trio.sleep(0.5)
            play.check()
            nursery.cancel_scope.cancel()
    for played in play.trials:
        assert played.logged_ticks == [*range(len(played.logged_ticks))], played
    play.measured.check(play.expected)
