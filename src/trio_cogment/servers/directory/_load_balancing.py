"""Load balancing: which of the services found a directory returns, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from trio_cogment.servers.directory._entries import Entry
from trio_cogment.servers.directory._health import FULL_LOAD

#: Services whose load is at most this much above the lowest are considered equal.
LOAD_SPREAD = 10


def least_loaded(entries: Sequence[Entry], load_of: Callable[[Entry], int], rng: random.Random) -> list[Entry]:
    """Return those with the lowest load, or within `LOAD_SPREAD` of it, in random order; none with full load."""
    loads = [load_of(entry) for entry in entries]
    limit = min(min(loads, default=0) + LOAD_SPREAD, FULL_LOAD - 1)
    chosen = [entry for entry, load in zip(entries, loads, strict=True) if load <= limit]
    rng.shuffle(chosen)
    return chosen
