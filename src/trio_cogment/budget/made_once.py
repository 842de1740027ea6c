"""Large bytes that are made out of others once for all who want them, and count as memory that waits.

Three hundred actors may see the same 4 MiB, and their clients need not read the answers. An answer made for each would
be more than a gigabyte, and making them would hold up everybody for seconds. Within the process all of them have the
same bytes, so the bytes tell that what is made of them is the same. It is kept for as long as somebody refers to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Final

import trio

from trio_cogment.budget.byte_pool import Loan
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run

#: What is made of fewer bytes need not be shared.
LARGE_BYTES: Final = 64 * 1024
#: Making something takes a unit for so many bytes.
_BYTES_PER_UNIT: Final = 16 * 1024


class Made:
    """Bytes that were made; they count as memory for as long as this is referred to.

    Attributes:
        source: out of which they were made.
        data: the bytes.
    """

    def __init__(self, source: bytes, data: bytes, loan: Loan) -> None:
        self.source = source  # so that no other bytes can have its identity meanwhile
        self.data = data
        weakref.finalize(self, loan.close)


class MadeOnce:
    """What is made, one after the other."""

    def __init__(self) -> None:
        self._made: weakref.WeakValueDictionary[tuple[int, Hashable], Made] = weakref.WeakValueDictionary()
        self._making = trio.Lock()
        #: For those who wait: who came first may have done with it at once.
        self._latest: Made | None = None

    async def get(self, source: bytes, kind: Hashable, copies: int, make: Callable[[], bytes]) -> Made:
        """Return what there is, or make it, when there is memory and in its turn.

        Args:
            source: out of which it is made.
            kind: of what is made; the same for all who may have the same.
            copies: how many times the source's size is held while it is made.
            make: makes it; what it raises is raised here.
        """
        key = id(source), kind
        found = self._made.get(key)
        if found is not None:
            return found
        try:
            async with self._making:
                found = self._made.get(key)
                if found is None:
                    self._made[key] = found = await _make(source, copies, make)
                self._latest = found
                return found
        finally:
            if not self._making.locked():
                self._latest = None


async def _make(source: bytes, copies: int, make: Callable[[], bytes]) -> Made:
    loan = memory_of_run().messages.loan()
    try:
        while not loan.hold(0, copies * len(source)):
            changed = trio.Event()
            loan.wait(changed.set)
            await changed.wait()
        await turns_of_run().turn(Lane.OTHERS, len(source) // _BYTES_PER_UNIT)
        data = make()
    except BaseException:
        loan.close()
        raise
    loan.set(len(data))
    return Made(source, data, loan)
