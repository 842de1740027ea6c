"""The log of a server: stdlib logging as text or as one JSON object per line.

Messages may have text of a peer in them. So that it can neither forge entries nor control a terminal, a message is one
line without control characters, the lines of a traceback are indented, and both are shortened.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from trio_cogment.base.log_context import TrialFilter, with_trial
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.logs import LOG_LEVELS, LogSettings
from trio_cogment.cli.text import printable, shortened

TRACE = 5
_OFF = sys.maxsize
_NUMBERS = (TRACE, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, _OFF)
_LEVELS = dict(zip(LOG_LEVELS, _NUMBERS, strict=True))
#: The levels that readers of the JSON know; one of them fails at any other.
_JSON_LEVELS = ((logging.CRITICAL, "critical"), (logging.ERROR, "error"), (logging.WARNING, "warning"))


#: Of a message, and of a traceback with all its causes.
MAX_MESSAGE_CHARACTERS = 8_000
MAX_TRACEBACK_CHARACTERS = 64_000


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s [%(levelname)s] [%(name)s] %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        trace_id = getattr(record, "trace_id", "")
        record.message = printable(shortened(with_trial(record), MAX_MESSAGE_CHARACTERS))
        record.message += f" [trace {trace_id}]" if trace_id else ""
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        text = shortened(super().formatException(ei), MAX_TRACEBACK_CHARACTERS)
        return "\n".join(f"  {printable(line)}" for line in text.split("\n"))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": _json_level(record.levelno),
            "component": _component(record.name),
            "msg": shortened(record.getMessage(), MAX_MESSAGE_CHARACTERS),
        }
        if trial_id := getattr(record, "trial_id", ""):
            entry["trial_id"] = trial_id
        if trace_id := getattr(record, "trace_id", ""):
            entry["trace_id"], entry["span_id"] = trace_id, getattr(record, "span_id", "")
        if record.exc_info:
            entry["exception"] = shortened(self.formatException(record.exc_info), MAX_TRACEBACK_CHARACTERS)
        text = json.dumps(entry, ensure_ascii=False)
        if text.isprintable():
            return text
        return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


class _File(logging.FileHandler):
    """A log file that may be opened again, when its folder has gone or no descriptors are left: that ends no server."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # of opening it; what writing raises is handled above
            self.handleError(record)  # on stderr; the next record tries again


def _json_level(number: int) -> str:
    least = "info" if number >= logging.INFO else "debug"
    return next((name for level, name in _JSON_LEVELS if number >= level), least)


def _component(logger: str) -> str:
    """Return the part of the platform that a logger of trio_cogment belongs to, or the name of any other logger."""
    package, *parts = logger.split(".")
    if package != "trio_cogment" or not parts:
        return logger
    return parts[1] if parts[0] in ("base", "servers") and len(parts) > 1 else parts[0]


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
            handler = _File(settings.file, encoding="utf-8")
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
