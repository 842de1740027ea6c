"""Nothing is left behind: many connections, many cancelled calls, much data. Small here, in full under `soak`."""

from __future__ import annotations

import gc
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import END_HEADERS, HEADERS, PREFACE, encode, frame, request_headers, settings
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.rpc._connection import Connection
from trio_cogment.rpc._http2_call import Http2Call
from trio_cogment.rpc._streams import Stream
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, NOWHERE, CheckService

MEBIBYTE = 1 << 20
LIMIT = 65 * MEBIBYTE  # a message of 64 MiB and its other fields
CONFIG = RpcConfig(max_receive_message_bytes=LIMIT)
WAITING = (
    PREFACE
    + settings()
    + frame(HEADERS, END_HEADERS, 1, encode(request_headers(path=b"/trio_cogment.testing.Check/Wait")))
)
IN_FULL = pytest.mark.soak, pytest.mark.timeout(900)


def sizes(small: int, full: int) -> list[Any]:
    return [pytest.param(small, id="small"), pytest.param(full, id="full", marks=IN_FULL)]


def left() -> dict[str, int]:
    """Return what must not grow."""
    gc.collect()
    kept: dict[str, int] = {"descriptors": len(os.listdir("/proc/self/fd"))}
    kept["tasks"] = trio.lowlevel.current_statistics().tasks_living
    for kind in (Connection, Stream, Http2Call):
        kept[kind.__name__] = sum(isinstance(one, kind) for one in gc.get_objects())
    return kept


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():
            await trio.testing.wait_all_tasks_blocked()


async def come_back_to(before: dict[str, int]) -> None:
    tasks = before["tasks"]
    await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)
    assert left() == before


@asynccontextmanager
async def server() -> AsyncIterator[int]:
    listeners = await open_listeners("127.0.0.1")
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(lambda task_status: run_server(listeners, task_status))
        yield serving.port
        nursery.cancel_scope.cancel()


async def run_server(listeners: Any, task_status: Any) -> None:
    await serve([CheckService().service()], listeners, config=CONFIG, task_status=task_status)


async def come_and_vanish(port: int, numbers: Iterator[int]) -> None:
    """Open a stream, see that its handler runs, and disappear: in order, or by RST."""
    for number in numbers:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(WAITING)
        came = b""
        while b"\x01\x04\0\0\0\x01" not in came:  # HEADERS, END_HEADERS, stream 1: the handler's initial metadata
            data = await stream.receive_some()
            assert data
            came += data
        if number % 2:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("count", sizes(100, 10_000))
async def test_connections_that_vanish_leave_nothing(count: int) -> None:
    async with server() as port:
        tasks = trio.lowlevel.current_statistics().tasks_living
        await come_and_vanish(port, iter(range(2)))  # what is made once and kept is made now
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)
        before = left()
        numbers = iter(range(count))
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(come_and_vanish, port, numbers)
        await come_back_to(before)


@pytest.mark.parametrize("count", sizes(200, 10_000))
async def test_calls_cancelled_after_their_first_reply_leave_nothing(count: int) -> None:
    async def cancel_some(channel: Channel, numbers: Iterator[int]) -> None:
        for number in numbers:
            async with channel.call(ECHO) as call:
                await call.send(Action(tick_id=number))
                assert (await call.receive()).tick_id == number

    async with server() as port, Channel("127.0.0.1", port) as channel:
        await cancel_some(channel, iter(range(2)))
        await channel.unary(ECHO_ONE, Action())  # when it is answered, the resets before it have been handled
        before = left()
        numbers = iter(range(count))
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(cancel_some, channel, numbers)
        await channel.unary(ECHO_ONE, Action())
        await come_back_to(before)


async def echo_whole(channel: Channel, size: int, count: int) -> None:
    content = bytes(range(256)) * (size // 256)
    async with channel.call(ECHO) as call:
        for number in range(count):
            await call.send(Action(tick_id=number, content=content))
            answer = await call.receive()
            assert answer.tick_id == number
            assert answer.content == content
        await call.done_sending()
        assert await call.receive() is None


async def echo_piped(channel: Channel, size: int, count: int) -> None:
    """Send without waiting for the answers."""
    content = bytes(size)

    async def send(call: Any) -> None:
        for number in range(count):
            await call.send(Action(tick_id=number, content=content))
        await call.done_sending()

    async with channel.call(ECHO) as call, trio.open_nursery() as nursery:
        nursery.start_soon(send, call)
        number = 0
        async for answer in call:
            assert answer.tick_id == number
            assert len(answer.content) == size
            number += 1
        assert number == count


async def unknown_then_normal(channel: Channel) -> None:
    for _ in range(3):  # more than any window in all
        with pytest.raises(RpcError) as caught:
            await channel.unary(NOWHERE, Action(content=bytes(30 * MEBIBYTE)))
        assert caught.value.code is StatusCode.UNIMPLEMENTED
    assert (await channel.unary(ECHO_ONE, Action(tick_id=7))).tick_id == 7


@pytest.mark.parametrize("total", sizes(128 * MEBIBYTE, 3 << 30))
async def test_much_data_on_one_connection(total: int) -> None:
    async with server() as port, Channel("127.0.0.1", port, config=CONFIG) as channel:
        await echo_whole(channel, 64 * MEBIBYTE, total // 2 // (64 * MEBIBYTE))
        await echo_piped(channel, MEBIBYTE, total // 2 // MEBIBYTE)
        await unknown_then_normal(channel)


def grpcio_echo(port: int, total: int) -> None:
    options = [("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT)]
    content = bytes(64 * MEBIBYTE)
    count = total // len(content)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        echo = channel.stream_stream(ECHO.path, Action.SerializeToString, Observation.FromString)
        answers = echo(Action(tick_id=number, content=content) for number in range(count))
        for number, answer in enumerate(answers):
            assert answer.tick_id == number
            assert len(answer.content) == len(content)
        unknown = channel.unary_unary(NOWHERE.path, Action.SerializeToString, Observation.FromString)
        with pytest.raises(grpc.RpcError) as caught:
            unknown(Action(content=bytes(30 * MEBIBYTE)))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        one = channel.unary_unary(ECHO_ONE.path, Action.SerializeToString, Observation.FromString)
        assert one(Action(tick_id=7), timeout=30).tick_id == 7


@pytest.mark.parametrize("total", sizes(128 * MEBIBYTE, 3 << 30))
async def test_much_data_from_grpcio(total: int) -> None:
    async with server() as port:
        await trio.to_thread.run_sync(grpcio_echo, port, total)


@pytest.mark.parametrize("total", sizes(128 * MEBIBYTE, 3 << 30))
async def test_much_data_to_grpcio(total: int) -> None:
    def echo(requests: Any, _: Any) -> Iterator[Observation]:
        for request in requests:
            yield Observation(tick_id=request.tick_id, content=request.content)

    def one(request: Any, _: Any) -> Observation:
        return Observation(tick_id=request.tick_id)

    codec: Any = {"request_deserializer": Action.FromString, "response_serializer": Observation.SerializeToString}
    handlers = {
        ECHO.path.rsplit("/", 1)[1]: grpc.stream_stream_rpc_method_handler(echo, **codec),
        ECHO_ONE.path.rsplit("/", 1)[1]: grpc.unary_unary_rpc_method_handler(one, **codec),
    }
    options = [("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT)]
    foreign = grpc.server(ThreadPoolExecutor(4), options=options)
    foreign.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ECHO.path.split("/")[1], handlers),))
    port = foreign.add_insecure_port("127.0.0.1:0")
    foreign.start()
    try:
        async with Channel("127.0.0.1", port, config=CONFIG) as channel:
            await echo_whole(channel, 64 * MEBIBYTE, total // (64 * MEBIBYTE))
            await unknown_then_normal(channel)
    finally:
        await trio.to_thread.run_sync(lambda: foreign.stop(0).wait())
