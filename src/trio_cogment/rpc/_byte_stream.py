"""The bytes below a connection: a socket by the short way, any other `trio.abc.Stream` by the general one.

Sockets are read and written without `trio.SocketStream`, for three reasons:

- `trio.SocketStream.receive_some` calls `recv` first and waits only when that fails. A peer that answers message by
  message has rarely sent the next one yet, so the first `recv` would nearly always be wasted. `receive_some` here waits
  until the socket is readable, and then reads once.
- `ByteStream.send_now` lets a task other than the writer's send without a task switch; `_writer` says when. It is not
  async, so it cannot be cancelled halfway: what was not sent is known and is left to the writer.
- What one read brings is handled without a checkpoint, so a large read keeps all other tasks waiting. But many small
  reads cost many system calls. So the next read is larger after one that filled its buffer and was handled quickly, and
  the smallest again after one that took long. The time is measured from handing the bytes over to the next call.
"""

from __future__ import annotations

import abc
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import trio

from trio_cogment.host.binding import format_address
from trio_cogment.rpc._turn_order import Lane
from trio_cogment.rpc._turns import turns_of_run

if sys.platform == "linux":
    # Not when they are needed first: a process that has run out of descriptors cannot import anything.
    import fcntl
    import termios

_MIN_READ = 16 * 1024
_MAX_READ = 1024 * 1024
#: What is read at once should not take longer than this to work through.
_LONG_TURN_SECONDS = 0.02
#: Where Linux's `struct tcp_info` has `tcpi_bytes_acked`.
_BYTES_ACKED = slice(120, 128)
#: The first byte of the same, where the peer has reset the connection.
_TCP_CLOSE = 7


class ByteStream(abc.ABC):
    """What a connection needs of a byte stream. Failures are `trio.BrokenResourceError`."""

    @abc.abstractmethod
    async def receive_some(self) -> bytes:
        """Return the next bytes, b"" at the end of the stream."""

    @abc.abstractmethod
    async def send_all(self, data: bytes) -> None:
        """Send everything."""

    @abc.abstractmethod
    def send_now(self, data: bytes) -> int:
        """Send what can be sent without waiting; return how much that was."""

    def delivered(self) -> tuple[int, int]:
        """Return how many bytes the peer's system has taken, and how many are on their way; zeros where nobody knows.

        What it has taken its program need not have read.
        """
        return 0, 0

    def limit_reads(self, size: int) -> None:  # noqa: B027  only sockets are asked for more than a little
        """Return no more than so many bytes at once from now on."""

    def is_reset(self) -> bool:
        """Whether the connection is known to be gone, though there may be something to be read still."""
        return False

    async def linger(self, limit: int) -> None:  # noqa: B027  most streams have nothing to do here
        """Shut this side, then read and discard until the peer's end; cancelled, it can be called again.

        Args:
            limit: give up when so many bytes have come.
        """

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Close at once; never waits for the peer."""


class SocketByteStream(ByteStream):
    """A stream socket, read and written directly once the kernel says that it is ready.

    `trio.SocketStream` tries first and waits afterwards, which costs one system call more per message where a peer
    answers message by message. Takes the socket over: the stream it came from is no longer of use.

    Args:
        stream: the socket.
        clock: measures, in seconds, how long a read takes to work through; by default in CPU time of the thread, which
            does not grow on a busy machine.
    """

    def __init__(self, stream: trio.SocketStream, clock: Callable[[], float] = time.thread_time) -> None:
        descriptor = stream.socket.detach()
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._read_size = _MIN_READ
        self._max_read = _MAX_READ
        self._clock = clock
        self._filled = False  # there may be more to read than was taken
        self._handed_over = 0.0
        self._closed = False

    async def receive_some(self) -> bytes:
        if self._filled or self._read_size > _MIN_READ:
            self._adapt(self._clock() - self._handed_over)
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                data = self._socket.recv(self._read_size)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise trio.BrokenResourceError("connection lost") from error
            size = len(data)
            self._filled = size == self._read_size
            if self._read_size > _MIN_READ and size < self._read_size >> 2:
                self._read_size = max(self._read_size >> 1, _MIN_READ)
            if self._filled or self._read_size > _MIN_READ:
                self._handed_over = self._clock()
            return data

    def _adapt(self, seconds: float) -> None:
        """Read more at a time, or less, after what was read last has taken so long to work through.

        A peer that sends the smallest frames makes that a hundred times longer than an honest one; everybody else
        waits meanwhile.
        """
        if seconds > _LONG_TURN_SECONDS:
            self._read_size = _MIN_READ
        elif self._filled and seconds < _LONG_TURN_SECONDS / 4:
            self._read_size = min(self._read_size * 4, self._max_read)

    def limit_reads(self, size: int) -> None:
        self._max_read = max(size, _MIN_READ)

    def send_now(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError("connection lost") from error

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        sent = self.send_now(data)
        if sent == len(data):
            return
        with memoryview(data) as view:
            while sent < len(data):
                await trio.lowlevel.wait_writable(self._socket)
                try:
                    sent += self._socket.send(view[sent:])
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError as error:
                    raise trio.BrokenResourceError("connection lost") from error

    def delivered(self) -> tuple[int, int]:
        return _delivered(self._socket)

    def is_reset(self) -> bool:
        return _is_reset(self._socket)

    async def linger(self, limit: int) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
            turn = turns_of_run().turn  # a thousand connections may end at once
            while limit > 0 and (data := await self.receive_some()):
                limit -= len(data)
                await turn(Lane.OTHERS)
        except (OSError, trio.BrokenResourceError):
            pass  # the peer is gone

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()


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
        await self._transport.aclose()


class TlsByteStream(GenericByteStream):
    """TLS over a socket."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        super().__init__(stream)
        self._tls: trio.SSLStream[Any] = stream
        self._transport = stream.transport_stream
        self._closing_transport: _ClosingTransport | None = None

    def delivered(self) -> tuple[int, int]:
        return _delivered(self._transport.socket)

    def is_reset(self) -> bool:
        return _is_reset(self._transport.socket)

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


def _delivered(sock: socket.socket | trio.socket.SocketType) -> tuple[int, int]:
    if sys.platform != "linux":
        return 0, 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
        waiting = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0, 0  # not TCP
    return int.from_bytes(info[_BYTES_ACKED], sys.byteorder), int.from_bytes(waiting, sys.byteorder)


def _is_reset(sock: socket.socket | trio.socket.SocketType) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
    except OSError:
        return False  # not TCP, or closed here


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
