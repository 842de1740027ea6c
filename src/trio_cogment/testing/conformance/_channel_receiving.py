"""Cases of `check_channel`: how received messages are taken, by a task or by a consumer, and how the end is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc.calls import Call, CallOpener, ClientCall
from trio_cogment.testing.conformance.channel_service import (
    COUNT,
    CUT_OFF,
    ECHO,
    FAIL,
    PUSHED,
    CheckService,
    Collector,
    expect,
)


async def _mistake(text: str, attempt: Awaitable[Any]) -> None:
    try:
        await attempt
    except LocalProtocolError as error:
        if text in str(error):
            return
        raise AssertionError(f"expected {text!r}, got {error}") from error
    raise AssertionError(f"a mistake was let through: {text}")


async def _set_consumer(call: Call) -> None:
    call.set_consumer(Collector())


async def _ask(call: ClientCall, request: Action) -> None:
    """Send the only request."""
    await call.send(request)
    await call.done_sending()


async def _over(call: ClientCall) -> None:
    """Wait until the status has come."""
    while call.trailing_metadata is None:
        await trio.testing.wait_all_tasks_blocked(0.001)


async def second_receiver(channel: CallOpener, service: CheckService) -> None:
    """A second task in `receive` is a mistake, and so is a consumer beside the first; the first gets its message."""
    async with channel.call(ECHO) as call:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.receive)
            await trio.testing.wait_all_tasks_blocked(0.001)
            await _mistake("receive: the call has a task that waits in receive", call.receive())
            await _mistake("set_consumer: the call has a task that waits in receive", _set_consumer(call))
            await call.send(Action(tick_id=1))
        await call.send(Action(tick_id=2))
        assert (await call.receive()).tick_id == 2


async def second_consumer(channel: CallOpener, service: CheckService) -> None:
    """A second consumer, and a receiver beside a consumer, are mistakes, also after the end; the first goes on."""
    collector = Collector()
    async with channel.call(ECHO) as call:
        call.set_consumer(collector)
        for tick in (1, 2):
            await _mistake("set_consumer: the call has a consumer", _set_consumer(call))
            await _mistake("receive: the call has a consumer", call.receive())
            await call.send(Action(tick_id=tick))
        await call.done_sending()
        await collector.wait_for_end()
        await _mistake("set_consumer: the call has a consumer", _set_consumer(call))
        await _mistake("receive: the call has a consumer", call.receive())
    assert [message.tick_id for message in collector.messages] == [1, 2]
    assert collector.ends == [None]


async def error_after_messages(channel: CallOpener, service: CheckService) -> None:
    """A failure comes after the messages before it, as a new exception each time; leaving early does not change it."""
    async with channel.call(CUT_OFF) as call:
        await _ask(call, Action(tick_id=3))
        assert [(await call.receive()).tick_id for _ in range(3)] == [0, 1, 2]
        first = await expect(StatusCode.ABORTED, call.receive())
        second = await expect(StatusCode.ABORTED, call.receive())
        assert first is not second
        assert second.trailing_metadata == (("t-why", "asked"),)
    async with channel.call(CUT_OFF) as call:
        await _ask(call, Action(tick_id=3))
        await _over(call)
        call.cancel()
        await expect(StatusCode.ABORTED, call.receive())


async def orderly_end_while_paused(channel: CallOpener, service: CheckService) -> None:
    """A paused consumer is told an orderly end when it resumes, or that it has been cut off."""
    for cancelled in (False, True):
        collector = Collector()
        async with channel.call(ECHO) as call:
            call.pause()
            call.set_consumer(collector)
            await call.done_sending()
            await _over(call)
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert collector.ends == []
            if cancelled:
                call.cancel()
            else:
                call.resume()
        (end,) = collector.ends
        assert end is None if not cancelled else end is not None and end.code is StatusCode.CANCELLED


async def error_while_paused(channel: CallOpener, service: CheckService) -> None:
    """A paused consumer learns of a failure at once, unless messages wait before it."""
    collector = Collector()
    async with channel.call(FAIL) as call:
        call.pause()
        call.set_consumer(collector)
        await _ask(call, Action(content=b"known"))
        await collector.wait_for_end()
    collector = Collector()
    async with channel.call(CUT_OFF) as call:
        call.pause()
        call.set_consumer(collector)
        await _ask(call, Action(tick_id=3))
        await _over(call)
        assert (collector.messages, collector.ends) == ([], [])
        call.resume()
    assert [message.tick_id for message in collector.messages] == [0, 1, 2]
    (end,) = collector.ends
    assert end is not None
    assert end.code is StatusCode.ABORTED


async def cancel_while_paused(channel: CallOpener, service: CheckService) -> None:
    """Cancelling drops what waits for a paused consumer, which is told at once."""
    collector = Collector()
    async with channel.call(COUNT) as call:
        call.pause()
        call.set_consumer(collector)
        await _ask(call, Action(tick_id=3))
        await _over(call)
        call.cancel()
        call.resume()
    assert collector.messages == []
    (end,) = collector.ends
    assert end is not None
    assert end.code is StatusCode.CANCELLED


async def consumer_pauses_itself(channel: CallOpener, service: CheckService) -> None:
    """A consumer that pauses while it is given a message gets the next one when it resumes."""
    collector = Collector()
    async with channel.call(COUNT) as call:
        collector.then = call.pause
        call.set_consumer(collector)
        await _ask(call, Action(tick_id=3))
        for number in range(1, 4):
            await collector.wait_for_messages(number)
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert (len(collector.messages), collector.ends) == (number, [])
            if number == 3:
                await _over(call)
            call.resume()
        await collector.wait_for_end()
    assert collector.ends == [None]


async def consumer_cancels(channel: CallOpener, service: CheckService) -> None:
    """A consumer may end its call; it gets no more messages, and is told once."""
    for waiting in (False, True):
        collector = Collector()
        async with channel.call(COUNT) as call:
            collector.then = call.cancel
            if waiting:
                call.pause()
            call.set_consumer(collector)
            await _ask(call, Action(tick_id=3))
            if waiting:
                await _over(call)
                call.resume()
            await collector.wait_for_end()
        assert [message.tick_id for message in collector.messages] == [0]
        (end,) = collector.ends
        assert end is not None
        assert end.code is StatusCode.CANCELLED


async def failing_consumer(channel: CallOpener, service: CheckService) -> None:
    """A consumer that raises ends its call with INTERNAL, also one that had ended well; it gets no more messages."""

    def fail() -> None:
        raise ValueError("planted in a consumer")

    for waiting in (False, True):
        collector = Collector()
        collector.then = fail
        async with channel.call(COUNT) as call:
            if waiting:
                call.pause()
            call.set_consumer(collector)
            await _ask(call, Action(tick_id=3))
            if waiting:
                await _over(call)
                call.resume()
            await collector.wait_for_end()
            if not waiting:
                await expect(StatusCode.INTERNAL, call.send(Action()))
        assert [message.tick_id for message in collector.messages] == [0]
        (end,) = collector.ends
        _check_failed(end)


async def failing_consumer_on_the_server(channel: CallOpener, service: CheckService) -> None:
    """The same in a handler: its caller is told INTERNAL and no more than that."""
    async with channel.call(PUSHED) as call:
        await call.send(Action(content=b"boom"))
        _check_failed(await expect(StatusCode.INTERNAL, call.receive()))
        await service.ended.wait()
    (end,) = service.ends
    _check_failed(end)


def _check_failed(error: RpcError | None) -> None:
    assert error is not None
    assert (error.code, error.message) == (StatusCode.INTERNAL, "unexpected failure while consuming a message")


CASES: tuple[Callable[[CallOpener, CheckService], Awaitable[None]], ...] = (
    second_receiver,
    second_consumer,
    error_after_messages,
    orderly_end_while_paused,
    error_while_paused,
    cancel_while_paused,
    consumer_pauses_itself,
    consumer_cancels,
    failing_consumer,
    failing_consumer_on_the_server,
)
