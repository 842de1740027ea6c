"""A directory: as a server process, or as a part of one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from trio_cogment.cli._serving import Program, Running, Surroundings, run_server
from trio_cogment.cli._settings import Configuration, DirectoryServerSettings, Failure
from trio_cogment.directory import DirectoryServer, directory_services


def run_directory(settings: DirectoryServerSettings) -> None:
    """Serve until SIGTERM or SIGINT; whoever was told that it is registered is in the file then.

    Raises:
        Failure: it cannot start.
    """
    run_server(settings, partial(_program, settings))


def _program(settings: DirectoryServerSettings) -> Program:
    return Program(
        name="directory",
        ports=[settings.port],
        open=partial(_opened, settings),
        # What the launch files in the reference's documents wait for.
        ready="Listening [port:{port}]",
    )


@asynccontextmanager
async def _opened(settings: DirectoryServerSettings, _surroundings: Surroundings) -> AsyncIterator[Running]:
    async with opened_directory_server(settings.file, settings.configuration) as directory:

        async def stop() -> None:
            directory.stop()

        yield Running(services=[directory_services(directory)], stop=stop)


@asynccontextmanager
async def opened_directory_server(file: str, configuration: Configuration) -> AsyncIterator[DirectoryServer]:
    """Run a directory.

    Raises:
        Failure: there is no folder for its file.
        CogmentError: another directory has the file, or there is one and it cannot be read.
    """
    path = ""
    if file:
        # A link stays one, and two names of one file are one lock.
        path = await trio.to_thread.run_sync(os.path.realpath, file)
        if not await trio.Path(path).parent.is_dir():
            raise Failure(f"--persistence_file: {file}: there is no such folder")
    async with DirectoryServer(
        random_bytes=os.urandom,
        path=path,
        config=configuration.directory_server,
        rpc_config=configuration.rpc,
    ) as directory:
        yield directory
