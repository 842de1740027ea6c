"""Received bytes of a connection that no handler has taken: borrowed, like all that waits in a server.

HTTP/2 has windows: a message that is large is let through when there is memory for all of it. Here a client sends what
it likes, so a connection that may not borrow is not read from until it may: the client waits with what it has not sent,
for a while. A message that comes no further while others wait ends its call (see `budget.debts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import trio
from typing_extensions import override

from trio_cogment.base.errors import StatusCode
from trio_cogment.budget.byte_pool import Loan
from trio_cogment.budget.waiting_bytes import WaitingBytes
from trio_cogment.web.output import Pending

T = TypeVar("T")

#: What is read at once. It is in nobody's books until it has been looked at, and that takes a while.
READ_BYTES: Final = 64 * 1024
#: What a connection may have without a loan: there may be thousands that never send more.
_FREE_BYTES: Final = 16 * 1024
#: How long a message waits for memory before its call is refused: its client had better try again than stand in line.
_PATIENCE_SECONDS: Final = 5.0
#: More than any message has.
_FAR: Final = 2**62
#: Frames, messages and chunks that are handled without looking whether others wait for a turn, and what they cost.
MOST_AT_ONCE: Final = 32
BATCH_UNITS: Final = 8


class Breakable:
    """A connection with the call that a message belongs to."""

    def on_broken(self, code: StatusCode, text: str) -> None:
        """End the call, or the connection where there is none."""

    def lose(self) -> None:
        """The client is gone."""


class Intake(WaitingBytes):
    """See the module.

    Args:
        loan: what is borrowed; nothing yet.

    Attributes:
        begun: bytes of a message that is not whole, with those that are known to follow; or of one that is, and has not
            been handed over.
        missing: shrinks by what comes of it; 0: no message is waited for.
        call: is told when it comes no further; None: the connection is not served.
        waits: for memory.
    """

    def __init__(self, loan: Loan) -> None:
        super().__init__(loan, _FREE_BYTES)
        self.begun = 0
        self.missing = 0
        self.call: Breakable | None = None
        self.waits = False
        self._until = 0.0

    @property
    @override
    def held(self) -> int:
        return self.queued + self.begun

    async def begin(self, held: int, missing: int) -> None:
        """Return when there is room for a message that has begun, as far as its size is known.

        Nothing may be read meanwhile, and nothing handed over. If there is no room for long, the call ends.

        Args:
            held: what has come of it; 0: none has begun.
            missing: what is known to follow.
        """
        self.missing = _FAR - held if held else 0
        changed = trio.Event()
        while (more := held + missing - self.begun) > 0 and not super().admits(more, changed.set):
            await self._wait(changed)
            changed = trio.Event()
        self.waits = False
        self.begun = held + missing
        self.settle()

    async def _wait(self, changed: trio.Event) -> None:
        if not self.waits:
            self.waits = True
            self._until = trio.current_time() + _PATIENCE_SECONDS
        with trio.move_on_at(self._until) as scope:
            await changed.wait()
        call = self.call
        if scope.cancelled_caught and call is not None:
            text = (
                f"server_memory_bytes: there was no memory for a message for {_PATIENCE_SECONDS:g} s; try again later"
            )
            call.on_broken(StatusCode.RESOURCE_EXHAUSTED, text)
            await trio.sleep_forever()

    async def take(self, size: int) -> None:
        """Return when a whole message may wait for its handler, and count it: as it came, or now."""
        self.missing = 0
        changed = trio.Event()
        while not self.admits(size, changed.set):
            await changed.wait()
            changed = trio.Event()
        self.queue(size)

    def release(self) -> None:
        """What has begun is of no interest any more."""
        self.begun = self.missing = 0
        self.waits = False
        self.settle()

    # --- what is handed over ---

    def admits(self, size: int, again: Callable[[], None]) -> bool:
        """See `WaitingBytes.admits`; what has been counted since it came is not counted again."""
        return size <= self.begun or super().admits(size, again)

    @override
    def queue(self, change: int) -> None:
        if change > 0:
            self.begun -= min(change, self.begun)
        super().queue(change)

    @override
    def discard(self) -> None:
        self.begun = self.missing = 0
        self.call = None
        super().discard()


class Borrowing:
    """What one connection has borrowed, in both directions; see `budget.debts`.

    A connection that waits for memory is not read from, so somebody has to see that its client is gone.

    Args:
        intake: of the connection.
        output: of the connection.
        is_gone: tells whether the client is.
    """

    def __init__(self, intake: Intake, output: Pending, is_gone: Callable[[], bool]) -> None:
        self._intake = intake
        self._output = output
        self._is_gone = is_gone
        self.send_mark = output.send_mark

    def settle(self) -> None:
        """See `DebtorsEngine.settle`."""
        intake = self._intake
        if intake.waits and intake.call is not None and self._is_gone():
            intake.call.lose()
        intake.settle()
        self._output.settle()

    def incomplete(self) -> Sequence[Intake]:
        """See `DebtorsEngine.incomplete`."""
        intake = self._intake
        return (intake,) if intake.missing and intake.loan.size else ()

    def reset(self, message: Intake, code: int) -> None:
        """See `DebtorsEngine.reset`: the connection is gone already."""


def units_of(data: bytes) -> int:
    """Return what it may cost to work through what was read, in units of `turn_order`: all may be tiny frames."""
    return 1 + len(data) // 1024


def in_batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Return the items, a few at a time; whoever takes them lets others have their turn in between."""
    left = iter(items)
    while batch := [*islice(left, MOST_AT_ONCE)]:
        yield batch
