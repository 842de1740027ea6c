"""Trio in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.sdk.bridges.call import Call
from trio_cogment.sdk.bridges.thread import TrioThread

PATIENCE_SECONDS = 30


@asynccontextmanager
async def opened(log: list[str] | None = None) -> AsyncIterator[str]:
    log = [] if log is None else log
    log.append("open")
    try:
        yield "value"
    finally:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        log.append("closed")


def thread_of(log: list[str] | None = None) -> TrioThread[str]:
    return TrioThread(opened(log), "a thread", noun="thing")


async def doubled(number: int, *, plus: int = 0) -> int:
    await trio.lowlevel.checkpoint()
    return 2 * number + plus


def test_something_is_open_from_the_beginning_to_the_end() -> None:
    log: list[str] = []
    thread = thread_of(log)
    assert (thread.value, thread.closed, log) == ("value", False, ["open"])
    assert thread.call(doubled, 4, plus=1) == 9
    assert any(each.name == "a thread" for each in threading.enumerate())
    thread.close()
    thread.close()
    assert (thread.closed, log) == (True, ["open", "closed"])
    assert not any(each.name == "a thread" for each in threading.enumerate())
    with pytest.raises(FailedPreconditionError, match=r"^the thing is closed$"):
        thread.call(doubled, 4)
    with pytest.raises(FailedPreconditionError, match=r"^the thing is closed$"):
        thread.exchange(lambda: None, lambda: True)


def test_what_cannot_be_opened_is_raised() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise KeyError("no")
        yield  # type: ignore[unreachable]  # it makes a generator of it

    with pytest.raises(KeyError, match="no"):
        TrioThread(broken(), "a thread")


def test_what_ends_it_early_is_raised_by_the_first_close() -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[trio.Event]:
        fail = trio.Event()
        yield fail
        raise KeyError("late")

    thread = TrioThread(failing(), "a thread")
    with pytest.raises(KeyError, match="late"):
        thread.close()
    thread.close()


def test_an_exchange_waits_until_it_is_ready() -> None:
    thread = thread_of()
    found: list[str] = []

    async def later() -> None:
        await trio.lowlevel.checkpoint()
        found.append("later")
        thread.notify()

    started = thread.start(later)
    thread.exchange(lambda: found.append("now"), lambda: len(found) == 2)
    assert sorted(found) == ["later", "now"]
    started.wait()

    def fail() -> None:
        raise KeyError("act")

    with pytest.raises(KeyError, match="act"):
        thread.exchange(fail, lambda: False)
    thread.close()


def test_calls_end_with_it() -> None:
    thread = thread_of()
    waiting = thread.start(trio.sleep_forever)
    cancelled = thread.start(trio.sleep_forever)
    cancelled.cancel()
    cancelled.cancel()
    for call in (cancelled, waiting):
        if call is waiting:
            thread.close()
        with pytest.raises(FailedPreconditionError, match=r"^the thing was closed before the call returned$"):
            call.wait()
        assert call.is_over()
    waiting.cancel()  # there is no Trio any more that could be told


def test_an_error_is_raised_as_often_as_it_is_asked_for() -> None:
    async def fail() -> None:
        raise KeyError("no")

    thread = thread_of()
    call = thread.start(fail)
    for _ in range(2):
        with pytest.raises(KeyError, match="no"):
            call.wait()
    thread.close()


def test_its_own_thread_would_wait_for_itself() -> None:
    thread = thread_of()
    refused: list[str] = []

    async def nested() -> None:
        for use in (lambda: thread.call(doubled, 1), lambda: thread.exchange(lambda: None, bool), thread.close):
            try:
                use()
            except FailedPreconditionError as error:
                refused.append(str(error))

    thread.call(nested)
    assert len(refused) == 3
    assert set(refused) == {
        "a blocking call in the thing's own thread would wait for itself; await the asynchronous function"
    }
    thread.close()


def test_it_is_abandoned_from_anywhere_and_closes_by_itself() -> None:
    log: list[str] = []
    thread = thread_of(log)

    async def leave() -> None:
        thread.abandon()

    thread.call(leave)
    assert thread.closed
    thread.close()
    assert log == ["open", "closed"]
    thread.abandon()  # it is harmless


def test_a_forked_process_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = thread_of()
    call = thread.start(trio.sleep_forever)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 0)
        thread_closed = "^the thing was made before this process was forked: make it in the process that uses it$"
        for use in (lambda: thread.call(doubled, 1), lambda: thread.exchange(lambda: None, bool), thread.close):
            with pytest.raises(FailedPreconditionError, match=thread_closed):
                use()
        call.cancel()
    assert not call.is_over()
    assert thread.call(doubled, 1) == 2
    assert not call.is_over()
    call.cancel()
    with pytest.raises(FailedPreconditionError):
        call.wait()
    thread.close()


def test_a_call_that_is_refused_is_over_and_says_so() -> None:
    told: list[str] = []
    call = Call(doubled, (4,), {}, noun="thing", on_end=lambda: told.append("over"))
    assert not call.is_over()
    call.refuse()
    assert call.is_over()
    assert told == ["over"]
    with pytest.raises(FailedPreconditionError, match=r"^the thing was closed before the call returned$"):
        call.result()
