"""Sinks of this process, and what becomes of the samples while any sink is away."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.helpers import Script, actor_that_acts, bench, environment_of, params_of
from trio_cogment import open_platform
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, RunTrialDatalogOutput
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import ServerCall
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import SampleStream
from trio_cogment.servers.orchestrator._datalog import Datalog

both = pytest.mark.parametrize("wire", [False, True])
LOGGED = "cogment://discover"


class Sink:
    """Keeps what it gets; a test may make it fail.

    Attributes:
        opened: the arguments of every `open`.
        samples: everything written; `ticks`: the ticks of these.
        completed: when, on Trio's clock.
        failing: what to do before a stream opens; `before_write`: what to do before a sample is taken.
    """

    def __init__(self) -> None:
        self.opened: list[tuple[str, str, TrialParams]] = []
        self.samples: list[DatalogSample] = []
        self.completed: list[float] = []
        self.failing: Callable[[], None] = lambda: None
        self.before_write: Callable[[], Any] | None = None

    @property
    def ticks(self) -> list[int]:
        return [sample.info.tick_id for sample in self.samples]

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[SampleStream]:
        self.failing()
        self.opened.append((trial_id, user_id, params))
        yield Stream(self)


class Stream(SampleStream):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def write(self, sample: DatalogSample) -> None:
        if self._sink.before_write is not None:
            await self._sink.before_write()
        self._sink.samples.append(sample)

    async def complete(self) -> None:
        self._sink.completed.append(trio.current_time())


def players(ticks: int | None, seconds_per_tick: float | None = None) -> tuple[Any, Any]:
    environment = Script(environment_of(ticks, seconds_per_tick=seconds_per_tick)).environment()
    return environment, Script(actor_that_acts()).actor()


def logged(*names: str, **options: Any) -> TrialParams:
    return params_of(*names, datalog_endpoint=LOGGED, **options)


# A sink of this process


async def test_sink_in_process_gets_the_very_objects_and_nothing_is_copied_or_serialised(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[DatalogSample] = []
    put = Datalog.put

    def watched(self: Datalog, sample: DatalogSample) -> None:
        emitted.append(sample)
        put(self, sample)

    monkeypatch.setattr(Datalog, "put", watched)
    sink = Sink()
    calls: list[str] = []
    kinds = DatalogSample, RunTrialDatalogInput

    def profile(_frame: Any, event: str, argument: Any) -> None:
        if event == "c_call" and isinstance(getattr(argument, "__self__", None), kinds):
            calls.append(argument.__name__)

    async with open_platform(store=sink) as platform:
        platform.participants.register_environment(sdk_environment)
        platform.participants.register_actor(sdk_actor, "actor")
        sys.setprofile(profile)
        try:
            trial_id = await platform.controller.start_trial(logged("a", "b"))
            await platform.controller.wait_trial_state(trial_id)
            await trio.testing.wait_all_tasks_blocked()
            DatalogSample().ByteSize()
        finally:
            sys.setprofile(None)
    assert sink.ticks == list(range(21))
    assert all(sample is original for sample, original in zip(sink.samples, emitted, strict=True))
    # The watcher itself works, and saw none of this from the trial.
    assert calls.pop() == "ByteSize"
    assert not {"ByteSize", "SerializeToString", "SerializePartialToString", "CopyFrom", "MergeFrom"} & set(calls)
    ((opened_id, user_id, params),) = sink.opened
    assert (opened_id, user_id) == (trial_id, "trio-cogment")
    assert [actor.name for actor in params.actors] == ["a", "b"]
    assert len(sink.completed) == 1


async def sdk_environment(session: Any) -> None:
    await session.start([("*", b"o")])
    async for event in session.all_events():
        if event.actions:
            if session.tick_id == 19:
                await session.end([("*", b"o")])
            else:
                await session.produce_observations([("*", b"o")])


async def sdk_actor(session: Any) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"a")


async def test_registered_data_log_comes_before_the_platforms_sink(autojump_clock: trio.testing.MockClock) -> None:
    got: list[int] = []

    async def log(session: Any) -> None:
        async for sample in session:
            got.append(sample.tick_id)

    sink = Sink()
    async with open_platform(store=sink) as platform:
        platform.participants.register_environment(sdk_environment)
        platform.participants.register_actor(sdk_actor, "actor")
        platform.participants.register_datalog(log)
        trial_id = await platform.controller.start_trial(logged("a"))
        await platform.controller.wait_trial_state(trial_id)
        await trio.testing.wait_all_tasks_blocked()
    assert len(got) == 21
    assert not sink.opened


async def test_sink_is_no_service(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(*players(1), sink=Sink()) as table:
        params = trial_params([actor_params("a", "player", endpoint="cogment://discover/datalog")])
        await table.controller.start_trial(params, trial_id="t")
        info = await table.controller.wait_trial_state("t")
    assert info is not None
    assert info.tick_id == 0


async def test_sink_that_cannot_open_fails_the_start(autojump_clock: trio.testing.MockClock) -> None:
    sink = Sink()

    def fails() -> None:
        raise OSError("disk full")

    sink.failing = fails
    async with bench(*players(1), sink=sink) as table:
        with pytest.raises(RpcError) as caught:
            await table.controller.start_trial(logged("a"), trial_id="t")
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert "disk full" in caught.value.message
        assert not await table.controller.trial_infos()


async def test_slow_sink_is_back_pressure_and_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    sink = Sink()
    sink.before_write = functools.partial(trio.sleep, 0.1)
    config = OrchestratorConfig(max_queued_samples=5, datalog_flush_seconds=1)
    async with bench(*players(100), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await trio.sleep(3)
        (info,) = await table.controller.trial_infos(["t"])
        assert len(sink.ticks) <= info.tick_id <= len(sink.ticks) + 8
        (trial,) = table.orchestrator.trials
        assert 0 < trial.queues.samples <= 6
        await table.controller.wait_trial_state("t")
        await trio.sleep(2)
    assert sink.ticks == list(range(101))
    assert table.orchestrator.lost_samples == 0


async def test_sink_that_fails_in_between_is_opened_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink()

    async def fails_now_and_then() -> None:
        if len(sink.samples) in (3, 7):
            sink.samples.append(DatalogSample())  # so that it passes the next time
            raise ZeroDivisionError

    sink.before_write = fails_now_and_then
    caplog.set_level("INFO")
    async with bench(*players(20, 1.0), sink=sink) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    taken = [sample.info.tick_id for sample in sink.samples if sample.HasField("info")]
    assert taken == list(range(21))
    assert len(sink.opened) == 3
    assert len(sink.completed) == 1
    assert "ZeroDivisionError" in caplog.text
    assert "the data log is back" in caplog.text


# Away


def away(clock: Callable[[], float], begin: float, end: float) -> Callable[[], None]:
    def failing() -> None:
        if begin <= clock() < end:
            raise RpcError(StatusCode.UNAVAILABLE, "no such luck")

    return failing


def breaking(sink: Sink, begin: float, end: float) -> Sink:
    """Let a sink be away from `begin` to `end`, on Trio's clock."""
    check = away(trio.current_time, begin, end)
    sink.failing = check

    async def before_write() -> None:
        check()

    sink.before_write = before_write
    return sink


async def test_away_within_the_grace_is_back_pressure_and_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    sink = breaking(Sink(), 10, 18)
    config = OrchestratorConfig(max_queued_samples=4, datalog_grace_seconds=20)
    async with bench(*players(40, 1.0), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await trio.sleep(17.5)
        (info,) = await table.controller.trial_infos(["t"])
        assert 12 <= info.tick_id <= 16
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert sink.ticks == list(range(41))
    assert table.orchestrator.lost_samples == 0
    # Nothing of it is to be seen in the samples.
    assert not any(sample.info.special_events for sample in sink.samples[:-1])


async def test_away_beyond_the_grace_drops_the_oldest_and_tells(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = breaking(Sink(), 10, 60)
    config = OrchestratorConfig(max_queued_samples=4, datalog_grace_seconds=5, datalog_reconnect_max_seconds=2)
    async with bench(*players(100, 1.0), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await trio.sleep(50)
        # It waited once, for a moment, and then went on.
        (info,) = await table.controller.trial_infos(["t"])
        assert info.tick_id >= 40
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
        lost = table.orchestrator.lost_samples
    assert sink.ticks == sorted(set(sink.ticks))
    assert sink.ticks[-1] == 100
    missing = sorted(set(range(101)) - set(sink.ticks))
    # One gap: the newest of what could not be written are kept.
    assert missing == list(range(missing[0], missing[-1] + 1))
    assert lost == len(missing)
    assert 30 <= lost <= 50
    told = [sample for sample in sink.samples if any("were lost" in event for event in sample.info.special_events)]
    assert [sample.info.tick_id for sample in told] == [missing[-1] + 1]
    assert told[0].info.special_events[0].startswith(f"{lost} samples before this one were lost")
    assert f"{lost} samples did not reach the data log" in caplog.text
    assert len([record for record in caplog.records if "samples are dropped" in record.getMessage()]) == 1


async def test_without_a_grace_the_trial_never_waits(autojump_clock: trio.testing.MockClock) -> None:
    sink = breaking(Sink(), 5, 1000)
    config = OrchestratorConfig(max_queued_samples=3, datalog_grace_seconds=0)
    async with bench(*players(50, 1.0), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        assert trio.current_time() == pytest.approx(50)


async def test_loss_is_told_again_when_what_told_it_is_lost_too(autojump_clock: trio.testing.MockClock) -> None:
    sink = Sink()
    tries: list[float] = []

    def failing() -> None:
        if 5 <= trio.current_time() < 30 or 33 < trio.current_time() < 60:
            raise RpcError(StatusCode.UNAVAILABLE, "no such luck")

    async def before_write() -> None:
        if 5 <= trio.current_time() < 60:
            tries.append(trio.current_time())
            raise RpcError(StatusCode.UNAVAILABLE, "no such luck")

    sink.failing, sink.before_write = failing, before_write
    config = OrchestratorConfig(max_queued_samples=3, datalog_grace_seconds=1, datalog_reconnect_max_seconds=1)
    async with bench(*players(80, 1.0), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert any(30 <= when <= 33 for when in tries)
    missing = sorted(set(range(81)) - set(sink.ticks))
    (told,) = [event for sample in sink.samples for event in sample.info.special_events if "were lost" in event]
    assert told.startswith(f"{len(missing)} samples")


async def test_who_excludes_info_is_told_nothing_but_by_the_log(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = breaking(Sink(), 5, 30)
    config = OrchestratorConfig(max_queued_samples=3, datalog_grace_seconds=1)
    params = logged("a")
    params.datalog.exclude_fields.append("info")
    async with bench(*players(50, 1.0), sink=sink, config=config) as table:
        await table.controller.start_trial(params, trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert not any(sample.HasField("info") for sample in sink.samples)
    assert "did not reach the data log" in caplog.text


async def test_away_at_the_end_is_tried_for_the_flush_time_and_counted(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = breaking(Sink(), 8, 1000)
    config = OrchestratorConfig(datalog_flush_seconds=7)
    async with bench(*players(10, 1.0), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        over = trio.current_time()
        await trio.sleep(6.9)
        assert table.orchestrator.running_trials == 1
        await trio.sleep(0.2)
        assert trio.current_time() == pytest.approx(over + 7.1)
        assert table.orchestrator.running_trials == 0
    assert sink.ticks + list(range(len(sink.ticks), 11)) == list(range(11))
    assert table.orchestrator.lost_samples == 11 - len(sink.ticks)
    assert f"{table.orchestrator.lost_samples} samples did not reach the data log" in caplog.text


async def test_back_in_time_for_the_end_gets_everything_in_order(autojump_clock: trio.testing.MockClock) -> None:
    sink = breaking(Sink(), 5, 12)
    async with bench(*players(10, 1.0), sink=sink) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        assert trio.current_time() == pytest.approx(10)
        await trio.sleep(10)
    assert sink.ticks == list(range(11))
    assert sink.samples[-1].info.state == TrialState.ENDED
    assert len(sink.completed) == 1


async def test_outage_is_no_older_than_the_stream_that_broke(autojump_clock: trio.testing.MockClock) -> None:
    """A stream that lived long but had nothing to take was a return all the same: there is a new grace."""
    sink = Sink()
    broken = {"write": False, "open": False}

    def failing() -> None:
        if broken["open"]:
            raise RpcError(StatusCode.UNAVAILABLE, "away")

    async def before_write() -> None:
        if broken["write"]:
            raise RpcError(StatusCode.UNAVAILABLE, "broke")

    sink.failing, sink.before_write = failing, before_write
    config = OrchestratorConfig(max_queued_samples=3, datalog_grace_seconds=5)
    async with bench(*players(60, 10.0), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await trio.sleep(5)
        broken["write"] = True
        await trio.sleep(20)
        broken["write"] = False
        await trio.sleep(100)
        taken = len(sink.samples)
        broken["write"] = broken["open"] = True
        await trio.sleep(24)
        broken["write"] = broken["open"] = False
        await trio.sleep(100)
    assert sink.ticks[: taken + 5] == list(range(taken + 5))


# A data log elsewhere


class Log:
    """A data log over a call: every stream it got, and how each ends.

    Args:
        ends: for each stream, after how many samples it ends (None: at its own end), and with which error.
        answers: send an empty message for each.
    """

    def __init__(self, *ends: tuple[int, RpcError | None], answers: bool) -> None:
        self.streams: list[list[Any]] = []
        self._ends = list(ends)
        self._answers = answers

    async def __call__(self, call: ServerCall) -> None:
        got: list[Any] = []
        self.streams.append(got)
        after, error = self._ends.pop(0) if self._ends else (None, None)
        async for message in call:
            got.append(message)
            if after is not None and len(got) > after:
                if error is not None:
                    raise error
                return
            if self._answers:
                await call.send(RunTrialDatalogOutput())

    @property
    def ticks(self) -> list[list[int]]:
        return [[message.sample.info.tick_id for message in stream[1:]] for stream in self.streams]


@both
@pytest.mark.parametrize(
    "error",
    [RpcError(StatusCode.UNAVAILABLE, "gone"), RpcError(StatusCode.INTERNAL, "broke"), None],
    ids=["unavailable", "internal", "early end"],
)
async def test_log_that_answers_gets_every_sample_at_least_once(
    wire: bool, error: RpcError | None, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log((3, error), (4, error), answers=True)
    async with bench(*players(20, 0.25), Script(log).datalog(), wire=wire) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert len(log.streams) == 3
    for stream in log.streams:
        assert [actor.name for actor in stream[0].trial_params.actors] == ["a"]
    first, second, third = log.ticks
    # Each broke off at a sample it had not answered: that one comes again, and no other does.
    assert first == [0, 1, 2]
    assert second == [2, 3, 4, 5]
    assert third == list(range(5, 21))


@both
async def test_log_that_never_answers_gets_no_sample_twice(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    log = Log((3, None), (4, RpcError(StatusCode.UNAVAILABLE, "gone")), answers=False)
    async with bench(*players(20, 0.25), Script(log).datalog(), wire=wire) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    seen = [tick for ticks in log.ticks for tick in ticks]
    assert seen == sorted(set(seen))
    assert len(log.streams) == 3
    assert seen[:3] == [0, 1, 2]
    assert seen[-1] == 20
    assert table.orchestrator.lost_samples == 0


@both
async def test_log_that_leaves_with_the_last_sample_is_no_loss(
    wire: bool, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    async def leaves(call: ServerCall) -> None:
        await call.receive()
        async for message in call:
            seen.append(message.sample.info.tick_id)
            if message.sample.info.state == TrialState.ENDED:
                return

    async with bench(*players(5), Script(leaves).datalog(), wire=wire) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
        assert table.orchestrator.running_trials == 0
    assert seen == list(range(6))
    assert "data log" not in caplog.text


@both
async def test_sample_the_log_refuses_is_dropped_after_some_tries(
    wire: bool, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    events: list[str] = []

    async def picky(call: ServerCall) -> None:
        await call.receive()
        await call.send(RunTrialDatalogOutput())
        async for message in call:
            if message.sample.info.tick_id == 7:
                raise RpcError(StatusCode.INVALID_ARGUMENT, "I do not like 7")
            seen.append(message.sample.info.tick_id)
            events.extend(message.sample.info.special_events)
            await call.send(RunTrialDatalogOutput())

    async with bench(*players(40, 1.0), Script(picky).datalog(), wire=wire) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
        assert table.orchestrator.lost_samples == 1
    assert sorted(set(seen)) == [tick for tick in range(41) if tick != 7]
    assert events[0].startswith("1 sample before")
    assert "I do not like 7" in caplog.text


@both
async def test_log_that_stops_answering_does_not_hold_the_trial_up(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """What is kept for another stream is bounded, and the bound is not back-pressure."""

    async def answers_once(call: ServerCall) -> None:
        await call.receive()
        await call.send(RunTrialDatalogOutput())
        async for message in call:
            seen.append(message.sample.info.tick_id)

    seen: list[int] = []
    config = OrchestratorConfig(max_queued_samples=10)
    async with bench(*players(500), Script(answers_once).datalog(), wire=wire, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.testing.wait_all_tasks_blocked()
    assert seen == list(range(501))


async def test_log_that_answers_slowly_may_take_its_time_at_the_end(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[int] = []

    async def slow(call: ServerCall) -> None:
        async for message in call:
            if message.HasField("sample"):
                await trio.sleep(5)
                seen.append(message.sample.info.tick_id)
            await call.send(RunTrialDatalogOutput())

    config = OrchestratorConfig(datalog_flush_seconds=7)
    async with bench(*players(30), Script(slow).datalog(), config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        assert trio.current_time() == 0
        await trio.sleep(31 * 5 + 1)
        assert table.orchestrator.running_trials == 0
    assert seen == list(range(31))
    assert table.orchestrator.lost_samples == 0


async def test_call_opened_at_the_end_has_no_deadline(autojump_clock: trio.testing.MockClock) -> None:
    deadlines: list[float] = []

    async def run(call: ServerCall) -> None:
        deadlines.append(call.deadline)
        await call.receive()
        await call.send(RunTrialDatalogOutput())
        if len(deadlines) == 1:
            await trio.sleep(6)
            raise RpcError(StatusCode.UNAVAILABLE, "gone")
        async for _ in call:
            await trio.sleep(5)
            await call.send(RunTrialDatalogOutput())

    config = OrchestratorConfig(datalog_flush_seconds=9)
    async with bench(*players(10, 0.5), Script(run).datalog(), config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await trio.sleep(100)
    assert deadlines == [float("inf")] * 2
    assert table.orchestrator.lost_samples == 0


async def test_being_cancelled_counts_what_was_left(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink()
    sink.before_write = functools.partial(trio.sleep, 1000)
    config = OrchestratorConfig(farewell_seconds=1)
    async with bench(*players(10), sink=sink, config=config) as table:
        await table.controller.start_trial(logged("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
    assert table.orchestrator.lost_samples == 11
    assert "11 samples did not reach the data log" in caplog.text


class PromptStream(Stream):
    """Takes every sample at once but for those of some ticks; `write` gets these."""

    def __init__(self, sink: Sink, refused: set[int], raised: set[int]) -> None:
        super().__init__(sink)
        self._refused = refused
        self._raised = raised
        self.at_once: list[int] = []

    def write_nowait(self, sample: DatalogSample) -> bool:
        if sample.info.tick_id in self._raised:
            raise ZeroDivisionError
        if sample.info.tick_id in self._refused:
            return False
        self._sink.samples.append(sample)
        self.at_once.append(sample.info.tick_id)
        return True


class PromptSink(Sink):
    def __init__(self, refused: Iterable[int] = (), raised: Iterable[int] = ()) -> None:
        super().__init__()
        self.streams: list[PromptStream] = []
        self._ticks = set(refused), set(raised)

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[SampleStream]:
        self.opened.append((trial_id, user_id, params))
        self.streams.append(PromptStream(self, *self._ticks))
        yield self.streams[-1]


async def test_what_a_stream_takes_at_once_waits_for_nothing(autojump_clock: trio.testing.MockClock) -> None:
    sink = PromptSink()
    async with bench(*players(20), sink=sink) as table:
        trial_id = await table.controller.start_trial(logged("a"))
        outcome = await table.controller.wait_trial(trial_id)
    assert outcome.samples_lost == 0
    assert sink.ticks == list(range(21))
    assert sink.streams[0].at_once == sink.ticks
    assert len(sink.completed) == 1


async def test_samples_that_are_not_taken_at_once_keep_their_place(autojump_clock: trio.testing.MockClock) -> None:
    sink = PromptSink(refused=[3, 4, 11])
    pauses = iter([1.5, 0, 1.5])  # a tick lasts 1 second

    async def pause() -> None:
        await trio.sleep(next(pauses, 0))

    sink.before_write = pause
    async with bench(*players(20, seconds_per_tick=1), sink=sink) as table:
        trial_id = await table.controller.start_trial(logged("a"))
        await table.controller.wait_trial(trial_id)
    assert sink.ticks == list(range(21))
    # While 11 is written, 12 waits behind it.
    assert sink.streams[0].at_once == [tick for tick in range(21) if tick not in (3, 4, 11, 12)]


async def test_a_stream_that_raises_within_the_tick_harms_no_tick(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = PromptSink(raised=[5])
    async with bench(*players(20), sink=sink) as table:
        trial_id = await table.controller.start_trial(logged("a"))
        outcome = await table.controller.wait_trial(trial_id)
    assert outcome.ticks == 21
    assert sink.ticks == list(range(21))
    assert sink.streams[0].at_once == list(range(5))
    assert "failed to take a sample at once" in caplog.text
    assert len(sink.opened) == 1
