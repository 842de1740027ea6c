"""Output of a connection: gathered here, taken by the writer in pieces that a slow client can be timed by."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import trio
from typing_extensions import override

from trio_cogment.base.recount import Count
from trio_cogment.budget.byte_pool import Loan
from trio_cogment.budget.waiting_bytes import WaitingBytes
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


class Pending(WaitingBytes):
    """The output of one connection; see `rpc.relay.Output`.

    What its call has sent and it has not taken belongs to it, too (`queued`). It is what `budget.debts` looks at while
    memory is short: who reads gets on.

    Attributes:
        out_size: bytes that wait.
        listener: is told when some have been taken.
    """

    #: There is one call at most, so nobody is likely to add something before the writer's turn.
    streams: Sequence[None] = (None,)

    def __init__(self, loan: Loan) -> None:
        super().__init__(loan)
        self.out_size = 0
        self.listener: RoomListener | None = None
        #: With each, whether it ends what must not be interrupted.
        self._pieces: deque[tuple[bytes | memoryview, bool]] = deque()
        self._cut = False  # the first of them is the rest of something that has begun
        self._answer = b""
        self._in_flight = 0  # what was taken last; it may be on its way still
        self._taken = 0  # bytes, ever

    @property
    @override
    def held(self) -> int:
        return self.queued + self.out_size + self._in_flight

    def add(self, *pieces: bytes) -> None:
        """Add bytes that belong together. They are not copied before they are taken: others may have the same."""
        left = sum(map(len, pieces))
        self.out_size += left
        for piece in pieces:
            if piece:
                left -= len(piece)
                self._pieces.append((piece, not left))
        self.cover()

    def answer(self, data: bytes) -> None:
        """Add the answer to a ping, instead of one that is waiting still.

        Only the last ping need be answered (RFC 6455, 5.5.3), so who sends many and reads nothing gets no more for it.
        """
        self.out_size += len(data) - len(self._answer)
        self._answer = data

    async def wait_room(self, size: int) -> None:
        """Return when this many bytes may be added; nobody else may wait for room meanwhile."""
        changed = trio.Event()
        while not self.admits(size, changed.set):
            await changed.wait()
            changed = trio.Event()

    def sent(self) -> None:
        """Learn that what was taken last has been sent."""
        self._in_flight = 0
        self.settle()

    def take_output(self) -> bytes:
        """Return the next bytes to send."""
        return b"".join(self.take_pieces())

    def take_pieces(self) -> list[bytes | memoryview]:
        """As `take_output`, in pieces that are to be sent one after the other."""
        pieces, room = self._pieces, _PIECE_BYTES
        taken: list[bytes | memoryview] = []
        while pieces and room > 0:
            if self._answer and not self._cut:
                taken.append(self._answer)
                self._answer = b""
            piece, ends = pieces[0]
            if len(piece) <= room:
                pieces.popleft()
                self._cut = not ends
            else:
                view = memoryview(piece)
                pieces[0], piece = (view[room:], ends), view[:room]
                self._cut = True
            taken.append(piece)
            room -= len(piece)
        if self._answer and not self._cut:
            taken.append(self._answer)
            self._answer = b""
        size = sum(map(len, taken))
        self.out_size -= size
        self._in_flight = size
        self._taken += size
        return taken

    @property
    def rooms(self) -> Sequence[RoomListener]:
        """Who is to be told that there is room."""
        return () if self.listener is None else (self.listener,)

    def take_rooms(self) -> Sequence[RoomListener]:
        """Return the same."""
        return self.rooms

    def discard(self) -> None:
        """See `WaitingBytes.discard`; what waits is dropped."""
        self._pieces.clear()
        self._cut, self._answer = False, b""
        self.out_size = self._in_flight = 0
        super().discard()

    # --- while memory is short ---

    def send_mark(self) -> object:
        """See `DebtorsEngine.send_mark`."""
        return self._taken if self.loan.size else None

    @override
    def recount(self) -> Iterator[Count]:
        yield from super().recount()
        yield Count(
            "bytes of output for a browser",
            self.out_size,
            len(self._answer) + sum(len(piece) for piece, _ in self._pieces),
            None,
        )


class Timed(ByteStream):
    """A byte stream of which each `send_all` has a time limit.

    Args:
        byte_stream: below.
        seconds: the limit.
    """

    def __init__(self, byte_stream: ByteStream, seconds: float) -> None:
        self._below = byte_stream
        self._seconds = seconds

    @override
    async def receive_some(self) -> bytes:
        return await self._below.receive_some()

    @override
    def send_now(self, data: bytes) -> int:
        return self._below.send_now(data)

    @override
    def send_pieces_now(self, pieces: Sequence[bytes | memoryview]) -> int:
        return self._below.send_pieces_now(pieces)

    async def send_all(self, data: bytes) -> None:
        """Send everything, or fail as if the peer were gone."""
        await self.send_pieces((data,))

    async def send_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        """As `send_all`."""
        with trio.move_on_after(self._seconds) as scope:
            await self._below.send_pieces(pieces)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError(f"the client has not read for {self._seconds:g} s")

    @override
    async def aclose(self) -> None:
        await self._below.aclose()
