"""The bounds of an in-process call's queue, and the senders that wait for room."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc._fairness import OPERATIONS_PER_CHECKPOINT
from trio_cogment.rpc._in_process_queue import MessageQueue

ABORTED = RpcError(StatusCode.ABORTED, "no more")


def box(max_items: int = 2, max_bytes: int = 1000) -> MessageQueue:
    """Return a queue for numbers, which are their own size."""

    def broke(error: RpcError) -> None:
        raise AssertionError("the consumer broke")

    return MessageQueue(max_items, max_bytes, size_of=int, on_consumer_failed=broke)


class Collecting:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def on_message(self, message: Any) -> None:
        self.got.append(message)

    def on_end(self, error: RpcError | None) -> None:
        self.got.append(error)


async def test_items_come_in_order_and_then_the_end() -> None:
    queue = box()
    queue.put_nowait(1)
    queue.put_nowait(2)
    with pytest.raises(trio.WouldBlock):
        queue.put_nowait(3)
    queue.finish()
    assert [await queue.get() for _ in range(4)] == [1, 2, None, None]


async def test_end_with_an_error_comes_after_what_is_queued_and_abort_before() -> None:
    queue = box()
    queue.put_nowait(1)
    queue.finish(ABORTED)
    queue.finish()
    assert await queue.get() == 1
    with pytest.raises(RpcError, match="no more"):
        await queue.get()
    queue = box()
    queue.put_nowait(1)
    queue.abort(ABORTED)
    with pytest.raises(RpcError, match="no more"):
        await queue.get()


async def test_sender_waits_for_room_and_for_its_turn(autojump_clock: trio.testing.MockClock) -> None:
    queue = box(1)
    queue.put_nowait(1)
    assert queue.is_busy()
    with trio.move_on_after(1) as scope:
        await queue.wait_room(1)
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.wait_room, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert await queue.get() == 1
    assert [box(1000).is_busy() for _ in range(3)] == [False] * 3
    roomy = box(1000)
    assert [roomy.is_busy() for _ in range(OPERATIONS_PER_CHECKPOINT)].count(True) == 1
    queue.put_nowait(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.wait_room, 1)
        await trio.testing.wait_all_tasks_blocked()
        queue.abort(ABORTED)


def test_bytes_are_bounded_but_for_a_single_item() -> None:
    queue = box(10, 100)
    queue.put_nowait(1000)  # alone
    with pytest.raises(trio.WouldBlock):
        queue.put_nowait(1)
    queue.set_consumer(Collecting())  # takes it
    queue.pause()
    for size in (60, 30, 10):
        queue.put_nowait(size)
    with pytest.raises(trio.WouldBlock):
        queue.put_nowait(1)
    queue.put_nowait(0)
    queue.abort(ABORTED)


def test_an_item_that_waits_alone_is_never_measured() -> None:
    measured: list[int] = []

    def size_of(item: int) -> int:
        measured.append(item)
        return item

    queue, consumer = MessageQueue(10, 100, size_of=size_of, on_consumer_failed=lambda error: None), Collecting()
    queue.put_nowait(1)
    queue.set_consumer(consumer)
    for number in range(10):
        queue.put_nowait(number)
    assert (len(consumer.got), measured) == (11, [])
    queue.pause()
    queue.put_nowait(5)
    queue.put_nowait(6)
    queue.put_nowait(7, 7)
    assert measured == [6, 5]


async def test_senders_get_their_turns_in_order() -> None:
    """A large item is not overtaken indefinitely by small ones, and small ones share the room that it leaves."""
    queue = box(10, 100)
    queue.put_nowait(50)
    queue.put_nowait(50)
    sent: list[int] = []

    async def send(size: int) -> None:
        await queue.wait_room(size)
        queue.put_nowait(size)
        sent.append(size)

    async with trio.open_nursery() as nursery:
        for size in (90, 5, 4, 3):
            nursery.start_soon(send, size)
            await trio.testing.wait_all_tasks_blocked()
        assert await queue.get() == 50
        await trio.testing.wait_all_tasks_blocked()
        assert sent == []  # the others would fit
        assert await queue.get() == 50
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [90, 5, 4]
        assert [await queue.get() for _ in range(3)] == [90, 5, 4]
    assert sent == [90, 5, 4, 3]


async def test_a_sender_that_gives_up_leaves_its_turn_to_the_next() -> None:
    queue = box(10, 100)
    queue.put_nowait(100)
    done: list[int] = []

    async def wait(size: int) -> None:
        await queue.wait_room(size)  # and then it does not put anything
        done.append(size)

    async with trio.open_nursery() as nursery:
        for size in (50, 60, 70):
            nursery.start_soon(wait, size)
            await trio.testing.wait_all_tasks_blocked()
        assert await queue.get() == 100
    assert done == [50, 60, 70]


def test_a_consumer_that_raises_ends_the_call(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Collecting):
        def on_message(self, message: Any) -> None:
            raise ZeroDivisionError

    failed: list[RpcError] = []
    queue, consumer = MessageQueue(2, 1000, size_of=int, on_consumer_failed=failed.append), Failing()
    queue.set_consumer(consumer)
    queue.put_nowait(1)
    assert consumer.got == failed
    assert queue.ended
    assert failed[0].code is StatusCode.INTERNAL
    assert "ZeroDivisionError" in caplog.text
