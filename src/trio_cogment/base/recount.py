"""Self-checks: objects that keep counters of bytes, messages, users or entries can recompute them.

Whoever counts has a method `recount`. Nothing calls it in production: simulations look for it in every object that a
run has made (`trio_cogment.testing.Counts`), so nothing has to be registered, and it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class Count(NamedTuple):
    """One number.

    Attributes:
        what: what is counted.
        kept: the number that is kept.
        counted: what it should be now, counted again. Where that cannot be found out it is the number itself.
        at_rest: what it should be when nothing is going on any more; None: whatever it is.
    """

    what: str
    kept: float
    counted: float
    at_rest: float | None = 0


class Recounts(Protocol):
    """Something that counts."""

    def recount(self) -> Iterable[Count]:
        """Recount everything that is kept in numbers; nothing is changed."""
