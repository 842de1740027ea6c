"""The byte stream for a stream of Trio: a socket by the short way (`_byte_stream`), any other by the general one."""

from __future__ import annotations

from typing import Any

import trio

from trio_cogment.base.host.binding import format_address
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run
from trio_cogment.rpc._byte_stream import ByteStream, SocketByteStream, bytes_delivered, was_reset


class GenericByteStream(ByteStream):
    """Any other stream: memory streams, a test's own. What they do with unread data when they are closed is theirs."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def receive_some(self) -> bytes:
        return bytes(await self._stream.receive_some())

    def send_now(self, data: bytes) -> int:
        return 0

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class _ClosingTransport(trio.abc.Stream):
    """What lies below TLS while it is closed: after TLS's close_notify, the sending side is shut before reading on."""

    def __init__(self, transport: trio.SocketStream) -> None:
        self._transport = transport
        self._eof_sent = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self._eof_sent:
            self._eof_sent = True
            await self._transport.send_eof()
        return await self._transport.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._transport.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._transport.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Leave that to `TlsByteStream.aclose`, which closes what is below in any case."""


class TlsByteStream(GenericByteStream):
    """TLS over a socket."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        super().__init__(stream)
        self._tls: trio.SSLStream[Any] = stream
        self._transport = stream.transport_stream
        self._closing_transport: _ClosingTransport | None = None

    def delivered(self) -> tuple[int, int]:
        return bytes_delivered(self._transport.socket)

    def is_reset(self) -> bool:
        return was_reset(self._transport.socket)

    async def linger(self, limit: int) -> None:
        if self._closing_transport is None:
            self._closing_transport = _ClosingTransport(self._transport)
            self._tls.transport_stream = self._closing_transport
        try:
            await self._tls.unwrap()  # sends close_notify, and fails if anything but the peer's comes after it
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        turn = turns_of_run().turn
        try:
            while limit > 0 and (data := await self._closing_transport.receive_some()):
                limit -= len(data)
                await turn(Lane.OTHERS)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone

    async def aclose(self) -> None:
        await super().aclose()
        await trio.aclose_forcefully(self._transport)  # `linger` has put another one below the stream


def byte_stream_over(stream: trio.abc.Stream) -> ByteStream:
    """Return the best byte stream for a stream; the stream belongs to the byte stream from now on."""
    if type(stream) is trio.SocketStream:
        return SocketByteStream(stream)
    if isinstance(stream, trio.SSLStream) and type(stream.transport_stream) is trio.SocketStream:
        return TlsByteStream(stream)
    return GenericByteStream(stream)


def peer_name(stream: trio.abc.Stream) -> str:
    """Return the other end's address in gRPC's notation, for logs."""
    while isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if not isinstance(stream, trio.SocketStream):
        return "stream"
    try:
        address = stream.socket.getpeername()
    except OSError:
        return "unknown"
    return format_address(stream.socket.family, address)
