"""The streams that take samples, as an orchestrator of the same process has them."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.servers.datastore.harness import ENDED, GateStore, params_with, sample_of, whole
from trio_cogment.access import Quotas
from trio_cogment.api.common_pb2 import EndOfTrial, TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import InvalidArgumentError, QuotaError, ResourceExhaustedError, UnavailableError
from trio_cogment.budget.turn_order import Lane
from trio_cogment.servers.datastore import Datastore
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import TrialEnd
from trio_cogment.testing.conformance.trial_store import get

PARAMS = params_with("ann", "bob")


def ended_with(reason: str) -> DatalogSample:
    """Return the last sample of a trial, that says how it ended."""
    sample = sample_of(1, ENDED)
    sample.info.end.CopyFrom(EndOfTrial(reason=reason))
    return sample


async def test_who_wants_to_know_is_told_of_what_is_durable() -> None:
    async with Datastore(MemoryStore(1 << 30)) as datastore, datastore.sink().open("t", "", PARAMS) as stream:
        told: list[int] = []

        def tell() -> None:
            told.append(stream.unconfirmed)

        assert stream.on_confirmed is None
        stream.on_confirmed = tell
        assert stream.on_confirmed is tell
        for sample in whole(3):
            await stream.write(sample)
        assert stream.unconfirmed == 3
        await stream.complete()
        assert told
        assert told[-1] == stream.unconfirmed == 0


async def test_what_needs_no_waiting_is_taken_at_once() -> None:
    store = GateStore()
    async with Datastore(store, config=DatastoreConfig(max_stream_writes=3)) as datastore:
        async with datastore.sink().open("t", "", PARAMS) as stream:
            store.gate = trio.Event()
            assert stream.write_nowait(sample_of(0))
            assert not stream.write_nowait(sample_of(1, actors=5))  # not a valid one: `write` says so
            store.gate.set()
            with pytest.raises(InvalidArgumentError, match="actions"):
                await stream.write(sample_of(1, actors=5))
            store.gate = trio.Event()
            assert not stream.write_nowait(ended_with("waited for"))
            assert [stream.write_nowait(sample_of(tick)) for tick in (1, 2, 3, 4)] == [True, True, True, False]
            store.gate.set()
            await stream.write(ended_with("done"))
            await stream.complete()
        assert (await get(store, "t")).samples_count == 4


@pytest.mark.parametrize(("actors", "units"), [(2, 1), (127, 1), (128, 2), (300, 3)])
async def test_a_sample_of_many_actors_takes_more_of_a_turn(
    actors: int, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[Lane, int]] = []

    class Turns:
        async def turn(self, lane: Lane, units: int) -> None:
            await trio.lowlevel.checkpoint()
            taken.append((lane, units))

    monkeypatch.setattr("trio_cogment.servers.datastore._intake.turns_of_run", Turns)
    async with Datastore(MemoryStore(1 << 30)) as datastore:
        params = params_with(*(f"a{number}" for number in range(actors)))
        async with datastore.sink().open("t", "", params) as stream:
            await stream.write(sample_of(1, actors=actors))
            await stream.write(sample_of(2, actors=actors))  # like the first: it costs next to nothing
    assert taken == [(Lane.OTHERS, units)]


@pytest.mark.parametrize(("size", "kept"), [(64 * 1024, True), (64 * 1024 + 1, False)])
async def test_how_a_trial_ended_is_kept_up_to_a_size(size: int, kept: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The samples are in any case; the trial's description is not to be made longer by what one wanted to say."""
    store = MemoryStore(1 << 30)
    reason = "x" * (2 * size - EndOfTrial(reason="x" * size).ByteSize())
    async with Datastore(store) as datastore, datastore.sink().open("t", "", PARAMS) as stream:
        sample = ended_with(reason)
        assert sample.info.end.ByteSize() == size
        await stream.write(sample_of(0))
        await stream.write(sample)
        await stream.complete()
    trial = await get(store, "t")
    assert (trial.samples_count, trial.end) == (2, TrialEnd.ENDED)
    assert (trial.outcome == sample.info.end.SerializeToString()) is kept
    assert ("how it ended is not kept" in caplog.text) is not kept


async def test_where_the_quota_has_no_room_for_how_it_ended_the_log_is_told() -> None:
    store = MemoryStore(1 << 30)
    async with Datastore(store) as datastore:
        # Room for a trial of that kind and its last sample, but not for all that it says of the end.
        intake = datastore.sink()
        async with intake.owned_by("ann", Quotas(stored_bytes=1 << 20)).open("like", "", PARAMS) as stream:
            await stream.write(sample_of(0))
            await stream.write(ended_with("y" * 10_000))
            await stream.complete()
        needed = await store.stored_bytes("ann") - 100
        async with intake.owned_by("bob", Quotas(stored_bytes=needed)).open("u", "", PARAMS) as stream:
            await stream.write(sample_of(0))
            with pytest.raises(QuotaError, match="stored_bytes"):
                await stream.write(ended_with("y" * 10_000))
        trial = await get(store, "u")
        assert (trial.samples_count, trial.outcome) == (2, b"")


async def test_a_storage_that_fails_at_the_end_of_a_log_is_told_of(autojump_clock: MockClock) -> None:
    """Without `info` the end of the log is that of the trial, and it is not confirmed before it is stored."""
    store = GateStore()
    params = TrialParams()
    params.CopyFrom(PARAMS)
    params.datalog.exclude_fields.append("info")
    async with Datastore(store) as datastore:
        for failure in (UnavailableError("away"), ResourceExhaustedError("full")):
            async with datastore.sink().open("t", "", params) as stream:
                await stream.write(DatalogSample(observations=sample_of(0).observations))
                await stream.flush()
                store.failure = failure
                with pytest.raises(UnavailableError, match=str(failure)):
                    await stream.complete()
                assert not stream.ended
                store.failure = None
        assert (await get(store, "t")).end == TrialEnd.OPEN
        async with datastore.sink().open("t", "", params) as stream:
            await stream.complete()
            assert stream.ended
        assert (await get(store, "t")).end == TrialEnd.ENDED


@pytest.mark.parametrize("name", ["info", " INFO "])
async def test_a_log_that_never_says_when_it_ends_ends_with_its_stream(name: str) -> None:
    store = MemoryStore(1 << 30)
    params = TrialParams()
    params.CopyFrom(PARAMS)
    params.datalog.exclude_fields.append(name)
    async with Datastore(store) as datastore:
        async with datastore.sink().open("t", "", params) as stream:
            await stream.complete()
        async with datastore.sink().open("u", "", PARAMS) as stream:
            await stream.complete()
        assert ((await get(store, "t")).end, (await get(store, "u")).end) == (TrialEnd.ENDED, TrialEnd.OPEN)


async def test_what_was_not_put_counts_for_nobody(autojump_clock: MockClock) -> None:
    """Who is cancelled while there is no room has reserved nothing of the quota."""
    store = GateStore()
    async with Datastore(store, config=DatastoreConfig(max_stream_writes=1)) as datastore:
        intake = datastore.sink().owned_by("ann", Quotas(stored_bytes=1 << 20))
        async with intake.open("t", "", PARAMS) as stream:
            store.gate = trio.Event()
            await stream.write(sample_of(0))
            before = datastore.writer.accounts.reserved["ann"]
            assert before > 0
            for _ in range(3):
                with trio.move_on_after(1) as scope:
                    await stream.write(sample_of(1))
                assert scope.cancelled_caught
            assert datastore.writer.accounts.reserved["ann"] == before
            store.gate.set()
            await stream.flush()
            assert datastore.writer.accounts.reserved["ann"] == 0


async def test_who_waits_for_more_to_be_durable_is_told_when_there_will_be_no_more() -> None:
    store = GateStore()
    async with Datastore(store) as datastore:
        with pytest.raises(UnavailableError, match="away"):  # noqa: PT012  it comes when the stream is left
            async with datastore.sink().open("t", "", PARAMS) as stream:
                await stream.write(sample_of(0))
                await stream.flush()
                assert await stream.progress(0)
                store.failure = UnavailableError("away")
                await stream.write(sample_of(1))
                with trio.CancelScope(shield=True):
                    assert not await stream.progress(1)
                    assert await stream.progress(0)
                await trio.lowlevel.checkpoint()


async def test_only_of_a_trial_that_has_ended_it_is_kept_how() -> None:
    store = MemoryStore(1 << 30)
    early = sample_of(0)
    early.info.end.CopyFrom(EndOfTrial(reason="not yet"))
    async with Datastore(store) as datastore, datastore.sink().open("t", "", PARAMS) as stream:
        await stream.write(early)
        await stream.write(sample_of(1))
        await stream.flush()
        trial = await get(store, "t")
        assert (trial.samples_count, trial.end, trial.outcome) == (2, TrialEnd.OPEN, b"")
        await stream.write(ended_with("done"))


async def test_before_a_log_is_told_of_its_quota_all_that_came_before_is_durable() -> None:
    """Its sender counts the confirmations, to know which sample was one too many."""
    store = GateStore()
    async with Datastore(store) as datastore:
        intake = datastore.sink().owned_by("ann", Quotas(stored_bytes=10_000))
        async with intake.open("t", "", PARAMS) as stream:
            taken: list[int] = []

            async def fill() -> None:
                for tick in range(1000):
                    await stream.write(sample_of(tick))
                    taken.append(tick)

            with pytest.raises(QuotaError):
                await fill()
            assert stream.unconfirmed == 0
            assert (await get(store, "t")).samples_count == len(taken) > 0


async def test_who_need_not_wait_gives_others_their_turns() -> None:
    """Else nothing would be committed, or read, before a stream has written as much as it may."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with Datastore(MemoryStore(1 << 30)) as datastore, trio.open_nursery() as nursery:
        async with datastore.sink().open("t", "", PARAMS) as stream:
            nursery.start_soon(count)
            samples = whole(640)
            for sample in samples:
                await stream.write(sample)
            assert turns >= 5
            await stream.complete()
        nursery.cancel_scope.cancel()
