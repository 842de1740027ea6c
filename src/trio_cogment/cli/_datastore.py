"""A trial datastore as a server process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from trio_cogment.cli._datastore_options import DEFAULT_FILE
from trio_cogment.cli._serving import Program, Running, Surroundings, run_server
from trio_cogment.cli._settings import DatastoreSettings, Failure, StorageSettings
from trio_cogment.datastore import Datastore, TrialStore, datastore_services, open_store


def run_datastore(settings: DatastoreSettings) -> None:
    """Serve until SIGTERM or SIGINT; return when everything that was taken is stored.

    Raises:
        Failure: it cannot start.
    """
    run_server(settings, partial(_program, settings))


def _program(settings: DatastoreSettings) -> Program:
    return Program(name="trial_datastore", ports=[settings.port], open=partial(_opened, settings))


@asynccontextmanager
async def _opened(settings: DatastoreSettings, _surroundings: Surroundings) -> AsyncIterator[Running]:
    async with (
        opened_storage(settings.storage) as store,
        Datastore(store, config=settings.configuration.datastore) as datastore,
    ):
        yield Running(services=[datastore_services(datastore)])


@asynccontextmanager
async def opened_storage(settings: StorageSettings) -> AsyncIterator[TrialStore]:
    """Open the storage that the flags name.

    Raises:
        Failure: the folder of the default file cannot be made.
        CogmentError: the storage cannot be opened.
    """
    address = "memory:"
    if settings.file is not None:
        address = f"sqlite:{settings.file}"
        if settings.file == DEFAULT_FILE:
            # Who names no file need not know of its folder.
            try:
                DEFAULT_FILE.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise Failure(f"{DEFAULT_FILE.parent}: {error.strerror or error}") from error
    async with open_store(address, durability=settings.durability, memory_bytes=settings.memory_bytes) as store:
        yield store
