"""The store in memory: what it takes, whom it evicts, and who is told."""

from __future__ import annotations

import pytest
import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.datastore._memory import MemoryStore
from trio_cogment.datastore.opening import open_store
from trio_cogment.datastore.storage import EndWrite, SampleWrite, TrialEnd, WriteKind
from trio_cogment.errors import DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from trio_cogment.testing._check_store_tools import ALL, MUCH, get, ids, late, new_trial, read, sample, ticks

KIB = 1024


def big(trial_id: str, tick_id: int, state: int = TrialState.RUNNING, run: int = 0) -> SampleWrite:
    return sample(trial_id, tick_id, payload=bytes(10 * KIB), state=state, run=run)


async def add_ended(store: MemoryStore, trial_id: str) -> None:
    await store.apply([new_trial(trial_id), big(trial_id, 0), big(trial_id, 1, TrialState.ENDED)])


async def test_ended_trials_make_room_the_least_used_first() -> None:
    store = MemoryStore(100 * KIB)
    for trial_id in ("a", "b", "c"):
        await add_ended(store, trial_id)
    await store.apply([new_trial("open"), big("open", 0)])
    await read(store, "a")  # "b" is now the one that nobody wanted longest
    before = {trial_id: await get(store, trial_id) for trial_id in ("a", "c")}
    await ticks(store, "c")
    await ticks(store, "a")
    await store.apply([big("open", tick) for tick in range(1, 3)])
    evicted = await store.trials(after=0, limit=ALL)
    assert [(trial.trial_id, trial.evicted) for trial in evicted] == [
        ("a", False),
        ("b", True),
        ("c", False),
        ("open", False),
    ]
    b = evicted[1]
    assert (b.samples_count, b.last_state, b.end) == (2, TrialState.ENDED, TrialEnd.ENDED)
    with pytest.raises(DataLossError, match="'b'"):
        await store.samples(b.number, after=0, limit=1, max_bytes=MUCH)
    assert {trial_id: await get(store, trial_id) for trial_id in ("a", "c")} == before
    assert await ticks(store, "a") == [0, 1]
    assert store.bytes <= 100 * KIB


async def test_who_has_read_all_is_not_told_of_a_loss() -> None:
    store = MemoryStore(60 * KIB)
    await add_ended(store, "a")
    found = await read(store, "a")
    number = (await get(store, "a")).number
    await add_ended(store, "b")
    await add_ended(store, "c")
    assert (await get(store, "a")).evicted
    assert await store.samples(number, after=found[-1].position, limit=1, max_bytes=MUCH) == []
    with pytest.raises(DataLossError):
        await store.samples(number, after=found[0].position, limit=1, max_bytes=MUCH)


async def test_a_watcher_is_told_of_an_eviction() -> None:
    store = MemoryStore(60 * KIB)
    await add_ended(store, "a")
    async with store.watch("a") as watch:
        await add_ended(store, "b")
        await add_ended(store, "c")
        await watch.changed()


async def test_full_of_open_trials() -> None:
    store = MemoryStore(60 * KIB)
    await store.apply([new_trial("a", properties={"x": "1"}), *(big("a", tick) for tick in range(4))])
    await store.apply([late("a", 9, 1.0)])
    before, found, taken = await get(store, "a"), await read(store, "a"), store.bytes
    with pytest.raises(ResourceExhaustedError, match="full"):
        await store.apply(
            [
                new_trial("b"),
                new_trial("a", user_id="bob"),
                late("a", 0, 1.0),
                sample("a", 1, kind=WriteKind.STORED),
                big("a", 9),
                big("a", 2, run=1),
                EndWrite("a", TrialEnd.ABNORMAL),
                *(big("b", tick) for tick in range(5)),
            ]
        )
    assert await get(store, "a") == before
    assert await read(store, "a") == found
    assert await ids(store) == ["a"]
    assert store.bytes == taken
    assert [trial.trial_id for trial in await store.trials(after=0, limit=1, properties={"x": "1"})] == ["a"]
    # It goes on as soon as there is room.
    await store.apply([sample("a", 4)])
    assert await ticks(store, "a") == [0, 1, 2, 3, 9, 4]
    await store.apply([EndWrite("a", TrialEnd.ABNORMAL)])
    await store.apply([new_trial("b"), *(big("b", tick) for tick in range(5))])
    assert (await get(store, "a")).evicted


async def test_nobody_is_evicted_for_what_finds_no_room_anyway() -> None:
    store = MemoryStore(60 * KIB)
    await add_ended(store, "a")
    with pytest.raises(ResourceExhaustedError):
        await store.apply([new_trial("b"), *(big("b", tick) for tick in range(9))])
    assert await ticks(store, "a") == [0, 1]


async def test_a_batch_does_not_evict_what_it_writes() -> None:
    store = MemoryStore(60 * KIB)
    await add_ended(store, "a")
    with pytest.raises(ResourceExhaustedError):
        await store.apply([big("a", tick, TrialState.ENDED) for tick in range(2, 8)])
    assert await ticks(store, "a") == [0, 1]


async def test_trials_are_forgotten_when_even_their_descriptions_are_too_many() -> None:
    store = MemoryStore(100 * KIB)
    for number in range(200):
        trial_id = f"{number}"
        await store.apply([new_trial(trial_id), sample(trial_id, 0, state=TrialState.ENDED)])
        assert store.bytes <= 100 * KIB
    left = await ids(store)
    assert left == [f"{number}" for number in range(200 - len(left), 200)]
    assert 20 < len(left) < 60
    with pytest.raises(NotFoundError):
        await store.samples(1, after=0, limit=1, max_bytes=MUCH)
    for trial_id in left:
        await store.delete([trial_id])
    assert store.bytes == 0


async def evict(store: MemoryStore) -> int:
    """Return the number of a trial "a" of three ticks, evicted."""
    await store.apply([new_trial("a"), big("a", 0), big("a", 1), sample("a", 2, state=TrialState.ENDED)])
    await store.apply([new_trial("other"), *(big("other", tick) for tick in range(4))])
    await store.delete(["other"])
    trial = await get(store, "a")
    assert trial.evicted
    return trial.number


async def test_an_evicted_trial_delivered_again_stays_ended() -> None:
    store = MemoryStore(60 * KIB)
    await evict(store)
    before = await get(store, "a")
    await store.apply([new_trial("a"), sample("a", 1), late("a", 1, 1.0), sample("a", 2, state=TrialState.ENDED)])
    assert await get(store, "a") == before


async def test_an_evicted_trial_goes_on() -> None:
    store = MemoryStore(60 * KIB)
    number = await evict(store)
    await store.apply([sample("a", 3)])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.end, trial.evicted) == (4, TrialEnd.OPEN, True)
    with pytest.raises(DataLossError):
        await store.samples(number, after=0, limit=1, max_bytes=MUCH)
    assert [one.tick_id for one in await store.samples(number, after=3, limit=9, max_bytes=MUCH)] == [3]


async def test_an_evicted_trial_run_anew() -> None:
    store = MemoryStore(60 * KIB)
    await evict(store)
    await store.apply([sample("a", 2, run=1)])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.evicted) == (3, True)
    await store.apply([sample("a", 0, run=2), sample("a", 1, run=2)])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.evicted, trial.end) == (2, False, TrialEnd.OPEN)
    assert await ticks(store, "a") == [0, 1]


async def test_what_was_removed_takes_no_room() -> None:
    store = MemoryStore(60 * KIB)
    await store.apply([new_trial("a")])
    for run in range(50):
        await store.apply([big("a", tick, run=run) for tick in range(3)])
        await store.apply([sample("a", 0, run=run, kind=WriteKind.STORED, payload=bytes(1000))])
    assert await ticks(store, "a") == [1, 2, 0]


async def test_addresses() -> None:
    async with open_store("memory:", memory_bytes=10) as store:
        with pytest.raises(ResourceExhaustedError):
            await store.apply([new_trial("a")])
    for address in ("", "memory", "memory:x", "sqlite:", "postgresql://host", "/tmp/a.db"):
        with pytest.raises(InvalidArgumentError, match="storage: expected"):
            async with open_store(address):
                raise AssertionError("opened")
    for wrong in ({"memory_bytes": 0}, {"file_bytes": -1}):
        with pytest.raises(InvalidArgumentError, match="_bytes: expected"):
            async with open_store("memory:", **wrong):  # type: ignore[arg-type]  # each is an int
                raise AssertionError("opened")
    with pytest.raises(InvalidArgumentError, match="durability"):
        async with open_store("memory:", durability="perhaps"):
            raise AssertionError("opened")
    await trio.lowlevel.checkpoint()
