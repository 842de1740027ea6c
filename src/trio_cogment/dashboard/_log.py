"""The last records of the process's log, for pages."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from typing_extensions import override

#: Records that are kept, and characters of one.
_MAX_RECORDS = 1000
_MAX_CHARACTERS = 4000


class LogRing(logging.Handler):
    """Keeps the last records of the log; records may come from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_MAX_RECORDS)
        self._count = 0

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + logging.Formatter().formatException(record.exc_info)
        except Exception:  # noqa: BLE001  a record whose arguments do not fit its text
            text = str(record.msg)
        entry = {
            "time": record.created,
            "level": record.levelname,
            "name": record.name,
            "text": text[:_MAX_CHARACTERS],
        }
        self._count += 1
        self._records.append((self._count, entry))

    def after(self, number: int, most: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of the last record, and the last records after one, `most` of them at most."""
        found = [entry for count, entry in list(self._records) if count > number]
        return self._count, found[-most:]
