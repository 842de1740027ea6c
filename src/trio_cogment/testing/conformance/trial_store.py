"""A conformance kit for storages of trials: whatever a datastore runs on, these are its promises.

`check_trial_store` runs every case against a storage that was made for it. A case is a coroutine function taking a
`TrialStore`; it asserts, and says nothing when all is well. Storages that keep what was written when they are closed
are held to `KEEPING_CASES` as well, and those that several may have open at once to `SHARED_CASES`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.datastore.storage import EndWrite, TrialEnd, TrialStore, WriteKind
from trio_cogment.errors import CogmentError, NotFoundError
from trio_cogment.testing.conformance._trial_store_more import CASES as _MORE_CASES
from trio_cogment.testing.conformance._trial_store_more import KEEPING_CASES as KEEPING_CASES
from trio_cogment.testing.conformance._trial_store_more import SHARED_CASES as SHARED_CASES
from trio_cogment.testing.conformance._trial_store_more import OpenStore as OpenStore
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

T = TypeVar("T")

_PATIENCE_SECONDS = 60.0
_ENDED, _RUNNING, _UNKNOWN = TrialState.ENDED, TrialState.RUNNING, TrialState.UNKNOWN


async def expect(error: type[CogmentError], call: Coroutine[Any, Any, T]) -> None:
    """See that a call raises what it should."""
    try:
        await call
    except error:
        return
    raise AssertionError(f"expected {error.__name__}")


# --- the cases ---


async def nothing_there(store: TrialStore) -> None:
    """An empty storage says so."""
    assert await store.trial("a") is None
    assert await ids(store) == []
    assert await store.open_logged() == []
    assert await store.delete(["a"]) == []
    assert await store.apply([]) == {}
    await expect(NotFoundError, store.samples(1, after=0, limit=1, max_bytes=MUCH))


async def a_trial(store: TrialStore) -> None:
    """A trial is as it was written; written again, it keeps its number, its samples and its end."""
    await store.apply([new_trial("a", user_id="ann", properties={"x": "1", "": "ä"}), new_trial("b", logged=False)])
    trial = await get(store, "a")
    assert (trial.trial_id, trial.user_id, trial.logged) == ("a", "ann", True)
    assert dict(trial.params.properties) == {"x": "1", "": "ä"}
    assert trial.params.max_steps == 7
    assert (trial.samples_count, trial.last_state, trial.end) == (0, _UNKNOWN, TrialEnd.OPEN)
    assert trial.number > 0
    assert not trial.evicted
    await store.apply([sample("a", 0, state=_ENDED), new_trial("a", user_id="bob", logged=False)])
    again = await get(store, "a")
    assert (again.number, again.user_id, again.logged) == (trial.number, "bob", False)
    assert (again.samples_count, again.end) == (1, TrialEnd.ENDED)
    assert dict(again.params.properties) == {}
    assert await store.trials(after=0, limit=ALL, properties={"x": "1"}) == []
    assert await ids(store) == ["a", "b"]


async def samples_in_order(store: TrialStore) -> None:
    """Samples come back as they were, in the order in which they came; gaps are nobody's business."""
    writes = [sample("a", tick, payload=bytes([tick]) * tick) for tick in (0, 1, 2, 5, 9)]
    await store.apply([new_trial("a"), *writes[:2]])
    await store.apply(writes[2:])
    found = await read(store, "a")
    assert [(one.tick_id, one.data) for one in found] == [(write.tick_id, write.data) for write in writes]
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (5, _RUNNING, TrialEnd.OPEN)
    assert await store.samples(trial.number, after=found[-1].position, limit=1, max_bytes=MUCH) == []


async def delivered_twice(store: TrialStore) -> None:
    """A logged sample that is there already changes nothing."""
    writes = [sample("a", tick, state=_ENDED if tick == 4 else _RUNNING) for tick in range(5)]
    await store.apply([new_trial("a"), *writes])
    found, trial = await read(store, "a"), await get(store, "a")
    assert await store.apply([*writes, *writes[2:]]) == {}
    assert await read(store, "a") == found
    assert await get(store, "a") == trial


async def run_anew(store: TrialStore) -> None:
    """A logged sample of another run takes the place of the old one and of all later ones."""
    await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(5)), late("a", 9, 1)])
    before = await read(store, "a")
    await store.apply([sample("a", 2, run=1)])
    found = await read(store, "a")
    assert [one.tick_id for one in found] == [0, 1, 2]
    assert found[2].position > before[-1].position
    assert (await get(store, "a")).samples_count == 3
    await store.apply([sample("a", tick, run=2, state=_ENDED if tick == 3 else _RUNNING) for tick in range(4)])
    assert await ticks(store, "a") == [0, 1, 2, 3]
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (4, _ENDED, TrialEnd.ENDED)
    await store.apply([sample("a", 0, run=3)])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (1, _RUNNING, TrialEnd.OPEN)


async def stored_by_hand(store: TrialStore) -> None:
    """A sample stored by hand takes the place of the old one, at a position of its own, and of no other."""
    await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(4))])
    before = await read(store, "a")
    for run in (1, 1, 0):
        await store.apply([sample("a", 1, run=run, kind=WriteKind.STORED, payload=b"new")])
        found = await read(store, "a")
        assert [one.tick_id for one in found] == [0, 2, 3, 1]
        assert found[-1].position > before[-1].position
        assert found[:-1] == [before[0], *before[2:4]]
        before = [found[0], found[-1], *found[1:-1], found[-1]]
    assert (await get(store, "a")).samples_count == 4
    await store.apply([late("a", 7, 1.0), sample("a", 7, kind=WriteKind.STORED)])
    assert late_rewards((await read(store, "a"))[-1]) == []


async def late_rewards_merged(store: TrialStore) -> None:
    """An out-of-sync sample goes into its tick once, however often it comes; position and others stay."""
    await store.apply([new_trial("a"), *(sample("a", tick, payload=b"p") for tick in range(3))])
    before = await read(store, "a")
    await store.apply([late("a", 1, 0.5)])
    await store.apply([late("a", 1, 0.25), late("a", 1, 0.5), sample("a", 1)])
    found = await read(store, "a")
    assert [one.position for one in found] == [one.position for one in before]
    assert [late_rewards(one) for one in found] == [[], [0.5, 0.25], []]
    assert (found[0], found[2]) == (before[0], before[2])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state) == (3, _RUNNING)


async def late_rewards_wait(store: TrialStore) -> None:
    """An out-of-sync sample before its tick waits, and is merged into it when it comes, behind all others."""
    await store.apply([new_trial("a"), sample("a", 0), late("a", 5, 0.5)])
    waiting = await read(store, "a")
    assert [one.tick_id for one in waiting] == [0, 5]
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (2, _RUNNING, TrialEnd.OPEN)
    await store.apply([late("a", 5, 0.25), late("a", 5, 0.5), sample("a", 3)])
    await store.apply([sample("a", 5)])
    found = await read(store, "a")
    assert [one.tick_id for one in found] == [0, 3, 5]
    assert late_rewards(found[-1]) == [0.5, 0.25]
    assert found[-1].position > waiting[-1].position
    assert await store.apply([sample("a", 5), late("a", 5, 0.25)]) == {}
    assert await read(store, "a") == found
    assert (await get(store, "a")).samples_count == 3


async def late_never_reopens(store: TrialStore) -> None:
    """An out-of-sync sample changes neither state nor end, whatever its own state says."""
    await store.apply([new_trial("a"), sample("a", 0), late("a", 4, 1.0)._replace(state=_ENDED)])
    assert (await get(store, "a")).end == TrialEnd.OPEN
    await store.apply([sample("a", 1, state=_ENDED), late("a", 0, 1.0), late("a", 7, 1.0)])
    trial = await get(store, "a")
    assert (trial.last_state, trial.end) == (_ENDED, TrialEnd.ENDED)


async def ends(store: TrialStore) -> None:
    """How trials end and open again."""
    await store.apply([new_trial("a"), sample("a", 0)])

    async def after(*writes: Any) -> tuple[int, TrialEnd]:
        assert await store.apply(writes) == {}
        trial = await get(store, "a")
        return trial.last_state, trial.end

    assert await after(EndWrite("a", TrialEnd.ABNORMAL)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(EndWrite("a", TrialEnd.ENDED)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(sample("a", 0)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(EndWrite("a", TrialEnd.OPEN)) == (_RUNNING, TrialEnd.OPEN)
    assert await after(sample("a", 5, state=_ENDED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(EndWrite("a", TrialEnd.ABNORMAL)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 3, kind=WriteKind.STORED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 4)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 6, kind=WriteKind.STORED)) == (_RUNNING, TrialEnd.OPEN)
    assert await after(EndWrite("a", TrialEnd.ABNORMAL)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(sample("a", 6, state=_ENDED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 7), EndWrite("a", TrialEnd.ENDED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(EndWrite("a", TrialEnd.OPEN)) == (_RUNNING, TrialEnd.OPEN)


async def refused(store: TrialStore) -> None:
    """What cannot be is refused with a reason; the rest of the batch is done."""
    reasons = await store.apply(
        [
            sample("a", 0),
            EndWrite("a", TrialEnd.ENDED),
            new_trial("a"),
            sample("a", 1),
            sample("b", 0),
            sample("a", 2)._replace(tick_id=1 << 63),
            sample("a", 2)._replace(timestamp=1 << 63),
            late("a", 1, 1.0)._replace(data=b"\xff"),
            late("a", 6, 1.0)._replace(data=b"\xff"),
            sample("a", 3),
        ]
    )
    assert list(reasons) == [0, 1, 4, 5, 6, 7, 8]
    assert all(reasons.values())
    assert "'b'" in reasons[4]
    assert await ids(store) == ["a"]
    assert await ticks(store, "a") == [1, 3]
    assert (await get(store, "a")).samples_count == 2
    assert (await get(store, "a")).end == TrialEnd.OPEN


async def large_numbers(store: TrialStore) -> None:
    """Ticks and timestamps of 63 bits, a large batch, a large sample, names of any kind."""
    top = (1 << 63) - 1
    name = "ä'\"%_\\ \n" * 20
    await store.apply([new_trial(name, properties={name: name}), new_trial("")])
    await store.apply([sample(name, top)._replace(timestamp=top), sample("", 0, payload=bytes(3 << 20))])
    await store.apply([sample("", tick) for tick in range(1, 3000)])
    assert await ticks(store, name) == [top]
    assert await ticks(store, "") == list(range(3000))
    assert len((await read(store, ""))[0].data) > 3 << 20
    found = await store.trials(after=0, limit=ALL, ids=[name], properties={name: name})
    assert [trial.trial_id for trial in found] == [name]


async def logged_and_open(store: TrialStore) -> None:
    """Which trials somebody has to watch: those that a data log writes and that are open."""
    await store.apply([new_trial("a"), new_trial("b", logged=False), new_trial("c"), new_trial("d")])
    await store.apply([sample("c", 0, state=_ENDED), EndWrite("d", TrialEnd.ABNORMAL)])
    assert await store.open_logged() == ["a"]
    await store.apply([new_trial("b"), new_trial("a", logged=False), EndWrite("d", TrialEnd.OPEN)])
    assert sorted(await store.open_logged()) == ["b", "d"]


async def deleted(store: TrialStore) -> None:
    """A deleted trial is gone; its id may be used for another, which is a trial of its own."""
    await store.apply([new_trial(name, properties={"x": "1"}) for name in "abc"])
    await store.apply([sample(name, tick) for name in "abc" for tick in range(3)])
    old = await get(store, "b")
    assert sorted(await store.delete(["b", "nobody", "b", "a"])) == ["a", "b"]
    assert await ids(store) == ["c"]
    assert await store.delete(["a", "b"]) == []
    assert list(await store.apply([sample("b", 3), EndWrite("b", TrialEnd.ENDED)])) == [0, 1]
    await expect(NotFoundError, store.samples(old.number, after=0, limit=1, max_bytes=MUCH))
    await store.apply([new_trial("b"), sample("b", 1)])
    new = await get(store, "b")
    assert new.number > old.number
    assert (new.samples_count, await ticks(store, "b"), await ids(store)) == (1, [1], ["c", "b"])
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9, properties={"x": "1"})] == ["c"]
    await expect(NotFoundError, store.samples(old.number, after=0, limit=1, max_bytes=MUCH))
    assert await ticks(store, "c") == [0, 1, 2]


CASES: tuple[Callable[[TrialStore], Awaitable[None]], ...] = (
    nothing_there,
    a_trial,
    samples_in_order,
    delivered_twice,
    run_anew,
    stored_by_hand,
    late_rewards_merged,
    late_rewards_wait,
    late_never_reopens,
    ends,
    refused,
    large_numbers,
    logged_and_open,
    deleted,
    *_MORE_CASES,
)


@contextmanager
def _named(case: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"check_trial_store: case {case}")
        raise


async def check_case(
    open_store: OpenStore, case: Callable[[TrialStore], Awaitable[None]], *, patience: float = _PATIENCE_SECONDS
) -> None:
    """Run one of `CASES` against a storage that nobody has written to.

    Raises:
        AssertionError: the implementation does not conform.
        trio.TooSlowError: it did not finish within `patience` seconds.
    """
    with trio.fail_after(patience):
        async with open_store() as store:
            await case(store)


async def check_trial_store(make: Callable[[], OpenStore], *, keeps: bool = False, shared: bool = False) -> None:
    """Run every case, each against a storage of its own.

    Args:
        make: makes a new, empty storage and returns what opens it, as often as it is called.
        keeps: opened again, the storage has what was written before.
        shared: it may be opened while it is open.

    Raises:
        AssertionError: the implementation does not conform; a note names the case.
        trio.TooSlowError: a case did not finish.
    """
    for case in CASES:
        with _named(case.__name__):
            await check_case(make(), case)
    for keeping_case in KEEPING_CASES if keeps else ():
        with _named(keeping_case.__name__), trio.fail_after(_PATIENCE_SECONDS):
            await keeping_case(make())
    for shared_case in SHARED_CASES if shared else ():
        open_store = make()
        with _named(shared_case.__name__), trio.fail_after(_PATIENCE_SECONDS):
            async with open_store() as first, open_store() as second:
                await shared_case(first, second)
