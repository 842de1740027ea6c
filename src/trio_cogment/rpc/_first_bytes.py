"""First bytes of a new connection: whether it speaks HTTP/2, without taking anything from it.

A client of HTTP/2 speaks first (RFC 9113, 3.4), with bytes that no request of HTTP/1.1 begins with. On a socket they
are looked at and left where they are, so that the engine reads them as ever; only other streams need to have them put
back. With TLS the handshake has said it.

A client that speaks TLS where none is spoken counts as one of HTTP/2: the engine tells it, and the log, what is wrong.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import trio

from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._byte_stream_over import GenericByteStream, byte_stream_over
from trio_cogment.rpc._frames import TLS_HANDSHAKE

#: The first bytes of HTTP/2's preface, `PRI * HTTP/2.0`; the first that differ from any method of HTTP/1.1.
_PREFACE = b"PRI"
#: A probe of TCP begins after this many silent seconds, and is repeated as often; a peer that is gone is noticed by it.
_PROBE_SECONDS = 30


async def look(
    stream: trio.abc.Stream, timeout: float, turn: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint_if_cancelled
) -> tuple[ByteStream, bool]:
    """Return a byte stream from its first byte on, and whether it is HTTP/2.

    Args:
        stream: after its TLS handshake, if it has TLS; it belongs to the byte stream from now on.
        timeout: how long the peer may take, in seconds.
        turn: awaited when the peer of a socket has said something, or is gone: many may at once.

    Raises:
        RemoteProtocolError: it took longer, or is gone.
    """
    if isinstance(stream, trio.SSLStream):
        speaks_http2 = stream.selected_alpn_protocol() == "h2"
        if not speaks_http2 and isinstance(stream.transport_stream, trio.SocketStream):
            _probe(stream.transport_stream)
        return byte_stream_over(stream), speaks_http2
    try:
        with trio.fail_after(timeout):
            if isinstance(stream, trio.SocketStream):
                speaks_http2 = await _peek(stream.socket, turn)
                if not speaks_http2:
                    _probe(stream)
                return byte_stream_over(stream), speaks_http2
            first = b""
            while len(first) < len(_PREFACE) and _PREFACE.startswith(first):
                data = await stream.receive_some()
                if not data:
                    break
                first += data
            return Replayed(stream, first), not first or first.startswith(_PREFACE) or _is_tls(first)
    except trio.TooSlowError:
        raise RemoteProtocolError(f"nothing came within {timeout:g} s") from None
    except (OSError, trio.BrokenResourceError):
        raise RemoteProtocolError("the connection is lost") from None


async def _peek(sock: trio.socket.SocketType, turn: Callable[[], Awaitable[None]]) -> bool:
    awaited = 1
    try:
        while True:
            await trio.lowlevel.wait_readable(sock)
            await turn()
            first = await sock.recv(len(_PREFACE), socket.MSG_PEEK)
            if not first or not _PREFACE.startswith(first):
                # The engine knows what to do with a connection that ends at once.
                return not first or _is_tls(first)
            if len(first) == len(_PREFACE):
                return True
            if len(first) < awaited:
                return True  # it has ended in the middle
            awaited = len(first) + 1
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)  # or it would be readable all the time
    finally:
        if awaited > 1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _is_tls(first: bytes) -> bool:
    return first[:1] == TLS_HANDSHAKE[:1]  # which no method of HTTP/1.1 begins with; often there are more bytes


def _probe(stream: trio.SocketStream) -> None:
    """Have TCP look whether the peer is there: HTTP/1.1 has no PING."""
    if stream.socket.family in (socket.AF_INET, socket.AF_INET6):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, name):
                stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), _PROBE_SECONDS)


class Replayed(GenericByteStream):
    """A stream of which the first bytes have been read already."""

    def __init__(self, stream: trio.abc.Stream, first: bytes) -> None:
        super().__init__(stream)
        self._first = first

    async def receive_some(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            await trio.lowlevel.checkpoint()
            return first
        return await super().receive_some()
