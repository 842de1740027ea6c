"""Faults that other gRPC implementations on Trio were measured to have, by number; each with a stream beside it.

B1, B5, B7, B8, B13, B15 and B17 are here or, in greater detail, in `test_deadlines` (B8), `test__pool` and
`test_grpcio_long` (B5), `test_listeners` (B14) and `test_tls` (B15).
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST,
    RawPeer,
    encode,
    frame,
    raw_client,
    request_headers,
    settings,
)
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.testing.conformance.channel import COUNT, ECHO, ECHO_ONE, FAIL, FLOOD, SUM, WAIT, CheckService

CANCEL = b"\0\0\0\x08"


@asynccontextmanager
async def served() -> AsyncIterator[tuple[CheckService, Channel]]:
    service = CheckService()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(serve, [service.service()], await open_listeners("127.0.0.1"))
            async with Channel("127.0.0.1", serving.port) as channel:
                yield service, channel
            nursery.cancel_scope.cancel()


async def ping_pong(call: Any, number: int) -> None:
    await call.send(Action(tick_id=number))
    assert (await call.receive()).tick_id == number


async def fail_in_a_call(channel: Channel) -> None:
    async with channel.call(ECHO) as call:
        await ping_pong(call, 1)
        raise KeyError


@pytest.mark.parametrize("how", ["break", "exception", "return from a generator", "cancel"])
async def test_b1_leaving_a_bidirectional_stream_early_harms_nothing(how: str) -> None:
    async with served() as (_, channel), channel.call(ECHO) as neighbour:

        async def replies() -> AsyncIterator[Any]:
            async with channel.call(ECHO) as call:
                await call.send(Action(tick_id=1))
                async for reply in call:
                    yield reply
                    await call.send(Action(tick_id=1))

        for number in range(20):
            if how == "break":
                async with channel.call(ECHO) as call:
                    await call.send(Action(tick_id=1))
                    async for _ in call:
                        break
            elif how == "exception":
                with pytest.raises(KeyError):  # as it was raised, not in a group
                    await fail_in_a_call(channel)
            elif how == "return from a generator":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)  # Trio's, about the user's generator
                    async for _ in replies():  # left open, as users do: its block ends when it is collected
                        break
                await trio.testing.wait_all_tasks_blocked()
            else:
                with trio.CancelScope() as scope:
                    async with channel.call(ECHO) as call:
                        await ping_pong(call, 1)
                        scope.cancel()
                        await call.receive()
                assert scope.cancelled_caught
            await ping_pong(neighbour, number)


async def test_b5_goaway_ping_and_more_on_the_old_connection_are_harmless() -> None:
    """What a server sends after its GOAWAY was fatal once (`RECV_PING in state CLOSED`)."""
    peers: list[RawPeer] = []

    async def connect() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        peers.append(RawPeer(theirs))
        await peers[-1].send(settings())
        return ours

    ok = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", b"0")]
    async with Channel.over(connect) as channel, channel.call(ECHO) as call:
        peer = peers[0]
        await peer.until(lambda: 1 in peer.answers)
        for _ in range(2):
            await peer.send(frame(7, 0, 0, b"\x7f\xff\xff\xff" + bytes(4) + b"max_age"))
            await peer.send(frame(PING, 0, 0, b"shutdown"), settings({4: 1000}), frame(8, 0, 0, b"\0\0\1\0"))
            await peer.until(lambda: (PING, 1, 0, b"shutdown") in peer.frames)
            peer.frames.clear()
        await peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, encode(ok)))
        assert await call.receive() is None
        await peer.until(lambda: False)
        assert peer.eof


async def test_b7_reset_by_the_caller_cancels_its_handler_and_no_other() -> None:
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        await peer.send(peer.headers(1, request_headers()), peer.headers(3, request_headers(path=WAIT.path.encode())))
        await service.entered.wait()
        await peer.send(frame(RST, 0, 3, CANCEL))
        await service.cancelled.wait()
        assert await peer.echo(1, Action(tick_id=3).SerializeToString())


@pytest.mark.parametrize("how", ["leave", "cancel", "scope"])
async def test_b7_an_abandoned_call_is_reset_and_its_handler_cancelled(how: str) -> None:
    async with served() as (service, channel), channel.call(ECHO) as neighbour:
        with trio.CancelScope() as scope:
            async with channel.call(WAIT) as call:
                await service.entered.wait()
                if how == "scope":
                    scope.cancel()
                elif how == "cancel":
                    call.cancel()
                if how != "leave":
                    with pytest.raises(RpcError, match="cancelled by the caller"):
                        await call.receive()
        await service.cancelled.wait()
        await ping_pong(neighbour, 1)


async def test_b7_a_sender_that_waits_for_room_is_cancelled_with_its_call() -> None:
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        await peer.send(peer.headers(1, request_headers()), peer.headers(3, request_headers(path=FLOOD.path.encode())))
        await peer.send(frame(0, END_STREAM, 3, bytes(5)))
        await service.flood_full.wait()
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        await peer.send(frame(RST, 0, 3, CANCEL))
        while trio.lowlevel.current_statistics().tasks_living == before:
            await trio.lowlevel.checkpoint()
        await peer.send(frame(8, 0, 0, b"\0\x0f\0\0"))  # it may have used the connection's window up
        assert await peer.echo(1, Action(tick_id=3).SerializeToString())


async def is_served(channel: Channel) -> bool:
    try:
        await channel.unary(ECHO_ONE, Action())
    except RpcError as error:
        return error.code is not StatusCode.UNAVAILABLE
    return True


async def test_b13_a_server_that_drains_says_so_and_lets_calls_end() -> None:
    service = CheckService()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(serve, [service.service()], await open_listeners("127.0.0.1"))
            async with (
                Channel("127.0.0.1", serving.port) as channel,
                trio.open_nursery() as draining,
                channel.call(ECHO) as call,
            ):
                await ping_pong(call, 1)
                draining.start_soon(serving.drain, 60)
                while await is_served(channel):
                    pass  # until the GOAWAY is there
                await ping_pong(call, 2)
                await call.done_sending()
                assert await call.receive() is None


async def test_b17_no_call_leaves_a_warning() -> None:
    """Every way in which calls end, and the end of channel and server, with warnings as errors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with served() as (_, channel):
            await channel.unary(ECHO_ONE, Action())
            for method in (COUNT, SUM, ECHO, WAIT, FAIL):
                async with channel.call(method) as call:
                    await call.send(Action(tick_id=3))
                async with channel.call(method) as call:
                    await call.done_sending()
                with pytest.raises(RpcError):
                    await channel.unary(FAIL, Action(content=b"known"))
            with pytest.raises(RpcError):
                await channel.unary(WAIT, Action(), timeout=0.01)
            async with channel.call(ECHO) as call:
                await ping_pong(call, 1)
                call.cancel()
            unfinished = channel.call(ECHO)  # never entered
            del unfinished
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
