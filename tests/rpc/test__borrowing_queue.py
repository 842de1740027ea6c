"""A queue in process whose bytes belong to a connection."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.waiting_bytes import FREE_BYTES, WaitingBytes
from trio_cogment.rpc._borrowing_queue import BorrowingQueue

LARGE = FREE_BYTES + 1024


class Taken:
    """A consumer that keeps everything."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def on_message(self, message: bytes) -> None:
        self.messages.append(message)

    def on_end(self, error: RpcError | None) -> None:
        pass


def queue_of(total: float) -> tuple[BytePool, WaitingBytes, BorrowingQueue]:
    pool = BytePool(total)
    waiting = WaitingBytes(pool.loan())

    def failed(error: RpcError) -> None:
        raise error

    queue = BorrowingQueue(256, 2**20, waiting, size_of=len, on_consumer_failed=failed)
    return pool, waiting, queue


async def test_items_count_until_they_are_taken() -> None:
    pool, waiting, queue = queue_of(2**26)
    for size in (LARGE, 10):
        queue.put_nowait(bytes(size))
    assert (waiting.queued, pool.used) == (LARGE + 10, LARGE + 10 - FREE_BYTES)
    assert len(await queue.get()) == LARGE
    assert (waiting.queued, pool.used) == (10, 0)
    assert len(await queue.get()) == 10
    assert waiting.queued == 0


def test_what_is_dropped_counts_no_more() -> None:
    pool, waiting, queue = queue_of(2**26)
    queue.put_nowait(bytes(LARGE))
    queue.abort(RpcError(StatusCode.CANCELLED, "over"))
    assert (waiting.queued, pool.used) == (0, 0)
    queue.put_nowait(bytes(LARGE))  # dropped, too
    assert (waiting.queued, pool.used) == (0, 0)


@pytest.mark.parametrize("consumer", [None, Taken()])
def test_without_memory_a_large_item_is_refused_and_a_small_one_is_not(consumer: Any) -> None:
    pool, _, queue = queue_of(2**20)
    pool.loan().set(2**20)
    if consumer is not None:
        queue.set_consumer(consumer)
    with pytest.raises(trio.WouldBlock):
        queue.put_nowait(bytes(LARGE))
    with pytest.raises(trio.WouldBlock):
        queue.put_together_nowait([bytes(LARGE // 2), bytes(LARGE // 2)])
    assert not queue.items
    queue.put_nowait(b"small")
    assert (consumer.messages if consumer is not None else list(queue.items)) == [b"small"]


def test_where_there_is_plenty_a_consumer_gets_what_was_not_measured() -> None:
    consumer = Taken()

    def failed(error: RpcError) -> None:
        raise error

    def measured(item: bytes) -> int:
        raise AssertionError

    waiting = WaitingBytes(BytePool(2**26).loan())
    queue = BorrowingQueue(256, 2**20, waiting, size_of=measured, on_consumer_failed=failed)
    queue.set_consumer(consumer)
    assert not queue.is_busy()
    queue.put_nowait(b"one")
    queue.put_together_nowait([b"two", b"three"])
    assert consumer.messages == [b"one", b"two", b"three"]


def test_its_own_bounds_hold_where_there_is_plenty() -> None:
    _, _, queue = queue_of(2**30)
    queue.put_nowait(bytes(2**20))
    with pytest.raises(trio.WouldBlock):
        queue.put_nowait(b"x")


async def test_a_sender_waits_for_memory(autojump_clock: trio.testing.MockClock) -> None:
    pool, _, queue = queue_of(2**20)
    other = pool.loan()
    other.set(2**20)
    assert queue.is_busy()

    async def send() -> None:
        await queue.wait_room(LARGE)
        queue.put_nowait(bytes(LARGE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert not queue.items
        other.set(0)
        await trio.testing.wait_all_tasks_blocked()
        assert [len(item) for item in queue.items] == [LARGE]
