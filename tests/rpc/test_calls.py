"""Calls on every way to a server: a socket, and the own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import RPCSignature, Service

from tests.rpc.test_liveness import MemoryListener
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc import CallOpener, Channel, ClientCall, InProcessChannel, Method, ServerCall, SharedMessage, serve
from trio_cogment.rpc.calls import ReplyConsumer
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, SUM, CheckService

BOTH = pytest.mark.parametrize("way", ["socket", "process"])


@asynccontextmanager
async def channel_to(service: Service, way: str) -> AsyncIterator[CallOpener]:
    with trio.fail_after(30):
        if way == "process":
            async with InProcessChannel([service]) as in_process:
                yield in_process
            return
        listener = MemoryListener()
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, [service], [listener])
            async with Channel.over(listener.connect) as channel:
                yield channel
            nursery.cancel_scope.cancel()


@BOTH
async def test_a_call_can_be_entered_once(way: str) -> None:
    async with channel_to(CheckService().service(), way) as channel:
        call = channel.call(ECHO)
        async with call:
            with pytest.raises(RuntimeError, match="once"):
                await call.__aenter__()
            await call.send(Action(tick_id=1))
            assert (await call.receive()).tick_id == 1
        with pytest.raises(RuntimeError, match="once"):
            await call.__aenter__()


SENDERS: dict[str, Callable[[ClientCall, Any], Awaitable[None] | None]] = {
    "send": lambda call, message: call.send(message),
    "send_nowait": lambda call, message: call.send_nowait(message),
    "send_together": lambda call, message: call.send_together([message, message]),
    "send_together_nowait": lambda call, message: call.send_together_nowait([message, message]),
    "hand_over": lambda call, message: call.hand_over(message),
    "hand_over_nowait": lambda call, message: call.hand_over_nowait(message),
    "send_shared": lambda call, message: call.send_shared(shared(message)),
    "send_shared_nowait": lambda call, message: call.send_shared_nowait(shared(message)),
}


def shared(message: Any) -> SharedMessage:
    """Return a message that shares none of its bytes."""
    return SharedMessage(type(message), b"", message.SerializeToString())


async def sent(name: str, call: ClientCall, message: Any) -> None:
    waiting = SENDERS[name](call, message)
    if waiting is not None:
        await waiting


@BOTH
@pytest.mark.parametrize("name", SENDERS)
async def test_sending_after_the_end_of_sending_is_the_callers_mistake(way: str, name: str) -> None:
    """And the call goes on: what was sent before is answered."""
    async with channel_to(CheckService().service(), way) as channel, channel.call(SUM) as call:
        await call.send(Action(tick_id=3))
        await call.send(Action(tick_id=4))
        await call.done_sending()
        with pytest.raises(LocalProtocolError):
            await sent(name, call, Action(tick_id=5))
        await call.done_sending()
        assert (await call.receive()).tick_id == 7
        assert await call.receive() is None


@BOTH
@pytest.mark.parametrize("name", SENDERS)
async def test_a_message_of_another_type_is_the_callers_mistake(way: str, name: str) -> None:
    async with channel_to(CheckService().service(), way) as channel, channel.call(ECHO) as call:
        with pytest.raises(LocalProtocolError, match="expected"):
            await sent(name, call, Observation())
        await sent(name, call, Action(tick_id=2))
        assert (await call.receive()).tick_id == 2


@BOTH
@pytest.mark.parametrize("name", SENDERS)
@pytest.mark.parametrize("ends_with", [None, StatusCode.NOT_FOUND])
async def test_sending_into_a_call_that_has_ended_says_what_it_ended_with(
    way: str, name: str, ends_with: StatusCode | None
) -> None:
    async def end(call: ServerCall) -> None:
        if ends_with is not None:
            raise RpcError(ends_with, "that is how it ends")

    async with channel_to(only(ECHO, end), way) as channel, channel.call(ECHO) as call:
        if ends_with is None:
            assert await call.receive() is None
        else:
            with pytest.raises(RpcError):
                await call.receive()
        with pytest.raises(RpcError) as caught:
            await sent(name, call, Action())
        assert caught.value.code is (ends_with or StatusCode.CANCELLED)


WAITING_SENDERS = {"send": 1, "send_together": 2}


async def send_until_it_fails(name: str, call: ClientCall, size: int) -> None:
    while True:
        await sent(name, call, Action(content=bytes(size)))


@BOTH
@pytest.mark.parametrize("name", WAITING_SENDERS)
@pytest.mark.parametrize("ends_with", [StatusCode.NOT_FOUND, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED])
async def test_who_waits_for_room_learns_what_the_call_has_ended_with(
    way: str, name: str, ends_with: StatusCode, autojump_clock: trio.testing.MockClock
) -> None:
    """By its handler, its caller or its timeout."""
    ends = trio.Event()

    async def end(call: ServerCall) -> None:
        await call.send_initial_metadata()
        await ends.wait()
        raise RpcError(ends_with, "that is how it ends")

    async with channel_to(only(ECHO, end), way) as channel, channel.call(ECHO, timeout=20) as call:
        async with trio.open_nursery() as nursery:

            async def fill() -> None:
                with pytest.raises(RpcError) as caught:
                    await send_until_it_fails(name, call, 100_000)
                assert caught.value.code is ends_with

            for _ in range(3):
                nursery.start_soon(fill)
            await trio.testing.wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 3
            if ends_with is StatusCode.NOT_FOUND:
                ends.set()
            elif ends_with is StatusCode.CANCELLED:
                call.cancel()
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is ends_with


@BOTH
@pytest.mark.parametrize("name", WAITING_SENDERS)
@pytest.mark.parametrize("size", [10, 100_000])
async def test_after_the_end_of_sending_nothing_is_sent_by_those_who_had_begun(way: str, name: str, size: int) -> None:
    """Whether they waited for room, or only let others run."""
    ends = trio.Event()
    received = 0

    async def count(call: ServerCall) -> None:
        nonlocal received
        await call.send_initial_metadata()
        await ends.wait()
        async for message in call:
            assert isinstance(message, Action)
            received += 1

    async with channel_to(only(ECHO, count), way) as channel, channel.call(ECHO) as call:
        await call.wait_initial_metadata()
        async with trio.open_nursery() as nursery:

            async def fill() -> None:
                with pytest.raises((LocalProtocolError, RpcError)):
                    await send_until_it_fails(name, call, size)

            nursery.start_soon(fill)
            if size > 1000:
                await trio.testing.wait_all_tasks_blocked()
            else:
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
            assert nursery.child_tasks
            await call.done_sending()
            ends.set()
            assert await call.receive() is None
        assert received


@BOTH
@pytest.mark.parametrize("ends_with", [StatusCode.NOT_FOUND, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED])
async def test_who_waits_for_the_first_metadata_learns_that_none_come(
    way: str, ends_with: StatusCode, autojump_clock: trio.testing.MockClock
) -> None:
    """What the handler says with an error is there, though nothing went before it."""
    ends = trio.Event()

    async def end(call: ServerCall) -> None:
        await ends.wait()
        raise RpcError(ends_with, "that is how it ends")

    async with channel_to(only(ECHO, end), way) as channel, channel.call(ECHO, timeout=20) as call:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                if ends_with is StatusCode.NOT_FOUND:
                    assert await call.wait_initial_metadata() == ()
                    return
                with pytest.raises(RpcError) as caught:
                    await call.wait_initial_metadata()
                assert caught.value.code is ends_with

            for _ in range(3):
                nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 3
            if ends_with is StatusCode.NOT_FOUND:
                ends.set()
            elif ends_with is StatusCode.CANCELLED:
                call.cancel()
        await wait()  # and who asks later, as well
        assert call.initial_metadata == (() if ends_with is StatusCode.NOT_FOUND else None)


def only(method: Method, handler: Callable[[ServerCall], Awaitable[None]]) -> Service:
    """Return a service with one method."""
    _, service_name, name = method.path.split("/")
    service = Service(service_name)

    async def function(call: ServerCall) -> None:
        await handler(call)

    service.add_method(name, function, RPCSignature(method.cardinality, method.request_type, method.response_type))
    return service


class Scripted:
    """A call that is answered as it is told, whatever is sent; raises those that are exceptions."""

    def __init__(self, sending: Exception | None, replies: list[Any]) -> None:
        self._sending = sending
        self._replies = replies
        self.left = False

    async def __aenter__(self) -> Scripted:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left = True

    async def send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        if self._sending is not None:
            raise self._sending

    async def done_sending(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive(self) -> Any:
        await trio.lowlevel.checkpoint()
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


class Opener(CallOpener):
    """Opens a single call."""

    def __init__(self, scripted: Scripted) -> None:
        self.scripted = scripted

    def call(self, method: Method, **_: object) -> Any:
        return self.scripted


CANCELLED = RpcError(StatusCode.CANCELLED, "the call has ended")
TOO_LARGE = RpcError(StatusCode.RESOURCE_EXHAUSTED, "message of 10 bytes is larger than 5 allowed to send")
REFUSED = RpcError(StatusCode.PERMISSION_DENIED, "refused before the request was read")
REPLY = Observation(tick_id=1)


@pytest.mark.parametrize(
    ("sending", "replies", "expected"),
    [
        (None, [REPLY, None], REPLY),
        (CANCELLED, [REPLY, None], REPLY),  # it was answered before the request was read
        (CANCELLED, [REFUSED], REFUSED),
        (CANCELLED, [CANCELLED], CANCELLED),
        (TOO_LARGE, [], TOO_LARGE),  # the call is not waited for: nothing was asked
        (REFUSED, [], REFUSED),
        (None, [None], StatusCode.UNIMPLEMENTED),
        (None, [REPLY, REPLY], StatusCode.UNIMPLEMENTED),
        (None, [REPLY, REFUSED], REFUSED),
    ],
)
async def test_what_comes_of_a_unary_call(sending: Exception | None, replies: list[Any], expected: Any) -> None:
    """The status of the server says more than the send that failed because of it."""
    opener = Opener(Scripted(sending, [*replies]))
    if expected is REPLY:
        assert await opener.unary(ECHO_ONE, Action()) is REPLY
    else:
        with pytest.raises(RpcError) as caught:
            await opener.unary(ECHO_ONE, Action())
        if isinstance(expected, RpcError):
            assert caught.value is expected
        else:
            assert caught.value.code is expected
    assert opener.scripted.left


@pytest.mark.parametrize(
    ("messages", "end", "expected"),
    [
        ([REPLY], None, REPLY),
        ([], None, "no response message"),
        ([REPLY, REPLY], None, "more than one response message"),
        ([REPLY], REFUSED, REFUSED.message),
        ([], REFUSED, REFUSED.message),
    ],
)
def test_what_a_reply_consumer_passes_on(messages: list[Any], end: RpcError | None, expected: Any) -> None:
    told: list[tuple[Any, RpcError | None]] = []
    consumer = ReplyConsumer(ECHO_ONE, lambda reply, error: told.append((reply, error)))
    for message in messages:
        consumer.on_message(message)
    assert told == []
    consumer.on_end(end)
    ((reply, error),) = told
    if expected is REPLY:
        assert (reply, error) == (REPLY, None)
    else:
        assert reply is None
        assert error is not None
        assert expected in error.message
        assert error.code is (StatusCode.UNIMPLEMENTED if end is None else end.code)


@BOTH
@pytest.mark.parametrize("by_message", [False, True])
async def test_what_goes_with_the_headers_is_refused_once_they_have_gone(way: str, by_message: bool) -> None:
    seen: list[tuple[int, tuple[int, int]]] = []

    async def answer(call: ServerCall) -> None:
        call.set_initial_metadata({"a": "not this"})
        call.set_initial_metadata({"a": "1"})
        call.set_compression("gzip")
        if by_message:
            await call.send(Observation(tick_id=1))
        else:
            await call.send_initial_metadata()
            await call.send_initial_metadata()
        with pytest.raises(LocalProtocolError, match="headers have"):
            call.set_initial_metadata({"a": "2"})
        with pytest.raises(LocalProtocolError, match="headers have"):
            call.set_compression("gzip")
        call.set_trailing_metadata({"b": "3"})
        seen.append((call.batch, call.under_way()))

    async with channel_to(only(ECHO, answer), way) as channel, channel.call(ECHO) as call:
        assert await call.wait_initial_metadata() == (("a", "1"),)
        messages = [message async for message in call]
        assert messages == [Observation(tick_id=1)] * by_message
        assert call.trailing_metadata == (("b", "3"),)
    if way == "process":
        assert seen == [(0, (0, 0))]
    else:
        assert seen[0][0] > 0


OPERATIONS: dict[str, Callable[[ClientCall], Awaitable[Any]]] = {
    "send": lambda call: call.send(Action(tick_id=9)),
    "hand_over": lambda call: call.hand_over(Action(tick_id=9)),
    "send_together": lambda call: call.send_together([Action(tick_id=9)]),
    "done_sending": lambda call: call.done_sending(),
    "receive": lambda call: call.receive(),
    "wait_initial_metadata": lambda call: call.wait_initial_metadata(),
}


@BOTH
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_cancelled_before_it_begins_an_operation_does_nothing(way: str, operation: str) -> None:
    """Each time, though it need not wait: nothing is sent, ended or lost."""
    async with channel_to(CheckService().service(), way) as channel, channel.call(ECHO) as call:
        await call.send(Action(tick_id=1))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(40):
            with trio.CancelScope() as scope:
                scope.cancel()
                await OPERATIONS[operation](call)
                pytest.fail("it is no checkpoint")
        assert (await call.receive()).tick_id == 1
        await call.send(Action(tick_id=2))
        await call.done_sending()
        assert [reply.tick_id async for reply in call] == [2]


@BOTH
@pytest.mark.parametrize("name", ["send_nowait", "hand_over_nowait", "send_together_nowait"])
async def test_without_waiting_no_more_is_taken_than_there_is_room_for(way: str, name: str) -> None:
    """What was refused has not been sent; what was taken arrives."""
    reads = trio.Event()
    received: list[int] = []

    async def read(call: ServerCall) -> None:
        await call.send_initial_metadata()
        await reads.wait()
        received.extend([message.tick_id async for message in call])

    async with channel_to(only(ECHO, read), way) as channel, channel.call(ECHO) as call:
        await call.wait_initial_metadata()
        taken: list[int] = []

        async def fill() -> None:
            while len(taken) < 100_000:
                await sent(name, call, Action(tick_id=len(taken), content=bytes(1000)))
                taken.extend([len(taken)] * (2 if name == "send_together_nowait" else 1))

        with pytest.raises(trio.WouldBlock):
            await fill()
        with pytest.raises(trio.WouldBlock):
            await sent(name, call, Action(content=bytes(1000)))
        await call.done_sending()
        reads.set()
        assert await call.receive() is None
    assert received == taken


@BOTH
async def test_at_the_deadline_the_caller_finds_the_same_whoever_notices_first(
    way: str, autojump_clock: trio.testing.MockClock
) -> None:
    """The handler and the watch of the caller are woken in the same turn, in any order. What is unread is dropped."""

    async def answer(call: ServerCall) -> None:
        await call.send(Observation(tick_id=1))
        await call.send(Observation(tick_id=2))
        await trio.sleep_forever()

    async with channel_to(only(ECHO, answer), way) as channel:
        for _ in range(20):
            async with channel.call(ECHO, timeout=0.5) as call:
                assert (await call.receive()).tick_id == 1
                await trio.sleep(0.6)
                with pytest.raises(RpcError) as caught:
                    await call.receive()
                assert caught.value.code is StatusCode.DEADLINE_EXCEEDED


@BOTH
async def test_a_call_that_its_caller_leaves_is_over_while_its_handler_cleans_up(way: str) -> None:
    entered, left = trio.Event(), trio.Event()
    seen: list[StatusCode] = []

    async def wait(call: ServerCall) -> None:
        call.send_nowait(Observation())
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            with pytest.raises(RpcError) as caught:
                call.send_nowait(Observation())
            seen.append(caught.value.code)
            left.set()

    async with channel_to(only(ECHO, wait), way) as channel:
        async with channel.call(ECHO):
            await entered.wait()
        await left.wait()
    assert seen == [StatusCode.CANCELLED]


@BOTH
async def test_a_call_that_is_kept_after_its_handler_has_ended_is_cancelled(way: str) -> None:
    kept: list[ServerCall] = []

    async def end(call: ServerCall) -> None:
        kept.append(call)

    async with channel_to(only(ECHO, end), way) as channel, channel.call(ECHO) as call:
        assert await call.receive() is None
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RpcError) as caught:
            await kept[0].receive()
        assert caught.value.code is StatusCode.CANCELLED


@BOTH
@pytest.mark.parametrize("copied", [False, True])
async def test_an_answer_that_is_handed_over_is_the_callers(way: str, copied: bool) -> None:
    """One that is sent is not: the handler may change it afterwards."""
    changed = trio.Event()

    async def answer(call: ServerCall) -> None:
        for tick in (1, 2):
            reply = Observation(tick_id=tick)
            if copied:
                call.send_nowait(reply)
            else:
                call.hand_over_nowait(reply, reply.ByteSize())
            reply.tick_id += 10
        changed.set()

    async with channel_to(only(ECHO, answer), way) as channel, channel.call(ECHO) as call:
        await changed.wait()
        found = [reply.tick_id async for reply in call]
        assert found == ([1, 2] if copied or way == "socket" else [11, 12])
