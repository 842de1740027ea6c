"""Leases of trials without a stream: how long they are waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import NotFoundError, UnavailableError
from trio_cogment.servers.datastore import Datastore
from trio_cogment.servers.datastore._group_commit import GroupCommit
from trio_cogment.servers.datastore._leases import Leases
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore._owners import Owners
from trio_cogment.servers.datastore.storage import StoredTrial, TrialEnd
from trio_cogment.testing.conformance.trial_store import get, new_trial

CONFIG = DatastoreConfig(abandoned_after_seconds=30, abandoned_after_start_seconds=60)


class AskedStore(MemoryStore):
    """Notes what it is asked for, and can be made to fail.

    Attributes:
        asked: the trials, and when.
        most: this many at a time at most.
        failure: what is raised instead of an answer.
        slow: an answer takes a second.
    """

    def __init__(self) -> None:
        super().__init__(1 << 30)
        self.asked: list[tuple[str, float]] = []
        self.most = self._now = 0
        self.failure: Exception | None = None
        self.slow = False

    async def trial(self, trial_id: str) -> StoredTrial | None:
        """See `TrialStore.trial`."""
        self.asked.append((trial_id, trio.current_time()))
        self._now += 1
        self.most = max(self.most, self._now)
        await trio.sleep(1 if self.slow else 0)
        self._now -= 1
        if self.failure is not None:
            raise self.failure
        return await super().trial(trial_id)


@asynccontextmanager
async def running(count: int) -> AsyncIterator[tuple[Leases, AskedStore]]:
    """Open this many trials, each of which has a stream."""
    store = AskedStore()
    await store.apply([new_trial(f"t{number}") for number in range(count)])
    writer = GroupCommit(store, CONFIG)
    leases = Leases(store, writer, Owners(store), CONFIG)
    for number in range(count):
        leases.enter(f"t{number}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        nursery.start_soon(leases.run)
        await wait_all_tasks_blocked()
        yield leases, store
        nursery.cancel_scope.cancel()


async def ends(store: MemoryStore) -> list[TrialEnd]:
    return [trial.end for trial in await store.trials(after=0, limit=10_000)]


async def test_many_that_are_due_together_are_ended_once_and_not_all_at_a_time(autojump_clock: MockClock) -> None:
    async with running(1201) as (leases, store):
        for number in range(1201):
            leases.leave(f"t{number}", ended=False)
        await trio.sleep(29)
        assert store.asked == []
        await trio.sleep(2)
        assert await ends(store) == [TrialEnd.ABNORMAL] * 1201
        assert len(store.asked) == 1201
        assert store.most == 500
        await trio.sleep(1000)
        assert len(store.asked) == 1201


async def test_one_that_comes_back_at_once_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with running(2) as (leases, store):
        leases.leave("t0", ended=False)
        leases.enter("t0")
        await trio.sleep(1000)
        assert await ends(store) == [TrialEnd.OPEN] * 2
        leases.leave("t0", ended=True)
        leases.leave("t1", ended=False)
        await trio.sleep(31)
        assert await ends(store) == [TrialEnd.OPEN, TrialEnd.ABNORMAL]


async def test_a_later_deadline_does_not_put_off_an_earlier_one(autojump_clock: MockClock) -> None:
    async with running(3) as (leases, store):
        leases.leave("t2", ended=False)
        leases.enter("t2")
        await leases.load()  # none of them: all have a stream
        leases.leave("t0", ended=False)
        await trio.sleep(20)
        leases.leave("t1", ended=False)
        await trio.sleep(11)
        assert await ends(store) == [TrialEnd.ABNORMAL, TrialEnd.OPEN, TrialEnd.OPEN]
        await trio.sleep(20)
        assert await ends(store) == [TrialEnd.ABNORMAL, TrialEnd.ABNORMAL, TrialEnd.OPEN]


@pytest.mark.parametrize("failure", [UnavailableError("away"), RuntimeError("planted")])
async def test_a_storage_that_fails_is_asked_again_every_five_seconds(
    autojump_clock: MockClock, failure: Exception
) -> None:
    async with running(1) as (leases, store):
        began = trio.current_time()
        store.failure = failure
        leases.leave("t0", ended=False)
        await trio.sleep(43)
        assert [round(at - began) for _, at in store.asked] == [30, 35, 40]
        store.failure = None
        await trio.sleep(3)
        assert (await get(store, "t0")).end == TrialEnd.ABNORMAL


async def test_while_the_storage_fails_a_trial_may_come_back(autojump_clock: MockClock) -> None:
    async with running(1) as (leases, store):
        store.failure, store.slow = UnavailableError("away"), True
        leases.leave("t0", ended=False)
        await trio.sleep(30.5)
        leases.enter("t0")
        await trio.sleep(1)
        store.failure, store.slow = None, False
        await trio.sleep(1000)
        assert len(store.asked) == 1
        assert await ends(store) == [TrialEnd.OPEN]


async def test_one_that_comes_back_while_it_is_being_ended_goes_on(autojump_clock: MockClock) -> None:
    async with running(1) as (leases, store):
        store.slow = True
        leases.leave("t0", ended=False)
        await trio.sleep(30.5)  # it is being looked at
        leases.enter("t0")
        await trio.sleep(1000)
        assert len(store.asked) == 1
        assert await ends(store) == [TrialEnd.OPEN]


async def test_a_data_log_that_comes_back_while_its_trial_is_being_ended_opens_it_again(
    autojump_clock: MockClock,
) -> None:
    store = AskedStore()
    params = TrialParams()
    async with Datastore(store, config=CONFIG) as datastore:
        async with datastore.sink().open("t0", "", params):
            pass
        await trio.sleep(29.5)
        store.slow = True
        await trio.sleep(1)
        async with datastore.sink().open(
            "t0", "", params
        ):  # the write that ends it is under way, or is not made any more
            await trio.sleep(1)
            assert await ends(store) == [TrialEnd.OPEN]
            await trio.sleep(1000)
            assert await ends(store) == [TrialEnd.OPEN]


@pytest.mark.parametrize("failure", [None, NotFoundError("gone")])
async def test_one_that_was_deleted_is_not_asked_for_again(
    failure: Exception | None, autojump_clock: MockClock
) -> None:
    async with running(1) as (leases, store):
        leases.leave("t0", ended=False)
        await store.delete(["t0"])
        store.failure = failure
        await trio.sleep(1000)
        assert len(store.asked) == 1


async def test_those_that_were_open_before_have_longer_to_come_back(autojump_clock: MockClock) -> None:
    store = AskedStore()
    await store.apply([new_trial("t0"), new_trial("by hand", logged=False)])
    writer = GroupCommit(store, CONFIG)
    leases = Leases(store, writer, Owners(store), CONFIG)
    await leases.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        nursery.start_soon(leases.run)
        await trio.sleep(59)
        assert await ends(store) == [TrialEnd.OPEN] * 2
        await trio.sleep(2)
        assert await ends(store) == [TrialEnd.ABNORMAL, TrialEnd.OPEN]
        nursery.cancel_scope.cancel()
