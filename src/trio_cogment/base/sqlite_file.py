"""Files of SQLite: whose they are, which version, how they come into being, what their failures mean, and one writer.

Nothing here knows of Trio: it belongs into worker threads.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import field
from pathlib import Path

from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    ResourceExhaustedError,
    UnavailableError,
)
from trio_cogment.base.host.files import TEMPORARY, SystemFiles
from trio_cogment.base.records import record

_logger = logging.getLogger(__name__)

#: Rows of about a kilobyte: larger pages than SQLite's own 4 KiB take a tenth less time.
PAGE_BYTES = 8192
#: How long to wait for another process (a backup) that holds the database.
_BUSY_SECONDS = 5.0
#: The log is copied into the database after this many pages, which a commit and all who follow wait for; and shrunk to
#: this many bytes if it was larger.
_CHECKPOINT_PAGES = 1000
_LOG_BYTES = 64 * 1024 * 1024
_CACHE_KIBIBYTES = 16 * 1024
#: There are several that only read, and the system keeps what they have read, too.
_READERS_CACHE_KIBIBYTES = 512

#: What comes behind the name of a database for its write-ahead log.
LOG = "-wal"

#: What the system calls a lack of room.
NO_ROOM = frozenset([errno.ENOSPC, errno.EDQUOT])

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
#: Behind the 16 bytes of the first page's header, in the database files of the reference's datastore.
_BOLT_MAGIC = (0xED0CDAED).to_bytes(4, "little")


@record(kw_only=True)
class SqliteFormat:
    """What kind of database a file is.

    Attributes:
        user: what has it open, for the texts of errors.
        application_id: in the header of the file.
        version: what is written; in the header, too.
        schema: makes all tables; one of them is `recoveries`, with a row whose `count` is 0 (see `WritingConnection`).
        migrations: version -> what leads from it to the next, within one transaction.
    """

    user: str
    application_id: int
    version: int
    schema: str
    migrations: Mapping[int, str] = field(default_factory=dict)

    def prepare(self, path: str) -> None:
        """Make sure that the file has this format; create one if there is no file.

        Raises:
            FailedPreconditionError: the file belongs to another program or a newer version. It was not changed.
            CogmentError: see `file_errors`.
        """
        with file_errors(f"cannot open {path}"):
            header = _read_header(path)
            if not header:
                self._create(path)
                return
        if header[16:20] == _BOLT_MAGIC:
            raise FailedPreconditionError(
                f"storage: {path} is a database of the reference (BoltDB); it was not touched: export its trials with "
                "the reference (cogment client trial_datastore export), name another file, and import them "
                "(trio-cogment client trial_datastore import)"
            )
        if header[:16] != _MAGIC or len(header) < _HEADER_BYTES:
            raise FailedPreconditionError(f"storage: {path} is not an SQLite database; it was not touched")
        if int.from_bytes(header[68:72], "big") != self.application_id:
            raise FailedPreconditionError(f"storage: {path} is a database of another program; it was not touched")
        self._check_version(path, int.from_bytes(header[60:64], "big"))
        with file_errors(f"cannot open {path}"), closing(connect(path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            self._check_version(path, version)
            for step in range(version, self.version):
                connection.executescript(
                    f"BEGIN IMMEDIATE; {self.migrations[step]}; PRAGMA user_version = {step + 1}; COMMIT;"
                )

    def _check_version(self, path: str, version: int) -> None:
        if not 1 <= version <= self.version:
            raise FailedPreconditionError(
                f"storage: {path} was written by another version of trio-cogment (its schema is {version}, "
                f"this one knows 1 to {self.version}); it was not touched"
            )

    def _create(self, path: str) -> None:
        """Create a database under a temporary name, then rename it, so that it is never seen incomplete.

        Only its owner can read it; SQLite gives its log and index the same mode.
        """
        files = SystemFiles().owner_only()
        temporary = path + TEMPORARY
        for leftover in (temporary, f"{temporary}-journal", f"{temporary}{LOG}", f"{temporary}-shm"):
            try:
                files.remove(leftover)
            except FileNotFoundError:
                pass
        files.open(temporary).close()  # its error says what is wrong with the folder; SQLite's does not
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(
                f"BEGIN; PRAGMA application_id = {self.application_id}; PRAGMA user_version = {self.version};"
                f"{self.schema} COMMIT;"
            )
        # Closing the only connection has copied the log into the file, synced it, and removed the log.
        files.replace(temporary, path)
        files.sync_folder(os.path.dirname(path) or ".")


def connect(path: str, *, full: bool = True, query_only: bool = False) -> sqlite3.Connection:
    """Open a connection to a database that is there, to be used by one thread at a time.

    Args:
        path: of the file.
        full: a commit waits until it would survive a loss of power.
        query_only: it never writes.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    address = f"{Path(path).absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(
        address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        for setting in (
            f"synchronous = {'FULL' if full else 'NORMAL'}",
            f"fullfsync = {int(full)}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            f"journal_size_limit = {_LOG_BYTES}",
            f"cache_size = -{_READERS_CACHE_KIBIBYTES if query_only else _CACHE_KIBIBYTES}",
            # Some builds write zeros over all that is deleted: as much as was there, which a full disk has no room for.
            "secure_delete = 0",
            f"query_only = {int(query_only)}",
        ):
            connection.execute(f"PRAGMA {setting}")
        # The first read opens the write-ahead log, and finds out if the file is not a database.
        connection.execute("SELECT count FROM recoveries").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def empty_log(connection: sqlite3.Connection, path: str) -> None:
    """Copy a database's log into its file and leave nothing in it, so that what was deleted is in neither.

    Raises:
        FailedPreconditionError: another program is reading, from what was there before.
        sqlite3.Error: see `file_errors`.
    """
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise FailedPreconditionError(
            f"storage: {path}: another program reads the file, so what is deleted stays in it; close that program, "
            "and do it again"
        )


@contextmanager
def file_errors(doing: str) -> Iterator[None]:
    """Translate the errors of files and SQLite to those of the store.

    Raises:
        ResourceExhaustedError: there is no room.
        FailedPreconditionError: the file or its folder is not there, or may not be used.
        UnavailableError: anything else is wrong with the disk or the database.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise _translated(doing, error) from error


def _translated(doing: str, error: OSError | sqlite3.Error) -> CogmentError:
    text = f"storage: {doing}: {error}"
    if isinstance(error, OSError):
        return (ResourceExhaustedError if error.errno in NO_ROOM else FailedPreconditionError)(text)
    # The primary code is in the low byte; only what SQLite itself found has one.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return ResourceExhaustedError(f"{text}: there is no room left")
    _logger.error("%s (%s)", text, getattr(error, "sqlite_errorname", "no code"))
    return UnavailableError(text)


def _read_header(path: str) -> bytes:
    """Return the first bytes of a file; nothing: there is none, or it is empty."""
    try:
        # SQLite would open one that cannot be written to all the same, and then refuse every write.
        with open(path, "r+b") as file:
            return file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return b""


class WritingConnection:
    """The one connection that writes to a database. One thread at a time may use it.

    After any error the transaction is rolled back, the connection is closed, and a new one is opened. After a failed
    write or sync the log may end with a transaction that was reported as failed, which would be there after a crash. So
    the new connection overwrites it before anything else.

    When a file of the database was removed or replaced, what is in its log is copied into the database if that is still
    there. From then on every transaction fails, until the files are back or the server is restarted.

    Args:
        path: of the file, which must exist.
        full: see `connect`.
        missing: returns which file of the database is not there any more, or another one; empty: none.
    """

    def __init__(self, path: str, *, full: bool, missing: Callable[[], str] = lambda: "") -> None:
        self._path = path
        self._full = full
        self._missing = missing
        self._connection: sqlite3.Connection | None = None
        self._failed = False
        self._taken_away = False

    def close(self) -> None:
        """Close the connection; the next transaction opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(
        self, before: Callable[[sqlite3.Connection], None] | None = None, *, large: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """Do what the block does in one transaction.

        Args:
            before: is called with the connection before the transaction begins.
            large: most of what it writes will not be needed soon, so its pages are not kept in memory.

        Raises:
            CogmentError: see `file_errors`; nothing was written.
        """
        done = False
        if self._taken_away:
            self._check_files()
        try:
            with file_errors(f"cannot write to {self._path}"):
                connection = self._open()
                try:
                    if before is not None:
                        before(connection)
                    connection.execute("BEGIN IMMEDIATE")
                    yield connection
                    connection.execute("COMMIT")
                except sqlite3.Error:
                    self._failed = True
                    raise
                # Not before the commit: this way the look counts for all that is acknowledged.
                if self._missing():
                    self._save_what_is_there(connection)
            done = True
            if large:
                with suppress(sqlite3.Error):  # it is stored already
                    connection.execute("PRAGMA shrink_memory")
        finally:
            if not done:
                self._drop()
                self._recover()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._check_files()  # or another database would be written to
            self._connection = connect(self._path, full=self._full)
        if self._failed:
            self._connection.execute("UPDATE recoveries SET count = count + 1")
            self._failed = False
        return self._connection

    def _check_files(self) -> None:
        """Raise UnavailableError unless all files of the database are where they were."""
        missing = self._missing()
        self._taken_away = bool(missing)
        if missing:
            raise UnavailableError(
                f"storage: {missing} was removed or replaced while it was in use; nothing more is stored until it is "
                "back, or the server is restarted"
            )

    def _save_what_is_there(self, connection: sqlite3.Connection) -> None:
        """Copy the log into the database, if only the log was taken away: what was acknowledged before is in it.

        Raises:
            UnavailableError: that cannot be done, so the last transaction will be lost.
        """
        missing = self._missing()
        self._taken_away = True
        copied = False
        if missing != self._path:
            busy, pages, done = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
            copied = not busy and pages == done and self._missing() != self._path
        _logger.error(
            "%s was removed or replaced while it was in use; %s. Nothing more is stored",
            missing,
            "what was in it is in the database now"
            if copied
            else f"what was in it can be copied from /proc/{os.getpid()}/fd until the server ends",
        )
        if not copied:
            self._check_files()

    def _recover(self) -> None:
        """Overwrite what has failed at once, before it is reported: then it does not come back, whatever happens."""
        if self._failed:
            try:
                self._open()
            except (sqlite3.Error, UnavailableError):
                self._drop()  # the next transaction tries again

    def _drop(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # closing does it
        self.close()
