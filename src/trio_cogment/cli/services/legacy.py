"""The profile of a legacy project, for `serve` and `services orchestrator`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath

if TYPE_CHECKING:
    from trio_cogment.gateways.legacy import LegacyProfile

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def legacy_option(command: _Decorated) -> _Decorated:
    """Add the profile with which an orchestrator has participants of the legacy API."""
    return click.option(
        "--legacy",
        type=FilePath(path_type=Path),
        default=None,
        metavar="PATH",
        envvar="COGMENT_LEGACY_PROFILE",
        show_envvar=True,
        help="Let programs of the legacy API (0.3) take part in trials: those of the project with this file.",
    )(command)


def read_legacy_profile(flag: str, path: Path) -> LegacyProfile:
    """Read the file of a flag.

    Raises:
        Failure: it cannot be read, or makes no sense.
    """
    try:
        from trio_cogment.gateways.legacy import load_profile

        return load_profile(path)
    except CogmentError as error:
        raise Failure(f"{flag}: {error}") from error
