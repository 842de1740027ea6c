"""The status file: letters that tell a supervisor how far a server is."""

from __future__ import annotations

import logging
import os
from pathlib import Path

INITIALIZING = b"I"
READY = b"R"
TERMINATED = b"T"

_log = logging.getLogger(__name__)


class StatusFile:
    """One descriptor, kept open from `I` to `T`: the reader of a FIFO sees the end of file after `T`.

    Opening waits for a reader if the path is a FIFO, so it belongs into a worker thread; a regular file starts afresh.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def write(self, letter: bytes) -> None:
        """Add a letter. A reader that has left, or a full disk, is no reason to stop serving."""
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, letter)
        except OSError as error:
            _log.warning("status file %s: %s", self._path, error.strerror)

    def close(self) -> None:
        """Write `T` and close the file; once."""
        self.write(TERMINATED)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
