"""Room that is kept back on a disk, so that there is a way out of a full one.

What is committed is in the log first. The log begins anew only once it was copied into the database, and that takes
room: without any, nothing could be written any more, not even that a trial is deleted.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from trio_cogment.datastore._sqlite_file import PAGE_BYTES
from trio_cogment.errors import ResourceExhaustedError

#: What is kept back: so much, or that part of a small disk.
_KEPT_BYTES = 16 * 1024 * 1024
_KEPT_PART = 8
#: What a transaction takes beside its data: pages that change, and a part of the data for those that are not filled.
_CHANGED_BYTES = 16 * PAGE_BYTES
_UNFILLED_PART = 4


def keep_room(connection: sqlite3.Connection, path: str, size: int) -> None:
    """Make sure that there is room for a transaction and, after it, still for deletions.

    Args:
        connection: not in a transaction.
        path: of the database.
        size: of the data that is written.

    Raises:
        ResourceExhaustedError: there is not.
        sqlite3.Error: the log could not be emptied.
    """
    size += size // _UNFILLED_PART + _CHANGED_BYTES
    if not _has_room(connection, path, size):
        _empty_log(connection)
        if not _has_room(connection, path, size):
            raise ResourceExhaustedError(
                f"storage: cannot write to {path}: there is no room left: the rest of the disk is kept for deletions"
            )


def use_room(connection: sqlite3.Connection, path: str) -> None:
    """Where there is little room, have as much of it as possible for a transaction that makes some."""
    if not _has_room(connection, path, _CHANGED_BYTES):
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
