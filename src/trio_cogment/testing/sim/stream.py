"""One end of a simulated connection, as a stream of Trio's."""

from __future__ import annotations

import math

import trio

from trio_cogment.testing.sim.links import BREAK, END, Flow

_MAX_READ = 64 * 1024


class SimStream(trio.abc.HalfCloseableStream):
    """One end of a connection; behaves as `trio.SocketStream` does.

    After `Cancelled` a `receive_some` has lost nothing, and a `send_all` has sent any part of its bytes.

    Attributes:
        incoming: the bytes that this end receives.
        outgoing: the bytes that it sends.
        gone: whether this end is closed, or its host is down.
    """

    def __init__(self, incoming: Flow, outgoing: Flow) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.gone = False
        self._closed = False
        self._ended = False
        self._broken: str | None = None
        self._reading: trio.CancelScope | None = None
        self._writing: trio.CancelScope | None = None

    # Called by the network

    def touch(self) -> None:
        """Something has changed: tasks that wait here may have to wake earlier or later."""
        if self._reading is not None and self._reading.deadline != (at := self._readable_at()):
            self._reading.deadline = at  # which costs more than to compare it
        if self._writing is not None and self._writing.deadline != (at := self._writable_at()):
            self._writing.deadline = at

    def break_now(self, why: str) -> None:
        """Let every operation fail from now on."""
        self._broken = self._broken or why
        self.gone = True
        self.touch()

    def close(self) -> None:
        """As `aclose`, at once."""
        if self._closed:
            return
        self._closed = self.gone = True
        unread, coming = self.incoming.stop_reading()
        if self.outgoing.receiver_gone:
            self.outgoing.path.flows.pop(self.outgoing, None)
        if unread:
            self.outgoing.push_marker(BREAK)
        elif not self._ended:
            self.outgoing.push_marker(END)
        if coming:
            self.outgoing.push_marker(BREAK, self.incoming.path.link.latency_seconds)
        self.touch()

    # Waiting

    def _readable_at(self) -> float:
        if self._closed or self._broken is not None:
            return -math.inf
        return min(self.incoming.first_arrival, self.outgoing.give_up_at)

    def _writable_at(self) -> float:
        if self._closed or self._ended or self._broken is not None or self.outgoing.room > 0:
            return -math.inf
        return min(self.incoming.broken_at, self.outgoing.give_up_at)

    def _check(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("the stream is closed")
        until = self.outgoing.give_up_at
        if self._broken is None and until < math.inf and trio.current_time() >= until:
            self._broken = "nothing that was sent arrives"
        if self._broken is not None:
            raise trio.BrokenResourceError(self._broken)

    # trio.abc.HalfCloseableStream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See `trio.abc.ReceiveStream.receive_some`."""
        if max_bytes is None:
            max_bytes = _MAX_READ
        if not isinstance(max_bytes, int):
            raise TypeError("max_bytes: expected an int")
        if max_bytes < 1:
            raise ValueError("max_bytes: expected 1 or more")
        self._check()
        if self._reading is not None:
            raise trio.BusyResourceError("another task reads from this stream")
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.incoming.first_arrival <= trio.current_time():
            await trio.lowlevel.cancel_shielded_checkpoint()
        while True:
            self._check()
            taken = self.incoming.take(max_bytes)
            if taken is BREAK:
                self._broken = "the connection was reset"
                raise trio.BrokenResourceError(self._broken)
            if taken is END:
                return b""
            if isinstance(taken, bytes):
                return taken
            if self._reading is not None:
                raise trio.BusyResourceError("another task reads from this stream")
            # Written out, as in `_wait_room`, without a context manager: every read of a simulation runs this code.
            with trio.CancelScope(deadline=self._readable_at()) as self._reading:
                try:
                    await trio.sleep_forever()
                finally:
                    self._reading = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream.send_all`."""
        self._check_writing()
        await trio.lowlevel.checkpoint()
        rest = bytes(data)
        while rest:
            await self._wait_room()
            room = self.outgoing.room
            self.outgoing.push(rest[:room])
            rest = rest[room:]

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream.wait_send_all_might_not_block`."""
        self._check_writing()
        await trio.lowlevel.checkpoint()
        await self._wait_room()

    async def send_eof(self) -> None:
        """See `trio.abc.HalfCloseableStream.send_eof`."""
        if not self._ended:
            self._check_writing()
            self._ended = True
            self.outgoing.push_marker(END)
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close this end: what was sent still arrives. Bytes that nobody has read here reset the connection."""
        self.close()
        await trio.lowlevel.checkpoint()

    def _check_writing(self) -> None:
        if self._writing is not None:
            raise trio.BusyResourceError("another task writes to this stream")
        self._check_open()

    def _check_open(self) -> None:
        self._check()
        if self._ended:
            raise trio.ClosedResourceError("nothing can be sent after send_eof")
        if self.incoming.broken_at < math.inf and trio.current_time() >= self.incoming.broken_at:
            self._broken = "the connection was reset"
            raise trio.BrokenResourceError(self._broken)

    async def _wait_room(self) -> None:
        while True:
            self._check_open()
            if self.outgoing.room > 0:
                return
            if self._writing is not None:
                raise trio.BusyResourceError("another task writes to this stream")
            with trio.CancelScope(deadline=self._writable_at()) as self._writing:
                try:
                    await trio.sleep_forever()
                finally:
                    self._writing = None
