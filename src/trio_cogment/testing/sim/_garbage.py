"""Garbage collection that can be repeated: at fixed steps of a run, and only of objects that the run has made.

Objects in reference cycles may have finalizers with effects; those of asynchronous generators give Trio work to do.
When they run must not depend on what the process has done before.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

#: What is left of a run is garbage as soon as its outcome is, and Python would hardly ever look for it: objects that
#: were frozen are old ones. So it is collected before every so many runs.
_COLLECTED_EVERY = 20
_runs = itertools.count(1)


@contextmanager
def own_garbage() -> Iterator[None]:
    """Collect garbage within the block only by `gc.collect`, and then only objects made in it.

    At the end of the block the garbage it has left is collected.
    """
    enabled = gc.isenabled()
    gc.disable()
    others_froze = gc.get_freeze_count() > 0  # then theirs must stay frozen, and collecting takes longer
    if not others_froze:
        if next(_runs) % _COLLECTED_EVERY == 0:
            gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        if not others_froze:
            gc.unfreeze()
        if enabled:
            gc.enable()
