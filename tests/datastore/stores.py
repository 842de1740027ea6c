"""The storages that we have, as the tests open them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trio_cogment.datastore.opening import open_store
from trio_cogment.host import Host, inline_runner
from trio_cogment.testing.conformance.trial_store import OpenStore

Make = Callable[[], OpenStore]


def in_memory(folder: Path) -> Make:
    return lambda: lambda: open_store("memory:")


def in_sqlite(folder: Path) -> Make:
    return lambda: _database(folder, "full")


def in_sqlite_by_batch(folder: Path) -> Make:
    return lambda: _database(folder, "batch")


def in_sqlite_inline(folder: Path) -> Make:
    """Without threads, as a simulation has it."""

    def make() -> OpenStore:
        path = _new_path(folder)
        return lambda: open_store(f"sqlite:{path}", durability="batch", host=Host(runner=inline_runner))

    return make


def _database(folder: Path, durability: str) -> OpenStore:
    path = _new_path(folder)
    return lambda: open_store(f"sqlite:{path}", durability=durability)


def _new_path(folder: Path) -> Path:
    return folder / f"{len(list(folder.iterdir()))}.db"
