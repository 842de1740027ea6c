"""The bounded queue under an in-process call."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc._mailbox import MESSAGES_PER_CHECKPOINT, Mailbox

ABORTED = RpcError(StatusCode.ABORTED, "no more")


def box(max_items: int = 2, max_bytes: int = 1000) -> Mailbox:
    """Return a mailbox for numbers, which are their own size."""

    def broke() -> None:
        raise AssertionError("the consumer broke")

    return Mailbox(max_items, max_bytes, size_of=int, on_broken_consumer=broke)


class Collecting:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def on_message(self, message: Any) -> None:
        if message == "boom":
            raise ZeroDivisionError
        self.got.append(message)

    def on_end(self, error: RpcError | None) -> None:
        self.got.append(error)


async def test_items_come_in_order_and_then_the_end() -> None:
    mailbox = box()
    mailbox.put_nowait(1)
    mailbox.put_nowait(2)
    with pytest.raises(trio.WouldBlock):
        mailbox.put_nowait(3)
    mailbox.finish()
    assert [await mailbox.get() for _ in range(4)] == [1, 2, None, None]


async def test_end_with_an_error_comes_after_what_is_queued_and_abort_before() -> None:
    mailbox = box()
    mailbox.put_nowait(1)
    mailbox.finish(ABORTED)
    mailbox.finish()
    assert await mailbox.get() == 1
    with pytest.raises(RpcError, match="no more"):
        await mailbox.get()
    mailbox = box()
    mailbox.put_nowait(1)
    mailbox.abort(ABORTED)
    with pytest.raises(RpcError, match="no more"):
        await mailbox.get()


async def test_waiting_receiver_gets_the_item_and_loses_none_when_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    mailbox = box()
    with trio.move_on_after(1) as scope:
        await mailbox.get()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        got: list[Any] = []

        async def receive() -> None:
            got.append(await mailbox.get())

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        # Woken and cancelled at once: the item stays for the next one.
        mailbox.put_nowait("kept")
        nursery.cancel_scope.cancel()
    assert got in (["kept"], [])
    if not got:
        assert await mailbox.get() == "kept"


async def test_sender_waits_for_room_and_for_its_turn(autojump_clock: trio.testing.MockClock) -> None:
    mailbox = box(1)
    mailbox.put_nowait(1)
    assert mailbox.is_busy()
    with trio.move_on_after(1) as scope:
        await mailbox.wait_room(1)
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.wait_room, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert await mailbox.get() == 1
    assert [box(1000).is_busy() for _ in range(3)] == [False] * 3
    roomy = box(1000)
    assert [roomy.is_busy() for _ in range(MESSAGES_PER_CHECKPOINT)].count(True) == 1
    mailbox.put_nowait(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.wait_room, 1)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.abort(ABORTED)


async def test_two_receivers_are_a_mistake() -> None:
    mailbox = box()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.get)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await mailbox.get()
        nursery.cancel_scope.cancel()


def test_consumer_gets_what_waits_then_what_comes_then_the_end() -> None:
    mailbox, consumer = box(3), Collecting()
    mailbox.put_nowait(1)
    mailbox.set_consumer(consumer)
    mailbox.put_nowait(2)
    mailbox.pause()
    mailbox.put_nowait(3)
    mailbox.put_nowait(4)
    mailbox.finish(ABORTED)
    assert consumer.got == [1, 2]
    mailbox.resume()
    assert consumer.got == [1, 2, 3, 4, ABORTED]
    mailbox.finish()
    assert consumer.got[-1] is ABORTED


def test_consumer_set_after_the_end_is_told_at_once() -> None:
    mailbox, consumer = box(), Collecting()
    mailbox.put_nowait(1)
    mailbox.finish()
    mailbox.set_consumer(consumer)
    assert consumer.got == [1, None]


def test_consumer_that_raises_ends_the_call_as_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    broken: list[bool] = []
    consumer = Collecting()
    mailbox = Mailbox(2, 1000, size_of=int, on_broken_consumer=lambda: broken.append(True))
    mailbox.set_consumer(consumer)
    mailbox.put_nowait("boom")
    assert broken == [True]
    assert mailbox.ended
    (end,) = consumer.got
    assert end.code is StatusCode.INTERNAL
    assert "ZeroDivisionError" in caplog.text


def test_consumer_may_pause_itself() -> None:
    class Pausing(Collecting):
        def on_message(self, message: Any) -> None:
            super().on_message(message)
            mailbox.pause()

    mailbox, consumer = box(3), Pausing()
    for number in range(3):
        mailbox.put_nowait(number)
    mailbox.set_consumer(consumer)
    assert consumer.got == [0]
    mailbox.resume()
    assert consumer.got == [0, 1]
    mailbox.finish()
    mailbox.resume()
    mailbox.resume()
    assert consumer.got == [0, 1, 2, None]


@pytest.mark.parametrize("how", ["resumes", "ends the call", "fails"])
def test_consumer_hears_of_the_end_once(how: str) -> None:
    """Whatever it does while it is given what waited at the end."""

    class Meddling(Collecting):
        def on_message(self, message: Any) -> None:
            super().on_message(message)
            if how == "resumes":
                mailbox.pause()
                mailbox.resume()
            elif how == "ends the call":
                mailbox.abort(ABORTED)
            else:
                raise ValueError

    mailbox = Mailbox(3, 1000, size_of=int, on_broken_consumer=lambda: None)
    consumer = Meddling()
    for number in range(3):
        mailbox.put_nowait(number)
    mailbox.finish()
    mailbox.set_consumer(consumer)
    if how == "resumes":
        assert consumer.got == [0, 1, 2, None]
    else:
        assert consumer.got[0] == 0
        (end,) = consumer.got[1:]
        assert end.code is (ABORTED.code if how == "ends the call" else StatusCode.INTERNAL)


def test_a_consumer_that_resumes_each_time_needs_no_depth() -> None:
    class Resuming(Collecting):
        def on_message(self, message: Any) -> None:
            super().on_message(message)
            mailbox.pause()
            mailbox.resume()

    mailbox, consumer = box(10_000), Resuming()
    for _ in range(5000):
        mailbox.put_nowait(0)
    mailbox.set_consumer(consumer)
    assert len(consumer.got) == 5000


def test_bytes_are_bounded_but_for_a_single_item() -> None:
    mailbox = box(10, 100)
    mailbox.put_nowait(1000)  # alone
    with pytest.raises(trio.WouldBlock):
        mailbox.put_nowait(1)
    mailbox.set_consumer(Collecting())  # takes it
    mailbox.pause()
    for size in (60, 30, 10):
        mailbox.put_nowait(size)
    with pytest.raises(trio.WouldBlock):
        mailbox.put_nowait(1)
    mailbox.put_nowait(0)
    mailbox.abort(ABORTED)


def test_an_item_that_waits_alone_is_never_measured() -> None:
    measured: list[int] = []

    def size_of(item: int) -> int:
        measured.append(item)
        return item

    mailbox, consumer = Mailbox(10, 100, size_of=size_of, on_broken_consumer=lambda: None), Collecting()
    mailbox.put_nowait(1)
    mailbox.set_consumer(consumer)
    for number in range(10):
        mailbox.put_nowait(number)
    assert (len(consumer.got), measured) == (11, [])
    mailbox.pause()
    mailbox.put_nowait(5)
    mailbox.put_nowait(6)
    mailbox.put_nowait(7, 7)
    assert measured == [6, 5]


async def test_senders_get_their_turns_in_order() -> None:
    """A large item is not overtaken for ever by small ones, and small ones share the room that it leaves."""
    mailbox = box(10, 100)
    mailbox.put_nowait(50)
    mailbox.put_nowait(50)
    sent: list[int] = []

    async def send(size: int) -> None:
        await mailbox.wait_room(size)
        mailbox.put_nowait(size)
        sent.append(size)

    async with trio.open_nursery() as nursery:
        for size in (90, 5, 4, 3):
            nursery.start_soon(send, size)
            await trio.testing.wait_all_tasks_blocked()
        assert await mailbox.get() == 50
        await trio.testing.wait_all_tasks_blocked()
        assert sent == []  # the others would fit
        assert await mailbox.get() == 50
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [90, 5, 4]
        assert [await mailbox.get() for _ in range(3)] == [90, 5, 4]
    assert sent == [90, 5, 4, 3]


async def test_a_sender_that_gives_up_leaves_its_turn_to_the_next() -> None:
    mailbox = box(10, 100)
    mailbox.put_nowait(100)
    done: list[int] = []

    async def wait(size: int) -> None:
        await mailbox.wait_room(size)  # and then it does not put anything
        done.append(size)

    async with trio.open_nursery() as nursery:
        for size in (50, 60, 70):
            nursery.start_soon(wait, size)
            await trio.testing.wait_all_tasks_blocked()
        assert await mailbox.get() == 100
    assert done == [50, 60, 70]
