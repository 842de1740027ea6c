"""The memory store: what it keeps and refuses; and the memory of a server, a process, while somebody reads slowly."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.servers.datastore.harness import ENDED, RUNNING, Harness, params_with, sample_of
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.errors import DataLossError, InvalidArgumentError, ResourceExhaustedError
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.servers.datastore import Datastore, datastore_services, open_store
from trio_cogment.servers.datastore._memory import MemoryStore, MemoryTrial
from trio_cogment.servers.datastore.storage import (
    EndWrite,
    OutcomeWrite,
    SampleWrite,
    TrialEnd,
    TrialWrite,
    Write,
    WriteKind,
)
from trio_cogment.testing.conformance.trial_store import get, late

MIB = 1024 * 1024
PAYLOAD = 256 * 1024


def resident() -> int:
    """Return the memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def read_slowly(path: str, total: int) -> tuple[int, int, int]:
    """Store this many bytes and have them read; return the growth of memory, and the samples sent and read."""
    count = total // PAYLOAD
    async with open_store(f"sqlite:{path}") as store, Datastore(store) as datastore, trio.open_nursery() as nursery:
        serving = await nursery.start(serve, datastore_services(datastore), await open_listeners("127.0.0.1"))
        idle = most = resident()
        async with datastore.sink().open("t", "", params_with("ann", "bob")) as stream:
            for tick in range(count):
                observations = ObservationSet(observations=[os.urandom(PAYLOAD)], actors_map=[0, 0])
                state = ENDED if tick == count - 1 else RUNNING
                await stream.write(sample_of(tick, state, observations=observations))
            await stream.complete()
        read = 0
        async with Channel("127.0.0.1", serving.port) as channel:
            async for _ in Harness(channel, datastore).follow("t"):
                read += 1
                most = max(most, resident())
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    return most - idle, count, read


def run(path: str, total: int) -> tuple[int, int, int]:
    return trio.run(read_slowly, path, total)


@pytest.mark.parametrize(
    "total",
    [128 * MIB, pytest.param(2048 * MIB, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
    ids=["128 MiB", "2 GiB"],
)
def test_a_slow_reader_costs_little_memory(total: int, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        growth, sent, read = pool.apply(run, (str(tmp_path / "trials"), total))
    assert read == sent
    assert growth <= 64 * MIB


def written(tick_id: int, timestamp: int, data: bytes = b"d", kind: WriteKind = WriteKind.LOGGED) -> SampleWrite:
    return SampleWrite("t", tick_id, timestamp, RUNNING, data, kind)


async def test_a_batch_without_room_is_taken_back_whole() -> None:
    """What it added behind all others, what it ran again, and what it put in another's place."""
    store = MemoryStore(16 * 1024)
    await store.apply([TrialWrite("t", "", TrialParams(), logged=True), *(written(tick, 1) for tick in range(3))])
    before, trial = store.bytes, await store.trial("t")
    assert trial is not None
    samples = await store.samples(trial.number, after=0, limit=9, max_bytes=MIB)
    batches = (
        [written(3, 1), written(4, 1)],
        [written(1, 2), written(2, 2), written(3, 2)],
        [written(3, 1), written(1, 2), written(2, 2)],
        [written(2, 1, b"other", WriteKind.STORED), written(3, 1), written(3, 1, b"other", WriteKind.STORED)],
    )
    for batch in batches:
        with pytest.raises(ResourceExhaustedError):
            await store.apply([*batch, written(9, 1, bytes(32 * 1024))])
        assert store.bytes == before
        assert await store.trial("t") == trial
        assert await store.samples(trial.number, after=0, limit=9, max_bytes=MIB) == samples
        await store.apply([written(tick, 1) for tick in range(3)])  # known: nothing changes
        assert await store.samples(trial.number, after=0, limit=9, max_bytes=MIB) == samples
    await store.apply([written(3, 1), written(1, 2)])
    ticks = [sample.tick_id for sample in await store.samples(trial.number, after=0, limit=9, max_bytes=MIB)]
    assert ticks == [0, 1]


async def test_a_batch_without_room_creates_nothing() -> None:
    store = MemoryStore(16 * 1024)
    await store.apply([TrialWrite("t", "", TrialParams(), logged=True, owner="ann")])
    before = store.bytes
    too_much = SampleWrite("u", 0, 1, RUNNING, bytes(32 * 1024), WriteKind.LOGGED)
    with pytest.raises(ResourceExhaustedError):
        await store.apply([TrialWrite("u", "", TrialParams(), logged=True, owner="bob"), too_much])
    assert store.bytes == before
    assert await store.trial("u") is None
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9)] == ["t"]
    assert await store.stored_bytes("bob") == 0
    await store.apply([TrialWrite("u", "", TrialParams(), logged=True, owner="cid")])
    assert (await get(store, "u")).owner == "cid"


def trial_of(name: str, ticks: int = 3, *, end: bool = True, size: int = 5000) -> list[Write]:
    """Return the writes of a trial."""
    writes: list[Write] = [TrialWrite(name, "", TrialParams(), logged=True)]
    for tick in range(ticks):
        state = ENDED if end and tick == ticks - 1 else RUNNING
        writes.append(SampleWrite(name, tick, 1000 + tick, state, bytes(size), WriteKind.LOGGED))
    return writes


async def sizes() -> tuple[int, int]:
    """Return what the memory store counts for a trial of `trial_of`: with its samples, and without."""
    store = MemoryStore(MIB)
    await store.apply(trial_of("a", 0))
    without = store.bytes
    await store.apply(trial_of("a"))
    return store.bytes, without


async def test_what_is_stored_is_counted() -> None:
    store = MemoryStore(MIB)
    assert store.bytes == 0
    whole, without = await sizes()
    # About what Python needs: 300 bytes for a sample beside its data, and 2000 for a trial beside its id.
    assert (whole - without, without) == (3 * 5300, 2001)
    await store.apply([*trial_of("a"), *trial_of("b")])
    assert store.bytes == 2 * whole
    await store.delete(["a"])
    assert store.bytes == whole
    await store.delete(["b"])
    assert store.bytes == 0


async def test_what_is_known_of_a_trial_is_counted_with_it() -> None:
    """Its parameters twice, as a parsed message takes more than a serialized one."""
    store = MemoryStore(MIB)
    params = params_with("ann", "bob")
    size = 2000 + len("t") + len("somebody") + 2 * params.ByteSize()
    await store.apply([TrialWrite("t", "somebody", params, logged=True)])
    assert store.bytes == size
    await store.apply([OutcomeWrite("t", b"won")])
    assert store.bytes == size + 3
    await store.apply([OutcomeWrite("t", b"")])
    await store.apply([TrialWrite("t", "me", TrialParams(), logged=True)])
    assert store.bytes == 2000 + len("t") + len("me")


async def evicted(store: MemoryStore) -> list[str]:
    """Return the ids of the trials whose samples are gone."""
    found = {trial.trial_id: trial.evicted for trial in await store.trials(after=0, limit=99)}
    return [name for name, gone in found.items() if gone]


async def test_room_is_made_to_the_last_byte_and_no_further() -> None:
    whole, without = await sizes()
    for room, gone in ((2 * whole, []), (2 * whole - 1, ["a"]), (whole + without, ["a"])):
        store = MemoryStore(room)
        await store.apply(trial_of("a"))
        await store.apply(trial_of("b"))
        assert await evicted(store) == gone
        assert store.bytes <= room
        assert {trial.trial_id for trial in await store.trials(after=0, limit=9)} == {"a", "b"}
    # Of what is open nothing goes: there is room to the last byte, and for not one more.
    await MemoryStore(whole).apply(trial_of("a", end=False))
    with pytest.raises(ResourceExhaustedError, match="no ended trial left to make room"):
        await MemoryStore(whole - 1).apply(trial_of("a", end=False))
    # One byte less, and what is left of the first has to go, too.
    store = MemoryStore(whole + without - 1)
    await store.apply(trial_of("a"))
    await store.apply(trial_of("b"))
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9)] == ["b"]
    assert store.bytes == whole


@pytest.mark.parametrize("use", ["written to", "asked for", "read"])
async def test_those_that_were_used_longest_ago_are_evicted_first(use: str) -> None:
    whole, _ = await sizes()
    store = MemoryStore(3 * whole)
    for name in "abc":
        await store.apply(trial_of(name))
    trials = {trial.trial_id: trial for trial in await store.trials(after=0, limit=9)}
    if use == "written to":
        await store.apply([EndWrite("a", TrialEnd.ENDED)])  # nothing is added by that
    elif use == "asked for":
        await store.trial("a")
    else:
        await store.samples(trials["a"].number, after=0, limit=1, max_bytes=MIB)
    await store.apply(trial_of("d", 0))
    assert await evicted(store) == ["b"]
    await store.apply([SampleWrite("d", 3, 1, RUNNING, bytes(16_000), WriteKind.LOGGED)])
    assert await evicted(store) == ["b", "c"]


async def with_an_evicted_one() -> MemoryStore:
    """Return a store that knows of a trial only that it had the ticks 0 to 2."""
    whole, without = await sizes()
    store = MemoryStore(whole + without + 4096)
    await store.apply([*trial_of("a"), *trial_of("b", 0)])
    await store.apply([SampleWrite("b", 9, 1, RUNNING, bytes(8000), WriteKind.LOGGED)])
    assert await evicted(store) == ["a"]
    return store


async def test_samples_that_come_again_after_they_were_evicted_are_known() -> None:
    """A data log that comes back sends what was not confirmed once more."""
    store = await with_an_evicted_one()
    before = store.bytes
    again = [write for write in trial_of("a") if isinstance(write, SampleWrite)]
    assert await store.apply(again) == {}
    assert store.bytes == before
    trial = await get(store, "a")
    assert (trial.samples_count, trial.evicted, trial.end) == (3, True, TrialEnd.ENDED)
    # What is late for one of them has come too late.
    await store.apply([late("a", 1, 1.0)])
    assert store.bytes == before
    await store.apply([late("a", 7, 1.0)])
    assert store.bytes > before


@pytest.mark.parametrize(("tick", "left"), [(0, 1), (1, 2), (2, 3), (3, 4)])
async def test_a_new_run_after_the_samples_of_the_old_one_were_evicted(tick: int, left: int) -> None:
    store = await with_an_evicted_one()
    await store.apply([SampleWrite("a", tick, 9000, RUNNING, b"new", WriteKind.LOGGED)])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.end) == (left, TrialEnd.OPEN)
    assert trial.evicted is (tick > 0)
    if tick:
        with pytest.raises(DataLossError):
            await store.samples(trial.number, after=0, limit=9, max_bytes=MIB)
    else:
        (found,) = await store.samples(trial.number, after=0, limit=9, max_bytes=MIB)
        assert found.data == b"new"
    # And it counts on from there.
    await store.apply([SampleWrite("a", tick + 1, 9001, RUNNING, b"", WriteKind.LOGGED)])
    assert (await get(store, "a")).samples_count == left + 1


async def test_who_watches_all_trials_is_not_told_of_each_sample(autojump_clock: MockClock) -> None:
    store = MemoryStore(MIB)
    await store.apply(trial_of("a", end=False))
    async with store.watch() as watch:

        async def told() -> bool:
            with trio.move_on_after(1) as scope:
                await watch.changed()
            return not scope.cancelled_caught

        await store.apply([SampleWrite("a", 7, 1, RUNNING, b"", WriteKind.LOGGED)])
        assert not await told()
        await store.apply([SampleWrite("a", 8, 1, ENDED, b"", WriteKind.LOGGED)])
        assert await told()
        await store.apply([EndWrite("a", TrialEnd.ENDED)])  # as it is
        assert not await told()
        await store.apply([OutcomeWrite("a", b"how")])
        assert await told()
        await store.apply(trial_of("b", 0))
        assert await told()
        assert await store.delete(["nobody"]) == []
        assert not await told()
        await store.delete(["b"])
        assert await told()


async def test_what_is_gone_takes_no_memory() -> None:
    """Neither samples that were replaced a thousand times nor trials that were deleted as often."""
    store = MemoryStore(MIB)
    await store.apply(trial_of("a"))
    for number in range(1000):
        await store.apply([SampleWrite("a", 1, number, RUNNING, b"", WriteKind.STORED)])
        await store.apply(trial_of("b"))
        await store.delete(["b"])
    (trial,) = await store.trials(after=0, limit=9)
    found = await store.samples(trial.number, after=0, limit=9, max_bytes=MIB)
    assert [sample.tick_id for sample in found] == [0, 2, 1]
    assert len(store._numbers) < 100
    assert len(store._by_id["a"]._positions) < 100


@pytest.mark.parametrize("size", [0, -1])
async def test_a_memory_without_bytes_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"max_bytes: expected 1 or more, got {size}"):
        MemoryStore(size)


async def test_trials_are_in_the_order_of_their_creation_whatever_was_used_and_deleted() -> None:
    store = MemoryStore(MIB)
    names = [f"t{number}" for number in range(60)]
    for name in names:
        await store.apply([TrialWrite(name, "", TrialParams(), logged=True)])
    for name in reversed(names[:10]):
        await store.trial(name)  # which makes it the one that was used last
    for name in names[10:]:
        await store.delete([name])
        left = [*names[:10], *names[names.index(name) + 1 :]]
        assert [trial.trial_id for trial in await store.trials(after=0, limit=99)] == left
    assert [trial.trial_id for trial in await store.trials(after=5, limit=3)] == names[5:8]


def test_samples_are_in_the_order_in_which_they_came_whatever_was_taken_back() -> None:
    trial = MemoryTrial(1, TrialWrite("t", "", TrialParams(), logged=True))
    for tick in range(10):
        trial.write(written(tick, 1), [])
    undo = [trial.remember()]
    trial.write(written(3, 2), undo)  # a new run, for which there was no room
    for step in reversed(undo):
        step()
    for number in range(40):
        trial.write(written(9, 1, b"%d" % number, WriteKind.STORED), [])
        trial.tidy()
        assert [row.tick_id for row in trial.rows_after(0)] == list(range(10))
        assert [row.tick_id for row in trial.rows_after(4)] == list(range(4, 10))
