"""The flags of a server's log, and the settings made of them; `log_setup` does what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.cli.options import FilePath, applied, nearest

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "off")


@record(kw_only=True)
class LogSettings:
    """Where the log goes: stderr, or a file it is appended to."""

    level: str = "info"
    form: str = "text"
    file: Path | None = None


def log_options(command: _Decorated) -> _Decorated:
    """Add the flags of the log."""
    options = (
        click.option(
            "--log_format",
            type=click.Choice(["text", "json"]),
            envvar="COGMENT_LOG_FORMAT",
            show_envvar=True,
            help="Format of the log; the default is text on stderr, and json in a file.",
        ),
        click.option(
            "--log_file",
            type=FilePath(path_type=Path),
            envvar="COGMENT_LOG_FILE",
            show_envvar=True,
            help="File to append the log to; the default is stderr.",
        ),
        click.option(
            "--log_level",
            type=click.Choice(LOG_LEVELS, case_sensitive=False),
            default="info",
            envvar="COGMENT_LOG_LEVEL",
            show_default=True,
            show_envvar=True,
            help="Lowest level that is logged.",
        ),
    )
    return applied(options, command)


def log_settings(ctx: click.Context) -> LogSettings:
    """Collect the settings from the flags of `log_options`."""
    # `services` takes these flags too, before the name of the service.
    level, form, file = (nearest(ctx, name) for name in ("log_level", "log_format", "log_file"))
    return LogSettings(level=level, form=form or ("json" if file else "text"), file=file)
