"""The database file: whose it is, which version, how it comes into being, and what its failures mean."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from trio_cogment.errors import (
    CogmentError,
    FailedPreconditionError,
    ResourceExhaustedError,
    UnavailableError,
)
from trio_cogment.host.files import LOCK, TEMPORARY, FileLock, LockedError, SystemFiles

_logger = logging.getLogger(__name__)

#: "TCgm", in the header of the file.
APPLICATION_ID = 0x5443676D
#: What this version writes. A later one adds its step to `_MIGRATIONS`.
SCHEMA_VERSION = 2
#: Rows of about a kilobyte: larger pages than SQLite's own 4 KiB take a tenth less time.
PAGE_BYTES = 8192
#: How long to wait for another process (a backup) that holds the database.
_BUSY_SECONDS = 5.0
#: The log is copied into the database after so many pages, which a commit and all who follow wait for; and shrunk to
#: so many bytes if it was larger.
_CHECKPOINT_PAGES = 1000
_LOG_BYTES = 64 * 1024 * 1024
_CACHE_KIBIBYTES = 16 * 1024

#: What the system calls a lack of room.
NO_ROOM = frozenset([errno.ENOSPC, errno.EDQUOT])

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"

#: Rowids go up in the order of arrival, so that new samples are appended, whatever their trial; they are the positions.
#: `samples_trial` ends with the rowid (every index does), so it pages a trial by position.
_SCHEMA = """
CREATE TABLE trials (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    params BLOB NOT NULL,
    logged INTEGER NOT NULL,
    ending INTEGER NOT NULL DEFAULT 0,
    samples_count INTEGER NOT NULL DEFAULT 0,
    high_tick INTEGER NOT NULL DEFAULT -1,
    state INTEGER NOT NULL DEFAULT 0,
    outcome BLOB NOT NULL DEFAULT x''
);
CREATE INDEX trials_open ON trials (number) WHERE ending = 0 AND logged = 1;
CREATE TABLE properties (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (name, value, number)
) WITHOUT ROWID;
CREATE INDEX properties_of ON properties (number);
CREATE TABLE samples (
    position INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX samples_tick ON samples (trial, tick);
CREATE INDEX samples_trial ON samples (trial);
CREATE TABLE deleted (number INTEGER PRIMARY KEY);
CREATE TABLE recoveries (count INTEGER NOT NULL);
INSERT INTO recoveries VALUES (0);
"""

#: Version -> what leads from it to the next, within one transaction.
_MIGRATIONS: dict[int, str] = {
    1: "ALTER TABLE trials ADD COLUMN outcome BLOB NOT NULL DEFAULT x''",
}


def lock(path: str) -> FileLock:
    """Keep a second datastore away from a database, until the lock is released or this process ends.

    Raises:
        FailedPreconditionError: another process has it.
        CogmentError: the file cannot be made; see `file_errors`.
    """
    with file_errors(f"cannot lock {path}"):
        try:
            return SystemFiles().lock(path + LOCK)
        except LockedError as error:
            text = f"storage: {path} is in use by another datastore{error.who}"
            raise FailedPreconditionError(text) from error


def prepare(path: str) -> None:
    """Make sure that the file is a datastore of this version; create one if there is no file.

    Raises:
        FailedPreconditionError: the file belongs to another program or a newer version. It was not changed.
        CogmentError: see `file_errors`.
    """
    with file_errors(f"cannot open {path}"):
        header = _read_header(path)
        if not header:
            _create(path)
            return
    if header[:16] != _MAGIC or len(header) < _HEADER_BYTES:
        raise FailedPreconditionError(f"storage: {path} is no SQLite database; it was not touched")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise FailedPreconditionError(f"storage: {path} is a database of another program; it was not touched")
    _check_version(path, int.from_bytes(header[60:64], "big"))
    with file_errors(f"cannot open {path}"), closing(connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        _check_version(path, version)
        for step in range(version, SCHEMA_VERSION):
            connection.executescript(f"BEGIN IMMEDIATE; {_MIGRATIONS[step]}; PRAGMA user_version = {step + 1}; COMMIT;")


def connect(path: str, *, full: bool = True, query_only: bool = False, max_bytes: int = 0) -> sqlite3.Connection:
    """Open a connection to a database that is there, to be used by one thread at a time.

    Args:
        path: of the file.
        full: a commit waits until it would survive a loss of power.
        query_only: it never writes.
        max_bytes: how large the file may become; 0: as large as there is room.

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
            f"cache_size = -{_CACHE_KIBIBYTES}",
            # Some builds write zeros over all that is deleted: as much as was there, which a full disk has no room for.
            "secure_delete = 0",
            f"query_only = {int(query_only)}",
        ):
            connection.execute(f"PRAGMA {setting}")
        if max_bytes:
            connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}")
        # The first read opens the write-ahead log, and finds out if the file is no database.
        connection.execute("SELECT count FROM recoveries").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


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


def _check_version(path: str, version: int) -> None:
    if not 1 <= version <= SCHEMA_VERSION:
        raise FailedPreconditionError(
            f"storage: {path} was written by another version of trio-cogment (its schema is {version}, "
            f"this one knows 1 to {SCHEMA_VERSION}); it was not touched"
        )


def _create(path: str) -> None:
    """Create a database under a temporary name, then rename it, so that it is never seen incomplete."""
    files = SystemFiles()
    temporary = path + TEMPORARY
    for leftover in (temporary, f"{temporary}-journal", f"{temporary}-wal", f"{temporary}-shm"):
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
            f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};{_SCHEMA} COMMIT;"
        )
    # Closing the only connection has copied the log into the file, synced it, and removed the log.
    files.replace(temporary, path)
    files.sync_folder(os.path.dirname(path) or ".")
