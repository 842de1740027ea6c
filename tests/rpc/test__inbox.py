"""The inbox under every call: its receiver, its consumer, and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc._inbox import Inbox

ABORTED = RpcError(StatusCode.ABORTED, "no more", [("t-why", "asked")])
CANCELLED = RpcError(StatusCode.CANCELLED, "left")


class Owner:
    """A transport without bounds. Taking "broken" ends the call, as an undecodable message does."""

    def __init__(self) -> None:
        self.inbox = Inbox(self, "/a/call")
        self.failed: list[RpcError] = []
        self.deferred = 0

    def defers(self, item: Any) -> bool:
        self.deferred += item == "slow"
        return bool(item == "slow")

    def take(self, item: Any) -> Any:
        if item == "broken":
            self.inbox.abort(ABORTED)
            raise ABORTED
        return item

    def turn_is_over(self) -> bool:
        return True

    def on_consumer_failed(self, error: RpcError) -> None:
        self.failed.append(error)

    def give(self, *items: Any) -> None:
        """Add items as a transport does."""
        for item in items:
            consumer = self.inbox.direct
            if consumer is None:
                self.inbox.put(item)
                continue
            try:
                consumer.on_message(item)
            except ZeroDivisionError:
                self.inbox.consumer_failed()


class Collecting:
    """A consumer that keeps what it gets, fails at "boom", and does `then` after each message."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.got: list[Any] = []
        self._then = then

    def on_message(self, message: Any) -> None:
        if message == "boom":
            raise ZeroDivisionError
        self.got.append(message)
        self._then()

    def on_end(self, error: RpcError | None) -> None:
        self.got.append(error)


@pytest.fixture
def owner() -> Owner:
    return Owner()


# --- a receiver ---


async def test_items_come_in_order_and_then_the_end_again_and_again(owner: Owner) -> None:
    owner.give(1, 2)
    owner.inbox.finish(None)
    owner.give(3)
    assert [await owner.inbox.get() for _ in range(4)] == [1, 2, None, None]


async def test_an_error_comes_after_what_waits_and_each_time_as_a_new_exception(owner: Owner) -> None:
    owner.give(1)
    owner.inbox.finish(ABORTED)
    owner.inbox.finish(None)
    assert await owner.inbox.get() == 1
    with pytest.raises(RpcError, match="no more") as first:
        await owner.inbox.get()
    with pytest.raises(RpcError, match="no more") as second:
        await owner.inbox.get()
    assert first.value is not second.value
    assert second.value.trailing_metadata == ABORTED.trailing_metadata


@pytest.mark.parametrize("first", [None, ABORTED])
async def test_an_abort_drops_what_waits_and_the_first_error_stays(owner: Owner, first: RpcError | None) -> None:
    owner.give(1)
    owner.inbox.finish(first)
    owner.inbox.abort(CANCELLED)
    with pytest.raises(RpcError, match="left" if first is None else "no more"):
        await owner.inbox.get()


async def test_an_abort_after_everything_has_been_read_changes_nothing(owner: Owner) -> None:
    owner.give(1)
    owner.inbox.finish(None)
    assert [await owner.inbox.get() for _ in range(2)] == [1, None]
    owner.inbox.abort(CANCELLED)
    assert await owner.inbox.get() is None


async def test_waiting_receiver_gets_the_item_and_loses_none_when_cancelled(
    owner: Owner, autojump_clock: trio.testing.MockClock
) -> None:
    with trio.move_on_after(1) as scope:
        await owner.inbox.get()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        got: list[Any] = []

        async def receive() -> None:
            got.append(await owner.inbox.get())

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        # Woken and cancelled at once: the item stays for the next one.
        owner.give("kept")
        nursery.cancel_scope.cancel()
    assert got in (["kept"], [])
    if not got:
        assert await owner.inbox.get() == "kept"


async def test_a_broken_item_fails_its_receiver(owner: Owner) -> None:
    owner.give("broken", 1)
    with pytest.raises(RpcError, match="no more"):
        await owner.inbox.get()
    with pytest.raises(RpcError, match="no more"):
        await owner.inbox.get()


# --- mistakes of the caller ---


async def test_a_second_receiver_is_refused(owner: Owner) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(owner.inbox.get)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(LocalProtocolError, match="receive: the call has a task that waits in receive"):
            await owner.inbox.get()
        with pytest.raises(LocalProtocolError, match="set_consumer: the call has a task that waits in receive"):
            owner.inbox.set_consumer(Collecting())
        owner.give(1)


async def test_a_receiver_beside_a_consumer_and_a_second_consumer_are_refused(owner: Owner) -> None:
    owner.inbox.set_consumer(Collecting())
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="receive: the call has a consumer"):
            await owner.inbox.get()
        with pytest.raises(LocalProtocolError, match="set_consumer: the call has a consumer"):
            owner.inbox.set_consumer(Collecting())
        owner.inbox.finish(None)


async def test_a_consumer_that_comes_before_a_receiver_that_was_woken(owner: Owner) -> None:
    """The receiver has not run yet: it is the second then."""
    consumer = Collecting()
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(LocalProtocolError):
                await owner.inbox.get()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        owner.give(1)
        owner.inbox.set_consumer(consumer)
    assert consumer.got == [1]


# --- a consumer ---


def test_a_consumer_gets_what_waits_then_what_comes_then_the_end(owner: Owner) -> None:
    consumer = Collecting()
    owner.give(1)
    owner.inbox.set_consumer(consumer)
    owner.give(2)
    owner.inbox.pause()
    owner.give(3, 4)
    owner.inbox.finish(ABORTED)
    assert consumer.got == [1, 2]
    owner.inbox.resume()
    assert consumer.got == [1, 2, 3, 4, ABORTED]
    owner.inbox.finish(None)
    owner.inbox.abort(CANCELLED)
    owner.inbox.resume()
    owner.give(5)
    assert consumer.got[4:] == [ABORTED]


def test_a_consumer_set_after_the_end_is_told_at_once(owner: Owner) -> None:
    consumer = Collecting()
    owner.give(1)
    owner.inbox.finish(None)
    owner.inbox.set_consumer(consumer)
    assert consumer.got == [1, None]


def test_pause_holds_back_the_orderly_end_but_no_error(owner: Owner) -> None:
    orderly, failed, cut_off = Owner(), Owner(), Owner()
    consumers = [Collecting() for _ in range(3)]
    for each, consumer in zip((orderly, failed, cut_off), consumers, strict=True):
        each.inbox.pause()
        each.inbox.set_consumer(consumer)
    orderly.inbox.finish(None)
    failed.inbox.finish(ABORTED)
    cut_off.give(1)
    cut_off.inbox.finish(None)
    assert [consumer.got for consumer in consumers] == [[], [ABORTED], []]
    cut_off.inbox.abort(CANCELLED)
    orderly.inbox.resume()
    assert [consumer.got for consumer in consumers] == [[None], [ABORTED], [CANCELLED]]


def test_a_paused_consumer_is_told_when_the_end_it_waits_for_is_cut_off(owner: Owner) -> None:
    consumer = Collecting()
    owner.inbox.pause()
    owner.inbox.set_consumer(consumer)
    owner.inbox.finish(None)
    owner.inbox.abort(CANCELLED)
    assert consumer.got == [CANCELLED]


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("over", [False, True])
def test_a_consumer_that_raises_ends_the_call_as_a_bug(
    owner: Owner, waiting: bool, over: bool, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Collecting()
    if waiting:
        owner.give("boom", 1)
        if over:
            owner.inbox.finish(None)
    owner.inbox.set_consumer(consumer)
    if not waiting:
        owner.give("boom", 1)
    (error,) = owner.failed
    assert error.code is StatusCode.INTERNAL
    assert consumer.got == [error]
    assert "ZeroDivisionError" in caplog.text
    assert "/a/call" in caplog.text


def test_a_consumer_that_raises_at_the_end_is_logged(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Collecting):
        def on_end(self, error: RpcError | None) -> None:
            raise ZeroDivisionError

    owner.inbox.set_consumer(Failing())
    owner.inbox.finish(None)
    assert "ZeroDivisionError" in caplog.text
    assert owner.failed == []


def test_a_broken_item_is_the_end_for_a_consumer(owner: Owner) -> None:
    consumer = Collecting()
    owner.give(1, "broken", 2)
    owner.inbox.set_consumer(consumer)
    assert consumer.got == [1, ABORTED]


def test_a_consumer_may_pause_itself(owner: Owner) -> None:
    consumer = Collecting(owner.inbox.pause)
    owner.give(0, 1, 2)
    owner.inbox.set_consumer(consumer)
    assert consumer.got == [0]
    owner.inbox.resume()
    assert consumer.got == [0, 1]
    owner.inbox.finish(None)
    owner.inbox.resume()
    owner.inbox.resume()
    assert consumer.got == [0, 1, 2, None]


@pytest.mark.parametrize("waiting", [False, True])
def test_a_consumer_may_end_the_call_and_hears_of_it_once(owner: Owner, waiting: bool) -> None:
    consumer = Collecting(lambda: owner.inbox.abort(CANCELLED))
    if waiting:
        owner.give(0, 1)
        owner.inbox.finish(None)
    owner.inbox.set_consumer(consumer)
    if not waiting:
        owner.give(0, 1)
    assert consumer.got == [0, CANCELLED]


def test_what_comes_while_a_consumer_is_given_what_waits_comes_after_it(owner: Owner) -> None:
    consumer = Collecting(lambda: owner.give(len(consumer.got)) if len(consumer.got) < 4 else None)
    owner.give("a", "b")
    owner.inbox.set_consumer(consumer)
    assert consumer.got == ["a", "b", 1, 2, 3]


def test_a_consumer_that_resumes_each_time_needs_no_depth(owner: Owner) -> None:
    def pause_and_resume() -> None:
        owner.inbox.pause()
        owner.inbox.resume()

    consumer = Collecting(pause_and_resume)
    owner.give(*range(5000))
    owner.inbox.finish(None)
    owner.inbox.set_consumer(consumer)
    assert consumer.got == [*range(5000), None]


def test_what_is_deferred_comes_later_and_what_follows_behind_it() -> None:
    owner, consumer = Owner(), Collecting()
    owner.give(1, "slow", 2, "slow")
    owner.inbox.set_consumer(consumer)
    assert consumer.got == [1]
    owner.give(3)
    owner.inbox.finish()
    assert (consumer.got, owner.deferred) == ([1], 1)
    owner.inbox.go_on()
    assert (consumer.got, owner.deferred) == ([1, "slow", 2], 2)
    owner.inbox.pause()
    owner.inbox.go_on()
    owner.inbox.resume()  # what waited in vain is deferred again
    assert (consumer.got, owner.deferred) == ([1, "slow", 2], 3)
    owner.inbox.go_on()
    assert consumer.got == [1, "slow", 2, "slow", 3, None]


def test_what_was_deferred_is_dropped_by_an_abort() -> None:
    owner, consumer = Owner(), Collecting()
    owner.give("slow")
    owner.inbox.set_consumer(consumer)
    owner.inbox.abort(ABORTED)
    owner.inbox.go_on()
    assert consumer.got == [ABORTED]
