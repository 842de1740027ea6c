"""More cases of `check_trial_store`: pages, watches, many at once, and storages that are opened again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio
import trio.testing

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.datastore.storage import EndWrite, TrialEnd, TrialStore, WriteKind
from trio_cogment.errors import NotFoundError
from trio_cogment.testing.conformance.trial_store_tools import (
    ALL,
    MUCH,
    get,
    ids,
    late,
    late_rewards,
    new_trial,
    read,
    sample,
    ticks,
)

OpenStore = Callable[[], AbstractAsyncContextManager[TrialStore]]


# --- pages ---


async def pages_of_samples(store: TrialStore) -> None:
    """A page has as many samples as were asked for, or as many bytes; the first sample comes whatever its size."""
    await store.apply([new_trial("a"), *(sample("a", tick, payload=bytes(1000)) for tick in range(1, 26))])
    number = (await get(store, "a")).number
    for page in (1, 7, 25, 26):
        assert [one.tick_id for one in await read(store, "a", page=page)] == list(range(1, 26))
    size = len((await store.samples(number, after=0, limit=1, max_bytes=MUCH))[0].data)
    for max_bytes, expected in ((1, 1), (size, 1), (size + 1, 2), (10 * size, 10), (10 * size + 1, 11)):
        page_of_bytes = await store.samples(number, after=0, limit=ALL, max_bytes=max_bytes)
        assert len(page_of_bytes) == expected, f"{max_bytes} bytes"


async def pages_while_writing(store: TrialStore) -> None:
    """Whoever pages by position misses nothing of what comes, is replaced, or waits and is completed, meanwhile."""
    await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(0, 20, 2))])
    number = (await get(store, "a")).number
    seen: dict[int, bytes] = {}
    after = 0
    for turn in range(100):
        more = await store.samples(number, after=after, limit=3, max_bytes=MUCH)
        seen.update((one.tick_id, one.data) for one in more)
        after = more[-1].position if more else after
        if turn < 10:
            await store.apply(
                [
                    sample("a", 2 * turn + 1, kind=WriteKind.STORED),
                    sample("a", 2 * turn, run=1, kind=WriteKind.STORED, payload=b"new"),
                    late("a", 100 + turn, 1),
                    sample("a", 100 + turn),
                ]
            )
        elif not more:
            break
    assert seen == {one.tick_id: one.data for one in await read(store, "a")}


async def pages_of_trials(store: TrialStore) -> None:
    """Trials come in the order of their creation, whatever the order of the ids asked for; pages follow numbers."""
    names = [f"trial {number}" for number in range(12)]
    for name in names:
        await store.apply([new_trial(name, properties={"parity": str(int(name[6:]) % 2), "kind": "x"})])
    await store.apply([new_trial("trial 3", properties={"parity": "odd"})])
    found, after = [], 0
    while page := await store.trials(after=after, limit=5):
        assert len(page) <= 5
        found += [trial.trial_id for trial in page]
        after = page[-1].number
    assert found == names
    chosen = await store.trials(after=0, limit=ALL, ids=["trial 7", "nobody", "trial 2", "trial 7"])
    assert [trial.trial_id for trial in chosen] == ["trial 2", "trial 7"]
    behind = await store.trials(after=chosen[0].number, limit=ALL, ids=["trial 7", "trial 2"])
    assert [trial.trial_id for trial in behind] == ["trial 7"]
    assert [trial.trial_id for trial in await store.trials(after=0, limit=1, ids=names[::-1])] == ["trial 0"]
    assert await store.trials(after=0, limit=ALL, ids=[]) == []
    even = await store.trials(after=0, limit=2, properties={"parity": "0", "kind": "x"}, ids=names[1:])
    assert [trial.trial_id for trial in even] == ["trial 2", "trial 4"]
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9, properties={"parity": "odd"})] == [
        names[3]
    ]
    assert await store.trials(after=0, limit=ALL, properties={"parity": "1", "kind": "y"}) == []
    assert len(await store.trials(after=0, limit=ALL, properties={})) == 12


async def many_ids(store: TrialStore) -> None:
    """Ids may be asked for by the thousand, most of them unknown."""
    await store.apply([new_trial(f"{number}") for number in range(50)])
    wanted = [f"{number}" for number in range(3000, -1, -1)]
    found = await store.trials(after=0, limit=40, ids=wanted)
    assert [trial.trial_id for trial in found] == [f"{number}" for number in range(40)]


async def pages_after_deletion(store: TrialStore) -> None:
    """A page's handle stays valid when the trials before it are deleted, and numbers are never used again."""
    await store.apply([new_trial(f"{number}") for number in range(6)])
    first = await store.trials(after=0, limit=3)
    await store.delete([trial.trial_id for trial in first] + ["5"])
    await store.apply([new_trial("5"), new_trial("6")])
    rest = await store.trials(after=first[-1].number, limit=ALL)
    assert [trial.trial_id for trial in rest] == ["3", "4", "5", "6"]
    assert len({trial.number for trial in (*first, *rest)}) == 7


# --- watches ---


async def watch_a_trial(store: TrialStore) -> None:
    """Its samples, its end and its deletion wake a watch; what came before one waits is not missed."""
    await store.apply([new_trial("a"), new_trial("b")])
    async with store.watch("a") as watch:
        for write in (sample("a", 0), late("a", 0, 1.0), EndWrite("a", TrialEnd.ABNORMAL), new_trial("a")):
            await store.apply([write])
            await watch.changed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.changed)
            await trio.testing.wait_all_tasks_blocked()
            await store.apply([sample("b", 0), sample("a", 1)])
        await store.delete(["a"])
        await watch.changed()


async def watch_all_trials(store: TrialStore) -> None:
    """Creation, ends, and openings wake a watch of all trials; several may watch."""
    async with store.watch() as first, store.watch() as second:
        for write in (
            new_trial("a"),
            sample("a", 0, state=TrialState.ENDED),
            EndWrite("a", TrialEnd.OPEN),
            EndWrite("a", TrialEnd.ABNORMAL),
        ):
            await store.apply([write])
            await first.changed()
            await second.changed()
    async with store.watch() as third:
        await store.delete(["a"])
        await third.changed()


async def watch_after_cancellation(store: TrialStore) -> None:
    """A cancelled `changed` takes no news away."""
    await store.apply([new_trial("a")])
    async with store.watch("a") as watch:
        with trio.CancelScope() as scope:
            scope.cancel()
            await watch.changed()
        await store.apply([sample("a", 0)])
        with trio.CancelScope() as scope:
            scope.cancel()
            await watch.changed()
        await watch.changed()


# --- many at once ---


async def many_writers(store: TrialStore) -> None:
    """Batches from many tasks do not mix: all of them are there, each trial's in order."""

    async def write(trial_id: str) -> None:
        await store.apply([new_trial(trial_id)])
        for batch in range(5):
            refused = await store.apply(
                [sample("nobody", 0), *(sample(trial_id, batch * 10 + tick) for tick in range(10))]
            )
            assert list(refused) == [0]

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(write, f"{number}")
    assert sorted(await ids(store)) == sorted(f"{number}" for number in range(20))
    for number in range(20):
        assert await ticks(store, f"{number}") == list(range(50))
        assert (await get(store, f"{number}")).samples_count == 50


async def batches_are_whole(store: TrialStore) -> None:
    """No reader sees half of a batch, and a cancelled writer leaves all of it or nothing."""
    await store.apply([new_trial("a")])
    number = (await get(store, "a")).number
    written = trio.Event()

    async def write() -> None:
        for batch in range(20):
            with trio.CancelScope() as scope:
                if batch % 3 == 1:
                    scope.cancel()
                await store.apply([sample("a", 10 * batch + tick) for tick in range(10)])
        written.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        while not written.is_set():
            assert (await get(store, "a")).samples_count % 10 == 0
            assert len(await store.samples(number, after=0, limit=ALL, max_bytes=MUCH)) % 10 == 0
    found = await ticks(store, "a")
    assert found == sorted(found)
    assert len(found) % 10 == 0
    assert {*range(10), *range(20, 40)} <= set(found)


async def cancelled_among_others(store: TrialStore) -> None:
    """A writer that is cancelled while it waits for its turn changes nothing for the others."""
    await store.apply([new_trial(f"{number}") for number in range(10)])

    async def write(number: int) -> None:
        with trio.CancelScope() as scope:
            if number % 2:
                nursery.start_soon(_cancel, scope)
            for tick in range(5):
                await store.apply([sample(f"{number}", tick)])

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(write, number)
    for number in range(10):
        found = await ticks(store, f"{number}")
        assert found == list(range(5 if number % 2 == 0 else len(found)))


async def _cancel(scope: trio.CancelScope) -> None:
    scope.cancel()


CASES: tuple[Callable[[TrialStore], Awaitable[None]], ...] = (
    pages_of_samples,
    pages_while_writing,
    pages_of_trials,
    many_ids,
    pages_after_deletion,
    watch_a_trial,
    watch_all_trials,
    watch_after_cancellation,
    many_writers,
    batches_are_whole,
    cancelled_among_others,
)


# --- for storages that keep ---


async def opened_again(open_store: OpenStore) -> None:
    """All is as it was: trials, samples, what waits, what was merged, and which numbers were used."""
    async with open_store() as store:
        await store.apply([new_trial("a", properties={"x": "1"}), new_trial("b", logged=False), new_trial("c")])
        await store.apply([sample("a", tick, payload=bytes([tick])) for tick in range(10)])
        await store.apply([late("a", 3, 0.5), late("a", 20, 1.5), sample("b", 0, state=TrialState.ENDED)])
        await store.delete(["c"])
        trials, samples = await store.trials(after=0, limit=ALL), await read(store, "a")
        last = max(trial.number for trial in trials) + 1
    async with open_store() as store:
        assert await store.trials(after=0, limit=ALL) == trials
        assert await read(store, "a") == samples
        assert await store.open_logged() == ["a"]
        assert await store.trials(after=0, limit=ALL, properties={"x": "1"}) == trials[:1]
        await store.apply([new_trial("d"), sample("a", 5), late("a", 3, 0.5), sample("a", 20), sample("a", 21)])
        assert (await get(store, "d")).number > last
        found = await read(store, "a")
        assert [one.tick_id for one in found] == [*range(10), 20, 21]
        assert [one.position for one in found[:10]] == [one.position for one in samples[:10]]
        assert found[10].position > samples[-1].position
        assert late_rewards(found[3]) == [0.5]
        assert late_rewards(found[10]) == [1.5]
        assert (await get(store, "a")).samples_count == 12


async def deleted_stays_deleted(open_store: OpenStore) -> None:
    """What was deleted does not come back, however soon the storage is closed."""
    async with open_store() as store:
        await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(2000))])
        number = (await get(store, "a")).number
        assert await store.delete(["a"]) == ["a"]
    async with open_store() as store:
        assert await ids(store) == []
        try:
            await store.samples(number, after=0, limit=1, max_bytes=MUCH)
        except NotFoundError:
            pass
        else:
            raise AssertionError("samples of a deleted trial")
        await store.apply([new_trial("a"), sample("a", 0)])
        assert await ticks(store, "a") == [0]


KEEPING_CASES: tuple[Callable[[OpenStore], Awaitable[None]], ...] = (opened_again, deleted_stays_deleted)


# --- for storages that several may have open ---


async def seen_by_the_other(first: TrialStore, second: TrialStore) -> None:
    """What one handle has written, the other reads and is told of, and may go on with."""
    async with second.watch() as all_trials, second.watch("a") as one_trial:
        await first.apply([new_trial("a"), *(sample("a", tick) for tick in range(5))])
        await all_trials.changed()
        await one_trial.changed()
    assert await ticks(second, "a") == list(range(5))
    for tick in range(5, 10):
        await (second if tick % 2 else first).apply([sample("a", tick - 1), sample("a", tick)])
    assert await ticks(first, "a") == await ticks(second, "a") == list(range(10))
    assert await get(first, "a") == await get(second, "a")
    await second.delete(["a"])
    assert await first.trial("a") is None
    assert list(await first.apply([sample("a", 10)])) == [0]


async def written_by_both(first: TrialStore, second: TrialStore) -> None:
    """Two handles that write at once lose nothing of each other."""

    async def write(store: TrialStore, trial_id: str) -> None:
        await store.apply([new_trial(trial_id)])
        for tick in range(20):
            await store.apply([sample(trial_id, tick)])

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(write, first if number % 2 else second, f"{number}")
    for number in range(4):
        assert await ticks(first, f"{number}") == await ticks(second, f"{number}") == list(range(20))


SHARED_CASES: tuple[Callable[[TrialStore, TrialStore], Awaitable[None]], ...] = (seen_by_the_other, written_by_both)
