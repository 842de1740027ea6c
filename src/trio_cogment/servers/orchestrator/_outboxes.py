"""The memory of what waits for participants that do not read as fast as they are sent to.

What waits for the participants of one trial is counted together, and borrowed from what the whole process may hold
(`server_memory_bytes`). When there is nothing left, the participant is given up for whom most waits, in the trial that
has borrowed most: a trial that waits for little is never the one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final

import trio

from trio_cogment.base.recount import Count
from trio_cogment.budget.byte_pool import BytePool, Loan
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.rpc import SharedMessage

#: What every trial may hold without a loan.
FREE_BYTES: Final = 32 * 1024
#: Loans are changed in steps of this size.
_STEP_BYTES: Final = 64 * 1024
#: This part of the pool the outboxes may have, though others have borrowed all of it.
_RESERVED_PART: Final = 8


class OutboxMemory:
    """What the outboxes of all trials have borrowed.

    Args:
        pool: from which they borrow.
    """

    def __init__(self, pool: BytePool) -> None:
        self.pool = pool
        self.borrowers: dict[Outboxes, None] = {}

    def reserved(self, more: int) -> bool:
        """Whether so much more is there for outboxes in any case."""
        lent = sum(borrower.borrowed for borrower in self.borrowers)
        return lent + more <= self.pool.total / _RESERVED_PART


_memory: trio.lowlevel.RunVar[OutboxMemory] = trio.lowlevel.RunVar("trio_cogment.servers.orchestrator outboxes")


def outbox_memory() -> OutboxMemory:
    """Return that of this run of Trio."""
    try:
        return _memory.get()
    except LookupError:
        memory = OutboxMemory(memory_of_run().messages)
        _memory.set(memory)
        return memory


class Outboxes:
    """What waits for the participants of one trial.

    Args:
        max_messages: the most messages that may wait for one participant.
        max_bytes: the most bytes, but for one message of any size.
        memory: from which is borrowed.

    Attributes:
        max_messages: see above.
        max_bytes: see above.
        size: the bytes of all that waits; what several wait for counts once.
    """

    __slots__ = ("_loan", "_memory", "_shared", "_waiting", "max_bytes", "max_messages", "size")

    def __init__(self, max_messages: int, max_bytes: int, memory: OutboxMemory) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.size = 0
        self._memory = memory
        # What few trials need is made when they do.
        self._loan: Loan | None = None
        #: How often each tail that waits is there, by its identity.
        self._shared: dict[int, int] = {}
        self._waiting: dict[Any, int] = {}

    @property
    def borrowed(self) -> int:
        """How many bytes are borrowed."""
        return 0 if self._loan is None else self._loan.size

    def add(self, participant: Hashable, message: Any) -> bool:
        """Count a message that waits; False: there is no memory for it, and it was not counted."""
        size = cost = message.ByteSize()
        if isinstance(message, SharedMessage):
            cost -= sum(len(tail) for tail in message.tails if id(tail) in self._shared)
        if self.size + cost > FREE_BYTES and not self._borrow(self.size + cost - FREE_BYTES):
            return False
        if isinstance(message, SharedMessage):
            for tail in message.tails:
                self._shared[id(tail)] = self._shared.get(id(tail), 0) + 1
        self.size += cost
        self._waiting[participant] = self._waiting.get(participant, 0) + size
        return True

    def remove(self, participant: Hashable, message: Any) -> None:
        """Count a message less."""
        size = cost = message.ByteSize()
        if isinstance(message, SharedMessage):
            for tail in message.tails:
                self._shared[id(tail)] -= 1
                if self._shared[id(tail)]:
                    cost -= len(tail)
                else:
                    del self._shared[id(tail)]
        self.size -= cost
        self._waiting[participant] -= size
        if self._waiting[participant] <= 0:
            del self._waiting[participant]
        if self._loan is None:
            return
        if self.size <= FREE_BYTES:
            self._loan.close()
            self._loan = None
            self._memory.borrowers.pop(self, None)
        elif self._loan.size - (self.size - FREE_BYTES) >= 2 * _STEP_BYTES:
            self._loan.set(_in_steps(self.size - FREE_BYTES))

    def _borrow(self, need: int) -> bool:
        memory, loan = self._memory, self._loan or self._memory.pool.loan()
        need = _in_steps(need)
        more = need - loan.size
        if more > 0 and not loan.resize(need) and not loan.exceed(more):
            if not memory.reserved(more):
                return False
            loan.set(need)
        self._loan = loan
        memory.borrowers[self] = None
        return True

    def hog(self) -> Any:
        """Return the participant, of all trials, for whom most waits in the trial that has borrowed most; or None."""
        borrowers = self._memory.borrowers
        largest = max(borrowers, key=lambda borrower: borrower.borrowed, default=None)
        if largest is None or not largest._waiting:
            return None
        return max(largest._waiting, key=largest._waiting.__getitem__)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        least = max(0, self.size - FREE_BYTES)
        yield Count("bytes that are borrowed for outboxes", self.borrowed, max(self.borrowed, least))
        if not self._waiting:
            yield Count("bytes of all outboxes of a trial", self.size, 0)
        if not self.size:
            yield Count("bytes that wait for participants", sum(self._waiting.values()), 0)


def _in_steps(size: int) -> int:
    return -(-size // _STEP_BYTES) * _STEP_BYTES
