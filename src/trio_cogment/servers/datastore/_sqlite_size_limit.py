"""The size limit: how large all files of a database may be together, its log and the log's index included.

SQLite limits the database alone. A transaction is in the log until that is copied into the database, so until then it
counts twice: in the log, and in what the database will be.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.base.sqlite_file import LOG, PAGE_BYTES

_INDEX = "-shm"
_INDEX_BYTES = 32 * 1024
#: A page in the log has a header.
_FRAME_BYTES = PAGE_BYTES + 24
#: What a transaction changes beside its data: this many pages, for each trial that it writes to this many more, and a
#: part of the data for pages that are not filled. The database grows by some of that.
_CHANGED_PAGES = 6
_TRIAL_PAGES = 5
_UNFILLED_PART = 4
_NEW_PAGES = 2
#: The database leaves this part to the log: it does not become smaller when trials are deleted, and then others come.
_LOG_PART = 4
#: What is left for deletions: this part, but as much as the smallest of them takes, and no more than a large one.
_KEPT_PART = 8
_LEAST_KEPT_BYTES = 5 * _FRAME_BYTES
_MOST_KEPT_BYTES = 16 * 1024 * 1024
#: Of a small database fewer samples are deleted at a time: for this many bytes one.
_BYTES_PER_SWEPT = 16 * 1024
_LEAST_SWEPT = 10


class SizeLimit:
    """Checks that writes keep the files of a database within a limit.

    Args:
        path: of the database.
        max_bytes: of all its files together; 0: there is no limit.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept = min(max(max_bytes // _KEPT_PART, _LEAST_KEPT_BYTES), _MOST_KEPT_BYTES)

    def check(self, connection: sqlite3.Connection, size: int, trials: int, *, ends: bool = False) -> None:
        """Make sure that there is room for a transaction; if there is not, the log is emptied first.

        Args:
            connection: not in a transaction.
            size: of the data that is written.
            trials: how many it is written to.
            ends: it is little, and says how trials ended; what is left for deletions is for that, too.

        Raises:
            ResourceExhaustedError: there is not enough room.
            sqlite3.Error: the log could not be emptied.
        """
        kept = 0 if ends else self._kept
        if not self._max_bytes or self._fits(connection, size, trials, kept):
            return
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if not self._fits(connection, size, trials, kept):
            raise ResourceExhaustedError(
                f"storage: cannot write to {self._path}: there is no room left: its files may have {self._max_bytes} "
                "bytes together, and some of that is kept for deletions"
            )

    def prepare_to_free(self, connection: sqlite3.Connection) -> None:
        """Prepare a transaction that frees space: when there is little of it, empty the log first."""
        if self._max_bytes and not self._fits(connection, 0, 0, self._kept):
            with suppress(sqlite3.OperationalError):  # somebody reads; the transaction may still fit
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def swept(self, most: int) -> int:
        """Return how many samples are deleted at a time, at most this many."""
        return most if not self._max_bytes else max(_LEAST_SWEPT, min(most, self._max_bytes // _BYTES_PER_SWEPT))

    def _fits(self, connection: sqlite3.Connection, size: int, trials: int, kept: int) -> bool:
        pages: int
        unused: int
        size += size // _UNFILLED_PART
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
        growth = max(0, size + (_NEW_PAGES - unused) * PAGE_BYTES)
        database = pages * PAGE_BYTES + growth
        if growth and database > self._max_bytes - self._max_bytes // _LOG_PART:
            return False
        log = self._size_of(LOG) + size + (_CHANGED_PAGES + _TRIAL_PAGES * trials) * _FRAME_BYTES
        return database + log + max(_INDEX_BYTES, self._size_of(_INDEX)) + kept <= self._max_bytes

    def _size_of(self, suffix: str) -> int:
        try:
            return os.stat(self._path + suffix).st_size
        except FileNotFoundError:
            return 0
