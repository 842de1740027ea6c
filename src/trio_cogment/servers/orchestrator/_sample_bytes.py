"""The memory of the samples that wait for one trial's data log: borrowed from what the whole process may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trio_cogment.budget.byte_pool import Loan

#: What every trial may hold without a loan.
FREE_BYTES: Final = 32 * 1024
#: Loans are changed in steps of this size.
_STEP_BYTES: Final = 64 * 1024


class SampleBytes:
    """Counts the samples of one data log.

    Args:
        loan: what is borrowed for them.
        on_room: called when there was not enough, and others have given something back.

    Attributes:
        size: of all samples that wait; whoever adds or removes one changes it.
    """

    def __init__(self, loan: Loan, on_room: Callable[[], None]) -> None:
        self.size = 0
        self._loan = loan
        self._on_room = on_room

    @property
    def fit(self) -> bool:
        """Whether there is memory for all of them; if there is not, `on_room` is called some time."""
        if self.size <= FREE_BYTES:
            self._loan.close()
            return True
        need = (self.size - FREE_BYTES) // _STEP_BYTES * _STEP_BYTES + _STEP_BYTES
        if self._loan.resize(need):
            return True
        self._loan.wait(self._on_room)
        return False

    def count_all(self) -> None:
        """Count what there is against everybody else's, although it is too much."""
        self._loan.set(max(self._loan.size, self.size - FREE_BYTES))

    def close(self) -> None:
        """There are no more of them."""
        self.size = 0
        self._loan.close()
