"""The flags of a trial datastore, and those with which any server says where its trials are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli._directory_options import directory_options
from trio_cogment.cli._flags import applied
from trio_cogment.cli._options import FilePath, common_settings, service_options
from trio_cogment.cli._settings import DatastoreSettings, Failure, StorageSettings
from trio_cogment.services import SERVICES, ServiceKind

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "TRIAL_DATASTORE"
#: Where the reference has its file, and `serve` too.
DEFAULT_FILE = Path(".cogment") / "trial_datastore.db"
#: Of the reference.
_DEFAULT_MEMORY_BYTES = 1073741824
_MOST_MEMORY_BYTES = 2**32 - 1


def _durability_option(command: _Decorated) -> _Decorated:
    option = click.option(
        "--durability",
        type=click.Choice(["full", "batch"]),
        default="full",
        envvar=f"COGMENT_{_SERVICE}_DURABILITY",
        show_default=True,
        show_envvar=True,
        help="What a confirmed sample in a file survives: the loss of power, or (batch) the end of this process.",
    )
    return option(command)


def datastore_options(command: _Decorated) -> _Decorated:
    """Add what a trial datastore has."""
    options = (
        directory_options(_SERVICE),
        service_options(_SERVICE, port=SERVICES[ServiceKind.DATASTORE].default_port),
        _durability_option,
        click.option(
            "--file_storage",
            type=FilePath(path_type=Path),
            is_flag=False,
            flag_value=str(DEFAULT_FILE),
            default=None,
            metavar="[=PATH]",
            envvar=f"COGMENT_{_SERVICE}_FILE_STORAGE_PATH",
            show_envvar=True,
            help=f"Keep trials in a file, an SQLite database; alone it means {DEFAULT_FILE}. Without it: in memory.",
        ),
        click.option(
            "--memory_storage_max_samples_size",
            type=click.IntRange(1, _MOST_MEMORY_BYTES),
            default=_DEFAULT_MEMORY_BYTES,
            metavar="BYTES",
            envvar=f"COGMENT_{_SERVICE}_MEMORY_STORAGE_MAX_SAMPLE_SIZE",
            show_default=True,
            show_envvar=True,
            help="What samples in memory may take; then those of ended trials are dropped, trial by trial.",
        ),
    )
    return applied(options, command)


def datastore_settings(ctx: click.Context) -> DatastoreSettings:
    """Collect what `datastore_options` found.

    Raises:
        Failure: what they say does not fit together.
    """
    return DatastoreSettings(
        **common_settings(ctx),
        port=ctx.params["port"],
        storage=StorageSettings(
            file=ctx.params["file_storage"],
            memory_bytes=ctx.params["memory_storage_max_samples_size"],
            durability=ctx.params["durability"],
        ),
    )


def storage_options(command: _Decorated) -> _Decorated:
    """Add where a server of everything stores its trials."""
    storage = click.option(
        "--storage",
        default=f"sqlite:{DEFAULT_FILE}",
        metavar="ADDRESS",
        envvar="TRIO_COGMENT_STORAGE",
        show_default=True,
        show_envvar=True,
        help="Where trials are stored: sqlite:PATH, memory:, or none.",
    )
    return storage(_durability_option(command))


def storage_settings(ctx: click.Context) -> StorageSettings | None:
    """Collect what `storage_options` found; None: trials are not stored.

    Raises:
        Failure: the storage is none.
    """
    address: str = ctx.params["storage"].strip()
    scheme, colon, path = address.partition(":")
    if address == "none":
        return None
    if colon and scheme == "memory" and not path:
        return StorageSettings(memory_bytes=_DEFAULT_MEMORY_BYTES, durability=ctx.params["durability"])
    if scheme == "sqlite" and path:
        return StorageSettings(file=Path(path), memory_bytes=_DEFAULT_MEMORY_BYTES, durability=ctx.params["durability"])
    raise Failure(f"--storage: expected sqlite:PATH, memory: or none, got {address!r}")
