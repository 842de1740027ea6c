"""The disk reserve: free space that samples must leave, so that trials can end on a full disk, and be deleted from it.

SQLite writes a transaction to its log first, and the log starts over only after it was copied into the database. Both
take space. On a disk without any, no transaction could be committed any more, not even the deletion of a trial.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.base.sqlite_file import LOG, PAGE_BYTES
from trio_cogment.servers.datastore._chunk_layouts import size_of
from trio_cogment.servers.datastore.storage import SampleWrite, TrialWrite, Write

#: The reserve: this many bytes, or this part (an eighth) of a small disk.
_RESERVE_BYTES = 16 * 1024 * 1024
_RESERVE_PART = 8
#: Of which what says how trials ended leaves this part.
_ENDS_PART = 2
#: A batch that only ends trials has a place on a full disk, up to this size; so has a last sample up to this size.
_ENDS_BYTES = 256 * 1024
_END_SAMPLE_BYTES = 4 * 1024
#: What a transaction takes beside its data: pages that change, and a part of the data for those that are not filled.
_CHANGED_BYTES = 16 * PAGE_BYTES
_UNFILLED_PART = 4
#: With so much free space beyond the reserve, the next check comes after this many bytes, transactions or seconds.
#: Other programs would have to fill all of that space meanwhile. Even then deletions have space: what is written before
#: the next check comes from the reserve (once for the log, once for the database), but it is less than half of it.
_MUCH_BYTES = 1024 * 1024 * 1024
_SPARE_BYTES = _RESERVE_BYTES // 4
_SPARE_TRANSACTIONS = 16
_SPARE_SECONDS = 1.0


class DiskReserve:
    """Checks that writes to a database leave the reserve.

    Where there is much free space it is not checked for each transaction: during each system call another thread can
    take Python's interpreter lock, and may hold it for milliseconds.

    Args:
        path: of the database.
        clock: returns seconds since some moment; called in any thread.
    """

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        #: So much may be written, in this many transactions, until this time, without another check.
        self._spare_bytes = 0
        self._spare_transactions = 0
        self._spare_until = 0.0

    def check(self, connection: sqlite3.Connection, size: int, *, ends: bool = False) -> None:
        """Make sure that there is space for a transaction and, after it, for the reserve.

        Args:
            connection: not in a transaction.
            size: of the data that is written.
            ends: it is little, and says how trials ended; half of the reserve is for that, too.

        Raises:
            ResourceExhaustedError: there is not enough space.
            sqlite3.Error: the log could not be emptied.
        """
        size += size // _UNFILLED_PART + _CHANGED_BYTES
        if self._spare_transactions > 0 and size <= self._spare_bytes and self._clock() < self._spare_until:
            self._spare_transactions -= 1
            self._spare_bytes -= size
            return
        if _has_space(connection, self._path, size + _MUCH_BYTES):
            self._spare_transactions, self._spare_bytes = _SPARE_TRANSACTIONS, _SPARE_BYTES
            self._spare_until = self._clock() + _SPARE_SECONDS
            return
        self.recheck()
        part = _ENDS_PART if ends else 1
        if not _has_space(connection, self._path, size, part):
            _empty_log(connection)
            if not _has_space(connection, self._path, size, part):
                raise ResourceExhaustedError(
                    f"storage: cannot write to {self._path}: there is no room left: the rest of the disk is kept for "
                    "deletions"
                )

    def recheck(self) -> None:
        """Check again before the next transaction: one has failed, maybe because the disk is full."""
        self._spare_transactions = 0

    def prepare_to_free(self, connection: sqlite3.Connection) -> None:
        """Prepare a transaction that frees space: when there is little of it, empty the log first."""
        if not _has_space(connection, self._path, _CHANGED_BYTES):
            with suppress(sqlite3.OperationalError):  # the transaction may still fit
                _empty_log(connection)


def only_ends(connection: sqlite3.Connection, writes: Sequence[Write], size: int) -> bool:
    """Whether a batch is small, and does nothing but end trials that are there: last samples, outcomes, and ends."""
    if size > _ENDS_BYTES:
        return False
    for write in writes:
        if isinstance(write, SampleWrite):
            if write.state != TrialState.ENDED or size_of(write.data) > _END_SAMPLE_BYTES:
                return False
        elif isinstance(write, TrialWrite):
            found = "SELECT 1 FROM trials WHERE trial_id = ?"
            if connection.execute(found, (write.trial_id,)).fetchone() is None:
                return False
    return True


def _has_space(connection: sqlite3.Connection, path: str, size: int, part: int = 1) -> bool:
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    kept = min(_RESERVE_BYTES, disk.f_blocks * disk.f_frsize // _RESERVE_PART) // part
    try:
        log = os.stat(path + LOG).st_size
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
