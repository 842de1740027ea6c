"""Foreign peers: grpcio's client against our server, and our client against grpcio's server."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trio
from purerpc import Cardinality, RPCSignature, Service

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, ServerCall, open_listeners, serve
from trio_cogment.testing.conformance.channel import (
    COUNT,
    ECHO,
    ECHO_ONE,
    FAIL,
    NOWHERE,
    SUM,
    WAIT,
    CheckService,
)

LIMIT = 64 * 1024 * 1024
CONFIG = RpcConfig(max_receive_message_bytes=LIMIT)
OPTIONS = [("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT)]
BIG = bytes(range(256)) * (16 * 1024 * 1024 // 256)


def serialize(request: Any) -> bytes:
    return bytes(request.SerializeToString())


@asynccontextmanager
async def our_server() -> AsyncIterator[tuple[CheckService, int]]:
    service = CheckService()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(
                lambda task_status: serve_with(service, task_status),
            )
            yield service, serving.port
            nursery.cancel_scope.cancel()


async def serve_with(service: CheckService, task_status: Any) -> None:
    await serve([service.service()], await open_listeners("127.0.0.1"), config=CONFIG, task_status=task_status)


async def with_grpcio_client(port: int, function: Any) -> Any:
    def run() -> Any:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            return function(channel)

    return await trio.to_thread.run_sync(run)


async def test_grpcio_client_all_cardinalities() -> None:
    def calls(channel: grpc.Channel) -> None:
        unary = channel.unary_unary(ECHO_ONE.path, serialize, Observation.FromString)
        metadata = (("x-a", "1"), ("x-a", "2"), ("x-raw-bin", b"\0\xff"))
        reply, call = unary.with_call(Action(tick_id=4, content=b"c"), metadata=metadata, timeout=30)
        assert (reply.tick_id, reply.content) == (4, b"c")
        assert [v for k, v in call.initial_metadata() if k == "x-a"] == ["1", "2"]
        assert ("x-raw-bin", b"\0\xff") in [tuple(pair) for pair in call.initial_metadata()]
        assert ("t-bin", b"\0\xff") in [tuple(pair) for pair in call.trailing_metadata()]
        down = channel.unary_stream(COUNT.path, serialize, Observation.FromString)
        assert [m.tick_id for m in down(Action(tick_id=5000), timeout=30)] == list(range(5000))
        up = channel.stream_unary(SUM.path, serialize, Observation.FromString)
        assert up((Action(tick_id=n) for n in range(5000)), timeout=30).tick_id == sum(range(5000))
        both = channel.stream_stream(ECHO.path, serialize, Observation.FromString)
        assert [m.tick_id for m in both((Action(tick_id=n) for n in range(1000)), timeout=30)] == list(range(1000))
        assert list(both(iter(()), timeout=30)) == []

    async with our_server() as (_, port):
        await with_grpcio_client(port, calls)


async def test_grpcio_client_large_messages() -> None:
    def calls(channel: grpc.Channel) -> None:
        unary = channel.unary_unary(ECHO_ONE.path, serialize, Observation.FromString)
        assert unary(Action(content=BIG), timeout=60).content == BIG

    async with our_server() as (_, port):
        await with_grpcio_client(port, calls)


async def test_grpcio_client_statuses_and_deadline() -> None:
    def calls(channel: grpc.Channel) -> list[tuple[str, str]]:
        seen = []
        fail = channel.unary_unary(FAIL.path, serialize, Observation.FromString)
        nowhere = channel.unary_unary(NOWHERE.path, serialize, Observation.FromString)
        wait = channel.stream_stream(WAIT.path, serialize, Observation.FromString)
        for call in (
            lambda: fail(Action(content=b"known"), timeout=30),
            lambda: fail(Action(content=b"bug"), timeout=30),
            lambda: nowhere(Action(), timeout=30),
            lambda: list(wait(iter([Action()]), timeout=0.1)),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call()
            seen.append((caught.value.code().name, caught.value.details()))
        return seen

    async with our_server() as (_, port):
        seen = await with_grpcio_client(port, calls)
    assert [code for code, _ in seen] == ["NOT_FOUND", "UNKNOWN", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"]
    assert seen[0][1] == "no such thing: ä%\n"
    assert "swordfish" not in seen[1][1]


async def test_grpcio_client_cancels() -> None:
    def calls(channel: grpc.Channel) -> None:
        call = channel.stream_stream(WAIT.path, serialize, Observation.FromString)(iter([Action()]), timeout=60)
        call.initial_metadata()
        call.cancel()
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value.code() is grpc.StatusCode.CANCELLED

    async with our_server() as (service, port):
        await with_grpcio_client(port, calls)
        await service.cancelled.wait()


async def test_grpcio_client_vanishes() -> None:
    def calls(channel: grpc.Channel) -> None:
        call = channel.stream_stream(WAIT.path, serialize, Observation.FromString)(iter([Action()]), timeout=60)
        call.initial_metadata()

    async with our_server() as (service, port):
        await with_grpcio_client(port, calls)
        await service.cancelled.wait()


class GrpcioService:
    """The same methods as the kit's, on grpcio."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def echo_one(self, request: Action, context: grpc.ServicerContext) -> Observation:
        context.send_initial_metadata([pair for pair in context.invocation_metadata() if pair[0].startswith("x-")])
        context.set_trailing_metadata((("t-end", "done"), ("t-bin", b"\0\xff")))
        return Observation(tick_id=request.tick_id, content=request.content)

    def count(self, request: Action, context: grpc.ServicerContext) -> Iterator[Observation]:
        for number in range(request.tick_id):
            yield Observation(tick_id=number)

    def sum(self, requests: Iterator[Action], context: grpc.ServicerContext) -> Observation:
        return Observation(tick_id=sum(request.tick_id for request in requests))

    def echo(self, requests: Iterator[Action], context: grpc.ServicerContext) -> Iterator[Observation]:
        for request in requests:
            yield Observation(tick_id=request.tick_id, content=request.content)

    def fail(self, request: Action, context: grpc.ServicerContext) -> Observation:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\1\2\3"),))
        context.abort(grpc.StatusCode.ABORTED, "no: ä%\n")
        raise AssertionError

    def wait(self, requests: Iterator[Action], context: grpc.ServicerContext) -> Iterator[Observation]:
        context.add_callback(self.cancelled.set)
        context.send_initial_metadata(())
        self.cancelled.wait(30)
        yield from ()


@asynccontextmanager
async def grpcio_server() -> AsyncIterator[tuple[GrpcioService, int]]:
    service = GrpcioService()
    from_bytes, to_bytes = Action.FromString, serialize
    handlers = {
        "EchoOne": grpc.unary_unary_rpc_method_handler(service.echo_one, from_bytes, to_bytes),
        "Count": grpc.unary_stream_rpc_method_handler(service.count, from_bytes, to_bytes),
        "Sum": grpc.stream_unary_rpc_method_handler(service.sum, from_bytes, to_bytes),
        "Echo": grpc.stream_stream_rpc_method_handler(service.echo, from_bytes, to_bytes),
        "Fail": grpc.unary_unary_rpc_method_handler(service.fail, from_bytes, to_bytes),
        "Wait": grpc.stream_stream_rpc_method_handler(service.wait, from_bytes, to_bytes),
    }
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, options=OPTIONS)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("trio_cogment.testing.Check", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with trio.fail_after(60):
                yield service, port
        finally:
            service.cancelled.set()
            server.stop(None).wait(10)


async def test_grpcio_server_all_cardinalities() -> None:
    async with grpcio_server() as (_, port), Channel("127.0.0.1", port, config=CONFIG) as channel:
        sent: list[tuple[str, str | bytes]] = [("x-a", "1"), ("x-a", "2"), ("x-raw-bin", b"\0\xff,")]
        async with channel.call(ECHO_ONE, metadata=sent, timeout=30) as call:
            await call.send(Action(tick_id=4, content=b"c"))
            await call.done_sending()
            reply = await call.receive()
            assert (reply.tick_id, reply.content) == (4, b"c")
            assert await call.receive() is None
            assert call.initial_metadata is not None
            assert call.trailing_metadata is not None
            assert call.initial_metadata.all("x-a") == ["1", "2"]
            assert call.initial_metadata.all("x-raw-bin") == [b"\0\xff,"]
            assert call.trailing_metadata.first("t-bin") == b"\0\xff"
        async with channel.call(COUNT) as call:
            await call.send(Action(tick_id=2000))
            await call.done_sending()
            assert [message.tick_id async for message in call] == list(range(2000))
        async with channel.call(SUM) as call:
            for number in range(2000):
                await call.send(Action(tick_id=number))
            await call.done_sending()
            assert (await call.receive()).tick_id == sum(range(2000))
        async with channel.call(ECHO) as call:
            for number in range(200):
                await call.send(Action(tick_id=number))
                assert (await call.receive()).tick_id == number
            await call.done_sending()
            assert await call.receive() is None


async def test_grpcio_server_large_messages() -> None:
    async with grpcio_server() as (_, port), Channel("127.0.0.1", port, config=CONFIG) as channel:
        assert (await channel.unary(ECHO_ONE, Action(content=BIG), timeout=60)).content == BIG


async def test_grpcio_server_statuses() -> None:
    async with grpcio_server() as (_, port), Channel("127.0.0.1", port) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(FAIL, Action(), timeout=30)
        assert caught.value.code is StatusCode.ABORTED
        assert caught.value.message == "no: ä%\n"
        assert ("grpc-status-details-bin", b"\1\2\3") in caught.value.trailing_metadata
        with pytest.raises(RpcError) as caught:
            await channel.unary(NOWHERE, Action(), timeout=30)
        assert caught.value.code is StatusCode.UNIMPLEMENTED


async def test_grpcio_server_cancel_and_deadline() -> None:
    async with grpcio_server() as (service, port), Channel("127.0.0.1", port) as channel:
        async with channel.call(WAIT, timeout=30) as call:
            await call.wait_initial_metadata()
        assert await trio.to_thread.run_sync(service.cancelled.wait, 10)
        service.cancelled.clear()
        with pytest.raises(RpcError) as caught:
            async with channel.call(WAIT, timeout=0.1) as call:
                await call.receive()
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED


async def test_grpcio_client_that_credits_in_small_steps_is_no_flood() -> None:
    """100 MB down in messages of 1 to 16 KiB, and thousands to and fro: two WINDOW_UPDATEs for each, or more."""
    config = RpcConfig(max_empty_frames=20, flood_interval_seconds=1000)
    content = bytes(16 * 1024)

    class Flooding:
        async def handle(self, call: ServerCall) -> None:
            await call.receive()
            for number in range(10_000):
                await call.send(Observation(content=content[: 1024 if number & 1 else len(content)]))

    service = Service("t.T")
    service.add_method("M", Flooding().handle, RPCSignature(Cardinality.UNARY_STREAM, Action, Observation))

    def calls(channel: grpc.Channel) -> int:
        down = channel.unary_stream("/t.T/M", serialize, Observation.FromString)
        sizes = [len(reply.content) for reply in down(Action(), timeout=60)]
        both = channel.stream_stream(ECHO.path, serialize, Observation.FromString)
        assert sum(1 for _ in both((Action(tick_id=n) for n in range(3000)), timeout=60)) == 3000
        return sum(sizes)

    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")

            async def run(task_status: Any) -> None:
                services = [service, CheckService().service()]
                await serve(services, listeners, config=config, task_status=task_status)

            serving = await nursery.start(run)
            assert await with_grpcio_client(serving.port, calls) > 80_000_000
            nursery.cancel_scope.cancel()
