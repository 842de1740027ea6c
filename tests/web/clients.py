"""Clients of gRPC-Web and of gRPC over WebSockets, as channels: what the conformance kit calls goes over the wire."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h11
import trio
from purerpc import Service
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, RejectConnection, RejectData
from wsproto.events import Request as Handshake
from wsproto.utilities import LocalProtocolError

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import InProcessChannel, ServerCall
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.rpc.relay import decode_metadata, encode_metadata, encode_timeout, parse_trailers
from trio_cogment.web.frames import TRAILERS, message_frame
from trio_cogment.web.replies import SECURITY_HEADERS
from trio_cogment.web.requests import lines

Connect = Callable[[], Awaitable[trio.abc.Stream]]
Forward = Callable[[Connect, str, ServerCall], Awaitable[None]]

HOST = (b"host", b"127.0.0.1:9000")
_MAX_BYTES = RpcConfig().max_receive_message_bytes
_OF_HTTP = {name for name, _ in SECURITY_HEADERS} | {b"content-type", b"transfer-encoding", b"connection", b"date"}


class Frames:
    """What a client makes of the bytes of an answer.

    Attributes:
        status: how the call has ended, once that is known.
    """

    def __init__(self, call: ServerCall, *, headers_first: bool = False) -> None:
        self._call = call
        self._buffer = b""
        self._headers_first = headers_first
        self._block: bytes | None = None
        self.status: Any = None

    async def receive(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 5:
            length = int.from_bytes(self._buffer[1:5], "big")
            if not self._buffer[0] & TRAILERS and length > _MAX_BYTES:
                raise RpcError(StatusCode.RESOURCE_EXHAUSTED, f"message of {length} bytes is larger than {_MAX_BYTES}")
            if len(self._buffer) < 5 + length:
                return
            flags, payload = self._buffer[0], self._buffer[5 : 5 + length]
            self._buffer = self._buffer[5 + length :]
            if flags == TRAILERS:
                await self._fields(payload)
            else:
                assert flags == 0
                await self._call.send(self._call.method.response_type.FromString(payload))

    async def _fields(self, block: bytes) -> None:
        fields = lines(block)
        if self._headers_first and b"grpc-status" not in dict(fields):
            assert self._block is None
            self._block = block
            self._call.set_initial_metadata(decode_metadata(fields))
            await self._call.send_initial_metadata()
            return
        assert self.status is None
        self.status = parse_trailers(fields)

    def finish(self) -> None:
        """Raise what the call has ended with."""
        if self.status is None:
            raise RpcError(StatusCode.UNKNOWN, "there was no status")
        assert self._buffer == b""
        if self.status.code is not StatusCode.OK:
            raise RpcError(self.status.code, self.status.message, self.status.metadata)
        self._call.set_trailing_metadata(self.status.metadata)


def head_fields(call: ServerCall) -> list[tuple[bytes, bytes]]:
    fields = encode_metadata(call.metadata)
    if call.deadline < float("inf"):
        fields.append((b"grpc-timeout", encode_timeout(call.deadline - trio.current_time())))
    return fields


async def _duplex(send: Callable[[], Awaitable[None]], receive: Callable[[], Awaitable[None]]) -> None:
    """Run both until the second has ended; raise its error as it is."""
    failure: RpcError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        try:
            await receive()
        except RpcError as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def over_http(connect: Connect, path: str, call: ServerCall, *, text: bool = False) -> None:
    """Make a call by gRPC-Web, whose body is sent as it comes into being, which no browser does."""
    kind = b"application/grpc-web-text" if text else b"application/grpc-web+proto"
    client = h11.Connection(h11.CLIENT)
    stream = await connect()
    async with stream:
        headers = [HOST, (b"content-type", kind), (b"x-grpc-web", b"1"), (b"transfer-encoding", b"chunked")]
        request = h11.Request(method="POST", target=path, headers=[*headers, *head_fields(call)])
        await stream.send_all(client.send(request) or b"")

        async def send() -> None:
            try:
                async for message in call:
                    frame = message_frame(message.SerializeToString())
                    data = base64.b64encode(frame) if text else frame
                    await stream.send_all(client.send(h11.Data(data=data)) or b"")
                await stream.send_all(client.send(h11.EndOfMessage()) or b"")
            except trio.BrokenResourceError:
                pass  # the answer may say why

        async def receive() -> None:
            frames = Frames(call)
            rest = b""
            while True:
                event: Any = client.next_event()
                if event is h11.NEED_DATA:
                    client.receive_data(bytes(await stream.receive_some()))
                elif isinstance(event, h11.Response):
                    if event.status_code != 200:
                        raise RpcError(StatusCode.UNAVAILABLE, f"the server has answered {event.status_code}")
                    fields = [(name, value) for name, value in event.headers if name not in _OF_HTTP]
                    call.set_initial_metadata(decode_metadata(fields))
                    await call.send_initial_metadata()
                elif isinstance(event, h11.Data):
                    rest += bytes(event.data)
                    if text:  # each frame is a piece of base64 of its own, and each piece a multiple of four
                        whole = rest[: len(rest) // 4 * 4]
                        rest = rest[len(whole) :]
                        plain = b"".join(base64.b64decode(whole[at : at + 4]) for at in range(0, len(whole), 4))
                    else:
                        plain, rest = rest, b""
                    await frames.receive(plain)
                else:
                    assert isinstance(event, h11.EndOfMessage), event
                    break
            frames.finish()

        await _duplex(send, receive)


def _check_size(fields: Iterable[tuple[bytes, bytes]]) -> None:
    """What comes is limited by the client, in HTTP/2."""
    if sum(len(name) + len(value) + 32 for name, value in fields) > RpcConfig().max_header_list_bytes:
        raise RpcError(StatusCode.RESOURCE_EXHAUSTED, "the response's metadata is too large")


async def over_http2(connect: Connect, path: str, call: ServerCall) -> None:
    """Make a call by gRPC-Web over HTTP/2, with a connection of its own."""
    client: Any = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    stream = await connect()
    async with stream:
        client.initiate_connection()
        pseudo = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", HOST[1])]
        kind = [(b"content-type", b"application/grpc-web+proto"), (b"x-grpc-web", b"1")]
        client.send_headers(1, [*pseudo, *kind, *head_fields(call)])
        sending = trio.Lock()
        room = trio.Event()

        async def flush() -> None:
            async with sending:
                await stream.send_all(client.data_to_send())

        async def send() -> None:
            nonlocal room
            try:
                async for message in call:
                    data = message_frame(message.SerializeToString())
                    while data:
                        room = trio.Event()
                        size = min(client.local_flow_control_window(1), client.max_outbound_frame_size)
                        if size:
                            client.send_data(1, data[:size])
                            data = data[size:]
                            await flush()
                        else:
                            await room.wait()
                client.end_stream(1)
                await flush()
            except (trio.BrokenResourceError, h2.exceptions.ProtocolError):
                pass  # the answer may say why

        async def receive() -> None:
            frames = Frames(call)
            await flush()
            while True:
                data = bytes(await stream.receive_some())
                if not data:
                    raise RpcError(StatusCode.UNAVAILABLE, "the connection is lost")
                for event in client.receive_data(data):
                    room.set()
                    if isinstance(event, h2.events.ResponseReceived):
                        fields = [(name, value) for name, value in event.headers if name not in _OF_HTTP]
                        _check_size(fields)
                        if dict(fields)[b":status"] != b"200":
                            raise RpcError(StatusCode.UNAVAILABLE, "the server has not answered 200")
                        if b"grpc-status" in dict(fields):
                            frames.status = parse_trailers(fields)
                        else:
                            call.set_initial_metadata(decode_metadata(fields))
                            await call.send_initial_metadata()
                    elif isinstance(event, h2.events.DataReceived):
                        await frames.receive(event.data)
                        if frames.status is not None:
                            _check_size(encode_metadata(frames.status.metadata))
                        client.acknowledge_received_data(event.flow_controlled_length, 1)
                    elif isinstance(event, h2.events.StreamEnded):
                        frames.finish()
                        return
                    else:
                        assert not isinstance(event, h2.events.StreamReset | h2.events.TrailersReceived), event
                await flush()

        await _duplex(send, receive)


async def over_websocket(connect: Connect, path: str, call: ServerCall) -> None:
    """Make a call over a WebSocket, as @improbable-eng/grpc-web does."""
    client = WSConnection(ConnectionType.CLIENT)
    stream = await connect()
    async with stream:
        handshake = Handshake(host=HOST[1].decode(), target=path, subprotocols=["grpc-websockets"])
        await stream.send_all(client.send(handshake))
        accepted = trio.Event()
        sending = trio.Lock()

        async def pass_on(event: Any) -> None:
            async with sending:
                await stream.send_all(client.send(event))

        async def send() -> None:
            await accepted.wait()
            try:
                block = b"".join(b"%b: %b\r\n" % field for field in head_fields(call))
                await pass_on(BytesMessage(data=block))
                async for message in call:
                    frame = b"\x00" + message_frame(message.SerializeToString())
                    await pass_on(BytesMessage(data=frame))
                await pass_on(BytesMessage(data=b"\x01"))
            except (trio.BrokenResourceError, LocalProtocolError):
                pass  # the server has closed it, and the answer may say why

        async def receive() -> None:
            frames = Frames(call, headers_first=True)
            pieces = b""
            while True:
                data = bytes(await stream.receive_some())
                client.receive_data(data or None)
                for event in client.events():
                    if isinstance(event, AcceptConnection):
                        assert event.subprotocol == "grpc-websockets"
                        accepted.set()
                    elif isinstance(event, BytesMessage):
                        pieces += event.data
                        if event.message_finished:
                            await frames.receive(pieces)
                            pieces = b""
                    elif isinstance(event, CloseConnection):
                        frames.finish()
                        return
                    elif isinstance(event, RejectConnection):
                        raise RpcError(StatusCode.UNAVAILABLE, f"the server has answered {event.status_code}")
                    elif isinstance(event, Ping):
                        await pass_on(event.response())
                    else:
                        assert isinstance(event, RejectData)

        await _duplex(send, receive)


def _forwarding(forward: Forward, connect: Connect, path: str) -> Callable[[ServerCall], Awaitable[None]]:
    async def handler(call: ServerCall) -> None:
        await forward(connect, path, call)

    return handler


@asynccontextmanager
async def channel_over(
    connect: Connect, services: Iterable[Service], forward: Forward
) -> AsyncIterator[InProcessChannel]:
    """Open a channel whose calls are made by `forward`; the server's limits count, not its own."""
    there = []
    for service in services:
        proxy = Service(service.name)
        for name, bound in service.methods.items():
            proxy.add_method(name, _forwarding(forward, connect, f"/{service.name}/{name}"), bound.signature)
        there.append(proxy)
    config = replace(RpcConfig(), max_receive_message_bytes=UNLIMITED_BYTES, max_header_list_bytes=128 * 1024)
    async with InProcessChannel(there, config=config) as channel:
        yield channel
