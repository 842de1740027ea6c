"""An exclusively locked database that checks before each commit that its file still exists.

Two things keep another server away: a lock on a file beside the database, and one on the database itself, because the
first one's file can be removed. And a file that was removed while it is open takes all that is written to it and has no
name any more, so the files are looked at before anything that was written is acknowledged.

Nothing here knows of Trio: it belongs into worker threads.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host.files import LOCK, FileLock, LockedError, SystemFiles
from trio_cogment.base.host.presence import Presence
from trio_cogment.base.sqlite_file import LOG, SqliteFormat, connect, file_errors


class DatabaseHold:
    """A database, from `open` to `close`; the file is made if it is not there.

    Args:
        form: what kind of database it is.
        path: of the file. Two paths of one file must not be two locks, so it is a real path.
    """

    def __init__(self, form: SqliteFormat, path: str) -> None:
        self._form = form
        self._path = path
        self._locks: list[FileLock] = []
        self._reader: sqlite3.Connection | None = None
        self._presence: Presence | None = None

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection that never writes; no other one is the first or the last, which would replay the log."""
        assert self._reader is not None
        return self._reader

    def open(self) -> None:
        """Lock the database, and make it if need be. `close` must follow, also behind an error.

        Raises:
            FailedPreconditionError: the file cannot be used, or another server uses it; the text says which.
            CogmentError: see `file_errors`.
        """
        folder = os.path.dirname(self._path)
        if folder and not os.path.exists(folder):
            raise FailedPreconditionError(f"storage: cannot open {self._path}: the folder {folder} does not exist")
        files = SystemFiles().owner_only()
        self._lock(files.lock, self._path + LOCK)
        present = os.path.exists(self._path)
        if present:
            self._lock(files.claim, self._path)
        self._form.prepare(self._path)
        if not present:
            self._lock(files.claim, self._path)
        with file_errors(f"cannot open {self._path}"):
            self._reader = connect(self._path, query_only=True)
            log = self._path + LOG
            # A user may have given the database another journal.
            self._presence = Presence(self._path, *[log] * os.path.exists(log))

    def _lock(self, take: Callable[[str], FileLock], path: str) -> None:
        with file_errors(f"cannot lock {self._path}"):
            try:
                self._locks.append(take(path))
            except LockedError as error:
                who = " in this process" if error.holder == os.getpid() else error.who
                text = f"storage: {self._path} is in use by another {self._form.user}{who}"
                raise FailedPreconditionError(text) from error

    def missing(self) -> str:
        """Return which file of the database is not there any more, or another one; empty: none."""
        return self._presence.missing() if self._presence is not None else ""

    def close(self) -> None:
        """Let others have it; every other connection of this process is closed before. May be called again."""
        if self._reader is not None:
            self._reader.close()
        # After the connections: closing any descriptor of a database releases the locks that SQLite has on it.
        if self._presence is not None:
            self._presence.close()
        while self._locks:
            self._locks.pop().release()
