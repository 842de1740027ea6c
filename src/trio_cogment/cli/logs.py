"""The log of a server: its flags, and stdlib logging as text or as one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied, nearest
from trio_cogment.log_context import TrialFilter

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

TRACE = 5
_OFF = sys.maxsize
_LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": _OFF,
}
LOG_LEVELS = tuple(_LEVELS)
#: The levels that readers of the JSON know; one of them fails at any other.
_JSON_LEVELS = ((logging.CRITICAL, "critical"), (logging.ERROR, "error"), (logging.WARNING, "warning"))


@dataclass(frozen=True, slots=True, kw_only=True)
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


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s [%(levelname)s] [%(name)s] %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        trial_id = getattr(record, "trial_id", "")
        prefix = f"trial {trial_id}: "
        if trial_id and not record.message.startswith(prefix):
            record.message = prefix + record.message
        return super().formatMessage(record)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": _json_level(record.levelno),
            "component": _component(record.name),
            "msg": record.getMessage(),
        }
        if trial_id := getattr(record, "trial_id", ""):
            entry["trial_id"] = trial_id
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _json_level(number: int) -> str:
    least = "info" if number >= logging.INFO else "debug"
    return next((name for level, name in _JSON_LEVELS if number >= level), least)


def _component(logger: str) -> str:
    """Return the package that a logger of trio_cogment belongs to, or the name of any other logger."""
    parts = logger.split(".")
    return parts[1] if parts[0] == "trio_cogment" and len(parts) > 1 else logger


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def set_up_logging(settings: LogSettings) -> None:
    """Send the log where the settings say.

    Raises:
        Failure: the file cannot be opened.
    """
    logging.addLevelName(TRACE, "TRACE")
    handler: logging.Handler
    if settings.file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            handler = logging.FileHandler(settings.file, encoding="utf-8")
        except OSError as error:
            raise Failure(f"--log_file: {settings.file}: {error.strerror or error}") from error
    handler.addFilter(TrialFilter())
    handler.setFormatter(_Json() if settings.form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = _LEVELS[settings.level]
    root.setLevel(level)
    # It logs every header of every call.
    logging.getLogger("hpack").setLevel(max(level, logging.INFO))
