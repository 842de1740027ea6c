"""The queue of group commits, without a database."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from trio_cogment.base.errors import NotFoundError, UnavailableError
from trio_cogment.base.group_commit import OVERHEAD_BYTES, CommitBatch, CommitQueue, storage_failure

DELAY_SECONDS = 1.0


class Numbers(CommitQueue[CommitBatch]):
    """Batches that are only counted; a commit takes as long as `gate` is closed."""

    def __init__(self, **limits: Any) -> None:
        usual: dict[str, Any] = {"max_count": 6, "max_bytes": 10_000, "enough": 3, "full": 5}
        super().__init__(CommitBatch(), **usual | limits)
        self.gate = trio.Event()
        self.gate.set()
        self.stored: list[int] = []

    def _following(self, batch: CommitBatch) -> CommitBatch:
        return CommitBatch()

    def _delay_seconds(self) -> float:
        return DELAY_SECONDS

    async def _commit(self, batch: CommitBatch) -> None:
        await self.gate.wait()
        self.stored.append(batch.count)
        self._release(batch)


@asynccontextmanager
async def running(**limits: Any) -> AsyncIterator[Numbers]:
    queue = Numbers(**limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        yield queue
        nursery.cancel_scope.cancel()


def add(queue: Numbers, count: int, size: int = 0) -> None:
    for _ in range(count):
        assert queue.has_room
        queue.count(size)


async def test_what_is_little_waits_from_the_first_item_on(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as queue:
        began = trio.current_time()
        add(queue, 1)
        await trio.sleep(DELAY_SECONDS / 2)
        add(queue, 1)
        await trio.sleep(DELAY_SECONDS / 2)
        await trio.testing.wait_all_tasks_blocked()
        assert queue.stored == [2]
        assert trio.current_time() - began == pytest.approx(DELAY_SECONDS)


async def test_enough_goes_at_once_and_what_comes_meanwhile_together(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as queue:
        queue.gate = trio.Event()
        add(queue, 3)
        await trio.testing.wait_all_tasks_blocked()
        add(queue, 3)
        assert not queue.has_room
        queue.gate.set()
        await queue.wait_room()
        await queue.drain()
        assert queue.stored == [3, 3]


@pytest.mark.parametrize("limits", [{"full": 2}, {"full_bytes": 2 * (OVERHEAD_BYTES + 100)}])
async def test_full_batches_go_one_after_the_other(limits: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with running(enough=2, **limits) as queue:
        add(queue, 5, size=100)
        await queue.drain()
        assert queue.stored == [2, 2, 1]


async def test_who_waits_need_not_wait_for_more(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as queue:
        began = trio.current_time()
        add(queue, 1)
        await queue.drain()
        assert (queue.stored, trio.current_time()) == ([1], began)
        queue.expedite()  # of nothing: what comes next waits as usual
        add(queue, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert queue.stored == [1]


async def test_one_item_of_any_size_has_room(autojump_clock: trio.testing.MockClock) -> None:
    async with running(max_bytes=10) as queue:
        add(queue, 1, size=1000)
        assert not queue.has_room
        await queue.wait_room()
        assert queue.stored == [1]


def test_failures_and_bugs(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("a.store")
    refused = NotFoundError("no such trial")
    assert storage_failure(refused, log) is refused
    assert not caplog.records
    try:
        raise KeyError("bug")
    except KeyError as error:
        told = storage_failure(error, log)
    assert isinstance(told, UnavailableError)
    assert "KeyError" in caplog.text
