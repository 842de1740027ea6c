"""Python's garbage collector in a run that can be repeated: it looks at set steps, and only at what the run has made.

What is left in cycles may have finalizers that do something; those of asynchronous generators give Trio work to do.
When they come must not depend on what the process has done before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_garbage() -> Iterator[None]:
    """Let nothing be collected within the block but by `gc.collect`, and then nothing that is older than the block.

    At its end what it has left is collected.
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
