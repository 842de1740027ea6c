"""Garbage collection that can be repeated: at fixed steps of a run, and only of objects that the run has made.

Objects in reference cycles may have finalizers with effects; those of asynchronous generators give Trio work to do.
When they run must not depend on what the process has done before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: What is left of a run is garbage as soon as its outcome is, and Python would hardly ever look for it: objects that
#: were frozen are old ones. So it is collected before a run when there are a quarter more objects than after the last
#: time, which is Python's own rule for old objects; to count them takes a while, too.
_GROWTH = 1.25
_COUNTED_EVERY = 20


class _Leftovers:
    """What earlier runs have left."""

    def __init__(self) -> None:
        self._runs = 0
        self._objects = 0  # after the last collection

    def collect(self) -> None:
        """Collect it, if there is much; everything is frozen before and after."""
        self._runs += 1
        if self._runs % _COUNTED_EVERY == 0 and gc.get_freeze_count() > _GROWTH * self._objects:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._objects = gc.get_freeze_count()


_leftovers = _Leftovers()


@contextmanager
def own_garbage() -> Iterator[None]:
    """Collect garbage within the block only by `gc.collect`, and then only objects made in it.

    At the end of the block the garbage it has left is collected.
    """
    enabled = gc.isenabled()
    gc.disable()
    others_froze = gc.get_freeze_count() > 0  # then theirs must stay frozen, and collecting takes longer
    if not others_froze:
        gc.freeze()
        _leftovers.collect()
    try:
        yield
    finally:
        gc.collect()
        if not others_froze:
            gc.unfreeze()
        if enabled:
            gc.enable()
