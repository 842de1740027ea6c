"""`open_trainer`: a trainer over a storage that is named by its address: `memory:` or `sqlite:PATH`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_cogment.access import AccessControl
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host import Host, run_inline
from trio_cogment.trainer._sqlite import SqliteDatabase
from trio_cogment.trainer._trainer import Trainer
from trio_cogment.trainer.dispatching import Dispatcher
from trio_cogment.trainer.storage import MemoryDatabase

_CLOSE_SECONDS = 30.0


@asynccontextmanager
async def open_trainer(
    storage: str = "memory:",
    *,
    full: bool = True,
    config: TrainerConfig | None = None,
    host: Host | None = None,
    dispatcher: Dispatcher | None = None,
    access: AccessControl | None = None,
) -> AsyncIterator[Trainer]:
    """Run a trainer for the time of an `async with` block.

    Args:
        storage: `memory:`, gone when the block is left, or `sqlite:PATH`, a file that is made if it is not there (its
            folder has to be).
        full: what is accepted survives a loss of power; else the end of the process.
        config: limits and timeouts.
        host: gives the time of the day, ids and tokens, and runs what blocks.
        dispatcher: starts workers and trials; None: only external runs are possible.
        access: knows which tokens were revoked: the sessions end of workers that have registered with one; None: there
            are not tokens.

    Raises:
        InvalidArgumentError: there is no such storage.
        FailedPreconditionError: the file cannot be used: another trainer uses it, it is something else, a newer version
            wrote it, its folder is not there. The text says which.
        ResourceExhaustedError: there is no room for it.
        UnavailableError: the disk or the database is damaged.
    """
    host = host or Host()
    scheme, _, path = storage.partition(":")
    if storage == "memory:":
        async with Trainer(
            MemoryDatabase(), run_inline, run_inline, config=config, host=host, dispatcher=dispatcher, access=access
        ) as trainer:
            yield trainer
        return
    if scheme != "sqlite" or not path:
        raise InvalidArgumentError(f"storage: expected 'memory:' or 'sqlite:PATH', got {storage!r}")
    run_writer, run_reader = host.runner(1), host.runner(1)
    database = SqliteDatabase(path, full=full)
    try:
        await run_writer(database.open)
        async with Trainer(
            database, run_writer, run_reader, config=config, host=host, dispatcher=dispatcher, access=access
        ) as trainer:
            yield trainer
    finally:
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            await run_writer(database.close)
