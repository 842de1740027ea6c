"""The flags of a model registry, and the one with which a server of everything says where versions are archived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli._directory_options import directory_options
from trio_cogment.cli._flags import applied
from trio_cogment.cli._options import FilePath, common_settings, overridden, service_options
from trio_cogment.cli._settings import ModelRegistrySettings
from trio_cogment.services import SERVICES, ServiceKind

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "MODEL_REGISTRY"
_DEFAULT_ARCHIVE = Path(".cogment") / "model_registry"
#: What a server of everything is told when it shall have no model registry.
_NO_ARCHIVE = Path("none")
_MOST_ITEMS = 2**62
_MOST_CHUNK_BYTES = 2**31 - 1


def _archive_option(text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        "--archive_dir",
        type=FilePath(path_type=Path),
        default=_DEFAULT_ARCHIVE,
        metavar="PATH",
        envvar=f"COGMENT_{_SERVICE}_ARCHIVE_DIR",
        show_default=True,
        show_envvar=True,
        help=text,
    )


def model_registry_options(command: _Decorated) -> _Decorated:
    """Add what a model registry has."""
    options = (
        directory_options(_SERVICE),
        service_options(_SERVICE, port=SERVICES[ServiceKind.MODEL_REGISTRY].default_port),
        click.option(
            "--sent_version_chunk_size",
            type=click.IntRange(1, _MOST_CHUNK_BYTES),
            default=None,
            metavar="BYTES",
            envvar=f"COGMENT_{_SERVICE}_SENT_MODEL_VERSION_DATA_CHUNK_SIZE",
            show_envvar=True,
            help="How much of a version goes into one message to who retrieves it; the default is 2097152.",
        ),
        click.option(
            "--cache_max_items",
            type=click.IntRange(1, _MOST_ITEMS),
            default=None,
            metavar="VERSIONS",
            envvar=f"COGMENT_{_SERVICE}_VERSION_CACHE_MAX_ITEMS",
            show_envvar=True,
            help="How many versions that are not archived are kept, of all models together; the default is 100.",
        ),
        _archive_option("Folder of archived versions; it is made if need be."),
    )
    return applied(options, command)


def model_registry_settings(ctx: click.Context) -> ModelRegistrySettings:
    """Collect what `model_registry_options` found.

    Raises:
        Failure: what they say does not fit together.
    """
    common = common_settings(ctx)
    common["configuration"] = overridden(
        common["configuration"],
        "model_registry",
        cache_max_items=ctx.params["cache_max_items"],
        sent_version_chunk_bytes=ctx.params["sent_version_chunk_size"],
    )
    return ModelRegistrySettings(**common, port=ctx.params["port"], archive=ctx.params["archive_dir"])


def archive_option(command: _Decorated) -> _Decorated:
    """Add where a server of everything archives versions of models."""
    return _archive_option(f"Folder of the model registry; {_NO_ARCHIVE}: there is none.")(command)


def archive_folder(ctx: click.Context) -> Path | None:
    """Return what `archive_option` found; None: there is no model registry."""
    folder: Path = ctx.params["archive_dir"]
    return None if folder == _NO_ARCHIVE else folder
