"""Unread answers that a client holds: with the calls that have ended, within one budget."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE, encode, frame, message
from tests.rpc.test_channel import OK_HEADERS, RawServer
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, ClientCall, open_listeners, serve
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, CheckService
from trio_cogment.testing.conformance.channel_service import SIZED

BYTES = 60_000
CALLS = 200
CONFIG = RpcConfig(connection_memory_bytes=2**20, connection_window_bytes=2**18)
#: The budget, and what was on its way when it was used up.
MOST = CONFIG.connection_memory_bytes + CONFIG.connection_window_bytes


@asynccontextmanager
async def unread_calls(number: int) -> AsyncIterator[tuple[Channel, list[ClientCall]]]:
    """Calls to a real server, each answered with `BYTES` bytes that nobody has read, as far as they have come."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            services = [CheckService().service()]
            serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
            async with Channel("127.0.0.1", serving.port, config=CONFIG) as channel, AsyncExitStack() as stack:
                calls = [await stack.enter_async_context(channel.call(SIZED)) for _ in range(number)]
                for call in calls:
                    await call.send(Action(tick_id=BYTES))
                    await call.done_sending()
                await trio.testing.wait_all_tasks_blocked(0.2)
                yield channel, calls
            nursery.cancel_scope.cancel()


def answered(calls: list[ClientCall]) -> int:
    return sum(call.trailing_metadata is not None for call in calls)


async def read(call: ClientCall) -> None:
    assert len((await call.receive()).content) == BYTES
    assert await call.receive() is None


async def test_answers_of_ended_calls_are_within_the_budget_until_they_are_read() -> None:
    async with unread_calls(CALLS) as (channel, calls):
        assert 10 < answered(calls) <= MOST // BYTES
        async with trio.open_nursery() as nursery:  # one after the other, the first could be behind all others
            for call in calls:
                nursery.start_soon(read, call)
        assert answered(calls) == CALLS
        assert len((await channel.unary(ECHO_ONE, Action(content=bytes(BYTES)))).content) == BYTES


async def test_leaving_the_calls_gives_the_budget_back() -> None:
    async with unread_calls(CALLS) as (channel, calls):
        for call in calls[: CALLS // 2]:
            call.cancel()
        await trio.testing.wait_all_tasks_blocked(0.2)
        rest = calls[CALLS // 2 :]
        assert 10 < answered(rest) <= MOST // BYTES
        for call in rest:
            call.cancel()
        for _ in range(100):  # more than the budget could hold
            assert len((await channel.unary(ECHO_ONE, Action(content=bytes(BYTES)))).content) == BYTES


async def test_a_consumer_that_is_paused_holds_its_part() -> None:
    class Counting:
        def __init__(self) -> None:
            self.size = 0

        def on_message(self, message: Action) -> None:
            self.size += len(message.content)

        def on_end(self, error: Exception | None) -> None:
            assert error is None

    async with unread_calls(CALLS) as (_, calls):
        consumer = Counting()
        for call in calls:
            call.pause()
            call.set_consumer(consumer)
        assert answered(calls) <= MOST // BYTES
        for call in calls:
            call.resume()
        await trio.testing.wait_all_tasks_blocked(0.2)
        assert consumer.size == CALLS * BYTES


@pytest.mark.parametrize("leaves", [False, True])
async def test_credit_for_what_is_not_read_any_more_leaves_at_once(
    leaves: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """The call has ended, so nothing else is sent that the credit could wait for; and the server waits for it."""
    config = RpcConfig(connection_memory_bytes=65_536, connection_window_bytes=65_535, stream_window_bytes=65_535)
    server = RawServer()
    async with (
        Channel.over(server.connect, config=config) as channel,
        AsyncExitStack() as stack,
        channel.call(ECHO) as goes_on,
    ):
        ended = await stack.enter_async_context(channel.call(ECHO))
        peer = await server.receive.receive()
        await peer.until(lambda: {1, 3} <= peer.answers.keys())
        # Half of the window for the call that has ended; with the other half, all of it is used up.
        await peer.send(
            *[frame(HEADERS, END_HEADERS, stream, encode(OK_HEADERS)) for stream in (1, 3)],
            *[frame(DATA, 0, 3, message(bytes(size))) for size in (16_384 - 5, 16_383 - 5)],
            frame(HEADERS, END_HEADERS | END_STREAM, 3, encode([(b"grpc-status", b"0")])),
        )
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(*[frame(DATA, 0, 1, message(bytes(16_000)))] * 2)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.1):
            await peer.until(lambda: False)
        assert not any(kind == WINDOW_UPDATE for kind, _, _, _ in peer.frames)
        assert ended.trailing_metadata is not None
        assert goes_on.trailing_metadata is None
        if leaves:
            await stack.aclose()
        else:
            ended.cancel()
        with trio.fail_after(1):
            await peer.until(lambda: any(kind == WINDOW_UPDATE and not to for kind, _, to, _ in peer.frames))
        with pytest.raises(RpcError) as caught:
            await ended.receive()
        assert caught.value.code is StatusCode.CANCELLED


async def test_what_is_taken_after_the_end_is_not_counted_any_more() -> None:
    """To the byte: what was left would never be forgotten."""
    server = RawServer()
    with trio.fail_after(10):
        async with Channel.over(server.connect) as channel, channel.call(ECHO) as call:
            peer = await server.receive.receive()
            await call.send(Action())
            replies = [Observation(content=bytes(size)) for size in (0, 100, 7000)]
            data = b"".join(frame(DATA, 0, 1, message(reply.SerializeToString())) for reply in replies)
            await peer.send(frame(HEADERS, 4, 1, encode(OK_HEADERS)), data)
            await peer.send(frame(HEADERS, 5, 1, encode([(b"grpc-status", b"0")])))
            await trio.testing.wait_all_tasks_blocked()
            connection = channel._pool._connections[0]
            unread = connection.engine.window._unread
            assert [stream.held for stream in unread] == [sum(5 + reply.ByteSize() for reply in replies)]
            for reply in replies:
                assert unread
                assert await call.receive() == reply
            assert not unread
            assert await call.receive() is None
