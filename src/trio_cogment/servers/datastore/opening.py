"""`open_store`: opens a storage of trials: `memory:`, `sqlite:PATH`, `postgresql://...`, or the scheme of a plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.base.plugins import STORES, installed, scheme_of, store_opener
from trio_cogment.base.postgresql import SCHEMES
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.chunks import DEFAULT_LEVEL, MOST_LEVEL
from trio_cogment.servers.datastore.storage import TrialStore

#: The default of the published datastore.
DEFAULT_MEMORY_BYTES = 1 << 30

#: How far an acknowledgement goes: `full` survives a loss of power, `batch` the end of the process.
DURABILITIES = ("full", "batch")


@asynccontextmanager
async def open_store(
    address: str,
    *,
    durability: str = "full",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    file_bytes: int = 0,
    compression: int = DEFAULT_LEVEL,
    host: Host | None = None,
) -> AsyncIterator[TrialStore]:
    """Open a storage of trials for the time of an `async with` block.

    Args:
        address: `memory:`, gone when the block is left; `sqlite:PATH`, a file that is made if it is not there (its
            folder has to be); or `postgresql://[user@]host[:port]/database`, which any number of processes may have
            open. Any other scheme is looked up among the installed plugins (`trio_cogment.base.plugins`).
        durability: what a write to a file waits for, one of `DURABILITIES`.
        memory_bytes: what trials in memory may take; see `MemoryStore`.
        file_bytes: how large the file and what SQLite puts beside it may become together; 0: as large as there is room.
        compression: the level of zstd's compression in a file, 1 (fastest) to 22; 0: nothing is compressed.
        host: runs what blocks, in worker threads unless given. A file is on the system's disk in any case: SQLite
            opens it.

    Raises:
        InvalidArgumentError: there is no such storage, or an argument is out of its range.
        PluginError: the plugin of the scheme cannot be loaded.
        FailedPreconditionError: the file cannot be used: another datastore uses it, it is something else, a newer
            version wrote it, its folder is not there. The text says which.
        ResourceExhaustedError: there is no room for it.
        UnavailableError: the disk or the database is damaged.
    """
    scheme, colon, rest = address.partition(":")
    if durability not in DURABILITIES:
        raise InvalidArgumentError(f"durability: expected one of {', '.join(DURABILITIES)}, got {durability!r}")
    if file_bytes < 0:
        raise InvalidArgumentError(f"file_bytes: expected 0 or more, got {file_bytes}")
    if not 0 <= compression <= MOST_LEVEL:
        raise InvalidArgumentError(f"compression: expected 0 to {MOST_LEVEL}, got {compression}")
    if scheme == "memory" and colon and not rest:
        yield MemoryStore(memory_bytes)
    elif scheme == "sqlite" and rest:
        # Needs what only POSIX systems have; a store in memory does not.
        from trio_cogment.servers.datastore._sqlite import open_sqlite

        full = durability == "full"
        async with open_sqlite(rest, full=full, max_bytes=file_bytes, level=compression, host=host) as store:
            yield store
    elif scheme_of(address) in SCHEMES:
        # Needs psycopg.
        from trio_cogment.servers.datastore._postgresql import open_postgresql

        async with open_postgresql(address, full=durability == "full", host=host) as shared:
            yield shared
    elif scheme in ("memory", "sqlite") or not scheme_of(address):
        is_path = bool(address) and not colon and scheme not in ("memory", "sqlite")
        hint = f"; did you mean 'sqlite:{address}'?" if is_path else ""
        raise InvalidArgumentError(f"storage: expected {_known()}, got {address!r}{hint}")
    else:
        host = host or Host()
        opener = await store_opener(address, host)
        if opener is None:
            # Only the scheme is named: what follows may hold a password.
            raise InvalidArgumentError(
                f"storage: expected {_known()}, got the scheme {scheme!r}; install a package with an entry point "
                f"{scheme_of(address)!r} in the group {STORES}"
            )
        async with opener(address, durability=durability, host=host) as store:
            yield store


def figures_of(store: TrialStore) -> Callable[[], Mapping[str, int]] | None:
    """Return what gives the figures that a storage counts of itself, for metrics; None: it counts none."""
    return getattr(store, "figures", None)


def memory_of(store: TrialStore) -> Callable[[], int] | None:
    """Return what says how much memory a storage takes; None: it keeps trials elsewhere."""
    return (lambda: store.bytes) if isinstance(store, MemoryStore) else None


def _known() -> str:
    """Return the addresses that can be opened here, for an error."""
    return ", ".join(
        ["'memory:'", "'sqlite:PATH'", "'postgresql://...'", *(f"'{scheme}:...'" for scheme in installed(STORES))]
    )
