"""Recent samples: the last commits of the trials that are watched."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest
from trio_cogment.base.errors import NotFoundError
from trio_cogment.base.host import Host, Runner, run_inline
from trio_cogment.servers.datastore import Datastore, _sqlite_reader
from trio_cogment.servers.datastore._recent_samples import _OVERHEAD_BYTES, ChangeSet, RecentSamples, TrialChanges
from trio_cogment.servers.datastore._sqlite import open_sqlite
from trio_cogment.servers.datastore._write_rules import Head
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import OutcomeWrite, StoredSample, StoredTrial, TrialEnd
from trio_cogment.testing.conformance.trial_store import ALL, MUCH, get, late, new_trial, sample


def added(positions: range, *, number: int = 1, size: int = 10) -> ChangeSet:
    """Return the changes of a transaction that added samples at these positions."""
    samples = [StoredSample(position, position, bytes(size)) for position in positions]
    watched_trials = TrialChanges(f"t{number}", Head(number), samples)
    return ChangeSet(
        {watched_trials.trial_id}, watched_trials={number: watched_trials}, numbers={number}, base=positions.start - 1
    )


def positions(recent: RecentSamples, after: int, *, limit: int = ALL, max_bytes: int = MUCH, number: int = 1) -> object:
    found = recent.samples(number, after, limit, max_bytes)
    return None if found is None else [one.position for one in found]


def test_what_came_since_is_known() -> None:
    recent = RecentSamples()
    assert positions(recent, 0) is None
    recent.note(added(range(5, 8)))
    recent.note(added(range(10, 12)))
    assert positions(recent, 3) is None
    assert positions(recent, 4) == [5, 6, 7, 10, 11]
    assert positions(recent, 6, limit=2) == [7, 10]
    assert positions(recent, 4, max_bytes=20) == [5, 6]
    assert positions(recent, 4, max_bytes=21) == [5, 6, 7]
    assert positions(recent, 4, max_bytes=1) == [5]
    assert positions(recent, 11) == positions(recent, 100) == []


def test_what_was_changed_or_not_told_of_is_forgotten() -> None:
    for forgotten in (ChangeSet(numbers={1}), ChangeSet(others_wrote=True)):
        recent = RecentSamples()
        recent.note(added(range(1, 3)))
        recent.note(forgotten)
        assert positions(recent, 2) is None
        recent.note(added(range(9, 10)))
        assert positions(recent, 2) is None
        assert positions(recent, 8) == [9]
    changed = added(range(10, 11))
    changed.watched_trials[1].only_added = False
    recent.note(changed)
    assert positions(recent, 9) is None


def test_of_a_trial_a_mebibyte_is_kept_and_then_the_last_half() -> None:
    """With 256 bytes for each sample beside its data."""
    recent = RecentSamples()
    recent.note(added(range(1, 1025), size=1024 - 256))
    assert positions(recent, 0) == list(range(1, 1025))
    recent.note(added(range(1025, 1026), size=1024 - 256))
    assert positions(recent, 512) is None
    assert positions(recent, 513) == list(range(514, 1026))


def test_of_sixteen_trials_something_is_kept() -> None:
    recent = RecentSamples()
    for number in range(1, 18):
        recent.note(added(range(1, 2), number=number))
    assert positions(recent, 0, number=1) is None
    assert [positions(recent, 0, number=number) for number in range(2, 18)] == [[1]] * 16
    # Those that are written to are the last to go.
    recent.note(added(range(2, 3), number=2))
    recent.note(added(range(1, 2), number=18))
    assert positions(recent, 0, number=3) is None
    assert positions(recent, 0, number=2) == [1, 2]


def test_several_are_forgotten_at_once() -> None:
    recent = RecentSamples()
    for number in (1, 2, 3):
        recent.note(added(range(1, 2), number=number))
    recent.forget(["nobody", "t1", "t3"])
    assert [positions(recent, 0, number=number) for number in (1, 2, 3)] == [None, [1], None]


def test_it_is_bounded() -> None:
    recent = RecentSamples()
    for first in range(1, 3001, 10):
        recent.note(added(range(first, first + 10), size=1000 - _OVERHEAD_BYTES))
    assert positions(recent, 1900) is None
    assert positions(recent, 2600) == list(range(2601, 3001))
    # Small ones are not nothing.
    recent.note(added(range(1, 10_001), size=0, number=2))
    assert positions(recent, 5_000, number=2) is None
    recent.note(added(range(3001, 3002), size=5_000_000))
    assert positions(recent, 3000) is None
    assert positions(recent, 3001) == []
    for number in range(2, 100):
        recent.note(added(range(1, 2), number=number))
    assert positions(recent, 3001) is None
    assert [number for number in range(100) if positions(recent, 1, number=number) is not None] == list(range(84, 100))


async def test_who_is_watched_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for samples nor for the end; until somebody else writes."""
    path = f"{tmp_path}/a.db"
    asked: list[str] = []

    def note(what: str) -> None:
        real = getattr(_sqlite_reader, what)

        def query(*args: object) -> object:
            asked.append(what)
            return real(*args)

        monkeypatch.setattr(_sqlite_reader, what, query)

    note("samples")
    note("trial")
    async with open_store(f"sqlite:{path}", durability="batch") as store:
        await store.apply([new_trial("a"), sample("a", 0), new_trial("b")])
        number = (await get(store, "a")).number
        async with store.watch("a"):
            await store.apply([sample("a", 1), sample("b", 0)])
            (first, second) = await store.samples(number, after=0, limit=ALL, max_bytes=MUCH)
            assert (await get(store, "a")).samples_count == 2
            asked.clear()
            await store.apply([sample("a", tick) for tick in range(2, 5)])
            await store.apply([sample("b", 1)])
            found = await store.samples(number, after=second.position, limit=ALL, max_bytes=MUCH)
            assert [one.tick_id for one in found] == [2, 3, 4]
            assert (await get(store, "a")).samples_count == 5
            assert asked == []
            # What is changed is read again, by those who read on from there.
            await store.apply([late("a", 4, 1.0)])
            (changed,) = await store.samples(number, after=found[1].position, limit=ALL, max_bytes=MUCH)
            assert len(changed.data) > len(found[2].data)
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(f"UPDATE trials SET ending = {TrialEnd.ABNORMAL:d} WHERE trial_id = 'a'")
                connection.execute("DELETE FROM samples WHERE tick = 4")
            await store.apply([sample("b", 2)])
            assert (await get(store, "a")).end == TrialEnd.ABNORMAL
            assert await store.samples(number, after=found[1].position, limit=ALL, max_bytes=MUCH) == []
            await store.apply([sample("a", 9)])
            await store.delete(["a"])
            assert await store.trial("a") is None
            with pytest.raises(NotFoundError):
                await store.samples(number, after=first.position, limit=ALL, max_bytes=MUCH)
        asked.clear()
        assert await get(store, "b")
        assert asked == ["trial"]


async def test_of_a_trial_that_is_deleted_nothing_is_at_hand(tmp_path: Path) -> None:
    """Whoever watches it has been given its samples without a query; they go with it, and so does what it had."""
    async with open_store(f"sqlite:{tmp_path}/a.db", durability="batch") as store, store.watch("a"):
        await store.apply([new_trial("a"), sample("a", 0)])
        first = await get(store, "a")
        (begin,) = await store.samples(first.number, after=0, limit=ALL, max_bytes=MUCH)
        await store.apply([sample("a", tick) for tick in range(1, 5)])
        assert (await get(store, "a")).samples_count == 5
        assert len(await store.samples(first.number, after=begin.position, limit=ALL, max_bytes=MUCH)) == 4
        assert await store.delete(["a"]) == ["a"]
        assert await store.trial("a") is None
        with pytest.raises(NotFoundError):
            await store.samples(first.number, after=begin.position, limit=ALL, max_bytes=MUCH)
        # Another of the same name begins again, whatever is known of the first.
        assert await store.apply([new_trial("a", user_id="another"), sample("a", 2), sample("a", 1)]) == {}
        second = await get(store, "a")
        assert second.number != first.number
        assert (second.user_id, second.samples_count) == ("another", 2)
        found = await store.samples(second.number, after=0, limit=ALL, max_bytes=MUCH)
        assert [one.tick_id for one in found] == [2, 1]
        with pytest.raises(NotFoundError):
            await store.samples(first.number, after=begin.position, limit=ALL, max_bytes=MUCH)


async def test_of_what_nobody_watches_nothing_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = _sqlite_reader.samples

    def query(*args: Any) -> Any:
        asked.append("samples")
        return real(*args)

    monkeypatch.setattr(_sqlite_reader, "samples", query)
    async with open_store(f"sqlite:{tmp_path}/a.db", durability="batch") as store:
        await store.apply([new_trial("a"), sample("a", 0)])
        number = (await get(store, "a")).number
        (first,) = await store.samples(number, after=0, limit=ALL, max_bytes=MUCH)

        async def how_read() -> list[str]:
            asked.clear()
            (second,) = await store.samples(number, after=first.position, limit=ALL, max_bytes=MUCH)
            assert second.tick_id == 1
            return asked

        async with store.watch(), store.watch("a"):
            async with store.watch("a"):
                await store.apply([sample("a", 1)])
                assert await how_read() == []
            assert await how_read() == []  # another one watches it still
        assert await how_read() == ["samples"]


class SlowReaders:
    """The readers' threads, which have asked the database, and answer when they are told to.

    Attributes:
        asked: one has.
        answer: all may answer.
    """

    def __init__(self) -> None:
        self.asked, self.answer = trio.Event(), trio.Event()

    def __call__(self, threads: int) -> Runner:
        return self._read_slowly if threads > 1 else run_inline

    async def _read_slowly(self, function: Callable[..., Any], *args: object) -> Any:
        result = await run_inline(function, *args)
        self.asked.set()
        await self.answer.wait()
        return result


async def test_what_was_read_before_a_write_is_not_kept_after_it(tmp_path: Path) -> None:
    """A query may return after a transaction that it has not seen."""
    readers = SlowReaders()
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=Host(runner=readers)) as store:
        await store.apply([new_trial("a"), sample("a", 0)])
        async with store.watch("a"), trio.open_nursery() as nursery:
            await store.apply([sample("a", 1)])
            nursery.start_soon(store.trial, "a")
            await readers.asked.wait()
            await store.apply([sample("a", 2)])
            readers.answer.set()
            await trio.testing.wait_all_tasks_blocked()
            assert (await get(store, "a")).samples_count == 3


class LateRunner:
    """The writer's thread, which tells late of what it has done."""

    def __init__(self) -> None:
        self._telling = trio.Event()
        self._telling.set()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """It tells when the block is over."""
        self._telling = trio.Event()
        try:
            yield
        finally:
            self._telling.set()

    def __call__(self, threads: int) -> Runner:
        return self._tell_late if threads == 1 else run_inline

    async def _tell_late(self, function: Callable[..., Any], *args: object) -> Any:
        result = await run_inline(function, *args)
        with trio.CancelScope(shield=True):
            await self._telling.wait()
        return result


async def test_the_end_is_not_told_before_the_last_samples(tmp_path: Path) -> None:
    """A transaction is there for queries before its changes are noted."""
    runner = LateRunner()
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=Host(runner=runner)) as store:
        await store.apply([new_trial("a"), sample("a", 0)])
        async with store.watch("a"), trio.open_nursery() as nursery:
            await store.apply([sample("a", 1)])
            with runner.held_back():
                nursery.start_soon(store.apply, [sample("a", 2, state=TrialState.ENDED)])
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(2):  # the second time it is at hand
                    before = await get(store, "a")
                    (listed,) = await store.trials(after=0, limit=ALL)
                    assert (before.end, before.samples_count, listed) == (TrialEnd.OPEN, 2, before)
            await trio.testing.wait_all_tasks_blocked()
            after = await get(store, "a")
            assert (after.end, after.samples_count) == (TrialEnd.ENDED, 3)
            assert await store.trials(after=0, limit=ALL) == [after]


async def test_a_deletion_is_not_told_before_the_samples_are_gone(tmp_path: Path) -> None:
    runner, told = LateRunner(), list[object]()
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=Host(runner=runner)) as store:
        await store.apply([new_trial("a"), sample("a", 0)])
        number = (await get(store, "a")).number
        async with store.watch("a"), trio.open_nursery() as nursery:
            await store.apply([new_trial("a"), sample("a", 1)])  # as the parameters may have changed, it is read again

            async def look() -> None:
                told.append(await store.trial("a"))
                with pytest.raises(NotFoundError):
                    await store.samples(number, after=1, limit=ALL, max_bytes=MUCH)

            with runner.held_back():
                nursery.start_soon(store.delete, ["a"])
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(look)
                await trio.testing.wait_all_tasks_blocked()
                assert told == []
        assert told == [None]


async def test_a_follower_gets_the_last_samples_of_a_slow_writer(tmp_path: Path) -> None:
    runner, seen, hold = LateRunner(), list[int](), trio.Event()
    host = Host(runner=runner)
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=host) as store, Datastore(store) as datastore:
        await store.apply([new_trial("a"), sample("a", 0)])

        async def follow() -> None:
            async with datastore.reading(RetrieveSamplesRequest(trial_ids=["a"])) as pages:
                async for page in pages:
                    seen.extend(one.tick_id for one in page)
                    if seen == [0, 1]:
                        await hold.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            await store.apply([sample("a", 1)])
            await trio.testing.wait_all_tasks_blocked()
            with runner.held_back():
                nursery.start_soon(store.apply, [sample("a", 2, state=TrialState.ENDED)])
                await trio.testing.wait_all_tasks_blocked()
                hold.set()  # now it looks whether the trial has ended
                await trio.testing.wait_all_tasks_blocked()
        assert seen == [0, 1, 2]


@pytest.mark.parametrize("by_list", [False, True])
async def test_an_end_that_came_during_a_query_is_told_whole(by_list: bool, tmp_path: Path) -> None:
    """The query has seen nothing of it, and what is noted meanwhile is a part of it only."""
    readers = SlowReaders()
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=Host(runner=readers)) as store:
        await store.apply([new_trial("a"), sample("a", 0)])
        async with store.watch("a"), trio.open_nursery() as nursery:
            await store.apply([sample("a", 1)])
            found: list[StoredTrial | None] = []

            async def ask() -> None:
                found.extend(await store.trials(after=0, limit=ALL) if by_list else [await store.trial("a")])

            nursery.start_soon(ask)
            await readers.asked.wait()
            await store.apply([sample("a", 2, state=TrialState.ENDED), OutcomeWrite("a", b"won")])
            await store.apply([new_trial("a", user_id="late")])
            readers.answer.set()
        (one,) = found
        assert one is not None
        assert (one.end, one.samples_count, one.outcome, one.user_id) == (TrialEnd.ENDED, 3, b"won", "late")
