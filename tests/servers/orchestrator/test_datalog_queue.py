"""The queue of a data log step by step: what waits, what is sent and may be lost still, and what the trial is told."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from trio_cogment.api.common_pb2 import EndCause, EndOfTrial, TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    QuotaError,
    StorageFailedError,
    UnavailableError,
)
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.servers.orchestrator import SampleStream
from trio_cogment.servers.orchestrator._datalog import FREE_BYTES, Datalog

PARAMS = TrialParams()
AWAY = UnavailableError("away")
REFUSED = InvalidArgumentError("I do not like it")
FULL = StorageFailedError("no room left")
#: Of samples of this size two are free, and three are not.
LARGE = FREE_BYTES * 2 // 5
STEP = 64 * 1024


class Stream(SampleStream):
    """One stream, as a test wants it.

    Attributes:
        written: the samples it took.
        confirmed: how many of them are safe; None: every one.
        on_confirmed: see `SampleStream`.
    """

    def __init__(self, desk: Desk, confirmed: int | None) -> None:
        self._desk = desk
        self.lease_seconds = desk.lease
        self.written: list[DatalogSample] = []
        self.confirmed = confirmed
        self.on_confirmed: Callable[[], None] = lambda: None
        self.scope = trio.CancelScope()
        self.failure: Exception | None = None

    @property
    def ticks(self) -> list[int]:
        return [sample.info.tick_id for sample in self.written]

    @property
    def unconfirmed(self) -> int:
        return 0 if self.confirmed is None else len(self.written) - self.confirmed

    async def write(self, sample: DatalogSample) -> None:
        await self._desk.gate(sample)
        self.written.append(sample)

    async def complete(self) -> None:
        self._desk.completed.append(trio.current_time())
        await self._desk.completing()

    def confirm(self, count: int) -> None:
        self.confirmed = count
        self.on_confirmed()

    def break_off(self, failure: Exception = AWAY) -> None:
        """End it from the other side."""
        self.failure = failure
        self.scope.cancel()


class PlainStream:
    """A stream that does not say when samples are taken, and has no room for an attribute of anybody else's."""

    __slots__ = ("ticks", "unconfirmed")

    def __init__(self) -> None:
        self.ticks: list[int] = []
        self.unconfirmed = 0

    async def write(self, sample: DatalogSample) -> None:
        self.ticks.append(sample.info.tick_id)
        self.unconfirmed += 1

    async def complete(self) -> None:
        self.unconfirmed = 0


class PromptStream(Stream):
    def write_nowait(self, sample: DatalogSample) -> bool:
        if not self._desk.prompt:
            return False
        self.written.append(sample)
        return True


class Desk:
    """A data log whose sink and owner are played by a test.

    Attributes:
        log: the data log.
        streams: those that were opened.
        tried: when it was tried to open one.
        refusal: what a try comes to, if not to a stream.
        gate: what a write has to pass.
        completing: what a stream that is complete has to pass.
        completed: when streams were complete.
        full: what the trial was told: to wait, or to go on.
        lost: how many samples it was told are lost.
        replaced: why it was told to end.
        prompt: whether streams take samples at once.
        confirming: whether streams say what they have taken.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        confirming: bool = False,
        here: bool = False,
        lease: float | None = None,
        **limits: Any,
    ) -> None:
        self._nursery = nursery
        self.lease = lease
        self._here = here
        self.pool = BytePool()
        self.config = OrchestratorConfig(**limits)
        self.log = Datalog(
            "t",
            "user",
            self,
            config=self.config,
            rng=random.Random(0),
            owner=self,
            loan=self.pool.loan(),
        )
        self.streams: list[Stream] = []
        self.tried: list[float] = []
        self.replaced: list[str] = []
        self.refusal: Exception | None = None
        self.gate: Callable[[DatalogSample], Awaitable[None]] = self.nothing
        self.completing: Callable[[], Awaitable[None]] = self.nothing
        self.completed: list[float] = []
        self.full: list[bool] = []
        self.lost: list[int] = []
        self.prompt = here
        self.confirming = confirming
        self.ended: list[float] = []

    async def nothing(self, *_: object) -> None:
        pass

    async def stuck(self, *_: object) -> None:
        await trio.sleep_forever()

    async def fails(self, *_: object) -> None:
        raise AWAY

    async def is_full(self, *_: object) -> None:
        raise FULL

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[Stream]:
        assert (trial_id, user_id, params) == ("t", "user", PARAMS)
        self.tried.append(trio.current_time())
        if self.refusal is not None:
            raise self.refusal
        stream = (PromptStream if self._here else Stream)(self, 0 if self.confirming else None)
        self.streams.append(stream)
        with stream.scope:
            yield stream
        if stream.failure is not None:
            raise stream.failure

    def spawn(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        self._nursery.start_soon(function, name=name)

    def on_datalog_full(self, full: bool) -> None:
        self.full.append(full)

    def on_samples_lost(self, count: int) -> None:
        self.lost.append(count)

    def on_replaced(self, why: str) -> None:
        self.replaced.append(why)

    async def run(self) -> None:
        await self.log.run(PARAMS)
        self.ended.append(trio.current_time())

    def put(self, *ticks: int, size: int = 0, **info: Any) -> None:
        for tick in ticks:
            sample = DatalogSample(info=SampleInfo(tick_id=tick, **info))
            if size:
                sample.observations.CopyFrom(ObservationSet(observations=[bytes(size)]))
            self.log.put(sample)

    @property
    def ticks(self) -> list[list[int]]:
        """What each stream took."""
        return [stream.ticks for stream in self.streams]

    @property
    def events(self) -> list[tuple[int, str]]:
        """What samples told, each with its tick; one that was written to two streams is the same object."""
        samples = {id(sample): sample for stream in self.streams for sample in stream.written}
        return [(sample.info.tick_id, event) for sample in samples.values() for event in sample.info.special_events]

    def counts(self) -> dict[str, float]:
        for count in self.log.recount():
            assert count.kept == count.counted, count
        return {count.what: count.kept for count in self.log.recount()}


@asynccontextmanager
async def desk(*, opened: bool = True, **options: Any) -> AsyncIterator[Desk]:
    """Run a data log, with its first stream open; it is cancelled at the end, if it has not come to its own."""
    async with trio.open_nursery() as nursery:
        one = Desk(nursery, **options)
        nursery.start_soon(one.run)
        if opened:
            await one.log.opened.wait()
        yield one
        nursery.cancel_scope.cancel()
    assert one.log.over
    assert one.pool.used == 0
    assert not one.full or one.full[-1] is False
    assert one.log.dropped_samples == sum(one.lost)


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


def told(count: int) -> str:
    what = "1 sample before this one was" if count == 1 else f"{count} samples before this one were"
    return f"{what} lost: the data log did not take them in time"


# In good order


async def test_everything_is_written_in_order_and_then_it_is_over(autojump_clock: MockClock) -> None:
    async with desk() as table:
        table.put(0, 1, 2)
        assert table.log.queued_samples == 3
        await settle()
        assert (table.log.queued_samples, table.ticks) == (0, [[0, 1, 2]])
        table.put(3)
        table.log.complete()
        await settle()
        assert (table.ticks, table.completed, table.ended) == ([[0, 1, 2, 3]], [0], [0])
        table.put(4)  # too late: counted
    assert (table.ticks, table.lost, table.full, table.events) == ([[0, 1, 2, 3]], [1], [], [])


async def test_what_ends_without_samples_is_complete(autojump_clock: MockClock) -> None:
    async with desk() as table:
        table.log.complete()
        await settle()
        assert (table.completed, table.ended, table.lost) == ([0], [0], [])


async def test_a_full_queue_makes_the_trial_wait_until_half_of_it_is_gone(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=6) as table:
        taken = trio.Semaphore(0)
        table.gate = lambda _: taken.acquire()
        table.put(*range(5))
        await settle()
        assert table.full == []
        table.put(5)
        assert table.full == [True]
        for _ in range(2):
            taken.release()
        await settle()
        assert (table.full, table.log.queued_samples) == ([True], 4)
        taken.release()
        await settle()
        assert (table.full, table.log.queued_samples) == ([True, False], 3)
        # While the trial waits what was on its way comes nevertheless, and says nothing new.
        table.put(6, 7, 8, 9)
        assert table.full == [True, False, True]
    assert table.ticks == [[0, 1, 2]]
    assert table.lost == [7]


@pytest.mark.parametrize(("limit", "left"), [(1, 0), (2, 1), (5, 2)])
async def test_half_of_an_odd_queue(limit: int, left: int, autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=limit) as table:
        seen: list[int] = []

        async def gate(_: DatalogSample) -> None:
            if table.full[-1]:
                seen.append(table.log.queued_samples)

        table.gate = gate
        table.put(*range(limit))
        await settle()
        assert table.full == [True, False]
        assert seen == list(range(limit, left, -1))


# Bytes


@pytest.mark.parametrize("here", [False, True])
async def test_few_samples_are_not_counted_and_of_more_every_one_is(here: bool, autojump_clock: MockClock) -> None:
    async with desk(here=here) as table:
        taken = trio.Semaphore(0)
        table.prompt = False
        table.gate = lambda _: taken.acquire()
        table.put(0, 1, size=LARGE)
        assert table.counts()["bytes of samples"] == 0
        table.put(2, size=LARGE)
        counted = table.counts()["bytes of samples"]
        assert 3 * LARGE < counted < 3 * LARGE + 100
        assert table.pool.used == STEP
        table.put(3, size=LARGE + 2 * STEP)
        assert 2 * STEP + 4 * LARGE < table.counts()["bytes of samples"] < 2 * STEP + 4 * LARGE + 100
        assert table.pool.used == 3 * STEP
        # Those that were written before the others came stay counted until they are taken.
        taken.release()
        await settle()
        assert 2 * STEP + 3 * LARGE < table.counts()["bytes of samples"] < 2 * STEP + 3 * LARGE + 100
        for _ in range(3):
            taken.release()
        await settle()
        assert table.counts()["bytes of samples"] == 0
        assert table.ticks == [[0, 1, 2, 3]]
    assert table.lost == []


async def test_what_is_not_confirmed_is_counted_until_it_is(autojump_clock: MockClock) -> None:
    async with desk(confirming=True) as table:
        table.put(*range(4), size=LARGE)
        await settle()
        (stream,) = table.streams
        assert (stream.ticks, table.log.queued_samples) == ([0, 1, 2, 3], 0)
        assert table.counts()["samples that are not confirmed"] == 4
        for left in (3, 2, 1, 0):
            stream.confirm(4 - left)
            counts = table.counts()
            assert counts["samples that are not confirmed"] == left
            assert left * LARGE <= counts["bytes of samples"] <= left * (LARGE + 100)
        stream.confirm(4)  # nothing new
        assert table.counts()["samples that are not confirmed"] == 0
        assert not table.pool.used
    assert table.lost == []


async def test_a_sink_of_this_process_has_limits_of_its_own(autojump_clock: MockClock) -> None:
    """What it was given is the sink's to hold: it counts as not confirmed, and not as memory of the trial."""
    async with desk(here=True, confirming=True) as table:
        table.prompt = False
        table.put(*range(4), size=LARGE)
        assert table.counts()["bytes of samples"] > 4 * LARGE
        await settle()
        counts = table.counts()
        assert (counts["samples that are not confirmed"], counts["bytes of samples"]) == (4, 0)
        # What comes back is the trial's once more, all of it.
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        counts = table.counts()
        assert (counts["samples that wait for the log"], counts["samples that are not confirmed"]) == (4, 0)
        assert 4 * LARGE < counts["bytes of samples"] < 4 * LARGE + 200
    assert table.lost == [4]


async def test_the_trial_waits_for_memory_and_goes_on_when_there_is_some(autojump_clock: MockClock) -> None:
    async with desk() as table:
        table.gate = table.stuck
        table.pool.total = 4 * STEP
        other = table.pool.loan()
        other.set(4 * STEP)
        table.put(0, 1, size=LARGE)
        assert table.full == []
        table.put(2, size=LARGE)
        assert table.full == [True]
        # It is held against the others all the same.
        assert 4 * STEP < table.pool.used < 5 * STEP
        table.pool.total = 100 * STEP
        other.close()
        assert table.full == [True, False]
        assert table.pool.used == STEP
    assert table.full == [True, False]


async def test_memory_that_is_back_does_not_help_a_queue_that_is_full(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=4) as table:
        table.gate = table.stuck
        table.pool.total = 4 * STEP
        other = table.pool.loan()
        other.set(4 * STEP)
        table.put(0, 1, 2, size=LARGE)  # which want memory
        table.put(3)
        assert table.full == [True]
        table.pool.total = 100 * STEP
        other.close()
        assert table.full == [True]


async def test_the_trial_goes_on_once_there_is_memory_and_half_of_the_queue_is_gone(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=100) as table:
        taken = trio.Semaphore(0)
        table.gate = lambda _: taken.acquire()
        table.pool.total = STEP * 12
        other = table.pool.loan()
        other.set(12 * STEP)
        table.put(*range(5), size=4 * LARGE)
        assert table.full == [True]
        await settle()
        assert table.full == [True]
        # What it has is more than it would be lent, and enough for the others.
        taken.release()
        await settle()
        assert (table.log.queued_samples, table.full) == (4, [True, False])
        other.close()


async def test_what_is_sent_and_not_confirmed_is_forgotten_for_want_of_memory(autojump_clock: MockClock) -> None:
    async with desk(confirming=True) as table:
        table.pool.total = STEP
        other = table.pool.loan()
        other.set(STEP)
        table.put(0, 1, 2, size=LARGE)
        await settle()
        assert table.counts()["samples that are not confirmed"] == 2
        table.streams[0].confirm(1)  # the first of them, which was forgotten
        assert table.counts()["samples that are not confirmed"] == 2
        table.streams[0].confirm(2)
        assert table.counts()["samples that are not confirmed"] == 1
        table.streams[0].break_off()
        await trio.sleep(1)
        assert table.ticks == [[0, 1, 2], [2]]
        other.close()
        assert (table.lost, table.events) == ([], [])


# Confirmed, forgotten and told


async def test_what_is_not_confirmed_comes_again_in_order_and_before_the_rest(autojump_clock: MockClock) -> None:
    async with desk(confirming=True) as table:
        table.put(0, 1, 2, 3)
        await settle()
        table.streams[0].confirm(1)
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        table.put(4, 5)
        assert table.log.queued_samples == 5
        assert table.counts()["samples that are not confirmed"] == 0
        table.refusal = None
        await trio.sleep(5)
        assert table.ticks == [[0, 1, 2, 3], [1, 2, 3, 4, 5]]
    assert (table.lost, table.events, table.full) == ([5], [], [])


@pytest.mark.parametrize(("limit", "lost"), [(3, 2), (4, 1), (5, 0)])
async def test_of_what_is_not_confirmed_the_newest_are_kept(limit: int, lost: int, autojump_clock: MockClock) -> None:
    async with desk(confirming=True, max_queued_samples=limit) as table:
        for tick in range(5):
            table.put(tick)
            await settle()
        assert table.counts()["samples that are not confirmed"] == 5 - lost
        assert (table.lost, table.full) == ([], [])  # nothing is lost before the stream breaks
        table.streams[0].break_off()
        await trio.sleep(1)
        assert table.ticks[1] == list(range(lost, 5))
        assert table.lost == ([lost] if lost else [])
        assert table.events == ([(lost, told(lost))] if lost else [])
        # That stream has taken its own share, and nothing of the first is counted against it.
        table.streams[1].confirm(5 - lost)
        assert table.counts()["samples that are not confirmed"] == 0


async def test_what_a_stream_took_without_a_word_does_not_come_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(confirming=True) as table:
        streams: list[PlainStream] = []

        @asynccontextmanager
        async def open_plain(*_: object) -> AsyncIterator[PlainStream]:
            streams.append(PlainStream())
            yield streams[-1]
            if len(streams) == 1:
                raise AWAY

        monkeypatch.setattr(table, "open", open_plain)
        table.streams[0].break_off()
        await trio.sleep(1)
        assert len(streams) == 1
        table.put(0, 1, 2)
        await settle()
        streams[0].unconfirmed = 1
        monkeypatch.setattr(PlainStream, "complete", table.fails)
        table.log.complete()
        await settle()
        monkeypatch.undo()
        monkeypatch.setattr(table, "open", open_plain)
        await trio.sleep(1)
        assert [stream.ticks for stream in streams] == [[0, 1, 2], [2]]
        assert table.ended
    assert table.lost == []


async def test_what_was_forgotten_and_is_confirmed_is_not_lost(autojump_clock: MockClock) -> None:
    async with desk(confirming=True, max_queued_samples=2) as table:
        for tick in range(5):
            table.put(tick)
            await settle()
        (first,) = table.streams
        first.confirm(2)
        assert table.counts()["samples that are not confirmed"] == 2
        first.break_off()
        await trio.sleep(1)
        # One of the three that were forgotten had not been confirmed.
        assert (table.ticks[1], table.lost, table.events) == ([3, 4], [1], [(3, told(1))])


async def test_a_stream_that_completes_has_taken_all_it_was_sent(autojump_clock: MockClock) -> None:
    async with desk(confirming=True, max_queued_samples=2) as table:
        for tick in range(5):
            table.put(tick)
            await settle()
        table.log.complete()
        await settle()
        assert table.ended == [0]
        assert table.counts() == {
            "samples that wait for the log": 0,
            "samples that are not confirmed": 0,
            "bytes of samples": 0,
        }
    assert (table.lost, table.events, len(table.streams)) == ([], [], 1)


async def test_who_wants_no_info_is_told_nothing(autojump_clock: MockClock) -> None:
    async with desk(confirming=True, max_queued_samples=1) as table:
        for _ in range(3):
            table.log.put(DatalogSample())
            await settle()
        table.streams[0].break_off()
        await trio.sleep(1)
        assert not table.streams[1].written[0].HasField("info")
        table.put(3)
        await settle()
        assert table.events == []  # it was told, to one that could not say it
        assert table.lost == [2]


# Away


async def test_while_it_is_away_a_full_queue_makes_the_trial_wait_for_the_grace(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=3, datalog_grace_seconds=7) as table:
        await trio.sleep(100)
        table.refusal = AWAY
        table.streams[0].break_off()
        table.put(0, 1)
        assert table.full == []
        table.put(2)
        assert table.full == [True]
        await trio.sleep(6.9)
        assert (table.full, table.lost) == ([True], [])
        await trio.sleep(0.2)
        assert (table.full, table.lost) == ([True, False], [])
        # From now on the oldest are dropped.
        table.put(3)
        assert (table.full, table.lost, table.log.queued_samples) == ([True, False], [1], 3)
        table.put(4, 5)
        assert table.lost == [1, 1, 1]
        table.refusal = None
        await trio.sleep(12)
        assert table.ticks == [[], [3, 4, 5]]
        assert table.events == [(3, told(3))]
        assert table.full == [True, False, True, False]  # a stream that is open is waited for


@pytest.mark.parametrize("refusal", [AWAY, REFUSED, FULL])
@pytest.mark.parametrize(("lease", "seconds"), [(25.0, 7.0), (18.0, 3.0), (9.0, 0.0)])
async def test_a_trial_waits_before_others_may_take_it_over(
    refusal: Exception, lease: float, seconds: float, autojump_clock: MockClock
) -> None:
    """It waits however few samples wait, and goes on when a stream has a lease again."""
    leased: dict[str, Any] = {"lease": lease, "datalog_grace_seconds": 7.0, "datalog_full_seconds": 50.0}
    async with desk(max_queued_samples=3, **leased) as table:
        await trio.sleep(100)
        for times in range(1, 3):
            table.refusal = refusal
            table.streams[-1].break_off(refusal)
            table.put(times)
            await trio.sleep(max(0.0, seconds - 0.1))
            assert table.full == [True, False] * (times - 1)
            await trio.sleep(0.2)
            assert table.full == [*[True, False] * (times - 1), True]
            table.refusal = None
            await trio.sleep(20)
            assert table.full == [True, False] * times
    assert table.lost == ([1, 1] if refusal is REFUSED and seconds else [])
    assert table.replaced == []


async def test_a_trial_ends_whose_lease_does_not_come_back(autojump_clock: MockClock) -> None:
    """It loses no sample before: behind a gap nobody could go on with it."""
    async with desk(lease=25.0, max_queued_samples=3, datalog_full_seconds=50.0) as table:
        table.refusal = AWAY
        table.streams[0].break_off()
        table.put(0, 1, 2)
        await trio.sleep(49.9)
        assert (table.full, table.replaced) == ([True], [])
        await trio.sleep(0.2)
        assert table.replaced == ["its data log was away for 50 s (datalog_full_seconds)"]
        assert table.lost == []
        table.log.complete()
        await trio.sleep(60)
        assert table.log.over


async def test_an_ended_trial_has_no_lease_to_wait_for(autojump_clock: MockClock) -> None:
    async with desk(lease=25.0, datalog_full_seconds=50.0, datalog_flush_seconds=100.0) as table:
        table.refusal = AWAY
        table.streams[0].break_off()
        table.put(0)
        await trio.sleep(5)
        table.log.complete()
        await trio.sleep(80)
        assert not table.log.over
        assert (table.full, table.replaced) == ([], [])


async def test_a_gap_is_known_until_a_checkpoint_comes(autojump_clock: MockClock) -> None:
    gaps = []
    async with desk(max_queued_samples=2, datalog_grace_seconds=0) as table:
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        table.put(0, 1)
        gaps.append(table.log.has_gap)
        table.put(2)
        gaps.append(table.log.has_gap)
        table.refusal = None
        await trio.sleep(5)
        table.put(3)
        gaps.append(table.log.has_gap)
        sample = DatalogSample(info=SampleInfo(tick_id=4))
        sample.observations.checkpoint.tick_id = 4
        table.log.put(sample)
        gaps.append(table.log.has_gap)
    assert gaps == [False, True, True, False]


async def test_when_it_is_back_a_full_queue_makes_the_trial_wait_again(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=3, datalog_grace_seconds=0) as table:
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        table.put(*range(5))
        assert (table.full, table.lost) == ([], [1, 1])
        table.refusal = None
        table.gate = table.stuck
        await trio.sleep(5)
        # There are three, and a stream: it has to wait until it has taken them.
        assert (table.full, len(table.streams)) == ([True], 2)


async def test_without_a_grace_the_oldest_are_dropped_at_once(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=2, datalog_grace_seconds=0) as table:
        table.gate = table.stuck
        table.put(0, 1)
        await settle()
        assert table.full == [True]
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        assert (table.full, table.lost) == ([True, False], [])
        table.put(2)
        assert table.lost == [1]


async def test_what_there_is_no_memory_for_is_dropped_when_the_grace_is_over(autojump_clock: MockClock) -> None:
    async with desk(datalog_grace_seconds=0) as table:
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        table.pool.total = STEP
        other = table.pool.loan()
        other.set(STEP)
        table.put(0, 1, size=LARGE)
        assert table.lost == []
        table.put(2, 3, size=LARGE)
        assert (table.lost, table.full, table.log.queued_samples) == ([1, 1], [], 2)
        assert 2 * LARGE < table.counts()["bytes of samples"] < 2 * LARGE + 100
        other.close()
        table.refusal = None
        await trio.sleep(5)
        assert (table.ticks, table.events) == ([[], [2, 3]], [(2, told(2))])


async def test_a_grace_begins_with_each_return_and_not_with_each_try(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=1, datalog_grace_seconds=4, datalog_reconnect_max_seconds=1) as table:
        table.gate = table.fails
        table.put(0)
        await trio.sleep(3.9)
        assert len(table.streams) > 2  # streams that were opened, and took nothing
        assert table.full[0] is True
        # Each of them let the trial wait; what counts is since when there was none that took anything.
        await trio.sleep(1.2)
        assert table.full[-1:] == [False]
        table.put(1)
        assert table.lost == [1]
        table.gate = table.nothing
        await trio.sleep(2)
        assert table.ticks[-1] == [1]
        # It was back: there is another grace, and the queue makes the trial wait.
        table.refusal = AWAY
        table.streams[-1].break_off()
        await settle()
        table.put(2)
        assert (table.full[-1], table.lost) == (True, [1])
        await trio.sleep(3.9)
        assert table.full[-1:] == [True]
        await trio.sleep(0.2)
        assert table.full[-1:] == [False]


async def test_a_stream_that_lived_longer_than_the_grace_was_a_return(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=1, datalog_grace_seconds=4) as table:
        table.streams[0].break_off()
        await trio.sleep(1)
        assert len(table.streams) == 2
        await trio.sleep(4.1)  # it is there, and has nothing to take
        table.refusal = AWAY
        table.streams[1].break_off()
        await settle()
        table.put(0)
        assert table.full == [True]
        await trio.sleep(3.9)
        assert table.full == [True]
        await trio.sleep(0.2)
        assert table.full == [True, False]


async def test_a_stream_that_lived_no_longer_was_none(autojump_clock: MockClock) -> None:
    async with desk(max_queued_samples=1, datalog_grace_seconds=4) as table:
        table.streams[0].break_off()
        await trio.sleep(1)
        assert len(table.streams) == 2
        await trio.sleep(3.3)
        table.refusal = AWAY
        table.streams[1].break_off()
        await settle()
        table.put(0, 1)
        assert (table.full, table.lost) == ([], [1])  # the grace has been over since


async def test_pauses_grow_until_a_stream_takes_something(autojump_clock: MockClock) -> None:
    limits: dict[str, Any] = {"datalog_reconnect_initial_seconds": 1.0, "datalog_reconnect_max_seconds": 50.0}
    async with desk(datalog_grace_seconds=1000, **limits) as table:
        table.gate = table.fails
        table.put(0)
        await trio.sleep(20)
        pauses = [later - earlier for earlier, later in zip(table.tried, table.tried[1:], strict=False)]
        assert len(pauses) >= 5
        for number, pause in enumerate(pauses):
            assert 0.8 * 1.6**number <= pause <= 1.2 * 1.6**number
        table.gate = table.nothing
        await trio.sleep(30)
        assert table.ticks[-1] == [0]
        table.streams[-1].break_off()
        before = trio.current_time()
        await trio.sleep(1.3)
        assert 0.8 <= table.tried[-1] - before <= 1.2


async def test_what_it_refuses_three_times_is_dropped_and_told_of(autojump_clock: MockClock) -> None:
    async with desk(datalog_grace_seconds=1000, datalog_reconnect_max_seconds=0.5) as table:

        async def picky(sample: DatalogSample) -> None:
            if sample.info.tick_id in (1, 2):
                raise REFUSED

        table.gate = picky
        table.put(0, 1, 2, 3)
        await trio.sleep(10)
        # Three streams for each; the first of them took the sample before.
        assert table.ticks == [[0], [], [], [], [], [], [3]] or table.ticks == [[0], [], [], [], [], [], [], [3]]
        assert (table.lost, table.events) == ([1, 1], [(3, told(2))])


async def test_three_refusals_of_the_first_sample_are_three(autojump_clock: MockClock) -> None:
    async with desk(datalog_grace_seconds=1000, datalog_reconnect_max_seconds=0.5) as table:

        async def picky(sample: DatalogSample) -> None:
            if not sample.info.tick_id:
                raise REFUSED

        table.gate = picky
        table.put(0, 1)
        await trio.sleep(10)
        assert table.ticks == [[], [], [], [1]]
        assert (table.lost, table.events) == ([1], [(1, told(1))])


async def test_one_that_refuses_nothing_in_particular_costs_no_sample(autojump_clock: MockClock) -> None:
    async with desk(datalog_grace_seconds=1000, datalog_reconnect_max_seconds=0.5) as table:
        for _ in range(5):
            table.streams[-1].break_off(REFUSED)
            await trio.sleep(1)
        assert len(table.streams) == 6
        table.put(0)
        await settle()
        assert table.ticks[-1] == [0]
    assert table.lost == []


@pytest.mark.parametrize("failure", [AWAY, ZeroDivisionError(), OSError("disk")])
async def test_what_is_no_refusal_costs_no_sample(failure: Exception, autojump_clock: MockClock) -> None:
    async with desk(datalog_grace_seconds=1000, datalog_reconnect_max_seconds=0.5) as table:
        failing = 7

        async def gate(_: DatalogSample) -> None:
            nonlocal failing
            if failing:
                failing -= 1
                raise failure

        table.gate = gate
        table.put(0, 1)
        await trio.sleep(10)
        assert table.ticks == [*[[]] * 7, [0, 1]]
    assert (table.lost, table.events) == ([], [])


async def test_refusals_are_counted_for_one_sample_alone(autojump_clock: MockClock) -> None:
    """What was taken in between ends the count."""
    async with desk(confirming=True, datalog_grace_seconds=1000, datalog_reconnect_max_seconds=0.5) as table:
        refusing = 2

        async def gate(_: DatalogSample) -> None:
            if refusing:
                raise REFUSED

        for tick in range(4):
            refusing = 2
            table.gate = gate
            table.put(tick)
            tried = len(table.tried)
            await trio.sleep(0.7)
            assert len(table.tried) == tried + 1
            refusing = 0
            await trio.sleep(2)
            table.streams[-1].confirm(1)
            table.streams[-1].break_off()
            await trio.sleep(1)
        assert [tick for stream in table.ticks for tick in stream] == [0, 1, 2, 3]
    assert table.lost == []


# There, but without room


async def test_one_that_cannot_store_is_waited_for_as_long_as_its_setting_says(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Streams that open and break without having taken anything are not a return."""
    caplog.set_level("INFO")
    async with desk(max_queued_samples=2, datalog_grace_seconds=1, datalog_full_seconds=300) as table:
        table.gate = table.is_full
        table.put(0, 1)
        await trio.sleep(299)
        assert len(table.streams) > 10
        assert (table.full, table.lost, table.log.trouble) == ([True], [], "no room left")
        said = (
            "trial t: the data log cannot store samples; when 2 wait (max_queued_samples), so does the trial, until "
            "this has lasted 300 s (datalog_full_seconds)"
        )
        assert caplog.messages == [f"{said}: no room left"]
        await trio.sleep(2)
        assert table.full == [True, False]
        table.put(2)
        assert table.lost == [1]
        table.gate = table.nothing
        await trio.sleep(20)
        assert table.ticks[-1] == [1, 2]
        assert caplog.messages[-1] == "trial t: the data log is back"
        assert table.log.trouble == ""


@pytest.mark.parametrize("here", [False, True])
async def test_what_is_tried_in_vain_is_not_lost_for_want_of_memory(here: bool, autojump_clock: MockClock) -> None:
    """The trial waits for memory, too; what is sent to one that has not come back yet may come back."""
    async with desk(here=here, confirming=True) as table:
        table.prompt = False
        table.pool.total = STEP
        other = table.pool.loan()
        other.set(STEP)

        async def fails_later(_: DatalogSample) -> None:
            if table.streams[-1].written:
                raise FULL

        table.gate = fails_later
        table.streams[0].break_off(FULL)
        await settle()
        table.put(*range(10), size=LARGE)
        await trio.sleep(100)
        assert len(table.streams) > 5
        assert (table.full, table.lost) == ([True], [])
        other.close()


async def test_one_that_cannot_store_and_then_is_away_has_the_grace_from_then_on(autojump_clock: MockClock) -> None:
    limits: dict[str, Any] = {"datalog_grace_seconds": 10, "datalog_full_seconds": 300}
    async with desk(max_queued_samples=1, datalog_reconnect_max_seconds=1, **limits) as table:
        table.gate = table.is_full
        table.put(0)
        await trio.sleep(100)
        table.refusal = AWAY
        await trio.sleep(9)
        assert (table.full, table.log.trouble) == ([True], "away")
        await trio.sleep(3)
        assert table.full == [True, False]


async def test_at_the_end_one_that_cannot_store_is_waited_for_as_long(autojump_clock: MockClock) -> None:
    async with desk(datalog_flush_seconds=7, datalog_full_seconds=300) as table:
        table.gate = table.is_full
        await trio.sleep(50)
        table.put(0, 1)
        await trio.sleep(100)
        table.log.complete()
        await trio.sleep(150)
        assert (table.ended, table.lost) == ([], [])
        table.gate = table.nothing
        await trio.sleep(20)
        assert (table.ticks[-1], table.lost, len(table.ended)) == ([0, 1], [], 1)


async def test_one_that_begins_to_fail_at_the_end_is_waited_for_too(autojump_clock: MockClock) -> None:
    async with desk(datalog_flush_seconds=7, datalog_full_seconds=300) as table:
        table.put(0)
        await settle()
        table.gate = table.is_full
        table.put(1)
        table.log.complete()
        await trio.sleep(299)
        assert not table.ended
        await trio.sleep(1.5)
        assert (table.ended, table.lost) == ([300], [1])


async def test_one_without_room_is_told_at_least_how_the_trial_ended(autojump_clock: MockClock) -> None:
    async with desk(datalog_flush_seconds=7, datalog_full_seconds=20, max_queued_samples=2) as table:

        async def small_ones_only(sample: DatalogSample) -> None:
            if sample.observations.observations:
                raise FULL

        table.gate = small_ones_only
        table.put(0, 1, size=10)
        await trio.sleep(25)
        table.put(2, size=10)  # one is dropped for it
        table.put(3, size=10, end=EndOfTrial(cause=EndCause.END_CAUSE_ENVIRONMENT, ticks=4))
        table.log.complete()
        await trio.sleep(100)
        assert sum(table.lost) == table.log.dropped_samples == 4
        assert table.ticks[-1] == [3]
        [told_last] = table.streams[-1].written
        assert told_last.info.end == EndOfTrial(cause=EndCause.END_CAUSE_ENVIRONMENT, ticks=4, samples_lost=4)
        assert list(told_last.info.special_events) == [told(3)]
        assert len(table.completed) == 1
        assert len(table.ended) == 1


async def test_one_that_refuses_samples_is_told_how_the_trial_ended(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As for want of a quota, which waiting does not help; the log says so once."""
    caplog.set_level("INFO")
    async with desk(datalog_flush_seconds=7, datalog_reconnect_max_seconds=1) as table:

        async def small_ones_only(sample: DatalogSample) -> None:
            if sample.observations.observations:
                raise QuotaError("the quota is used up")

        table.gate = small_ones_only
        for tick in range(20):
            table.put(tick, size=10)
            await trio.sleep(1)
        table.put(20, size=10, end=EndOfTrial(cause=EndCause.END_CAUSE_ENVIRONMENT, ticks=21))
        table.log.complete()
        await trio.sleep(100)
        assert sum(table.lost) == 21
        [told_last] = table.streams[-1].written
        assert told_last.info.end == EndOfTrial(cause=EndCause.END_CAUSE_ENVIRONMENT, ticks=21, samples_lost=21)
    assert caplog.messages == [
        "trial t: the data log refuses samples: the quota is used up",
        "trial t: samples are dropped, the data log does not take them: the quota is used up",
        "trial t: the data log is given up: the quota is used up",
        "trial t: 21 samples did not reach the data log",
    ]


async def test_one_that_takes_a_little_now_and_then_is_not_back(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk has room for a small sample, or somebody deletes a little: the log tells beginning and end alone."""
    caplog.set_level("INFO")
    async with desk(datalog_reconnect_max_seconds=1, datalog_full_seconds=300) as table:
        room = 0

        async def fits(_: DatalogSample) -> None:
            nonlocal room
            if not room:
                raise FULL
            room -= 1

        table.gate = fits
        table.put(*range(100))
        for _ in range(10):
            await trio.sleep(5)
            room = 3
        await trio.sleep(5)
        assert table.log.trouble == "no room left"
        table.gate = table.nothing
        await trio.sleep(5)
        assert table.log.trouble == ""
        assert table.lost == []
    assert [text.partition(";")[0] for text in caplog.messages] == [
        "trial t: the data log cannot store samples",
        "trial t: the data log is back",
    ]


async def test_the_last_sample_says_how_many_were_lost_before(autojump_clock: MockClock) -> None:
    async with desk(datalog_grace_seconds=0, max_queued_samples=1) as table:
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        table.put(0, 1)
        table.refusal = None
        await trio.sleep(5)
        table.put(2, end=EndOfTrial(ticks=3))
        table.log.complete()
        await settle()
        assert table.ticks[-1] == [1, 2]
        assert table.streams[-1].written[-1].info.end.samples_lost == 1


# The end


async def test_at_the_end_the_next_try_is_made_at_once_and_later_ones_after_pauses(autojump_clock: MockClock) -> None:
    limits: dict[str, Any] = {"datalog_reconnect_initial_seconds": 5.0, "datalog_reconnect_max_seconds": 5.0}
    async with desk(datalog_flush_seconds=20, **limits) as table:
        table.put(0)
        await settle()
        table.refusal = AWAY
        table.streams[0].break_off()
        await trio.sleep(1)
        table.put(1)
        table.log.complete()
        await trio.sleep(1)
        assert table.tried == [0, 0, 1] or table.tried == [0, 1]
        tried = len(table.tried)
        await trio.sleep(2.9)
        assert len(table.tried) == tried
        table.refusal = None
        await trio.sleep(3)
        assert len(table.tried) == tried + 1
        assert table.ticks == [[0], [1]]
        assert len(table.ended) == 1
    assert table.lost == []


async def test_the_flush_time_is_for_each_step(autojump_clock: MockClock) -> None:
    async with desk(datalog_flush_seconds=7) as table:
        await trio.sleep(50)

        async def slow(_: DatalogSample) -> None:
            await trio.sleep(6)

        table.gate = slow
        table.put(*range(4))
        table.log.complete()
        await trio.sleep(30)
        assert (table.ticks, table.ended) == ([[0, 1, 2, 3]], [50 + 24])
    assert table.lost == []


async def test_confirming_is_a_step_too(autojump_clock: MockClock) -> None:
    async with desk(datalog_flush_seconds=7, confirming=True) as table:
        table.completing = table.stuck
        table.put(0, 1, 2)
        table.log.complete()
        for number in range(3):
            await trio.sleep(6)
            assert not table.ended
            table.streams[0].confirm(number + 1)
        await trio.sleep(6.9)
        assert not table.ended
        await trio.sleep(0.2)
        assert table.ended == [pytest.approx(25)]
        assert len(table.completed) == 1
    assert table.lost == []


async def test_what_makes_no_progress_is_given_up_and_counted(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with desk(datalog_flush_seconds=7) as table:
        table.gate = table.stuck
        table.put(0, 1, 2)
        await trio.sleep(100)
        assert not table.ended  # before the end it may take its time
        table.log.complete()
        await trio.sleep(6.9)
        assert not table.ended
        await trio.sleep(0.2)
        assert table.ended == [107]
        assert table.lost == [3]
        await trio.sleep(100)
    assert table.lost == [3]
    assert "the data log is given up: it took nothing for 7 s" in caplog.text
    assert "3 samples did not reach the data log" in caplog.text


async def test_one_that_is_away_at_the_end_is_given_up_too(autojump_clock: MockClock) -> None:
    async with desk(datalog_flush_seconds=7, max_queued_samples=1) as table:
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        table.put(0)
        assert table.full == [True]
        table.log.complete()
        await trio.sleep(6.9)
        assert not table.ended
        await trio.sleep(0.2)
        assert (table.ended, table.lost, table.full) == ([7], [1], [True, False])
        assert table.log.over


async def test_what_fails_when_it_is_complete_is_tried_again(autojump_clock: MockClock) -> None:
    async with desk(confirming=True) as table:
        table.put(0, 1)
        await settle()
        table.streams[0].confirm(1)
        table.completing = table.fails
        table.log.complete()
        await settle()
        table.completing = table.nothing
        await trio.sleep(1)
        assert table.ticks == [[0, 1], [1]]
        assert len(table.completed) == 2
        assert len(table.ended) == 1
    assert table.lost == []


async def test_one_that_is_over_does_not_end_again(autojump_clock: MockClock) -> None:
    async with desk() as table:
        table.log.complete()
        await settle()
        before = trio.lowlevel.current_statistics().tasks_living
        table.log.complete()
        await settle()
        assert trio.lowlevel.current_statistics().tasks_living == before


# The start


async def test_what_comes_before_the_first_stream_waits_for_it(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        table = Desk(nursery, max_queued_samples=2)
        table.put(0, 1, 2)
        assert (table.full, table.lost, table.log.queued_samples) == ([True], [], 3)
        nursery.start_soon(table.run)
        await settle()
        assert (table.full, table.ticks) == ([True, False], [[0, 1, 2]])
        nursery.cancel_scope.cancel()


async def test_the_log_says_when_it_is_away_and_back_and_not_that_it_has_come(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with desk() as table:
        assert not caplog.messages
        table.streams[0].break_off()
        await trio.sleep(1)
        assert caplog.messages == ["trial t: the data log is away: away", "trial t: the data log is back"]


async def test_the_first_stream_must_open(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        table = Desk(nursery)
        table.refusal = AWAY
        nursery.start_soon(table.run)
        error = await table.log.wait_opened("grpc://here:1")
        assert isinstance(error, UnavailableError)
        assert str(error).startswith("datalog: grpc://here:1: away; the data log has to listen before a trial")
        assert table.log.failure is AWAY
        await trio.sleep(60)
        assert (table.tried, table.ended) == ([0], [0])


async def test_it_must_open_in_time(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        table = Desk(nursery, datalog_connect_timeout_seconds=3)
        error = await table.log.wait_opened("grpc://here:1")
        assert isinstance(error, UnavailableError)
        assert str(error).startswith("datalog: grpc://here:1: no connection in 3 s; the data log has to listen before")
        assert trio.current_time() == 3


async def test_the_end_of_the_trial_ends_the_wait(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        table = Desk(nursery)
        nursery.start_soon(end_soon, table)
        error = await table.log.wait_opened("grpc://here:1")
        assert isinstance(error, FailedPreconditionError)
        assert trio.current_time() == 1
        nursery.cancel_scope.cancel()


async def end_soon(table: Desk) -> None:
    await trio.sleep(1)
    table.log.complete()


async def test_a_stream_that_is_open_is_all_there_is_to_wait_for(autojump_clock: MockClock) -> None:
    async with desk() as table:
        assert await table.log.wait_opened("grpc://here:1") is None
        assert trio.current_time() == 0


# At once


async def test_what_a_stream_takes_at_once_is_progress(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with desk(here=True, confirming=True, max_queued_samples=3) as table:
        table.put(*range(5))
        assert table.ticks == [[0, 1, 2, 3, 4]]
        assert table.counts()["samples that are not confirmed"] == 3
        table.streams[0].confirm(4)
        assert table.counts()["samples that are not confirmed"] == 1
        table.prompt = False
        table.put(5)
        assert table.log.queued_samples == 1
        table.prompt = True
        table.put(6)  # behind it
        assert (table.log.queued_samples, table.ticks) == (2, [[0, 1, 2, 3, 4]])
        await settle()
        table.put(7)
        assert table.ticks == [list(range(8))]
        table.refusal = AWAY
        table.streams[0].break_off()
        await settle()
        table.put(8)  # nobody is there
        assert table.log.queued_samples == 4
        table.refusal = None
        await trio.sleep(1)
        assert table.ticks[1:] == [[5, 6, 7, 8]]
    assert "failed" not in caplog.text


async def test_what_has_to_be_told_is_not_passed_by(autojump_clock: MockClock) -> None:
    async with desk(here=True, confirming=True, max_queued_samples=1) as table:
        table.put(0, 1)
        table.streams[0].confirm(0)
        table.streams[0].break_off()
        await trio.sleep(1)
        assert (table.lost, table.events) == ([1], [(1, told(1))])


async def test_one_that_another_attempt_has_is_told_to_end_and_tries_no_more(autojump_clock: MockClock) -> None:
    async with desk() as table:
        table.refusal = FailedPreconditionError("attempt 1 may not write it")
        table.streams[0].break_off()
        table.put(0)
        await trio.sleep(60)
        assert table.replaced == ["it goes on elsewhere: attempt 1 may not write it"]
        assert len(table.tried) == 2
        assert table.log.over
