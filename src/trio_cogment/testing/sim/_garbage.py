"""Garbage collection that can be repeated: at fixed steps of a run, and only of objects that the run has made.

Objects in reference cycles may have finalizers with effects; those of asynchronous generators give Trio work to do.
When they run must not depend on what the process has done before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
    try:
        yield
    finally:
        gc.collect()
        if not others_froze:
            gc.unfreeze()
        if enabled:
            gc.enable()
