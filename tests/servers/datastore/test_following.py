"""Followers: what they ask the storage, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from tests.servers.datastore.harness import ENDED, RUNNING, params_with
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest, StoredTrialSample
from trio_cogment.servers.datastore import Datastore
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import (
    EndWrite,
    SampleWrite,
    StoredSample,
    StoredTrial,
    TrialEnd,
    TrialWrite,
)
from trio_cogment.servers.datastore.storage import WriteKind as Kind

settled = trio.testing.wait_all_tasks_blocked
START = TrialWrite("t", "", params_with("a"), logged=False)


def sample(tick_id: int, state: int = RUNNING) -> SampleWrite:
    data = StoredTrialSample(trial_id="t", tick_id=tick_id).SerializeToString()
    return SampleWrite("t", tick_id, 1, state, data, Kind.STORED)


class AskedStore(MemoryStore):
    """Notes what it is asked.

    Attributes:
        asked: for samples after which position, or for a trial.
        meanwhile: done once, while the next samples are on their way.
    """

    def __init__(self) -> None:
        super().__init__(1 << 30)
        self.asked: list[int | str] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def samples(self, number: int, *, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
        """See `TrialStore.samples`."""
        self.asked.append(after)
        found = await super().samples(number, after=after, limit=limit, max_bytes=max_bytes)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
            await trio.sleep(1)
        return found

    async def trial(self, trial_id: str) -> StoredTrial | None:
        """See `TrialStore.trial`."""
        self.asked.append(trial_id)
        return await super().trial(trial_id)


async def follow(datastore: Datastore, seen: list[int]) -> None:
    async with datastore.reading(RetrieveSamplesRequest(trial_ids=["t"])) as pages:
        async for page in pages:
            seen += [one.tick_id for one in page]


async def test_a_page_that_is_not_full_was_all_there_is(autojump_clock: trio.testing.MockClock) -> None:
    store, seen = AskedStore(), list[int]()
    await store.apply([START, sample(0), sample(1)])
    async with Datastore(store) as datastore, trio.open_nursery() as nursery:
        nursery.start_soon(follow, datastore, seen)
        await settled()
        assert (seen, store.asked) == ([0, 1], [0, "t"])
        await store.apply([sample(2)])
        await settled()
        assert (seen, store.asked[2:]) == ([0, 1, 2], [2, "t"])
        await store.apply([sample(3, ENDED)])
    # Whether something came between the last page and the end is looked for once more.
    assert (seen, store.asked[4:]) == ([0, 1, 2, 3], [3, "t", 4])


async def test_an_ended_trial_is_read_once(autojump_clock: trio.testing.MockClock) -> None:
    store, seen = AskedStore(), list[int]()
    await store.apply([START, sample(0), sample(1, ENDED)])
    async with Datastore(store) as datastore:
        await follow(datastore, seen)
    assert (seen, store.asked) == ([0, 1], [0])


async def test_what_comes_while_a_page_is_read_is_not_missed(autojump_clock: trio.testing.MockClock) -> None:
    store, seen = AskedStore(), list[int]()
    await store.apply([START, sample(0)])
    store.meanwhile = lambda: store.apply([sample(1)])
    async with Datastore(store) as datastore, trio.open_nursery() as nursery:
        nursery.start_soon(follow, datastore, seen)
        await trio.sleep(10)
        assert (seen, store.asked) == ([0, 1], [0, 1, "t"])
        store.meanwhile = lambda: store.apply([sample(3), EndWrite("t", TrialEnd.ENDED)])
        await store.apply([sample(2)])
    assert seen == [0, 1, 2, 3]
