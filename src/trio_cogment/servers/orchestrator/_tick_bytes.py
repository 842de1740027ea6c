"""The memory of what trials hold of the ticks under way: actions that wait for others, messages, samples that are made.

What is small is free. What is more is borrowed from what the whole process may hold (`server_memory_bytes`), like what
waits for participants (`_outboxes`). It is given back only when the tick is over, and nobody need ever end one. So when
there is nothing left the trial ends that has held most for longest: one that ticks is hardly ever that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.memory import memory_of_run

#: What every trial may hold without a loan.
FREE_BYTES: Final = 16 * 1024
#: Loans are changed in steps of this size.
_STEP_BYTES: Final = 64 * 1024
#: This part of the pool the ticks may have, though others have borrowed all of it.
_RESERVED_PART: Final = 8


class TickMemory:
    """What the ticks of all trials have borrowed.

    Args:
        pool: from which they borrow.
    """

    def __init__(self, pool: BytePool) -> None:
        self.pool = pool
        self.borrowers: dict[TickBytes, None] = {}

    def reserved(self, more: int) -> bool:
        """Whether so much more is there for ticks in any case."""
        lent = sum(borrower.borrowed for borrower in self.borrowers)
        return lent + more <= self.pool.total / _RESERVED_PART

    def hog(self, now: float) -> TickBytes | None:
        """Return whose loan, by its size and its age, is the greatest; None: nobody has any."""
        return max(self.borrowers, key=lambda borrower: borrower.borrowed * (now - borrower.since), default=None)


_memory: trio.lowlevel.RunVar[TickMemory] = trio.lowlevel.RunVar("trio_cogment.servers.orchestrator ticks")


def tick_memory() -> TickMemory:
    """Return that of this run of Trio."""
    try:
        return _memory.get()
    except LookupError:
        memory = TickMemory(memory_of_run().messages)
        _memory.set(memory)
        return memory


class TickBytes:
    """What one trial holds of its tick.

    Args:
        memory: from which is borrowed.
        give_way: ends the trial, because others need the memory.

    Attributes:
        since: when the tick began for which is borrowed.
    """

    __slots__ = ("_give_way", "_loan", "_memory", "_tick_id", "since")

    def __init__(self, memory: TickMemory, give_way: Callable[[], None]) -> None:
        self.since = 0.0
        self._memory = memory
        self._give_way = give_way
        self._loan = memory.pool.loan()
        self._tick_id: int  # of the loan, where there is one

    @property
    def borrowed(self) -> int:
        """How many bytes are borrowed."""
        return self._loan.size

    def hold(self, size: int, tick_id: int, now: float) -> None:
        """Hold this many bytes from now on. If they are not there, trials end, and this one may be among them.

        Args:
            size: all that is held.
            tick_id: of the tick.
            now: on Trio's clock.
        """
        need = -(-(size - FREE_BYTES) // _STEP_BYTES) * _STEP_BYTES if size > FREE_BYTES else 0
        if not self._loan.size or tick_id != self._tick_id:
            self._tick_id, self.since = tick_id, now
        if not need:
            self.close()
        while need > self._loan.size and not self._borrow(need):
            hog = self._memory.hog(now) or self
            freed = hog.borrowed
            hog.close()
            hog._give_way()
            if hog is self:
                return
            if self._loan.size + freed >= need:
                # Though the last sample of that trial may still be on its way to its data log.
                self._take(need)
        if need < self._loan.size:
            self._loan.set(need)

    def _borrow(self, need: int) -> bool:
        memory, loan = self._memory, self._loan
        more = need - loan.size
        if not loan.resize(need) and not loan.exceed(more) and not memory.reserved(more):
            return False
        self._take(need)
        return True

    def _take(self, need: int) -> None:
        self._loan.set(need)
        self._memory.borrowers[self] = None

    def close(self) -> None:
        """Nothing is held any more."""
        self._loan.close()
        self._memory.borrowers.pop(self, None)
