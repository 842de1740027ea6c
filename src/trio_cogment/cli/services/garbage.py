"""Garbage collection of a server process: rare, and without what is there for good.

A full collection looks at every object of the process and lets nothing else run meanwhile, for a tenth of a second and
more. By default one comes with every seventy thousand new objects or so, as many as a few hundred clients make when
they connect, and each looks at all modules again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects before the youngest are looked at, and how often that happens before the older ones are. The second
#: number bounds how long a collection of those takes: with 100,000 objects that is 50 ms, and nothing else runs.
_THRESHOLDS = (10_000, 4, 25)


@contextmanager
def postponed() -> Iterator[None]:
    """Collect nothing until `settle`, or the end of the block: nearly all that a start makes stays for good.

    With collections, these take a twelfth of a server's start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle() -> None:
    """Leave what the process has made so far out of all collections to come, and make these rarer.

    Call it when everything is loaded and the server is ready.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()


def leave() -> None:
    """Collect nothing more: a process that ends need not look at what it leaves behind."""
    gc.freeze()
