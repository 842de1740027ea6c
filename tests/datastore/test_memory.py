"""The memory store's refusals; and a server's memory while somebody reads slowly, in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import trio

from tests.datastore.harness import ENDED, RUNNING, Harness, params_with, sample_of
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.datastore import Datastore, datastore_services, open_store
from trio_cogment.datastore._memory import MemoryStore
from trio_cogment.datastore.storage import SampleWrite, TrialWrite, WriteKind
from trio_cogment.errors import ResourceExhaustedError
from trio_cogment.rpc import Channel, open_listeners, serve

MIB = 1024 * 1024
PAYLOAD = 256 * 1024


def resident() -> int:
    """Return the memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def read_slowly(path: str, total: int) -> tuple[int, int, int]:
    """Store so many bytes and have them read; return the growth of memory, and the samples sent and read."""
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
