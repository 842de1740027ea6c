"""The flag `--config`, which reads its file before the other flags are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli.configuration import META_KEY
from trio_cogment.cli.options import FilePath

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

#: Flags that a file cannot have.
_NOT_IN_A_FILE = frozenset({"config", "help"})


def config_option(command: _Decorated) -> _Decorated:
    """Add `--config`, which is read before the other flags."""
    option = click.option(
        "--config",
        type=FilePath(path_type=Path),
        envvar="TRIO_COGMENT_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_read,
        help="YAML file with values of flags, and settings that no flag has (docs/configuration.md).",
    )
    return option(command)


def _read(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    from trio_cogment.cli.configuration_file import load_configuration

    options = [option for option in ctx.command.params if isinstance(option, click.Option) and option.name]
    flags = {str(option.name): option.multiple for option in options if option.name not in _NOT_IN_A_FILE}
    found = load_configuration(path, flags)
    ctx.meta[META_KEY] = found
    ctx.default_map = found.flags
