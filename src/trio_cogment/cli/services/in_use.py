"""Refuses files that another server uses, before anything is announced.

The files are opened after the announcement, as that takes Trio and more. Their locks can be looked at before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from trio_cogment.host.lock_probe import LOCK, is_locked

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from trio_cogment.cli.configuration import Configuration
    from trio_cogment.directory import DirectoryServer

Open: TypeAlias = "Callable[[], AbstractAsyncContextManager[Any]]"


def refuse_file_in_use(file: Path | str, opened: Open) -> None:
    """Fail if another process holds the lock beside a file, or that on the file.

    Args:
        file: the file itself, by whichever link.
        opened: opens it, which says who has it.

    Raises:
        Failure: it is in use.
    """
    path = os.path.realpath(file)
    _refuse((path + LOCK, path), opened)


def refuse_folder_in_use(folder: Path | str, opened: Open) -> None:
    """Fail if another process holds the lock in a folder, or that on it; see `refuse_file_in_use`."""
    _refuse((os.path.join(folder, LOCK), os.fspath(folder)), opened)


def refuse_directory_file_in_use(file: str, configuration: Configuration) -> None:
    """Fail if another process has the file of a directory; with an empty one there is none.

    Raises:
        Failure: it has.
    """
    if file:
        refuse_file_in_use(file, partial(_opened_directory_server, file, configuration))


def _opened_directory_server(file: str, configuration: Configuration) -> AbstractAsyncContextManager[DirectoryServer]:
    from trio_cogment.cli.services.directory_access import opened_directory_server

    return opened_directory_server(file, configuration)


def _refuse(locks: Iterable[str], opened: Open) -> None:
    if any(map(is_locked, locks)):
        from trio_cogment.cli.client.common import run_client

        # Only what opens it knows how to say it; nothing happens if it has been released by now.
        run_client(_open_and_close, opened)


async def _open_and_close(opened: Open) -> None:
    async with opened():
        pass
