"""The storages that we have, as the tests open them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from trio_cogment.base.host import Host, Runner
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.testing.conformance.trial_store import OpenStore
from trio_cogment.testing.sim.world import SimRunner

Make = Callable[[], OpenStore]


def in_memory(folder: Path) -> Make:
    return lambda: lambda: open_store("memory:")


def in_sqlite(folder: Path) -> Make:
    return lambda: _database(folder, "full")


def in_sqlite_by_batch(folder: Path) -> Make:
    return lambda: _database(folder, "batch")


def in_sqlite_inline(folder: Path, rng: random.Random | None = None) -> Make:
    """Without threads, as a simulation has it: what is done takes a while, which is drawn."""
    draws = rng or random.Random(0)

    def runner(threads: int) -> Runner:
        return SimRunner(threads, draws)

    def make() -> OpenStore:
        path = _new_path(folder)
        return lambda: open_store(f"sqlite:{path}", durability="batch", host=Host(runner=runner))

    return make


def _database(folder: Path, durability: str) -> OpenStore:
    path = _new_path(folder)
    return lambda: open_store(f"sqlite:{path}", durability=durability)


def _new_path(folder: Path) -> Path:
    return folder / f"{len(list(folder.iterdir()))}.db"
