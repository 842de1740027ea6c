"""Measurements of trials, on a virtual clock: so the figures are exact."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from tests.helpers import (
    HEARTBEAT,
    LAST,
    LAST_ACK,
    NORMAL,
    Script,
    actor_that_acts,
    bench,
    environment_of,
    observation_set,
    params_of,
    start_environment,
    wait_ended,
)
from tests.servers.orchestrator.puppets import stage
from trio_cogment.api.common_pb2 import Action, ActorInitialOutput, ActorRunTrialOutput, TrialState
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.metrics import OrchestratorGauges
from trio_cogment.rpc import ServerCall
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator._metering import gauges
from trio_cogment.servers.orchestrator._trial import Queues, Trial


class Recorder:
    """Metrics that remember everything."""

    def __init__(self) -> None:
        self.read: Callable[[], OrchestratorGauges] = lambda: OrchestratorGauges({}, 0, 0, 0)
        self.ticks = 0
        self.latencies: list[float] = []
        self.durations: list[float] = []
        self.actors: list[tuple[str, float]] = []
        self.lost: list[str] = []
        self.samples = 0
        self.trials: list[float] = []
        self.collections = 0

    def attach(self, read: Callable[[], OrchestratorGauges]) -> None:
        self.read = read

    def tick_began(self) -> None:
        self.ticks += 1

    def tick_answered(self, latency_seconds: float) -> None:
        self.latencies.append(latency_seconds)

    def tick_lasted(self, seconds: float) -> None:
        self.durations.append(seconds)

    def actor_acted(self, actor_class: str, latency_seconds: float) -> None:
        self.actors.append((actor_class, latency_seconds))

    def participant_lost(self, kind: str) -> None:
        self.lost.append(kind)

    def samples_emitted(self, count: int) -> None:
        self.samples += count

    def trial_ended(self, seconds: float) -> None:
        self.trials.append(seconds)

    def collected(self, seconds: float) -> None:
        self.collections += 1


def actor_that_thinks(seconds: dict[str, float]) -> Callable[[ServerCall], Any]:
    """Return an actor that takes its time; how long depends on its class."""

    async def run(call: ServerCall) -> None:
        init = (await call.receive()).init_input
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        ending = False
        async for message in call:
            ending = ending or message.state == LAST
            if message.HasField("observation"):
                await trio.sleep(seconds[init.actor_class])
                if ending:
                    await call.send(ActorRunTrialOutput(state=LAST_ACK))
                else:
                    await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=-1, content=b"a")))

    return run


def slow_environment(seconds: float, ticks: int, content: bytes = b"o") -> Callable[[ServerCall], Any]:
    async def run(call: ServerCall) -> None:
        actors = await start_environment(call)
        await call.send(observation_set(actors, content))
        ending = False
        async for message in call:
            ending = ending or message.state == LAST
            if message.HasField("action_set"):
                await trio.sleep(seconds)
                if message.action_set.tick_id + 1 >= ticks and not ending:
                    ending = True
                    await call.send(EnvRunTrialOutput(state=LAST))
                await call.send(observation_set(actors, content))
                if ending:
                    await call.send(EnvRunTrialOutput(state=LAST_ACK))
                else:
                    await call.send(EnvRunTrialOutput(state=HEARTBEAT))

    return run


async def ended(table: Any, trial_id: str) -> Trial:
    trial = table.orchestrator.trials.get(trial_id)
    assert isinstance(trial, Trial)
    await wait_ended(table.orchestrator, trial_id)
    return trial


async def test_ticks_actors_and_trials_are_timed(autojump_clock: trio.testing.MockClock) -> None:
    metrics = Recorder()
    thinking = actor_that_thinks({"quick": 0.25, "slow": 1.0})
    services = (Script(slow_environment(2, ticks=3)).environment(), Script(thinking).actor())
    async with bench(*services, metrics=metrics) as table:
        params = trial_params([actor_params("a", "quick"), actor_params("b", "slow")])
        await ended(table, await table.controller.start_trial(params))
    # Three ticks that were answered, and the final observations.
    assert metrics.ticks == 4
    assert metrics.latencies == pytest.approx([1, 1, 1])
    assert metrics.durations == pytest.approx([3, 3])
    assert sorted(name for name, _ in metrics.actors) == ["quick"] * 3 + ["slow"] * 3
    assert sorted(seconds for _, seconds in metrics.actors) == pytest.approx([0.25] * 3 + [1] * 3)
    assert metrics.trials == pytest.approx([10])
    assert (metrics.lost, metrics.samples, metrics.collections) == ([], 0, 0)
    now = metrics.read()
    assert {state: count for state, count in now.trials.items() if count} == {"ENDED": 1}
    assert set(now.trials) == {name for name, value in TrialState.items() if value}
    assert (now.queued_samples, now.queued_messages, now.lost_samples) == (0, 0, 0)


@pytest.mark.parametrize("wire", [False, True], ids=["in process", "wire"])
async def test_samples_and_what_waits(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    metrics, go = Recorder(), trio.Event()
    taken: list[Any] = []

    async def datalog(call: ServerCall) -> None:
        await go.wait()
        async for message in call:
            taken.append(message)

    services = (
        Script(environment_of(ticks=3)).environment(),
        Script(actor_that_acts()).actor(),
        Script(datalog).datalog(),
    )
    async with bench(*services, metrics=metrics, wire=wire) as table:
        params = params_of("a", datalog_endpoint="cogment://discover")
        trial_id = await table.controller.start_trial(params)
        await ended(table, trial_id)
        go.set()
        await table.orchestrator.stop()
    assert metrics.samples == len(taken) - 1 == 4
    assert metrics.read().queued_samples == 0


async def test_who_is_lost_is_counted_once(autojump_clock: trio.testing.MockClock) -> None:
    metrics = Recorder()

    async def actor(call: ServerCall) -> None:
        init = await call.receive()
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        if init.init_input.actor_class != "leaver":
            await actor_that_acts(start=False)(call)

    async def vanishing(call: ServerCall) -> None:
        actors = await start_environment(call)
        await call.send(observation_set(actors))
        await call.receive()

    services = (Script(vanishing).environment(), Script(actor).actor())
    async with bench(*services, metrics=metrics) as table:
        params = trial_params([actor_params("a", "leaver"), actor_params("b", "stayer")])
        params.actors[0].optional = True
        await ended(table, await table.controller.start_trial(params))
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(metrics.lost) == ["actor", "environment"]


async def test_an_orderly_end_loses_nobody(autojump_clock: trio.testing.MockClock) -> None:
    metrics = Recorder()
    services = (Script(environment_of(ticks=2)).environment(), Script(actor_that_acts()).actor())
    async with bench(*services, metrics=metrics) as table:
        await ended(table, await table.controller.start_trial(params_of("a", "b")))
        await table.orchestrator.stop()
    assert metrics.lost == []


async def test_collections_are_measured_and_follow_the_starts(autojump_clock: trio.testing.MockClock) -> None:
    metrics = Recorder()
    services = (Script(environment_of(ticks=1)).environment(), Script(actor_that_acts()).actor())
    config = OrchestratorConfig(gc_frequency=3)
    async with bench(*services, metrics=metrics, config=config) as table:
        for name in ("one", "two"):
            await ended(table, await table.controller.start_trial(params_of("a"), trial_id=name))
        # A refused start is none.
        assert await table.controller.start_trial(params_of("a"), trial_id="one") == ""
        assert len(list(table.orchestrator.trials)) == 2
        assert metrics.collections == 0
        await ended(table, await table.controller.start_trial(params_of("a"), trial_id="three"))
        assert [trial.trial_id for trial in table.orchestrator.trials] == ["three"]
        assert metrics.collections == 1
        assert await table.controller.start_trial(params_of("a"), trial_id="one") == "one"


async def test_an_observation_that_is_not_kept_is_no_second_tick(autojump_clock: trio.testing.MockClock) -> None:
    counted = []
    for most in (2**20, 1):
        metrics = Recorder()
        config = OrchestratorConfig(max_observations_bytes=most)
        services = (Script(slow_environment(1, 4, bytes(80_000))).environment(), Script(actor_that_acts()).actor())
        async with bench(*services, metrics=metrics, config=config) as table:
            trial = await ended(table, await table.controller.start_trial(params_of("a")))
            assert trial.machine.outcome is not None
            counted.append((metrics.ticks, trial.machine.outcome.ticks))
    assert counted == [(5, 5), (5, 5)]


async def test_what_is_not_measured_has_the_plain_machine() -> None:
    services = (Script(environment_of(ticks=1)).environment(), Script(actor_that_acts()).actor())
    async with bench(*services) as table:
        trial_id = await table.controller.start_trial(params_of("a"))
        trial = table.orchestrator.trials.get(trial_id)
        assert trial is not None
        assert type(trial.machine).__name__ == "TrialMachine"


async def test_a_start_that_fails_is_no_short_trial(autojump_clock: trio.testing.MockClock) -> None:
    metrics = Recorder()
    services = Script(environment_of(3)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, metrics=metrics) as table:
        for _ in range(5):
            with pytest.raises(RpcError):
                await table.controller.start_trial(trial_params([]))
        assert metrics.trials == []
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await wait_ended(table.orchestrator, "t")
    assert len(metrics.trials) == 1


async def test_an_environment_that_acknowledges_last_has_shown_no_further_tick() -> None:
    metrics = Recorder()
    async with stage(metrics=metrics) as there:
        await there.play(params_of("a"))
        environment, actor = there["env"], there["a"]
        await environment.observe(indexes=[0])
        await environment.say(LAST)
        await environment.observe(indexes=[0])
        await actor.say(LAST_ACK)
        await environment.say(LAST_ACK)
        assert await there.state() == TrialState.ENDED
    assert metrics.ticks == 2


async def test_who_is_too_late_has_not_acted_with_what_it_says_next(autojump_clock: trio.testing.MockClock) -> None:
    metrics = Recorder()
    params = trial_params(
        [actor_params("a", "quick", optional=True, response_timeout_seconds=1), actor_params("b", "slow")]
    )
    async with stage(metrics=metrics) as there:
        await there.play(params)
        await there["env"].observe(indexes=[0, 0])
        await trio.sleep(2)
        await there["a"].say(HEARTBEAT)
        await there["a"].act(tick_id=0)
        await there["b"].act()
        assert metrics.actors == [("slow", 2.0)]
        # Nor has who speaks when nobody waits for actions any more.
        await there["env"].observe(indexes=[0, 0])
        await there["env"].say(LAST)
        await there["b"].say(HEARTBEAT)
        await there.hard()
    assert metrics.actors == [("slow", 2.0)]
    assert metrics.latencies == [2.0]


def known(state: int, samples: int = 0, messages: int = 0, **changes: Any) -> Any:
    """Return as much of a trial as the gauges ask for."""
    told = {"datalog_trouble": "", "seconds": 0.0, "time": 0.0, "waits_for_datalog": False, **changes}
    machine = SimpleNamespace(state=state, last_activity=told.pop("last_activity", 0.0))
    return SimpleNamespace(machine=machine, queues=Queues(samples, messages, 0, 0), **told)


def test_gauges_are_sums_over_the_trials() -> None:
    trials = [known(TrialState.RUNNING, 3, 5), known(TrialState.ENDED, 4, 0), known(TrialState.RUNNING, 1, 7)]
    found = gauges(trials, 9)
    assert (found.queued_samples, found.queued_messages, found.lost_samples) == (8, 12, 9)
    assert {state: count for state, count in found.trials.items() if count} == {"RUNNING": 2, "ENDED": 1}


def test_the_oldest_that_waits_and_the_most_silent_that_runs() -> None:
    trials = [
        known(TrialState.PENDING, seconds=5.0),
        known(TrialState.INITIALIZING, seconds=7.0),
        known(TrialState.ENDED, seconds=100.0, time=100.0),
        known(TrialState.RUNNING, seconds=50.0, time=50.0, last_activity=47.0),
        known(TrialState.RUNNING, seconds=50.0, time=50.0, last_activity=38.0),
        known(TrialState.RUNNING, time=50.0, waits_for_datalog=True, datalog_trouble="cannot be reached"),
    ]
    found = gauges(trials, 0)
    assert (found.oldest_waiting_seconds, found.longest_silence_seconds, found.data_logs_away) == (7.0, 12.0, 1)
    nothing = gauges([], 0)
    assert (nothing.oldest_waiting_seconds, nothing.longest_silence_seconds, nothing.data_logs_away) == (0, 0, 0)


async def test_a_stuck_trial_is_seen_by_its_silence(autojump_clock: trio.testing.MockClock) -> None:
    recorder = Recorder()
    async with stage(metrics=recorder) as there:
        await there.play(params_of("a"))
        await there["env"].observe(indexes=[0])
        await trio.sleep(5)
        assert recorder.read().longest_silence_seconds == 5.0
        await there["a"].say(HEARTBEAT)
        assert recorder.read().longest_silence_seconds == 5.0
        await there["a"].act()
        assert recorder.read().longest_silence_seconds == 0.0
        await there.hard()
    assert recorder.read().longest_silence_seconds == 0.0
