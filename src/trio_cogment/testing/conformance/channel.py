"""A conformance kit for the call interface: what holds over HTTP/2 holds in process, and for anybody's own transport.

`check_channel` runs every case against a channel that it has made for it. A case is a coroutine function taking a
`CallOpener` that reaches the services of this module; it asserts, and says nothing when all is well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio
import trio.testing
from purerpc import Service

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import UNEXPECTED_FAILURE, LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc.calls import CallOpener
from trio_cogment.testing.conformance._channel_limits import CASES as _LIMIT_CASES
from trio_cogment.testing.conformance._channel_receiving import CASES as _RECEIVING_CASES
from trio_cogment.testing.conformance.channel_service import COUNT as COUNT
from trio_cogment.testing.conformance.channel_service import ECHO as ECHO
from trio_cogment.testing.conformance.channel_service import ECHO_ONE as ECHO_ONE
from trio_cogment.testing.conformance.channel_service import FAIL as FAIL
from trio_cogment.testing.conformance.channel_service import FLOOD as FLOOD
from trio_cogment.testing.conformance.channel_service import MUTATE as MUTATE
from trio_cogment.testing.conformance.channel_service import NOWHERE as NOWHERE
from trio_cogment.testing.conformance.channel_service import PUSHED as PUSHED
from trio_cogment.testing.conformance.channel_service import SECRET, Collector, expect
from trio_cogment.testing.conformance.channel_service import SUM as SUM
from trio_cogment.testing.conformance.channel_service import WAIT as WAIT
from trio_cogment.testing.conformance.channel_service import CheckService as CheckService

MakeChannel = Callable[[list[Service]], AbstractAsyncContextManager[CallOpener]]
"""Serves the given services and opens a channel to them, for the duration of the block."""

_PATIENCE_SECONDS = 10.0
_LARGE_BYTES = 3 * 1024 * 1024
#: Below and above every size from which on a transport copies less; what waits of them fits into a call.
_MUTATED_BYTES = (8, 20 * 1024, 100 * 1024)


# --- the cases ---


async def unary_unary(channel: CallOpener, service: CheckService) -> None:
    """One message each way; an empty one is a message too."""
    reply = await channel.unary(ECHO_ONE, Action(tick_id=7, content=b"seven"))
    assert (reply.tick_id, reply.content) == (7, b"seven")
    assert await channel.unary(ECHO_ONE, Action()) == Observation()


async def unary_stream(channel: CallOpener, service: CheckService) -> None:
    """Many back, in order; then None, and None again."""
    async with channel.call(COUNT) as call:
        await call.send(Action(tick_id=100))
        await call.done_sending()
        assert [message.tick_id async for message in call] == list(range(100))
        assert await call.receive() is None
        assert await call.receive() is None


async def stream_unary(channel: CallOpener, service: CheckService) -> None:
    """Many out, one back."""
    async with channel.call(SUM) as call:
        for number in range(100):
            await call.send(Action(tick_id=number))
        await call.done_sending()
        reply = await call.receive()
        assert reply.tick_id == sum(range(100))
        assert await call.receive() is None


async def stream_stream(channel: CallOpener, service: CheckService) -> None:
    """Ping-pong; half-close ends it."""
    async with channel.call(ECHO) as call:
        for number in range(20):
            await call.send(Action(tick_id=number))
            assert (await call.receive()).tick_id == number
        await call.done_sending()
        assert await call.receive() is None


async def no_messages(channel: CallOpener, service: CheckService) -> None:
    """A stream without messages in either direction ends well."""
    async with channel.call(ECHO) as call:
        await call.done_sending()
        assert await call.receive() is None


async def many_calls_at_once(channel: CallOpener, service: CheckService) -> None:
    """Calls beside each other do not mix."""

    async def one(number: int) -> None:
        async with channel.call(ECHO) as call:
            for step in range(10):
                await call.send(Action(tick_id=number * 100 + step))
                assert (await call.receive()).tick_id == number * 100 + step

    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(one, number)


async def metadata_both_ways(channel: CallOpener, service: CheckService) -> None:
    """Repeated names keep their order; `-bin` carries any bytes; names are lower-cased."""
    binary = [("x-raw-bin", b"\x00\x01\xfe,"), ("x-raw-bin", b"")]
    sent: list[tuple[str, str | bytes]] = [("x-a", "1"), ("X-Text", "text"), ("x-a", "2"), *binary]
    async with channel.call(ECHO_ONE, metadata=sent) as call:
        await call.send(Action())
        await call.done_sending()
        initial = await call.wait_initial_metadata()
        assert initial.all("x-a") == ["1", "2"]
        assert initial.all("x-raw-bin") == [b"\x00\x01\xfe,", b""]
        assert initial.first("x-text") == "text"
        assert initial == call.initial_metadata
        assert await call.receive() is not None
        assert await call.receive() is None
        trailing = call.trailing_metadata
        assert trailing is not None
        assert trailing.first("t-end") == "done"
        assert trailing.first("t-bin") == b"\x00\xff"


async def statuses(channel: CallOpener, service: CheckService) -> None:
    """Every failure has its code and its text; the text of a bug stays here."""
    error = await expect(StatusCode.NOT_FOUND, channel.unary(FAIL, Action(content=b"known")))
    assert error.message == "no such thing: ä%\n"
    assert ("t-why", "asked") in error.trailing_metadata
    error = await expect(StatusCode.DATA_LOSS, channel.unary(FAIL, Action(content=b"custom")))
    assert error.message == "custom"
    assert ("t-extra", "1") in error.trailing_metadata
    await expect(StatusCode.UNIMPLEMENTED, channel.unary(NOWHERE, Action()))


async def bug_in_handler(channel: CallOpener, service: CheckService) -> None:
    """An unexpected exception is UNKNOWN with the fixed text, and the next call works."""
    error = await expect(StatusCode.UNKNOWN, channel.unary(FAIL, Action(content=b"bug")))
    assert error.message == UNEXPECTED_FAILURE
    assert SECRET not in repr(error.args) + repr(error.trailing_metadata)
    await unary_unary(channel, service)


async def deadline(channel: CallOpener, service: CheckService) -> None:
    """A call's timeout ends it on both sides; the handler knows it from the start."""

    async def call_and_wait() -> None:
        async with channel.call(WAIT, timeout=0.05) as call:
            await call.receive()

    await expect(StatusCode.DEADLINE_EXCEEDED, call_and_wait())
    if service.entered.is_set():
        await service.cancelled.wait()
    before = trio.current_time()
    await channel.unary(ECHO_ONE, Action(), timeout=5)
    assert before + 4 < service.deadline < trio.current_time() + 5.1
    await channel.unary(ECHO_ONE, Action())
    assert service.deadline > before + 5.1  # the nearest then is the kit's own patience


async def outer_deadline(channel: CallOpener, service: CheckService) -> None:
    """The caller's own scope is told to the peer, and its cancellation is nobody's error."""
    with trio.move_on_after(0.05) as scope:
        async with channel.call(WAIT) as call:
            await call.receive()
    assert scope.cancelled_caught or trio.current_time() >= scope.deadline
    if service.entered.is_set():
        await service.cancelled.wait()


async def leaving_cancels(channel: CallOpener, service: CheckService) -> None:
    """Leaving the block early cancels the handler's scope."""
    async with channel.call(WAIT) as call:
        await call.wait_initial_metadata()
        await service.entered.wait()
        assert not service.cancelled.is_set()
    await service.cancelled.wait()


async def cancel_from_another_task(channel: CallOpener, service: CheckService) -> None:
    """`cancel` wakes waiting tasks with CANCELLED; later operations raise it, too."""
    async with channel.call(WAIT) as call, trio.open_nursery() as nursery:
        await service.entered.wait()
        nursery.start_soon(expect, StatusCode.CANCELLED, call.receive())
        await trio.testing.wait_all_tasks_blocked()
        call.cancel()
        await service.cancelled.wait()
        await expect(StatusCode.CANCELLED, call.receive())
        await expect(StatusCode.CANCELLED, call.send(Action()))


async def consumer_on_the_server(channel: CallOpener, service: CheckService) -> None:
    """A handler that works by push; `on_end` comes once, after the last message."""
    async with channel.call(PUSHED) as call:
        for number in range(20):
            await call.send(Action(tick_id=number))
            assert (await call.receive()).tick_id == number
        await call.done_sending()
        assert await call.receive() is None
    assert service.ends == [None]


async def consumer_learns_of_cancel(channel: CallOpener, service: CheckService) -> None:
    """A consumer whose caller goes away hears an error, once."""
    async with channel.call(PUSHED) as call:
        await call.send(Action(tick_id=1))
        await call.receive()
    await service.ended.wait()
    assert len(service.ends) == 1
    assert service.ends[0] is not None


async def consumer_pause_and_resume(channel: CallOpener, service: CheckService) -> None:
    """A paused consumer gets nothing; resumed, everything in order, and then the end."""
    collector = Collector()
    async with channel.call(COUNT) as call:
        call.set_consumer(collector)
        call.pause()
        await call.send(Action(tick_id=50))
        await call.done_sending()
        await call.wait_initial_metadata()
        await trio.testing.wait_all_tasks_blocked()
        assert collector.messages == []
        assert collector.ends == []
        call.resume()
        await collector.wait_for(lambda: bool(collector.ends))
        assert [message.tick_id for message in collector.messages] == list(range(50))
        assert collector.ends == [None]


async def consumer_gets_what_waits(channel: CallOpener, service: CheckService) -> None:
    """`set_consumer` hands over what came before it."""
    collector = Collector()
    async with channel.call(ECHO) as call:
        await call.send(Action(tick_id=1))
        assert (await call.receive()).tick_id == 1
        await call.send(Action(tick_id=2))
        call.set_consumer(collector)
        await call.done_sending()
        await collector.wait_for(lambda: bool(collector.ends))
        assert [message.tick_id for message in collector.messages] == [2]


async def sending_is_bounded(channel: CallOpener, service: CheckService) -> None:
    """`send_nowait` refuses and `send` waits when the peer does not read; nothing is lost."""
    async with channel.call(FLOOD) as call:
        await call.send(Action())
        await call.done_sending()
        await service.flood_full.wait()
        assert 0 < service.flooded < 100_000
        messages = [message async for message in call]
        assert len(messages) == service.flooded + 1
        assert messages[-1].tick_id == 1


async def client_sending_is_bounded(channel: CallOpener, service: CheckService) -> None:
    """The same in the other direction."""
    sent = 0
    async with channel.call(WAIT) as call:
        await service.entered.wait()
        try:
            while sent < 100_000:
                call.send_nowait(Action(content=bytes(1024)))
                sent += 1
        except trio.WouldBlock:
            pass
        assert 0 < sent < 100_000


async def sending_rules(channel: CallOpener, service: CheckService) -> None:
    """The wrong type, and sending after the half-close, are mistakes of the sender's own."""
    async with channel.call(ECHO) as call:
        for wrong in (call.send(Observation()), _sync(call.send_nowait, Observation())):
            try:
                await wrong
            except LocalProtocolError:
                pass
            else:
                raise AssertionError("a message of the wrong type was taken")
        await call.done_sending()
        try:
            await call.send(Action())
        except (LocalProtocolError, RpcError):
            pass
        else:
            raise AssertionError("a message was taken after done_sending")


async def _sync(function: Callable[..., Any], *args: Any) -> None:
    function(*args)


async def mutation_is_private(channel: CallOpener, service: CheckService) -> None:
    """What one side does to a message after sending or receiving it, the other never sees, small or large."""
    for size in _MUTATED_BYTES:
        original, following = b"o" * size, b"f" * size
        async with channel.call(MUTATE) as call:
            request = Action(tick_id=1, content=original)
            await call.send(request)
            request.content = b"changed"
            response = await call.receive()
            assert (response.tick_id, response.content) == (1, original)
            assert (request.tick_id, request.content) == (1, b"changed")
            await call.send(Action(tick_id=2, content=following))
            response.content = b"changed too"
            second = await call.receive()
            assert (second.tick_id, second.content) == (2, following)
            assert (response.tick_id, response.content) == (1, b"changed too")
            # Also while they wait.
            for number in range(1, 6):
                request.tick_id, request.content = number, bytes([number]) * size
                await call.send(request)
            request.content = b"changed at last"
            replies = [await call.receive() for _ in range(5)]
            assert [reply.content for reply in replies] == [bytes([number]) * size for number in range(1, 6)]
            assert [reply.tick_id for reply in replies] == [1, 2, 3, 4, 5]
            request.content = original
            call.send_nowait(request)
            request.content = b"changed again"
            assert (await call.receive()).content == original


async def large_message(channel: CallOpener, service: CheckService) -> None:
    """A message many times larger than any window, both ways, with small calls beside it."""
    content = bytes(range(256)) * (_LARGE_BYTES // 256)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(unary_unary, channel, service)
        reply = await channel.unary(ECHO_ONE, Action(content=content))
        assert reply.content == content


async def receive_survives_cancel(channel: CallOpener, service: CheckService) -> None:
    """A cancelled `receive` loses no message."""
    async with channel.call(ECHO) as call:
        with trio.CancelScope() as scope:
            scope.cancel()
            await call.receive()
        await call.send(Action(tick_id=1))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_idle, scope)
                await call.wait_initial_metadata()
                scope.cancel()
                await call.receive()
        await call.send(Action(tick_id=2))
        assert (await call.receive()).tick_id == 1
        assert (await call.receive()).tick_id == 2


async def _cancel_when_idle(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)
    scope.cancel()


CASES: tuple[Callable[[CallOpener, CheckService], Awaitable[None]], ...] = (
    unary_unary,
    unary_stream,
    stream_unary,
    stream_stream,
    no_messages,
    many_calls_at_once,
    metadata_both_ways,
    statuses,
    bug_in_handler,
    deadline,
    outer_deadline,
    leaving_cancels,
    cancel_from_another_task,
    consumer_on_the_server,
    consumer_learns_of_cancel,
    consumer_pause_and_resume,
    consumer_gets_what_waits,
    sending_is_bounded,
    client_sending_is_bounded,
    sending_rules,
    mutation_is_private,
    large_message,
    receive_survives_cancel,
    *_RECEIVING_CASES,
    *_LIMIT_CASES,
)


async def check_case(
    make: MakeChannel,
    case: Callable[[CallOpener, CheckService], Awaitable[None]],
    *,
    patience: float = _PATIENCE_SECONDS,
) -> None:
    """Run one of `CASES` against a fresh channel.

    Raises:
        AssertionError: the implementation does not conform.
        trio.TooSlowError: it did not finish within `patience` seconds.
    """
    service = CheckService()
    with trio.fail_after(patience):
        async with make([service.service()]) as channel:
            await case(channel, service)


async def check_channel(make: MakeChannel) -> None:
    """Run every case; each gets a fresh channel from `make`.

    Raises:
        AssertionError: the implementation does not conform; a note names the case.
    """
    for case in CASES:
        try:
            await check_case(make, case)
        except Exception as error:
            error.add_note(f"check_channel: case {case.__name__}")
            raise
