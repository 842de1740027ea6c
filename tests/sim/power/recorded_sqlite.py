"""SQLite, with everything that it does to a disk recorded: the same statements run in APSW's copy of it.

The standard library's `sqlite3` cannot be given a file system of one's own. APSW can (a VFS), and has a SQLite too. So
`recorded` puts a module in the place of `sqlite3` in `base.sqlite_file`, which opens every connection of the
stores: it has `sqlite3`'s names and errors, and connections of APSW that work as `sqlite3`'s do, as far as the stores
use them. A new database is renamed when it is whole; that is recorded, too.

So what is written is written by APSW's SQLite, which may be younger than the one that finds it afterwards.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import apsw

from tests.sim.power.disk import Cut, FolderSynced, Made, Record, Removed, Renamed, Synced, Wrote, name_of
from trio_cogment.base.host import SystemFiles
from trio_cogment.base.host.files import OpenFile

_numbers = itertools.count()
#: Changes a statement before it is run.
Edit = Callable[[str], str]


class _Disk(apsw.VFS):
    def __init__(self, record: Record) -> None:
        self.name = f"recorded-{next(_numbers)}"
        self.record = record
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # of no use after a loss of power
            return apsw.VFSFile("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        made = not self.xAccess(path, apsw.SQLITE_ACCESS_EXISTS)
        file = _File(self.record, path, name, flags)
        if made:
            self.record.operations.append(Made(name_of(path)))
        return file

    def xDelete(self, path: str, syncdir: bool) -> None:
        super().xDelete(path, syncdir)
        self.record.operations.append(Removed(name_of(path), bool(syncdir)))


class _File(apsw.VFSFile):
    def __init__(self, record: Record, path: str, name: Any, flags: list[int]) -> None:
        self._record = record
        self._name = name_of(path)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._record.operations.append(Wrote(self._name, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._record.operations.append(Cut(self._name, size))

    def xSync(self, flags: int) -> None:
        # The medium is the record; syncing the real disk would only take time.
        self._record.operations.append(Synced(self._name))


class _Connection:
    def __init__(self, path: str, vfs: str, edit: Edit) -> None:
        self._edit = edit
        with _translated():
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
            flags |= 0 if path.startswith("file:") else apsw.SQLITE_OPEN_CREATE
            self._connection = apsw.Connection(path, flags=flags, vfs=vfs)
            self._connection.set_busy_timeout(5000)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def getlimit(self, category: int) -> int:
        return self._connection.limit(category)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> _Cursor:
        with _translated():
            before = self._connection.total_changes()
            cursor = self._connection.cursor()
            cursor.execute(self._edit(statement), tuple(values))
            changed = self._connection.total_changes() - before
            return _Cursor(cursor, changed, self._connection.last_insert_rowid())

    def executemany(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        with _translated():
            self._connection.executemany(statement, [tuple(some) for some in values])

    def executescript(self, script: str) -> None:
        with _translated():
            self._connection.execute(script)

    def close(self) -> None:
        with _translated():
            self._connection.close(True)


class _Cursor:
    def __init__(self, cursor: Any, rowcount: int, lastrowid: int) -> None:
        self._cursor = cursor
        self.rowcount = rowcount
        self.lastrowid = lastrowid

    def __iter__(self) -> Iterator[Any]:
        with _translated():
            yield from self._cursor

    def fetchone(self) -> Any:
        with _translated():
            return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        with _translated():
            return list(self._cursor)

    def fetchmany(self, size: int) -> list[Any]:
        with _translated():
            return list(itertools.islice(self._cursor, size))

    def close(self) -> None:
        self._cursor.close(True)


class _Files(SystemFiles):
    """What the stores do with files themselves: a new database gets its name when it is whole."""

    record: Record

    def open(self, path: str, *, append: bool = False, exclusive: bool = False) -> OpenFile:
        if not os.path.exists(path):
            self.record.operations.append(Made(name_of(path)))
        return super().open(path, append=append, exclusive=exclusive)

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self.record.operations.append(Renamed(name_of(source), name_of(target)))

    def remove(self, path: str) -> None:
        super().remove(path)
        self.record.operations.append(Removed(name_of(path), durably=False))

    def sync_folder(self, folder: str) -> None:
        self.record.operations.append(FolderSynced())


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        translated = sqlite3.OperationalError(str(error))
        translated.sqlite_errorcode = getattr(error, "extendedresult", sqlite3.SQLITE_ERROR)
        translated.sqlite_errorname = type(error).__name__
        raise translated from error


@contextmanager
def recorded(record: Record, edit: Edit = lambda statement: statement) -> Iterator[None]:
    """Record what the stores do to their disk within the block.

    Args:
        record: of the folder where their files are.
        edit: for a planted fault: changes statements before they are run.
    """
    disk = _Disk(record)

    def connect(path: str, **_: object) -> _Connection:
        return _Connection(path, disk.name, edit)

    names = {**vars(sqlite3), "connect": connect}
    files = type("RecordedFiles", (_Files,), {"record": record})
    try:
        with (
            patch("trio_cogment.base.sqlite_file.sqlite3", SimpleNamespace(**names)),
            patch("trio_cogment.base.sqlite_file.SystemFiles", files),
        ):
            yield
    finally:
        disk.unregister()
