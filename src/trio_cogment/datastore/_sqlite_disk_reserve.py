"""Room that is kept back on a disk, so that there is a way out of a full one.

What is committed is in the log first. The log begins anew only once it was copied into the database, and that takes
room: without any, nothing could be written any more, not even that a trial is deleted.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress

from trio_cogment.datastore._sqlite_file import PAGE_BYTES
from trio_cogment.errors import ResourceExhaustedError

#: What is kept back: so much, or that part of a small disk.
_KEPT_BYTES = 16 * 1024 * 1024
_KEPT_PART = 8
#: What a transaction takes beside its data: pages that change, and a part of the data for those that are not filled.
_CHANGED_BYTES = 16 * PAGE_BYTES
_UNFILLED_PART = 4
#: With so much room beyond that, so much is written, in so many transactions, for so long, before it is looked at
#: again. Others would have to fill all of it meanwhile. Even then deletions have room: what is written before the next
#: look comes from what is kept (into the log, and from there into the database), but it is less than half of that.
_MUCH_BYTES = 1024 * 1024 * 1024
_SPARE_BYTES = _KEPT_BYTES // 4
_SPARE_TRANSACTIONS = 16
_SPARE_SECONDS = 1.0


class Room:
    """Watches how much room there is for the writes to a database.

    Where there is much, it is not looked at for each transaction: each look is a time in which other threads take the
    lock of Python's, and may keep it for milliseconds.

    Args:
        path: of the database.
        clock: tells seconds since some moment.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        #: So much may be written, in so many transactions, until then, without another look.
        self._spare_bytes = 0
        self._spare_transactions = 0
        self._spare_until = 0.0

    def keep(self, connection: sqlite3.Connection, size: int) -> None:
        """Make sure that there is room for a transaction and, after it, still for deletions.

        Args:
            connection: not in a transaction.
            size: of the data that is written.

        Raises:
            ResourceExhaustedError: there is not.
            sqlite3.Error: the log could not be emptied.
        """
        size += size // _UNFILLED_PART + _CHANGED_BYTES
        if self._spare_transactions > 0 and size <= self._spare_bytes and self._clock() < self._spare_until:
            self._spare_transactions -= 1
            self._spare_bytes -= size
            return
        if _has_room(connection, self._path, size + _MUCH_BYTES):
            self._spare_transactions, self._spare_bytes = _SPARE_TRANSACTIONS, _SPARE_BYTES
            self._spare_until = self._clock() + _SPARE_SECONDS
            return
        self.look_again()
        if not _has_room(connection, self._path, size):
            _empty_log(connection)
            if not _has_room(connection, self._path, size):
                raise ResourceExhaustedError(
                    f"storage: cannot write to {self._path}: there is no room left: the rest of the disk is kept for "
                    "deletions"
                )

    def look_again(self) -> None:
        """Look before the next transaction, whatever was seen last: one has failed, maybe for want of room."""
        self._spare_transactions = 0

    def use(self, connection: sqlite3.Connection) -> None:
        """Where there is little room, have as much of it as possible for a transaction that makes some."""
        if not _has_room(connection, self._path, _CHANGED_BYTES):
            with suppress(sqlite3.OperationalError):  # then it has to do with what there is
                _empty_log(connection)


def _has_room(connection: sqlite3.Connection, path: str, size: int) -> bool:
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    kept = min(_KEPT_BYTES, disk.f_blocks * disk.f_frsize // _KEPT_PART)
    try:
        log = os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        log = 0
    # The transaction goes into the log, and from there, with all that is there already, into the database.
    if free >= size + log + size + kept:
        return True
    (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
    growth = max(0, log + size - unused * PAGE_BYTES)
    return free >= size + (growth + kept if growth else 0)


def _empty_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
