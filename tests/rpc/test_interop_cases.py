"""The 13 cases of gRPC's interoperability suite that need no cloud, compression or proxy.

Both ways with grpcio, over plaintext and TLS; and our client with our server over both and within the process.
"""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest
import trio

from tests.rpc.interop_service import (
    INITIAL,
    TRAILING,
    GrpcioServer,
    OurServer,
    message,
    methods,
    unimplemented_service_method,
)
from tests.rpc.tls_files import Party, make_party
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import (
    CallOpener,
    Channel,
    InProcessChannel,
    Method,
    client_tls,
    open_listeners,
    serve,
    server_tls,
)

PATIENCE_SECONDS = 60
LARGE_REQUEST, LARGE_RESPONSE = 271828, 314159
REQUEST_SIZES = (27182, 8, 1828, 45904)
RESPONSE_SIZES = (31415, 9, 2653, 58979)
METADATA: list[tuple[str, str | bytes]] = [(INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab")]
MESSAGE = "test status message"
SPECIAL_MESSAGE = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
UNKNOWN = 2


def simple(response_size: int = 0, request_size: int = 0, **more: Any) -> Any:
    return message("SimpleRequest")(response_size=response_size, payload={"body": bytes(request_size)}, **more)


def streaming(response_sizes: tuple[int, ...], request_size: int = 0, **more: Any) -> Any:
    parameters = [{"size": size} for size in response_sizes]
    return message("StreamingOutputCallRequest")(
        response_parameters=parameters, payload={"body": bytes(request_size)}, **more
    )


def inputs() -> list[Any]:
    return [message("StreamingInputCallRequest")(payload={"body": bytes(size)}) for size in REQUEST_SIZES]


def pings() -> Iterator[Any]:
    for request_size, response_size in zip(REQUEST_SIZES, RESPONSE_SIZES, strict=True):
        yield streaming((response_size,), request_size)


async def expect(code: StatusCode, awaitable: Awaitable[Any]) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await awaitable
    assert caught.value.code is code
    return caught.value


# --- our client ---


async def empty_unary(channel: CallOpener) -> None:
    assert await channel.unary(methods()["EmptyCall"], message("Empty")()) == message("Empty")()


async def large_unary(channel: CallOpener) -> None:
    response = await channel.unary(methods()["UnaryCall"], simple(LARGE_RESPONSE, LARGE_REQUEST))
    assert response.payload.body == bytes(LARGE_RESPONSE)


async def client_streaming(channel: CallOpener) -> None:
    async with channel.call(methods()["StreamingInputCall"]) as call:
        for request in inputs():
            await call.send(request)
        await call.done_sending()
        response = await call.receive()
        assert response.aggregated_payload_size == sum(REQUEST_SIZES) == 74922
        assert await call.receive() is None


async def server_streaming(channel: CallOpener) -> None:
    async with channel.call(methods()["StreamingOutputCall"]) as call:
        await call.send(streaming(RESPONSE_SIZES))
        await call.done_sending()
        assert [response.payload.body async for response in call] == [bytes(size) for size in RESPONSE_SIZES]


async def ping_pong(channel: CallOpener) -> None:
    async with channel.call(methods()["FullDuplexCall"]) as call:
        for ping, size in zip(pings(), RESPONSE_SIZES, strict=True):
            await call.send(ping)
            assert (await call.receive()).payload.body == bytes(size)
        await call.done_sending()
        assert await call.receive() is None


async def empty_stream(channel: CallOpener) -> None:
    async with channel.call(methods()["FullDuplexCall"]) as call:
        await call.done_sending()
        assert await call.receive() is None


async def custom_metadata(channel: CallOpener) -> None:
    for name, request in (("UnaryCall", simple(LARGE_RESPONSE, LARGE_REQUEST)), ("FullDuplexCall", next(pings()))):
        async with channel.call(methods()[name], metadata=METADATA) as call:
            await call.send(request)
            await call.done_sending()
            assert len([response async for response in call]) == 1
            assert call.initial_metadata is not None
            assert call.initial_metadata.all(INITIAL) == ["test_initial_metadata_value"]
            assert call.trailing_metadata is not None
            assert call.trailing_metadata.all(TRAILING) == [b"\xab\xab\xab"]


async def status_code_and_message(channel: CallOpener) -> None:
    for text in (MESSAGE, SPECIAL_MESSAGE):
        status = {"code": UNKNOWN, "message": text}
        error = await expect(StatusCode.UNKNOWN, channel.unary(methods()["UnaryCall"], simple(response_status=status)))
        assert error.message == text
        async with channel.call(methods()["FullDuplexCall"]) as call:
            await call.send(streaming((), response_status=status))
            await call.done_sending()
            assert (await expect(StatusCode.UNKNOWN, call.receive())).message == text


async def unimplemented_method(channel: CallOpener) -> None:
    await expect(StatusCode.UNIMPLEMENTED, channel.unary(methods()["UnimplementedCall"], message("Empty")()))


async def unimplemented_service(channel: CallOpener) -> None:
    await expect(StatusCode.UNIMPLEMENTED, channel.unary(unimplemented_service_method(), message("Empty")()))


async def cancel_after_begin(channel: CallOpener) -> None:
    async with channel.call(methods()["StreamingInputCall"]) as call:
        call.cancel()
        await expect(StatusCode.CANCELLED, call.receive())


async def cancel_after_first_response(channel: CallOpener) -> None:
    async with channel.call(methods()["FullDuplexCall"]) as call:
        await call.send(next(pings()))
        assert (await call.receive()).payload.body == bytes(RESPONSE_SIZES[0])
        call.cancel()
        await expect(StatusCode.CANCELLED, call.receive())


async def timeout_on_sleeping_server(channel: CallOpener) -> None:
    async def run() -> None:
        async with channel.call(methods()["FullDuplexCall"], timeout=0.001) as call:
            await call.send(streaming((), 27182))
            await call.receive()

    await expect(StatusCode.DEADLINE_EXCEEDED, run())


OURS = (
    empty_unary,
    large_unary,
    client_streaming,
    server_streaming,
    ping_pong,
    empty_stream,
    custom_metadata,
    status_code_and_message,
    unimplemented_method,
    unimplemented_service,
    cancel_after_begin,
    cancel_after_first_response,
    timeout_on_sleeping_server,
)


# --- grpcio's client ---


class GrpcioClient:
    """The same cases, by the same names."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def method(self, method: Method | str) -> Any:
        found = methods()[method] if isinstance(method, str) else method
        kind = found.cardinality.name.lower()
        return partial(
            getattr(self._channel, kind)(
                found.path, found.request_type.SerializeToString, found.response_type.FromString
            ),
            timeout=PATIENCE_SECONDS,
        )

    def empty_unary(self) -> None:
        assert self.method("EmptyCall")(message("Empty")()) == message("Empty")()

    def large_unary(self) -> None:
        response = self.method("UnaryCall")(simple(LARGE_RESPONSE, LARGE_REQUEST))
        assert response.payload.body == bytes(LARGE_RESPONSE)

    def client_streaming(self) -> None:
        assert self.method("StreamingInputCall")(iter(inputs())).aggregated_payload_size == 74922

    def server_streaming(self) -> None:
        responses = self.method("StreamingOutputCall")(streaming(RESPONSE_SIZES))
        assert [response.payload.body for response in responses] == [bytes(size) for size in RESPONSE_SIZES]

    def ping_pong(self) -> None:
        with _Requests() as requests:
            responses = self.method("FullDuplexCall")(iter(requests))
            for ping, size in zip(pings(), RESPONSE_SIZES, strict=True):
                requests.send(ping)
                assert next(responses).payload.body == bytes(size)
        assert list(responses) == []

    def empty_stream(self) -> None:
        assert list(self.method("FullDuplexCall")(iter(()))) == []

    def custom_metadata(self) -> None:
        unary = self.method("UnaryCall").func.with_call(simple(LARGE_RESPONSE, LARGE_REQUEST), metadata=METADATA)[1]
        duplex = self.method("FullDuplexCall")(iter([next(pings())]), metadata=METADATA)
        assert len(list(duplex)) == 1
        for call in (unary, duplex):
            assert METADATA[0] in [tuple(pair) for pair in call.initial_metadata()]
            assert METADATA[1] in [tuple(pair) for pair in call.trailing_metadata()]

    def status_code_and_message(self) -> None:
        for text in (MESSAGE, SPECIAL_MESSAGE):
            status = {"code": UNKNOWN, "message": text}
            self.fails("UNKNOWN", text, partial(self.method("UnaryCall"), simple(response_status=status)))
            responses = self.method("FullDuplexCall")(iter([streaming((), response_status=status)]))
            self.fails("UNKNOWN", text, partial(list, responses))

    def fails(self, code: str, text: str | None, call: Callable[[], Any]) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code().name == code
        if text is not None:
            assert caught.value.details() == text

    def unimplemented_method(self) -> None:
        self.fails("UNIMPLEMENTED", None, lambda: self.method("UnimplementedCall")(message("Empty")()))

    def unimplemented_service(self) -> None:
        method = self.method(unimplemented_service_method())
        self.fails("UNIMPLEMENTED", None, lambda: method(message("Empty")()))

    def cancel_after_begin(self) -> None:
        with _Requests() as requests:
            future = self.method("StreamingInputCall").func.future(iter(requests))
            future.cancel()
            assert future.cancelled()
            assert future.code().name == "CANCELLED"

    def cancel_after_first_response(self) -> None:
        with _Requests() as requests:
            responses = self.method("FullDuplexCall")(iter(requests))
            requests.send(next(pings()))
            assert next(responses).payload.body == bytes(RESPONSE_SIZES[0])
            responses.cancel()
            self.fails("CANCELLED", None, lambda: next(responses))

    def timeout_on_sleeping_server(self) -> None:
        with _Requests() as requests:
            requests.send(streaming((), 27182))
            responses = self.method("FullDuplexCall").func(iter(requests), timeout=0.001)
            self.fails("DEADLINE_EXCEEDED", None, lambda: next(responses))


class _Requests:
    """What grpcio sends, one by one; leaving the block is the half-close."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, request: Any) -> None:
        self._queue.put(request)

    def __enter__(self) -> _Requests:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._queue.get, None)


# --- all of them ---

NAMES = [case.__name__ for case in OURS]
TLS = [False, True]


def tls_name(tls: bool) -> str:
    return "tls" if tls else "plaintext"


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("server"), "server", "127.0.0.1")


@asynccontextmanager
async def our_server(party: Party | None) -> AsyncIterator[tuple[OurServer, int]]:
    server = OurServer()
    context = None if party is None else server_tls(party.chain, party.key)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1", tls=context)
            yield server, (await nursery.start(serve, [server.service()], listeners)).port
            nursery.cancel_scope.cancel()


def our_client(port: int, party: Party | None) -> Channel:
    return Channel("127.0.0.1", port, tls=None if party is None else client_tls(party.roots))


def test_all_thirteen_are_here() -> None:
    assert len(NAMES) == 13
    assert set(NAMES) <= set(dir(GrpcioClient))


@pytest.mark.parametrize("tls", TLS, ids=tls_name)
@pytest.mark.parametrize("name", NAMES)
async def test_grpcio_client_with_our_server(name: str, tls: bool, party: Party) -> None:
    def run(port: int) -> None:
        target = f"127.0.0.1:{port}"
        if tls:
            credentials = grpc.ssl_channel_credentials(party.roots.read_bytes())
            channel = grpc.secure_channel(target, credentials)
        else:
            channel = grpc.insecure_channel(target)
        with channel:
            getattr(GrpcioClient(channel), name)()

    async with our_server(party if tls else None) as (server, port):
        await trio.to_thread.run_sync(run, port)
        if name == "cancel_after_first_response":
            await server.duplex_ended.wait()


@pytest.mark.parametrize("tls", TLS, ids=tls_name)
@pytest.mark.parametrize("case", OURS, ids=NAMES)
async def test_our_client_with_grpcio_server(
    case: Callable[[CallOpener], Awaitable[None]], tls: bool, party: Party
) -> None:
    credentials = None
    if tls:
        credentials = grpc.ssl_server_credentials([(party.key.read_bytes(), party.chain.read_bytes())])
    server = GrpcioServer()
    with trio.fail_after(PATIENCE_SECONDS), server.serving(credentials) as port:
        async with our_client(port, party if tls else None) as channel:
            await case(channel)
            if case is cancel_after_first_response:
                await trio.to_thread.run_sync(server.duplex_ended.wait)


@asynccontextmanager
async def over_a_socket(server: OurServer, party: Party | None) -> AsyncIterator[CallOpener]:
    async with our_server(party) as (serving, port), our_client(port, party) as channel:
        server.duplex_ended = serving.duplex_ended
        yield channel


@asynccontextmanager
async def in_process(server: OurServer, party: Party) -> AsyncIterator[CallOpener]:
    async with InProcessChannel([server.service()]) as channel:
        yield channel


MAKERS: dict[str, Callable[[OurServer, Party], AbstractAsyncContextManager[CallOpener]]] = {
    "plaintext": lambda server, party: over_a_socket(server, None),
    "tls": over_a_socket,
    "in_process": in_process,
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("case", OURS, ids=NAMES)
async def test_our_client_with_our_server(
    case: Callable[[CallOpener], Awaitable[None]], make: str, party: Party
) -> None:
    server = OurServer()
    with trio.fail_after(PATIENCE_SECONDS):
        async with MAKERS[make](server, party) as channel:
            await case(channel)
            if case is cancel_after_first_response:
                await server.duplex_ended.wait()
