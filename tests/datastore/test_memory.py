"""A server's memory while somebody reads slowly: in a process of its own, where nothing else takes any."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import trio

from tests.datastore.harness import ENDED, RUNNING, Harness, params_with, sample_of
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.datastore import Datastore, datastore_services, open_store
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
