"""Group commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from tests.servers.datastore.harness import GateStore, params_with
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import NotFoundError, ResourceExhaustedError, UnavailableError
from trio_cogment.base.shared_message import ObjectPayload, SharedAction, SharedObservationSet, SharedSample
from trio_cogment.servers.datastore._chunk_layouts import Layouts, Parts, joined
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore._group_commit import GroupCommit, WriteStream
from trio_cogment.servers.datastore.storage import SampleWrite, TrialEnd, TrialWrite, Write, WriteKind

Clock = trio.testing.MockClock
settled = trio.testing.wait_all_tasks_blocked


def sample_write(tick_id: int, trial_id: str = "t", size: int = 10) -> SampleWrite:
    return SampleWrite(trial_id, tick_id, 1, 3, bytes(size), WriteKind.STORED)


def shared_samples(count: int) -> list[SharedSample]:
    samples = []
    for tick in range(count):
        sample = SharedSample(tick, 7, SharedObservationSet(tick, 7, [b"o" * tick], [0]))
        sample.actions = [SharedAction(tick, 8, b"x")]
        sample.state = TrialState.RUNNING
        samples.append(sample)
    return samples


@asynccontextmanager
async def running(**config: Any) -> AsyncIterator[tuple[GroupCommit, GateStore]]:
    store = GateStore()
    writer = GroupCommit(store, DatastoreConfig(**config))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        # After a commit that took this long, batches wait for more writes.
        store.seconds = 1.0
        await writer.write(TrialWrite("t", "", params_with("a"), logged=False))
        store.seconds = 0.0
        store.batches.clear()
        yield writer, store
        nursery.cancel_scope.cancel()


async def fill(stream: WriteStream, count: int, first: int = 0, size: int = 10) -> None:
    for tick in range(first, first + count):
        await stream.put(sample_write(tick, size=size))


async def test_writes_of_all_go_together_after_a_while(autojump_clock: Clock) -> None:
    async with running() as (writer, store):
        began = trio.current_time()
        streams = [writer.stream() for _ in range(3)]
        for number, stream in enumerate(streams):
            await fill(stream, 2, first=10 * number)
        await streams[0].progress(0)
        assert trio.current_time() - began == pytest.approx(0.02)
        assert [[write.tick_id for write in batch if isinstance(write, SampleWrite)] for batch in store.batches] == [
            [0, 1, 10, 11, 20, 21]
        ]
        assert [stream.durable for stream in streams] == [2, 2, 2]


async def test_enough_of_them_go_at_once(autojump_clock: Clock) -> None:
    async with running(commit_samples=5, commit_bytes=10_000) as (writer, store):
        store.seconds = 0.01
        began = trio.current_time()
        stream = writer.stream()
        await fill(stream, 5)
        await stream.progress(0)
        await fill(stream, 5, first=5)
        await stream.progress(5)
        await fill(stream, 1, first=10)  # later, or it would be due in the very moment in which the second commit ends
        await stream.progress(9)
        assert [len(batch) for batch in store.batches] == [5, 5]
        await fill(stream, 3, first=11, size=6000)  # with the eleventh, two of these are enough
        await settled()
        assert trio.current_time() == pytest.approx(began + 2 * store.seconds)
        assert [len(batch) for batch in store.batches] == [5, 5, 3]


async def test_all_that_came_during_a_commit_go_together(autojump_clock: Clock) -> None:
    async with running(commit_samples=5) as (writer, store):
        store.gate = trio.Event()
        stream = writer.stream()
        await fill(stream, 5)
        await settled()
        await fill(stream, 33, first=5)
        store.gate.set()
        await stream.progress(37)
        assert [len(batch) for batch in store.batches] == [5, 20, 13]


@pytest.mark.parametrize(
    ("seconds", "delay"), [(0.0, 0.002), (0.0005, 0.002), (0.002, 0.004), (0.008, 0.016), (0.012, 0.02)]
)
async def test_where_commits_are_quick_nobody_waits_for_long(
    seconds: float, delay: float, autojump_clock: Clock
) -> None:
    async with running() as (writer, store):
        store.seconds = seconds
        stream = writer.stream()
        await fill(stream, 1)
        await stream.flush()
        began = trio.current_time()
        await fill(stream, 3, first=1)
        assert await stream.progress(1) == 4
        assert trio.current_time() - began == pytest.approx(delay + seconds)
        assert [len(batch) for batch in store.batches] == [1, 3]


async def test_where_somebody_follows_writes_wait_half_as_long(autojump_clock: Clock) -> None:
    async with running() as (writer, store):
        store.seconds = 0.004
        stream = writer.stream()
        await fill(stream, 1)
        await stream.flush()
        known = await store.trial("t")
        assert known is not None
        for trials, delay in (([known], 0.004), ([replace(known, end=TrialEnd.ENDED)], 0.008), ([], 0.008)):
            with writer.followed(trials):
                began = trio.current_time()
                await fill(stream, 1, first=stream.taken)
                await stream.progress(stream.taken - 1)
                assert trio.current_time() - began == pytest.approx(delay + store.seconds)


async def test_a_flush_commits_at_once(autojump_clock: Clock) -> None:
    async with running() as (writer, store):
        began = trio.current_time()
        stream = writer.stream()
        await stream.flush()
        await fill(stream, 3)
        await stream.flush()
        assert trio.current_time() == began
        assert (stream.durable, len(store.batches)) == (3, 1)


@pytest.mark.parametrize("bound", ["max_pending_writes", "max_pending_bytes", "max_stream_writes"])
async def test_what_waits_is_bounded(bound: str, autojump_clock: Clock) -> None:
    async with running(**{bound: 5005 if bound == "max_pending_bytes" else 10}) as (writer, store):
        store.gate = trio.Event()
        stream, other = writer.stream(), writer.stream()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill, stream, 50, 0, 300)
            await trio.sleep(100)
            assert stream.taken == 10
            nursery.start_soon(fill, other, 1, 100)
            await trio.sleep(100)
            # Whose own measure is full holds up nobody else.
            assert other.taken == (1 if bound == "max_stream_writes" else 0)
            store.gate.set()
        await stream.flush()
        await other.flush()
        assert (stream.durable, other.durable) == (50, 1)


async def test_there_is_room_as_long_as_a_write_would_be_taken(autojump_clock: Clock) -> None:
    async with running(max_stream_writes=2) as (writer, store):
        store.gate = trio.Event()
        stream = writer.stream()
        for tick in range(4):
            has_room = stream.has_room
            assert has_room is stream.put_nowait(sample_write(tick))
            assert has_room is (tick < 2)
        store.gate.set()
        await stream.flush()
        assert stream.has_room


async def test_one_of_any_size_is_taken(autojump_clock: Clock) -> None:
    async with running(max_pending_bytes=100) as (writer, _):
        stream = writer.stream()
        await fill(stream, 3, size=10_000)
        await stream.flush()
        assert stream.durable == 3


async def test_a_failure_is_told_to_everybody_in_the_batch_and_to_nobody_else(autojump_clock: Clock) -> None:
    async with running(commit_samples=4) as (writer, store):
        first, second, third = writer.stream(), writer.stream(), writer.stream()
        told: list[WriteStream] = []
        first.on_failure = lambda: told.append(first)
        await fill(first, 2)
        store.seconds = 1.0
        await first.flush()
        store.seconds = 0.0
        store.gate = trio.Event()
        store.failure = UnavailableError("away")
        await fill(first, 2, first=2)
        await fill(second, 2, first=10)
        await settled()
        # These wait behind the batch that is on its way.
        await fill(first, 2, first=4)
        await fill(third, 1, first=20)
        store.gate.set()
        await settled()
        store.failure = None
        await third.flush()
        assert [len(batch) for batch in store.batches] == [2, 4, 1]
        assert told == [first]
        assert [stream.durable for stream in (first, second, third)] == [2, 0, 1]
        for stream in (first, second):
            with pytest.raises(UnavailableError, match="away"):
                await stream.flush()
            with pytest.raises(UnavailableError):
                await stream.progress(2)
            with pytest.raises(UnavailableError):
                await stream.put(sample_write(9))
        assert await first.progress(1) == 2
        # Nothing of it is held any more.
        await writer.drain()
        assert (writer._held_count, writer._held_bytes, writer.batch.count, len(writer._full)) == (0, 0, 0, 0)


async def test_what_there_is_no_room_for_together_is_committed_in_parts(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(commit_samples=100) as (writer, store):
        apply = store.apply

        async def little_room(writes: Sequence[Write]) -> Mapping[int, str]:
            if sum(len(write.data) for write in writes if isinstance(write, SampleWrite)) > 50:
                raise ResourceExhaustedError("no room left")
            return await apply(writes)

        monkeypatch.setattr(store, "apply", little_room)
        large, small = writer.stream(), writer.stream()
        await fill(large, 11)
        await large.put(sample_write(11, size=60))
        await fill(large, 2, first=12)
        await fill(small, 7, first=20)
        await small.flush()
        with pytest.raises(ResourceExhaustedError, match="no room left"):
            await large.flush()
        # All up to the first that does not fit alone, and everything of others.
        assert (large.durable, small.durable) == (11, 7)
        written = [write.tick_id for batch in store.batches for write in batch if isinstance(write, SampleWrite)]
        assert written == [*range(11), *range(20, 27)]
        assert writer.stored_samples == 18


async def test_a_put_that_waits_fails_with_its_stream(autojump_clock: Clock) -> None:
    async with running() as (writer, store):
        store.gate = trio.Event()
        store.failure = UnavailableError("away")
        stream = writer.stream(2)
        async with trio.open_nursery() as nursery:

            async def put() -> None:
                with pytest.raises(UnavailableError):
                    await fill(stream, 10)

            nursery.start_soon(put)
            await trio.sleep(1)
            store.gate.set()
        assert stream.taken == 2


async def test_a_refused_write_fails_its_stream_only(autojump_clock: Clock) -> None:
    async with running() as (writer, _):
        good, bad = writer.stream(), writer.stream()
        await fill(good, 1)
        await bad.put(sample_write(5))
        await bad.put(sample_write(0, "unknown"))
        await bad.put(sample_write(6))
        await fill(good, 1, first=1)
        with pytest.raises(NotFoundError, match="unknown"):
            await bad.flush()
        await good.flush()
        assert (good.durable, bad.durable) == (2, 1)
        # The one that was refused is none; what came behind it in the same batch is stored.
        assert writer.stored_samples == 4


async def test_who_is_cancelled_while_waiting_has_put_nothing(autojump_clock: Clock) -> None:
    async with running() as (writer, store):
        store.gate = trio.Event()
        stream = writer.stream(1)
        await stream.put(sample_write(0))
        with trio.move_on_after(1):
            await stream.put(sample_write(1))
        with trio.move_on_after(1):
            await stream.flush()
        assert (stream.taken, stream.durable) == (1, 0)
        store.gate.set()
        await stream.flush()
        assert [len(batch) for batch in store.batches] == [1]


@pytest.mark.parametrize("takes", [False, True])
async def test_a_storage_gets_parts_only_if_it_takes_them(
    takes: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    monkeypatch.setattr(GateStore, "takes_parts", takes, raising=False)
    data = StoredTrialSample(trial_id="t", tick_id=3, timestamp=1, payloads=[b"seen"]).SerializeToString()
    split = Layouts().split(3, 1, data)
    assert split is not None
    middle = split.layout.middle.pack(split.layout.same[0], (1).to_bytes(8, "little"), split.layout.same[1])
    parts = Parts(split.layout, 3, middle, [b"seen"], len(data))
    async with running() as (writer, store):
        await writer.write(sample_write(3)._replace(data=parts))
        ((given,),) = store.batches
        assert isinstance(given, SampleWrite)
        assert given.data == (parts if takes else data)
        (trial,) = await store.trials(after=0, limit=1)
        (stored,) = await store.samples(trial.number, after=0, limit=2, max_bytes=1000)
        assert stored.data == data


async def test_samples_as_they_came_are_converted_when_they_are_committed(autojump_clock: Clock) -> None:
    async with running() as (writer, store):
        streams = [writer.stream(), writer.stream()]
        for stream in streams:
            stream.converter = TrialConverter("t", params_with("a"))
        for sample in shared_samples(6):
            assert streams[sample.tick_id % 2].put_nowait(sample)
        await streams[1].flush()
        (batch,) = store.batches
        assert [joined(write.data) for write in batch if isinstance(write, SampleWrite)] == [
            joined(TrialConverter("t", params_with("a")).write(sample.whole()).data) for sample in shared_samples(6)
        ]
        assert [stream.durable for stream in streams] == [3, 3]


async def test_a_sample_that_cannot_be_converted_fails_its_stream_alone(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ObjectPayload):
        def encode(self) -> bytes:
            raise ValueError("there are no bytes of this")

    async with running() as (writer, store):
        good, bad = writer.stream(), writer.stream()
        for stream in (good, bad):
            stream.converter = TrialConverter("t", params_with("a"))
        for number, sample in enumerate(shared_samples(4)):
            if number == 3:
                sample.actions = [SharedAction(3, 8, Broken(None))]
            assert (bad if number % 2 else good).put_nowait(sample)
        await good.flush()
        with pytest.raises(UnavailableError):
            await bad.flush()
        assert (good.durable, bad.durable) == (2, 0)
        assert "there are no bytes of this" in caplog.text
        (batch,) = store.batches
        assert [write.tick_id for write in batch if isinstance(write, SampleWrite)] == [0, 2]
        assert not bad.put_nowait(shared_samples(1)[0])
        assert good.put_nowait(shared_samples(1)[0])
        await good.flush()
