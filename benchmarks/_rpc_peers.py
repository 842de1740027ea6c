"""The programs that `rpc.py` measures or measures with: a server and a client of each gRPC library.

A server prints its port, and after a slash the token that it wants if it wants one. A client obeys lines
``<port> <workload> <operations>``, with the port as it was printed, and answers each with a line when the operations
are done; it keeps one connection for every port. All of them speak the same service and messages; grpc.aio's client
sends tokens.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SMALL = bytes(100)
#: Bytes of a message, by the ends of the names of workloads.
SIZES = {"1k": 1 << 10, "16k": 16 << 10, "100k": 100 << 10, "1m": 1 << 20, "16m": 16 << 20}
#: Longer than any of them, for all libraries.
MAX_MESSAGE = 20 << 20
#: No frame, window or message may be too small for these.
GRPC_OPTIONS = [("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)]
PREFIX = "/benchmark.Bench/"


def _describe() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="benchmark.proto", package="benchmark", syntax="proto3")
    packet = file.message_type.add(name="Packet")
    packet.field.add(name="number", number=1, type=5, label=1)  # int32
    packet.field.add(name="content", number=2, type=12, label=1)  # bytes
    service = file.service.add(name="Bench")
    for name, client_streaming, server_streaming in (("Echo", 1, 1), ("Unary", 0, 0), ("Down", 0, 1)):
        method = service.method.add(name=name, input_type=".benchmark.Packet", output_type=".benchmark.Packet")
        method.client_streaming, method.server_streaming = bool(client_streaming), bool(server_streaming)
    descriptor_pool.Default().Add(file)
    return descriptor_pool.Default().FindServiceByName("benchmark.Bench")


BENCH = _describe()
Packet: Any = message_factory.GetMessageClass(BENCH.methods[0].input_type)

# --- ours ---


class OurServicer:
    """The ordinary way: a handler that pulls."""

    async def Echo(self, call: Any) -> None:
        async for request in call:
            await call.send(Packet(number=request.number, content=request.content))

    async def Unary(self, request: Any, call: Any) -> Any:
        return Packet(number=request.number, content=request.content)

    async def Down(self, request: Any, call: Any) -> None:
        answer = Packet(content=request.content)
        for _ in range(request.number):
            await call.send(answer)


class OurPushServicer(OurServicer):
    """Echo by a consumer: no task switch per message. Its buffer is the call's outbox, sized for this benchmark."""

    async def Echo(self, call: Any) -> None:
        import trio

        done = trio.Event()

        class Consumer:
            def on_message(self, message: Any) -> None:
                call.send_nowait(Packet(number=message.number, content=message.content))

            def on_end(self, error: Exception | None) -> None:
                done.set()

        call.set_consumer(Consumer())
        await done.wait()


def serve_ours(servicer: object, *, web: bool = False, tokens: bool = False) -> None:
    import trio

    from trio_cogment.rpc import RpcConfig, bind, open_listeners, serve
    from trio_cogment.web import WebSide

    side = WebSide() if web else None
    access, token = _token_access() if tokens else (None, "")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(
                partial(serve, web=side, access=access, config=RpcConfig(max_receive_message_bytes=MAX_MESSAGE)),
                [bind(BENCH, servicer)],
                await open_listeners("127.0.0.1"),
            )
            print(f"{serving.port}/{token}" if token else serving.port, flush=True)

    trio.run(main)


def _token_access() -> tuple[Any, str]:
    """Return what lets in nobody without a token, and a token."""
    import secrets
    import time
    import uuid

    from trio_cogment.access import AccessControl, Grant, Keys, Role, Rules

    rules = Rules(keys=Keys((secrets.token_bytes(32),)))
    access = AccessControl(rules, wall_clock=time.time_ns, new_id=lambda: str(uuid.uuid4()))
    return access, access.mint(Grant(name="benchmark", roles=frozenset([Role.ADMIN])), 24 * 3600, ())


class OurClient:
    """Pulls: sends, then waits for the answer."""

    def __init__(self, channel: Any) -> None:
        from trio_cogment.rpc import methods_of

        self.channel = channel
        self.methods = methods_of(BENCH)

    async def echo(self, count: int, content: bytes) -> None:
        async with self.channel.call(self.methods["Echo"]) as call:
            for number in range(count):
                await call.send(Packet(number=number, content=content))
                await call.receive()
            await call.done_sending()
            await call.receive()

    async def unary(self, count: int, content: bytes) -> None:
        for number in range(count):
            await self.channel.unary(self.methods["Unary"], Packet(number=number, content=content))

    async def down(self, count: int, content: bytes) -> None:
        async with self.channel.call(self.methods["Down"]) as call:
            await call.send(Packet(number=count, content=content))
            await call.done_sending()
            async for _ in call:
                pass


class OurPushClient(OurClient):
    """Answers each message from where it arrives."""

    async def echo(self, count: int, content: bytes) -> None:
        import trio

        done = trio.Event()

        class Consumer:
            left = count

            def on_message(self, message: Any) -> None:
                self.left -= 1
                if self.left:
                    call.send_nowait(Packet(number=self.left, content=content))
                else:
                    done.set()

            def on_end(self, error: Exception | None) -> None:
                done.set()

        async with self.channel.call(self.methods["Echo"]) as call:
            call.set_consumer(Consumer())
            call.send_nowait(Packet(number=count, content=content))
            await done.wait()


def client_ours(client: type[OurClient]) -> None:
    from trio_cogment.rpc import Channel, RpcConfig

    config = RpcConfig(max_receive_message_bytes=MAX_MESSAGE)
    _trio_client(lambda port: Channel("127.0.0.1", port, config=config), client)


def _trio_client(connect: Callable[[int], Any], client: type[Any]) -> None:
    import contextlib

    import trio

    async def side_by_side(function: Callable[[], Awaitable[None]], times: int) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(times):
                nursery.start_soon(function)

    async def main() -> None:
        clients: dict[int, Any] = {}
        async with contextlib.AsyncExitStack() as stack:
            while line := await trio.to_thread.run_sync(sys.stdin.readline):
                port, workload, count = line.split()
                if int(port) not in clients:
                    clients[int(port)] = client(await stack.enter_async_context(connect(int(port))))
                await _work(clients[int(port)], workload, int(count), side_by_side)
                print("done", flush=True)

    trio.run(main)


async def _work(client: Any, workload: str, count: int, side_by_side: Any) -> None:
    name, _, size = workload.partition("_")
    content = bytes(SIZES[size]) if size else SMALL
    if name == "streams16":
        await side_by_side(lambda: client.echo(count // 16, SMALL), 16)
    elif name == "unary":
        await client.unary(count, content)
    elif name == "sstream":
        await client.down(count, content)
    else:
        await client.echo(count, content)


# --- grpc.aio ---


def serve_grpc_aio() -> None:
    import grpc.aio

    async def echo(_: Any, context: Any) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(Packet(number=request.number, content=request.content))

    async def unary(request: Any, context: Any) -> Any:
        return Packet(number=request.number, content=request.content)

    async def down(request: Any, context: Any) -> None:
        answer = Packet(content=request.content)
        for _ in range(request.number):
            await context.write(answer)

    async def main() -> None:
        server = grpc.aio.server(options=GRPC_OPTIONS)
        codec = {"request_deserializer": Packet.FromString, "response_serializer": Packet.SerializeToString}
        handlers = {
            "Echo": grpc.stream_stream_rpc_method_handler(echo, **codec),
            "Unary": grpc.unary_unary_rpc_method_handler(unary, **codec),
            "Down": grpc.unary_stream_rpc_method_handler(down, **codec),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("benchmark.Bench", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()

    asyncio.run(main())


class GrpcAioClient:
    def __init__(self, port: int, token: str = "") -> None:
        import grpc.aio

        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=GRPC_OPTIONS)
        codec = (Packet.SerializeToString, Packet.FromString)
        self._echo = channel.stream_stream(PREFIX + "Echo", *codec)
        self._unary = channel.unary_unary(PREFIX + "Unary", *codec)
        self._down = channel.unary_stream(PREFIX + "Down", *codec)

    async def echo(self, count: int, content: bytes) -> None:
        call = self._echo(metadata=self._metadata)
        for number in range(count):
            await call.write(Packet(number=number, content=content))
            await call.read()
        await call.done_writing()
        await call.read()

    async def unary(self, count: int, content: bytes) -> None:
        for number in range(count):
            await self._unary(Packet(number=number, content=content), metadata=self._metadata)

    async def down(self, count: int, content: bytes) -> None:
        async for _ in self._down(Packet(number=count, content=content), metadata=self._metadata):
            pass


def client_asyncio(client: type[Any]) -> None:
    async def side_by_side(function: Callable[[], Awaitable[None]], times: int) -> None:
        await asyncio.gather(*(function() for _ in range(times)))

    async def main() -> None:
        clients: dict[str, Any] = {}
        while line := await asyncio.to_thread(sys.stdin.readline):
            address, workload, count = line.split()
            if address not in clients:
                port, _, token = address.partition("/")
                clients[address] = client(int(port), token) if token else client(int(port))
            await _work(clients[address], workload, int(count), side_by_side)
            print("done", flush=True)

    asyncio.run(main())


# --- grpclib ---


def serve_grpclib() -> None:
    import grpclib.const
    import grpclib.server

    async def echo(stream: Any) -> None:
        async for request in stream:
            await stream.send_message(Packet(number=request.number, content=request.content))

    async def unary(stream: Any) -> None:
        request = await stream.recv_message()
        await stream.send_message(Packet(number=request.number, content=request.content))

    async def down(stream: Any) -> None:
        request = await stream.recv_message()
        answer = Packet(content=request.content)
        for _ in range(request.number):
            await stream.send_message(answer)

    class Servicer:
        def __mapping__(self) -> dict[str, Any]:
            shapes = grpclib.const.Cardinality
            functions = {
                "Echo": (echo, shapes.STREAM_STREAM),
                "Unary": (unary, shapes.UNARY_UNARY),
                "Down": (down, shapes.UNARY_STREAM),
            }
            return {
                PREFIX + name: grpclib.const.Handler(function, shape, Packet, Packet)
                for name, (function, shape) in functions.items()
            }

    async def main() -> None:
        server = grpclib.server.Server([Servicer()])
        await server.start("127.0.0.1", port := _free_port())
        print(port, flush=True)
        await server.wait_closed()

    asyncio.run(main())


class GrpclibClient:
    def __init__(self, port: int) -> None:
        import grpclib.client

        channel = grpclib.client.Channel("127.0.0.1", port)
        self._echo = grpclib.client.StreamStreamMethod(channel, PREFIX + "Echo", Packet, Packet)

    async def echo(self, count: int, content: bytes) -> None:
        async with self._echo.open() as stream:
            for number in range(count):
                await stream.send_message(Packet(number=number, content=content))
                await stream.recv_message()
            await stream.end()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- stock purerpc, on Trio ---


def _purerpc_signatures() -> dict[str, Any]:
    from purerpc import Cardinality, RPCSignature

    shapes = {"Echo": Cardinality.STREAM_STREAM, "Unary": Cardinality.UNARY_UNARY, "Down": Cardinality.UNARY_STREAM}
    return {name: RPCSignature(shape, Packet, Packet) for name, shape in shapes.items()}


def serve_purerpc() -> None:
    import purerpc
    import trio

    async def echo(requests: Any) -> Any:
        async for request in requests:
            yield Packet(number=request.number, content=request.content)

    async def unary(request: Any) -> Any:
        return Packet(number=request.number, content=request.content)

    async def down(request: Any) -> Any:
        answer = Packet(content=request.content)
        for _ in range(request.number):
            yield answer

    async def main() -> None:
        service = purerpc.Service("benchmark.Bench")
        for (name, signature), function in zip(_purerpc_signatures().items(), (echo, unary, down), strict=True):
            service.add_method(name, function, signature)
        server = purerpc.Server(0)
        server.add_service(service)
        async with trio.open_nursery() as nursery:
            print(await nursery.start(server.serve_async), flush=True)

    trio.run(main)


class PurerpcClient:
    def __init__(self, channel: Any) -> None:
        from purerpc.client import Client

        self._echo = Client("benchmark.Bench", channel).get_method_stub("Echo", _purerpc_signatures()["Echo"])

    async def echo(self, count: int, content: bytes) -> None:
        stream = await self._echo()
        for number in range(count):
            await stream.send_message(Packet(number=number, content=content))
            await stream.receive_message()
        await stream.close()
        await stream.receive_message()


def client_purerpc() -> None:
    import purerpc

    _trio_client(lambda port: purerpc.insecure_channel("127.0.0.1", port), PurerpcClient)


ROLES: dict[str, Callable[[], None]] = {
    "server-ours": lambda: serve_ours(OurServicer()),
    "server-push": lambda: serve_ours(OurPushServicer()),
    "server-web": lambda: serve_ours(OurServicer(), web=True),
    "server-web-push": lambda: serve_ours(OurPushServicer(), web=True),
    "server-tokens": lambda: serve_ours(OurServicer(), tokens=True),
    "server-tokens-push": lambda: serve_ours(OurPushServicer(), tokens=True),
    "server-grpc.aio": serve_grpc_aio,
    "server-grpclib": serve_grpclib,
    "server-purerpc": serve_purerpc,
    "client-ours": lambda: client_ours(OurClient),
    "client-push": lambda: client_ours(OurPushClient),
    "client-grpc.aio": lambda: client_asyncio(GrpcAioClient),
    "client-grpclib": lambda: client_asyncio(GrpclibClient),
    "client-purerpc": client_purerpc,
}
