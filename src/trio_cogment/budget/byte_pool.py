"""Bytes of memory that many borrow from, so that all of them together stay within what a process may take.

Nobody has a fixed share. A borrower may have an eighth of what is free, beside what it has: one that is alone gets a
ninth of the pool, a hundred that want all they can get have less than a hundredth each, and an eighth of that pool is
still free for the next that comes (Choudhury and Hahne, "Dynamic queue length thresholds", 1998). So nobody can take it
all, and nobody has to be told how many others there are.

Nothing here waits. Who is refused may ask to be called when something was given back. Sizes are counted in large steps,
not for each message: a borrower takes and gives back when its own books are looked at anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

from trio_cogment.base.recount import Count

#: A borrower may have one part of this many of what is free.
_PARTS = 8
#: How many of those who wait are asked when something is given back: each of them costs something.
_ASKED_AT_ONCE = 8


def _nothing() -> None:
    """What is done by default when memory is short."""


class BytePool:
    """See the module.

    Args:
        total: how many bytes there are; infinite: whoever asks gets what it wants.

    Attributes:
        total: the same; it may be changed.
        used: how many bytes are lent.
        on_short: called when somebody waits, and nobody has before.
    """

    def __init__(self, total: float = math.inf) -> None:
        self.total = total
        self.used = 0
        self.on_short: Callable[[], None] = _nothing
        self._asking = False
        # In the order in which they are asked.
        self._waiting: dict[Loan, Callable[[], None]] = {}

    @property
    def limited(self) -> bool:
        """Whether anybody can be refused."""
        return self.total < math.inf

    @property
    def short(self) -> bool:
        """Whether somebody waits until something is given back."""
        return bool(self._waiting)

    @property
    def most(self) -> float:
        """How many bytes one borrower gets when there is no other."""
        return self.total / (_PARTS + 1)

    def loan(self) -> Loan:
        """Return a new loan, of nothing."""
        return Loan(self)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("bytes that are lent", self.used, self.used)

    def ask(self) -> None:
        """Ask those who wait, a few at a time, whether there is enough for them now."""
        if self._asking:
            return  # one of those who are asked gives something back itself; the others are asked in any case
        self._asking = True
        try:
            waiting = self._waiting
            for loan in [*islice(waiting, _ASKED_AT_ONCE)]:
                again = waiting.pop(loan, None)
                if again is not None:
                    again()  # it may wait again, behind the others
        finally:
            self._asking = False


class Loan:
    """What one borrower has.

    Attributes:
        size: how many bytes.
    """

    __slots__ = ("_pool", "size")

    def __init__(self, pool: BytePool) -> None:
        self._pool = pool
        self.size = 0

    def most(self) -> float:
        """Return how many bytes it may have now; not less than it has."""
        pool = self._pool
        return max(self.size, (pool.total - pool.used + self.size) / (_PARTS + 1))

    def resize(self, size: int) -> bool:
        """Have this many bytes from now on; False if it would be too many: nothing has changed then."""
        if size > self.size and size > self.most():
            return False
        self.set(size)
        return True

    def hold(self, waiting: int, size: int) -> bool:
        """Have enough for `size` bytes beside `waiting` ones; False if it would be too many.

        One message that is larger than what anybody can borrow is let in when there is enough for a large one.
        """
        need = waiting + size
        if need <= self.size:
            return True
        largest = self.largest
        if not self.resize(need if size <= largest else max(self.size, max(waiting, 0) + int(largest))):
            return False
        self.set(need)
        return True

    def exceed(self, more: int) -> bool:
        """Have this many bytes more, for a short time, as long as the pool has them: more than a borrower may keep."""
        pool = self._pool
        if pool.used + more > pool.total:
            return False
        self.set(self.size + more)
        return True

    def set(self, size: int) -> None:
        """Have this many bytes, whether they are there or not: they are in use already."""
        more = size - self.size
        self.size = size
        pool = self._pool
        pool.used += more
        if more < 0 and pool._waiting:
            pool.ask()

    @property
    def limited(self) -> bool:
        """Whether it can be refused anything."""
        return self._pool.limited

    @property
    def largest(self) -> float:
        """How many bytes one borrower gets although there are several others."""
        return self._pool.most / 2

    def wait(self, again: Callable[[], None]) -> None:
        """Have `again` called once, when something was given back; it may call this again."""
        pool = self._pool
        was_short = pool.short
        pool._waiting.setdefault(self, again)
        if not was_short:
            pool.on_short()

    def close(self) -> None:
        """Give everything back, and wait no more."""
        self._pool._waiting.pop(self, None)
        self.set(0)

    def end(self) -> None:
        """Give everything back for good: whatever it has from now on is nobody's memory.

        Calls may outlive their connection and still count in its books. Nobody would give that back.
        """
        self.close()
        self._pool = BytePool()
