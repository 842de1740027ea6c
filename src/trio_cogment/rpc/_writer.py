"""Sends an engine's output: in batches where that saves system calls, at once where somebody waits for it.

There are two ways to the socket. The writer's task takes whatever has gathered since it was woken, so that many calls
share a system call; but it runs only in the next round of Trio's scheduler, and the switch to it costs more than the
send. So output that nothing will follow is sent in the task that has made it (`Writer.flush`): after a batch of
received bytes has been handled, because calls answer in the reader's own task; and when a call has sent its only
message or its end, and is the only call of its connection (`Writer.flush_soon`). With more calls, others are likely to
add something before the writer runs.

Only one of the two sends at a time, or frames would mix: `flush` does nothing while the writer's task is in `send_all`.
What the socket does not take at once is left to the writer, which waits.

Small output is put together, as a system call for each piece would cost more. Large output goes to the socket in the
pieces that it has: putting a megabyte together costs as much as sending it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Any, Final, Protocol

import trio

from trio_cogment.budget.byte_pool import Loan
from trio_cogment.rpc._byte_stream import ByteStream, unsent

#: Larger output takes turns with that of other connections, where a thousand of them have been sent the same.
_LARGE_BYTES: Final = 16 * 1024
#: So much is sent at once without a task switch; others may have something to do, too.
_AT_ONCE_BYTES: Final = 1024 * 1024
#: Output from this size on is sent in pieces.
_GATHERED_BYTES: Final = 32 * 1024


class Output(Protocol):
    """What a writer sends: that of an engine."""

    @property
    def out_size(self) -> int:
        """Bytes that wait."""

    @property
    def loan(self) -> Loan:
        """What is borrowed for what waits."""

    @property
    def streams(self) -> Sized:
        """The calls of the connection."""

    @property
    def rooms(self) -> Sized:
        """What `take_rooms` would return."""

    def take_output(self) -> bytes:
        """Return what waits; the rest, if that is not all of it, is asked for when this has been sent."""

    def take_pieces(self) -> list[bytes | memoryview]:
        """As `take_output`, in pieces that are to be sent one after the other."""

    def sent(self) -> None:
        """Learn that what was taken last has been sent."""

    def take_rooms(self) -> Sequence[Any]:
        """Return the streams whose calls may send more."""


class Writer:
    """See the module.

    Args:
        engine: whose output.
        byte_stream: where it goes.
        turn: waits until so much output may be sent; small ones are sent at once.
        exact: tell the engine each time that what it has given was sent, and not only where something is borrowed.

    Attributes:
        in_batch: the reader is handling received bytes, and calls `flush` afterwards: nothing need be woken.
    """

    def __init__(
        self,
        engine: Output,
        byte_stream: ByteStream,
        turn: Callable[[int], Awaitable[None]] | None = None,
        *,
        exact: bool = False,
    ) -> None:
        self.in_batch = False
        self._engine = engine
        self._loan = engine.loan
        self._byte_stream = byte_stream
        self._turn = turn
        self._exact = exact
        self._parked: trio.lowlevel.Task | None = None  # the writer's task, while nothing is being sent
        self._leftover: Sequence[bytes | memoryview] = ()  # was taken, and has not been sent
        self._finishing = False

    async def run(self) -> None:
        """Send what comes until `finish` has been called and everything has been sent.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError: the peer is gone.
        """
        engine = self._engine
        while True:
            pieces, self._leftover = self._leftover, ()
            if not pieces:
                pieces = self._take()  # not before the rest has been sent, which counts as taken still
            if engine.rooms:
                self._tell(engine.take_rooms())
            size = sum(map(len, pieces))
            if size:
                if size > _LARGE_BYTES and self._turn is not None:
                    await self._turn(size)
                await self._byte_stream.send_pieces(pieces)
                if self._exact:
                    engine.sent()
            elif self._finishing:
                return
            else:
                self._parked = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _take(self) -> Sequence[bytes | memoryview]:
        engine = self._engine
        return engine.take_pieces() if engine.out_size >= _GATHERED_BYTES else (engine.take_output(),)

    def _abort(self, _: Any) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED

    def finish(self) -> None:
        """Let `run` return when everything has been sent."""
        self._finishing = True
        self.wake()

    def wake(self) -> None:
        """There is output: send it soon."""
        if self._parked is not None and not self.in_batch:
            task, self._parked = self._parked, None
            trio.lowlevel.reschedule(task)

    def flush_soon(self) -> None:
        """As `wake`, for output that nothing will follow: with a single call there is nobody to batch it with."""
        if len(self._engine.streams) <= 1 and not self.in_batch:
            self.flush()
        else:
            self.wake()

    def flush(self) -> None:
        """Send without a task switch if that goes without waiting; else leave it to the writer's task.

        Calls whose outbox has shrunk are told in any case.
        """
        engine = self._engine
        if self._parked is None or self._leftover or not engine.out_size:  # a call that is told below may flush again
            if engine.rooms:
                self._tell(engine.take_rooms())
            return
        left = _AT_ONCE_BYTES
        while True:
            size = engine.out_size
            try:
                if size < _GATHERED_BYTES:
                    data = engine.take_output()
                    size = len(data)
                    pieces: Sequence[bytes | memoryview] = ()
                    sent = self._byte_stream.send_now(data)
                else:
                    data = b""
                    pieces = engine.take_pieces()
                    size = sum(map(len, pieces))
                    sent = self._byte_stream.send_pieces_now(pieces)
            except trio.BrokenResourceError:
                sent = 0  # the writer's task will meet it again, and ends the connection
            if sent < size:
                self._leftover = unsent(pieces or (data,), sent)
                break
            if self._exact or self._loan.size:
                engine.sent()
            left -= size
            # More than fits into the output at once: the next part goes as long as the socket takes it.
            if not engine.out_size or left <= 0:
                break
        if engine.rooms:
            self._tell(engine.take_rooms())
        if self._leftover or engine.out_size:
            self.wake()

    def _tell(self, rooms: Sequence[Any]) -> None:
        """Tell calls whose outbox has shrunk."""
        for stream in rooms:
            if stream.call is not None:
                stream.call.on_room()
