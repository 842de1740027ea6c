"""`trio-cogment client`: what its commands have in common. The groups below it are added in `_main`.

A command of one of them takes `client_options` too, so that these flags may stand anywhere on the line, as with the
reference; it gets what they come to from `client_settings`, and runs by `_client_run.run_client`, which it imports when
it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli._durations import as_duration
from trio_cogment.cli._flags import applied
from trio_cogment.cli._groups import Group
from trio_cogment.cli._options import nearest, tls_files, tls_options
from trio_cogment.cli._settings import ClientSettings

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

#: What stands for standard input and output.
_STANDARD = Path("-")


def client_options(command: _Decorated) -> _Decorated:
    """Add what every command of a client has."""
    options = (
        tls_options,
        click.option(
            "--timeout",
            default="30s",
            callback=as_duration,
            metavar="DURATION",
            envvar="COGMENT_CLIENT_TIMEOUT",
            show_default=True,
            show_envvar=True,
            help="How long to wait: 30s, 1m30s, 500ms.",
        ),
        click.option(
            "--console_output",
            type=click.Choice(["text", "json"]),
            default="text",
            envvar="COGMENT_CLIENT_CONSOLE_OUTPUT",
            show_default=True,
            show_envvar=True,
            help="Form of what is printed.",
        ),
    )
    return applied(options, command)


def client_settings(ctx: click.Context) -> ClientSettings:
    """Collect what `client_options` found.

    Raises:
        Failure: what they say does not fit together.
    """
    return ClientSettings(
        output=nearest(ctx, "console_output"), timeout_seconds=nearest(ctx, "timeout"), tls=tls_files(ctx)
    )


def file_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return what adds a file to read or write, with this help."""
    return click.option("--file", type=click.Path(path_type=Path), default=_STANDARD, metavar="PATH", help=text)


def as_file(path: Path) -> Path | None:
    """Return what `file_option` found; None is standard input or output."""
    # As the reference's documents have it, an empty path is none.
    return None if path in (_STANDARD, Path()) else path


@click.group(cls=Group)
@client_options
def client(**_options: Any) -> None:
    """Ask running services."""
