"""The bytes below a connection: what it needs of them, and a socket by the short way.

Sockets are read and written without `trio.SocketStream`, for three reasons:

- `trio.SocketStream.receive_some` calls `recv` first and waits only when that fails. A peer that answers message by
  message has rarely sent the next one yet, so the first `recv` would nearly always be wasted. `receive_some` here waits
  until the socket is readable, and then reads once. Where more is likely to have come, `receive_now` reads without
  waiting.
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
from collections.abc import Callable, Sequence
from typing import Final

import trio

from trio_cogment.base.compiling import mypyc_attr
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run

if sys.platform == "linux":
    # Not when they are needed first: a process that has run out of descriptors cannot import anything.
    import fcntl
    import termios

_MIN_READ: Final = 16 * 1024
_MAX_READ: Final = 1024 * 1024
#: What is read at once should not take longer than this to work through.
_LONG_TURN_SECONDS: Final = 0.02
#: After so many reads in a row that brought less than a quarter of what was asked for, less is asked for: a peer sends
#: small frames between large messages.
_SMALL_READS: Final = 8
#: The system takes no more at once (IOV_MAX).
_MOST_PIECES: Final = 1024
#: Where Linux's `struct tcp_info` has `tcpi_bytes_acked`.
_BYTES_ACKED_AT: Final = 120
_BYTES_ACKED_END: Final = 128
#: The first byte of the same, where the peer has reset the connection.
_TCP_CLOSE: Final = 7


@mypyc_attr(allow_interpreted_subclasses=True)
class ByteStream(abc.ABC):
    """What a connection needs of a byte stream. Failures are `trio.BrokenResourceError`."""

    @abc.abstractmethod
    async def receive_some(self) -> bytes:
        """Return the next bytes, b"" at the end of the stream."""

    def receive_now(self, size: int) -> bytes:
        """Return at most this many bytes that have come; b"" if none have, or if only `receive_some` can say."""
        return b""

    @abc.abstractmethod
    async def send_all(self, data: bytes) -> None:
        """Send everything."""

    @abc.abstractmethod
    def send_now(self, data: bytes) -> int:
        """Send what can be sent without waiting; return how much that was."""

    def send_pieces_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        """As `send_now`, for what is in several pieces."""
        return self.send_now(b"".join(pieces))

    async def send_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        """As `send_all`, for what is in several pieces."""
        await self.send_all(b"".join(pieces))

    def delivered(self) -> tuple[int, int]:
        """Return how many bytes the peer's system has taken, and how many are on their way; zeros where nobody knows.

        What it has taken its program need not have read.
        """
        return 0, 0

    def limit_reads(self, size: int) -> None:  # noqa: B027  only sockets are asked for more than a little
        """Return no more than this many bytes at once from now on."""

    def is_reset(self) -> bool:
        """Whether the connection is known to be gone, though there may be something to be read still."""
        return False

    async def linger(self, limit: int) -> None:  # noqa: B027  most streams have nothing to do here
        """Shut this side, then read and discard until the peer's end; cancelled, it can be called again.

        Args:
            limit: give up when this many bytes have come.
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
        self._small_reads = 0  # in a row
        self._filled = False  # there may be more to read than was taken
        self._measured = False  # what was read last is so large that it may take long to work through
        self._handed_over = 0.0
        self._closed = False

    async def receive_some(self) -> bytes:
        if self._measured:
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
            if size < _MIN_READ == self._read_size:  # the usual case
                self._filled = self._measured = False
                return data
            self._filled = size == self._read_size
            if size >= self._read_size >> 2:
                self._small_reads = 0
            else:
                self._small_reads += 1
                if self._small_reads > _SMALL_READS:
                    self._small_reads = 0
                    self._read_size = max(self._read_size >> 1, _MIN_READ)
            self._measured = size >= _MIN_READ
            if self._measured:
                self._handed_over = self._clock()
            return data

    def receive_now(self, size: int) -> bytes:
        if self._measured:
            return b""
        try:
            return self._socket.recv(size)
        except OSError:
            return b""  # a failure is met again by whoever waits

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
        await self.send_pieces((data,))

    def send_pieces_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        try:
            return self._socket.sendmsg(pieces[:_MOST_PIECES])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError("connection lost") from error

    async def send_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            pieces = unsent(pieces, self.send_pieces_now(pieces))
            if not pieces:
                return
            await trio.lowlevel.wait_writable(self._socket)

    def delivered(self) -> tuple[int, int]:
        return bytes_delivered(self._socket)

    def is_reset(self) -> bool:
        return was_reset(self._socket)

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


def unsent(pieces: Sequence[bytes | memoryview], sent: int) -> Sequence[bytes | memoryview]:
    """Return what is left of pieces after so many bytes of them have been sent; nothing is copied."""
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [memoryview(piece)[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return ()


def bytes_delivered(sock: socket.socket | trio.socket.SocketType) -> tuple[int, int]:
    """Return `ByteStream.delivered` of a socket."""
    if sys.platform != "linux":
        return 0, 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED_END)
        waiting = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0, 0  # not TCP
    return int.from_bytes(info[_BYTES_ACKED_AT:_BYTES_ACKED_END], sys.byteorder), int.from_bytes(waiting, sys.byteorder)


def was_reset(sock: socket.socket | trio.socket.SocketType) -> bool:
    """Return `ByteStream.is_reset` of a socket."""
    if sys.platform != "linux":
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
    except OSError:
        return False  # not TCP, or closed here
