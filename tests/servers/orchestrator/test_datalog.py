"""Samples on their way to a data log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.helpers import HEARTBEAT, LAST, NORMAL, Script, actor_that_acts, bench, environment_of, params_of
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogOutput
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode, UnavailableError
from trio_cogment.rpc import ServerCall, serve_stream
from trio_cogment.servers.orchestrator import SampleStream
from trio_cogment.trial import Effect, Event, TrialMachine

both = pytest.mark.parametrize("wire", [False, True])
LOGGED = "cogment://discover/datalog"


def log_into(samples: list[Any]) -> Script:
    async def run(call: ServerCall) -> None:
        samples.append((call.metadata.texts("trial-id"), call.metadata.texts("user-id")))
        async for message in call:
            samples.append(message)
            await call.send(RunTrialDatalogOutput())

    return Script(run)


@both
async def test_parameters_then_every_sample_then_the_end(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    got: list[Any] = []
    services = (
        Script(environment_of(3)).environment(),
        Script(actor_that_acts()).actor(),
        log_into(got).datalog(),
    )
    async with bench(*services, wire=wire) as table:
        await table.controller.start_trial(params_of("a", "b", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    metadata, first, *rest = got
    assert metadata == (["t"], ["trio-cogment"])
    assert [actor.name for actor in first.trial_params.actors] == ["a", "b"]
    samples = [message.sample for message in rest]
    assert [sample.info.tick_id for sample in samples] == [0, 1, 2, 3]
    states = [sample.info.state for sample in samples]
    assert states == [TrialState.RUNNING] * 3 + [TrialState.ENDED]
    assert [action.content for action in samples[0].actions] == [b"a", b"a"]
    assert list(samples[3].observations.observations) == [b"3"]


@both
async def test_unreachable_datalog_fails_the_start(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, wire=wire) as table:
        with pytest.raises(RpcError) as caught:
            await table.controller.start_trial(params_of("a", datalog_endpoint="grpc://127.0.0.1:9"), trial_id="t")
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert "datalog" in caught.value.message
        assert not await table.controller.trial_infos()


@both
async def test_trial_goes_on_without_a_datalog_that_leaves(
    wire: bool, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def leaves(call: ServerCall) -> None:
        await call.receive()
        await call.receive()
        raise RpcError(StatusCode.UNAVAILABLE, "gone")

    services = (
        Script(environment_of(50)).environment(),
        Script(actor_that_acts()).actor(),
        Script(leaves).datalog(),
    )
    async with bench(*services, wire=wire) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        assert info.tick_id == 50
    assert "data log is away" in caplog.text


async def test_slow_datalog_makes_the_trial_wait_and_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    ticks: list[int] = []
    go = trio.Event()

    async def slow(call: ServerCall) -> None:
        await call.receive()
        await go.wait()
        async for message in call:
            ticks.append(message.sample.info.tick_id)

    services = (
        Script(environment_of(2000)).environment(),
        Script(actor_that_acts()).actor(),
        Script(slow).datalog(),
    )
    config = OrchestratorConfig(max_queued_samples=20)
    async with bench(*services, config=config) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await trio.testing.wait_all_tasks_blocked(0.01)
        (info,) = await table.controller.trial_infos(["t"])
        # What the call holds, what waits before it, and what the machine keeps: then the trial stands still.
        assert info.tick_id < 400
        go.set()
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert ticks == list(range(2001))


async def test_a_trial_that_waited_for_its_log_has_its_own_time(autojump_clock: trio.testing.MockClock) -> None:
    behind: list[float] = []
    go = trio.Event()

    class Watched(TrialMachine):
        def handle(self, event: Event, now: float, wall_ns: int) -> list[Effect]:
            behind.append(trio.current_time() - now)
            return super().handle(event, now, wall_ns)

    async def slow(call: ServerCall) -> None:
        await call.receive()
        await go.wait()
        async for _ in call:
            pass

    services = Script(environment_of(2000)).environment(), Script(actor_that_acts()).actor(), Script(slow).datalog()
    async with bench(*services, config=OrchestratorConfig(max_queued_samples=20)) as table:
        table.orchestrator.make_machine = Watched
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await trio.sleep(10)
        go.set()
        await table.controller.wait_trial_state("t")
    assert behind[0] == 0
    assert behind[-1] == 10
    assert set(behind) == {0, 10}


async def test_datalog_that_never_takes_the_end_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async def stuck(call: ServerCall) -> None:
        await trio.sleep_forever()

    services = Script(environment_of(1)).environment(), Script(actor_that_acts()).actor(), Script(stuck).datalog()
    config = OrchestratorConfig(datalog_flush_seconds=7)
    async with bench(*services, config=config) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        assert trio.current_time() == 0
        await trio.sleep(7.1)
        assert table.orchestrator.running_trials == 0


@both
async def test_heartbeats_are_answered_in_kind(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput

    beats: list[int] = []

    async def beating(call: ServerCall) -> None:
        await call.receive()
        await call.send(EnvRunTrialOutput(state=HEARTBEAT))
        beats.append((await call.receive()).state)
        await call.send(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
        await call.send(EnvRunTrialOutput(state=HEARTBEAT))
        beats.append((await call.receive()).state)
        await call.send(EnvRunTrialOutput(state=LAST))

    async with bench(Script(beating).environment(), Script(actor_that_acts()).actor(), wire=wire) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
    assert beats == [HEARTBEAT, HEARTBEAT]


@both
async def test_log_outlives_the_time_it_had_to_connect(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    from tests.helpers import observation_set, start_environment
    from trio_cogment.api.environment_pb2 import EnvRunTrialOutput

    deadlines: list[float] = []
    got: list[Any] = []

    async def run(call: ServerCall) -> None:
        deadlines.append(call.deadline)
        async for message in call:
            got.append(message)

    async def slow(call: ServerCall) -> None:
        actors = await start_environment(call)
        for _ in range(3):
            await call.send(observation_set(actors))
            await call.receive()
            await trio.sleep(30)
        await call.send(EnvRunTrialOutput(state=LAST))
        await call.send(observation_set(actors))
        async for _ in call:
            pass

    services = Script(slow).environment(), Script(actor_that_acts()).actor(), Script(run).datalog()
    async with bench(*services, wire=wire) as table:
        # The starter's own deadline is none of the trial's business either.
        with trio.fail_after(5):
            await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert deadlines == [float("inf")]
    assert [message.sample.info.tick_id for message in got[1:]] == [0, 1, 2, 3]


async def test_participants_are_not_late_while_nobody_reads_them(autojump_clock: trio.testing.MockClock) -> None:
    from trio_cogment.sdk import actor_params, trial_params

    ticks: list[int] = []

    async def hiccup(call: ServerCall) -> None:
        async for message in call:
            if message.HasField("sample"):
                ticks.append(message.sample.info.tick_id)
                if len(ticks) in (50, 500):
                    await trio.sleep(20)

    services = Script(environment_of(1500)).environment(), Script(actor_that_acts()).actor(), Script(hiccup).datalog()
    config = OrchestratorConfig(max_queued_samples=10)
    params = trial_params(
        [actor_params("a", "player", response_timeout_seconds=1)],
        datalog_endpoint=LOGGED,
        max_inactivity_seconds=3,
    )
    async with bench(*services, config=config) as table:
        await table.controller.start_trial(params, trial_id="t")
        info = await table.controller.wait_trial_state("t")
        assert info is not None
        assert info.tick_id == 1500
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)
    assert ticks == list(range(1501))


async def test_queue_stays_bounded_when_what_waited_fills_it_again(autojump_clock: trio.testing.MockClock) -> None:
    from trio_cogment.api.common_pb2 import ActorRunTrialOutput, Reward, RewardSource

    lengths: list[int] = []

    async def past_rewards(call: ServerCall) -> None:
        await actor_that_acts_until(call, 3)
        for _ in range(3000):
            reward = Reward(tick_id=0, receiver_name="*", sources=[RewardSource(value=1, confidence=1)])
            await call.send(ActorRunTrialOutput(state=NORMAL, reward=reward))

    async def slow(call: ServerCall) -> None:
        async for _ in call:
            await trio.sleep(0.01)
            (trial,) = table.orchestrator.trials
            assert trial._datalog is not None
            lengths.append(len(trial._datalog._queue))

    services = Script(environment_of(None)).environment(), Script(past_rewards).actor(), Script(slow).datalog()
    config = OrchestratorConfig(max_queued_samples=20)
    async with bench(*services, config=config) as table:
        await table.controller.start_trial(params_of("a", "b", datalog_endpoint=LOGGED), trial_id="t")
        await trio.sleep(10)
        await table.controller.terminate_trial("t", hard=True)
    assert 20 <= max(lengths) <= 25


async def actor_that_acts_until(call: ServerCall, tick: int) -> None:
    from trio_cogment.api.common_pb2 import Action, ActorInitialOutput, ActorRunTrialOutput

    await call.receive()
    await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
    async for message in call:
        if message.HasField("observation"):
            await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=-1)))
            if message.observation.tick_id == tick:
                return


async def test_log_that_ends_with_an_error_is_reported(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuses_at_the_end(call: ServerCall) -> None:
        async for _ in call:
            pass
        raise RpcError(StatusCode.DATA_LOSS, "nothing stored")

    services = (
        Script(environment_of(2)).environment(),
        Script(actor_that_acts()).actor(),
        Script(refuses_at_the_end).datalog(),
    )
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert "nothing stored" in caplog.text


async def test_a_data_log_that_was_away_for_long_is_found_at_the_next_try(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels make growing pauses too: on top of the data log's own, most of its tries would be none."""
    opened: list[float] = []
    gone, back = 5, 305
    first = trio.CancelScope(deadline=gone)

    async def log(call: ServerCall) -> None:
        opened.append(trio.current_time())
        async for _ in call:
            await call.send(RunTrialDatalogOutput())

    async def serve_it(stream: trio.abc.Stream) -> None:
        with trio.CancelScope() if opened else first:
            await serve_stream([Script(log).datalog()], stream)
        await stream.aclose()

    async def connect(_host: str, _port: int) -> trio.abc.Stream:
        if gone <= trio.current_time() < back:
            raise OSError("refused")
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(serve_it, theirs)
        return ours

    services = Script(environment_of(500, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with trio.open_nursery() as nursery:
        async with bench(*services, connect=connect) as table:
            await table.controller.start_trial(params_of("a", datalog_endpoint="grpc://datalog:9003"), trial_id="t")
            await table.controller.wait_trial_state("t")
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(opened) == 2
    assert back <= opened[1] <= back + 1.2 * OrchestratorConfig().datalog_reconnect_max_seconds


async def test_the_grace_ends_while_a_connection_is_still_being_tried(autojump_clock: trio.testing.MockClock) -> None:
    """A host that is gone answers nothing: whoever waits for it must not wait for the try to fail, too."""
    opened = 0

    class Vanishing(SampleStream):
        async def write(self, _sample: DatalogSample) -> None:
            if trio.current_time() > 5:
                raise RpcError(StatusCode.UNAVAILABLE, "gone")

        async def complete(self) -> None:
            pass

    class Sink:
        @asynccontextmanager
        async def open(self, _trial_id: str, _user_id: str, _params: TrialParams) -> AsyncIterator[SampleStream]:
            nonlocal opened
            opened += 1
            if opened > 1:
                await trio.sleep(1000)
            yield Vanishing()

    config = OrchestratorConfig(max_queued_samples=3, datalog_grace_seconds=20)
    services = Script(environment_of(50, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, sink=Sink(), config=config) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        # 50 s of its own, and what was left of the grace when its queue was full.
        assert 50 < trio.current_time() < 50 + config.datalog_grace_seconds
    assert opened == 2


@pytest.mark.parametrize("kept", [4, 1024])
async def test_who_ends_in_good_order_has_taken_what_it_did_not_answer(
    kept: int, autojump_clock: trio.testing.MockClock
) -> None:
    answers = 3

    async def log(call: ServerCall) -> None:
        nonlocal answers
        async for _ in call:
            if answers:
                answers -= 1
                await call.send(RunTrialDatalogOutput())

    services = Script(environment_of(20)).environment(), Script(actor_that_acts()).actor(), Script(log).datalog()
    async with bench(*services, config=OrchestratorConfig(max_queued_samples=kept)) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
        assert table.orchestrator.running_trials == 0
        assert table.orchestrator.lost_samples == 0
    assert answers == 0


async def test_what_was_sent_and_is_not_kept_is_told_when_the_stream_breaks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Of samples that a log has not answered the newest are kept; the others are lost, but not in silence."""
    seen: list[list[Any]] = []

    async def log(call: ServerCall) -> None:
        seen.append([])
        async for message in call:
            if len(seen) > 1 or not message.HasField("sample"):
                await call.send(RunTrialDatalogOutput())
            if message.HasField("sample"):
                seen[-1].append(message.sample.info)
                if len(seen) == 1 and len(seen[0]) == 7:
                    raise RpcError(StatusCode.UNAVAILABLE, "the disk failed")

    services = Script(environment_of(20)).environment(), Script(actor_that_acts()).actor(), Script(log).datalog()
    async with bench(*services, config=OrchestratorConfig(max_queued_samples=4)) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
        lost = table.orchestrator.lost_samples
    first = seen[1][0]
    assert lost == first.tick_id > 0
    assert first.special_events[0].startswith(f"{lost} samples before this one were lost")
    assert [info.tick_id for info in seen[1]] == list(range(lost, 21))


@pytest.mark.parametrize("grace", [0.5, 10.0])
async def test_tries_that_fail_become_rarer_however_short_the_grace(
    grace: float, autojump_clock: trio.testing.MockClock
) -> None:
    tried: list[float] = []

    class Away:
        @asynccontextmanager
        async def open(self, _trial_id: str, _user_id: str, _params: TrialParams) -> AsyncIterator[SampleStream]:
            tried.append(trio.current_time())
            if len(tried) > 1:
                raise UnavailableError("away")
            yield Broken()

    class Broken(SampleStream):
        async def write(self, _sample: DatalogSample) -> None:
            raise UnavailableError("away")

        async def complete(self) -> None: ...

    services = Script(environment_of(100, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    config = OrchestratorConfig(datalog_grace_seconds=grace)
    async with bench(*services, sink=Away(), config=config) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
    assert 5 < len(tried) < 20


@both
async def test_a_log_that_ends_its_stream_before_the_trial_does_gets_another(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    streams: list[list[int]] = []

    async def log(call: ServerCall) -> None:
        streams.append([])
        async for message in call:
            await call.send(RunTrialDatalogOutput())
            if message.HasField("sample"):
                streams[-1].append(message.sample.info.tick_id)
            if streams == [[0, 1]]:
                return

    services = Script(environment_of(6, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, Script(log).datalog(), wire=wire) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert streams[0] == [0, 1]
    assert len(streams) > 1
    assert [tick for stream in streams[1:] for tick in stream][-1] == 6


@both
async def test_a_log_that_leaves_with_the_last_sample_is_not_called_again(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    streams: list[list[int]] = []

    async def log(call: ServerCall) -> None:
        streams.append([])
        async for message in call:
            await call.send(RunTrialDatalogOutput())
            if message.HasField("sample"):
                streams[-1].append(message.sample.info.tick_id)
                if message.sample.info.state == TrialState.ENDED:
                    return

    services = Script(environment_of(6, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, Script(log).datalog(), wire=wire) as table:
        await table.controller.start_trial(params_of("a", datalog_endpoint=LOGGED), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.sleep(60)
        assert table.orchestrator.lost_samples == 0
    assert streams == [list(range(7))]
