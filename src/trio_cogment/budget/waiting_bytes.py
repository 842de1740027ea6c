"""The bytes that wait in one place of a connection, of which what is beyond a free part is borrowed.

It is for connections that have no windows of their own, and for the calls within the process behind them: whoever is
about to add something asks first, and waits until there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from trio_cogment.base.recount import Count
from trio_cogment.budget.byte_pool import Loan

#: What may wait without a loan, where nothing else is said.
FREE_BYTES: Final = 64 * 1024
#: With so much to be had, messages need not be measured: one that is larger still finds room in the pool.
_PLENTY_BYTES: Final = 1024 * 1024


class WaitingBytes:
    """See the module.

    Args:
        loan: what is borrowed; nothing yet.
        free_bytes: what may wait without a loan.

    Attributes:
        loan: the same.
        queued: the bytes in queues.
    """

    def __init__(self, loan: Loan, free_bytes: int = FREE_BYTES) -> None:
        self.loan = loan
        self.queued = 0
        self._free_bytes = free_bytes
        self._again: Callable[[], None] | None = None

    @property
    def held(self) -> int:
        """All the bytes that wait."""
        return self.queued

    def is_plentiful(self) -> bool:
        """Whether there is so much room that nobody has to ask for any."""
        return self.held - self._free_bytes + _PLENTY_BYTES <= self.loan.most()

    def admits(self, size: int, again: Callable[[], None]) -> bool:
        """Return whether this many bytes more may wait; they are added before anything else happens.

        Args:
            size: of what is to be added.
            again: called once when there may be room, if there is none now; the last one that was given counts.
        """
        waiting = self.held - self._free_bytes
        if waiting + size <= 0 or self.loan.hold(waiting, size):
            return True
        self._again = again
        self.loan.wait(self.wake)
        return False

    def queue(self, change: int) -> None:
        """Count bytes that have come into a queue, or left it."""
        self.queued += change
        if change > 0:
            self.cover()
        else:
            self.settle()

    def cover(self) -> None:
        """Have a loan for what has been added, whether it was asked for or not."""
        need = self.held - self._free_bytes
        if need > self.loan.size:
            self.loan.set(need)

    def settle(self) -> None:
        """Give back what was borrowed for what is not there any more, and let who waits ask again."""
        if self.loan.size:
            self.loan.set(max(self.held - self._free_bytes, 0))
        if self._again is not None:
            self.wake()

    def wake(self) -> None:
        """Let who waits ask again."""
        again, self._again = self._again, None
        if again is not None:
            again()

    def discard(self) -> None:
        """The connection is gone: give everything back, and let nobody wait."""
        self.loan.end()
        self.wake()

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        borrowed = self.loan.size
        yield Count("bytes that are borrowed for what waits", borrowed, max(borrowed, self.held - self._free_bytes))
