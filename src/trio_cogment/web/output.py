"""What a connection has to send: gathered here, taken by the writer in pieces that a slow client can be timed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from trio_cogment.access import BytePool
from trio_cogment.rpc.relay import ByteStream

#: What is handed to the system at once; a client has `write_stall_timeout_seconds` for each.
_PIECE_BYTES = 256 * 1024


class RoomListener(Protocol):
    """Whoever is told when output has been taken."""

    @property
    def call(self) -> RoomListener:
        """The same: the writer tells calls of streams, and here is one call."""

    def on_room(self) -> None:
        """Some output has been taken."""


class Pending:
    """The output of one connection; see `rpc.relay.Output`.

    Attributes:
        out_size: bytes that wait.
        listener: is told when some have been taken.
    """

    #: There is one call at most, so nobody is likely to add something before the writer's turn.
    streams: Sequence[None] = (None,)

    def __init__(self) -> None:
        self.out_size = 0
        #: One call's message and a little more: nothing is borrowed for that.
        self.loan = BytePool().loan()
        self.listener: RoomListener | None = None
        self._pieces: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Add bytes."""
        if data:
            self._pieces.append(data)
            self.out_size += len(data)

    def sent(self) -> None:
        """Learn that what was taken last has been sent."""

    def take_output(self) -> bytes:
        """Return the next bytes to send."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        if len(data) > _PIECE_BYTES:
            self._pieces.append(data[_PIECE_BYTES:])
            data = data[:_PIECE_BYTES]
        self.out_size -= len(data)
        return data

    def take_rooms(self) -> Sequence[RoomListener]:
        """Return who is to be told that there is room."""
        return () if self.listener is None else (self.listener,)


class Timed(ByteStream):
    """A byte stream of which each `send_all` has a time limit.

    Args:
        byte_stream: below.
        seconds: the limit.
    """

    def __init__(self, byte_stream: ByteStream, seconds: float) -> None:
        self._below = byte_stream
        self._seconds = seconds

    async def receive_some(self) -> bytes:
        """See `ByteStream.receive_some`."""
        return await self._below.receive_some()

    def send_now(self, data: bytes) -> int:
        """See `ByteStream.send_now`."""
        return self._below.send_now(data)

    async def send_all(self, data: bytes) -> None:
        """Send everything, or fail as if the peer were gone."""
        with trio.move_on_after(self._seconds) as scope:
            await self._below.send_all(data)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError(f"the client has not read for {self._seconds:g} s")

    async def aclose(self) -> None:
        """See `ByteStream.aclose`."""
        await self._below.aclose()
