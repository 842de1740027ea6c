"""Which storage a datastore has, by its address: `memory:` or `sqlite:PATH`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trio_cogment.datastore._memory import MemoryStore
from trio_cogment.datastore.storage import TrialStore
from trio_cogment.errors import InvalidArgumentError

#: The published datastore's.
DEFAULT_MEMORY_BYTES = 1 << 30


@asynccontextmanager
async def open_store(address: str, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> AsyncIterator[TrialStore]:
    """Open a storage of trials for the time of an `async with` block.

    Args:
        address: `memory:`, gone when the block is left.
        memory_bytes: what trials in memory may take; see `MemoryStore`.

    Raises:
        InvalidArgumentError: there is no such storage, or a number is out of its range.
    """
    scheme, colon, rest = address.partition(":")
    if not colon or scheme != "memory" or rest:
        raise InvalidArgumentError(f"storage: expected 'memory:' or 'sqlite:PATH', got {address!r}")
    yield MemoryStore(memory_bytes)
