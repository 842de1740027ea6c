"""Storages behind faults: what was acknowledged is there, whole, once, and in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from tests.servers.datastore.stores import Make, in_memory, in_sqlite_inline
from tests.servers.datastore.test_conformance import name
from trio_cogment.base.errors import UnavailableError
from trio_cogment.servers.datastore.storage import TrialStore
from trio_cogment.testing import FaultyStore, StoreFaults, World, simulate
from trio_cogment.testing.conformance.trial_store import (
    ALL,
    MUCH,
    OpenStore,
    check_trial_store,
    get,
    late,
    late_rewards,
    new_trial,
    read,
    sample,
)

T = TypeVar("T")

FAULTS = StoreFaults(before=0.1, after=0.1, delay=0.1, hang=0.05)
BATCH = 5
BATCHES = 12


@pytest.mark.parametrize("backend", [in_memory, in_sqlite_inline], ids=name)
def test_the_kit_through_a_store_without_faults(backend: Callable[[Path], Make], tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        make = backend(tmp_path)

        def make_behind() -> OpenStore:
            inner = make()

            @asynccontextmanager
            async def opened() -> AsyncIterator[TrialStore]:
                async with inner() as store:
                    yield FaultyStore(store, rng=world.stream("store"), history=world.history).store

            return opened

        await check_trial_store(make_behind, keeps=backend is not in_memory)
        assert len(world.history) == 0

    simulate(1, scenario)


async def persist(call: Callable[[], Awaitable[T]]) -> T:
    """Try again until it goes well."""
    while True:
        with trio.move_on_after(5):
            try:
                return await call()
            except UnavailableError:
                pass
        await trio.sleep(0.1)


async def write_patiently(store: TrialStore, trial_id: str) -> None:
    """Deliver every batch again until it is acknowledged, as a data log does."""
    await persist(lambda: store.apply([new_trial(trial_id)]))
    for batch in range(BATCHES):
        writes = [sample(trial_id, BATCH * batch + number) for number in range(BATCH)]
        writes.append(late(trial_id, BATCH * batch, 1.0))
        await persist(lambda: store.apply(writes))  # noqa: B023  it is called within this turn


async def write_once(store: TrialStore, trial_id: str, acknowledged: set[int]) -> None:
    """Deliver every batch once, and note which were acknowledged."""
    await persist(lambda: store.apply([new_trial(trial_id)]))
    for batch in range(BATCHES):
        with trio.move_on_after(5):
            try:
                await store.apply([sample(trial_id, BATCH * batch + number) for number in range(BATCH)])
                acknowledged.add(batch)
            except UnavailableError:
                pass


async def follow(store: TrialStore, trial_id: str) -> list[int]:
    """Read samples as they come, through the same faults."""
    await persist(lambda: store.apply([new_trial(trial_id)]))
    number = (await persist(lambda: get(store, trial_id))).number
    found: list[int] = []
    after = 0
    while len(found) < BATCHES * BATCH:
        more = await persist(lambda: store.samples(number, after=after, limit=7, max_bytes=MUCH))  # noqa: B023  called at once
        found += [one.tick_id for one in more]
        after = more[-1].position if more else after
        await trio.sleep(0.01)
    return found


@pytest.mark.parametrize("backend", [in_memory, in_sqlite_inline], ids=name)
@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_means_stored(backend: Callable[[Path], Make], seed: int, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        acknowledged: dict[str, set[int]] = {f"once {number}": set() for number in range(4)}
        followed: list[int] = []
        open_store = backend(tmp_path)()

        async def collect() -> None:
            followed.extend(await follow(faulty.store, "patient 0"))

        async with open_store() as inner:
            faulty = FaultyStore(inner, rng=world.stream("store"), history=world.history, faults=FAULTS)
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(write_patiently, faulty.store, f"patient {number}")
                for trial_id, batches in acknowledged.items():
                    nursery.start_soon(write_once, faulty.store, trial_id, batches)
                nursery.start_soon(collect)
            assert {event.what for event in world.history} >= {"store error before", "store error after", "store hang"}
            assert followed == list(range(BATCHES * BATCH))
            for number in range(4):
                found = await read(inner, f"patient {number}")
                assert [one.tick_id for one in found] == list(range(BATCHES * BATCH))
                assert all(late_rewards(one) == ([1.0] if one.tick_id % BATCH == 0 else []) for one in found)
            for trial_id, batches in acknowledged.items():
                ticks = [one.tick_id for one in await read(inner, trial_id)]
                there = {tick // BATCH for tick in ticks}
                assert batches <= there
                assert ticks == [BATCH * batch + one for batch in sorted(there) for one in range(BATCH)]
            assert len(await inner.trials(after=0, limit=ALL)) == 8

    simulate(seed, scenario)
