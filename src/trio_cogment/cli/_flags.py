"""How flags are written, whatever they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def applied(options: Iterable[Callable[[_Decorated], _Decorated]], command: _Decorated) -> _Decorated:
    """Add options to a command; the last one is the first in its help."""
    for option in options:
        command = option(command)
    return command


def boolean_option(
    flag: str, *, text: str, variable: str | None = None, default: str | None = "true"
) -> Callable[[_Decorated], _Decorated]:
    """Return a flag that says true or false, or nothing (None); alone it means true, as in the reference."""
    return click.option(
        flag,
        type=click.BOOL,
        is_flag=False,
        flag_value="true",
        default=default,
        metavar="BOOLEAN",
        envvar=variable,
        show_default=True,
        show_envvar=True,
        help=text,
    )
