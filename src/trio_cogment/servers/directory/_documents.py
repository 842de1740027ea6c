"""A document: bytes that one directory reads, and replaces only if they are still those it has read or written.

It is a file, an object in a bucket, or a row of PostgreSQL. The file is locked, so a second directory does not start.
An object or a row cannot be locked by somebody whose machine may vanish; there, each write names the version that it
replaces (an ETag, a number). So of two directories the one that writes first, which every start does, is the one: the
writes of the other fail from then on, and it says why. Nothing is merged, and nothing is elected. (The ETag of many
servers is a hash of the content: so what two directories write must never be the same, even if it means the same.)

An answer to such a write may be lost. Then the next one finds another version than it expects; it is our own if its
content is what was to be written.
"""

from __future__ import annotations

import errno
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.base.host.files import LOCK, FileLock, Files, LockedError, replace_durably
from trio_cogment.base.object_store import ChangedError, ObjectStore, is_object_url
from trio_cogment.base.postgresql import SCHEMA, check_address, connect, database_errors, is_database_url, shown

#: The suffix of what cannot be parsed and was put aside; a number follows if that name is taken.
ASIDE = ".unreadable"

#: The row of a directory, where the address has no fragment.
_ROW = "directory"
_TABLE = f"""
CREATE TABLE IF NOT EXISTS {SCHEMA}.documents (
    name text PRIMARY KEY,
    version bigint NOT NULL,
    content bytea NOT NULL
)
"""
_INSERT = "INSERT INTO documents VALUES (%s, 1, %s) ON CONFLICT (name) DO NOTHING RETURNING version"
_UPDATE = "UPDATE documents SET content = %s, version = version + 1 WHERE name = %s AND version = %s RETURNING version"

_log = logging.getLogger(__name__)


class Document(Protocol):
    """See the module. Every operation blocks, and raises OSError when it fails.

    Attributes:
        name: where it is, as people may see it.
        locked: nobody else writes it as long as it is open.
    """

    name: str
    locked: bool

    def open(self) -> bytes | None:
        """Return the content; None: there is none yet.

        Raises:
            LockedError: another directory has it.
        """

    def replace(self, data: bytes) -> None:
        """Replace the content, durably.

        Raises:
            FileExistsError: somebody else has written it; it was not touched.
        """

    def put_aside(self) -> str:
        """Keep the content under another name, which is returned, so that `replace` loses nothing."""

    def close(self) -> None:
        """Release locks; may be called again. Never raises."""


def document_of(place: str, files: Files) -> Document:
    """Return the document of a path, or of an address.

    Raises:
        InvalidArgumentError, MissingExtraError: the address is wrong, or an extra is missing.
    """
    if is_object_url(place):
        return _Object(place)
    if is_database_url(place):
        return _Row(place)
    return _File(place, files)


class _File:
    """A file. There are two locks, as a file can be removed: one on a file beside it, and one on the file itself, which
    each new file gets when it has been written.
    """

    locked = True

    def __init__(self, path: str, files: Files) -> None:
        self.name = path
        self._path = path
        self._files = files
        self._lock: FileLock | None = None
        self._claim: FileLock | None = None

    def open(self) -> bytes | None:
        try:
            self._lock = self._files.lock(self._path + LOCK)
            self._claim = self._claimed()
        except LockedError:
            raise
        except OSError as error:
            # The file may be read-only on purpose, with registrations that are meant to stay as they are.
            _log.warning("persistence file %s: not locked, another directory may use it too: %s", self._path, error)
        try:
            return self._files.read(self._path)
        except FileNotFoundError:
            return None

    def _claimed(self) -> FileLock | None:
        try:
            return self._files.claim(self._path)
        except FileNotFoundError:
            return None

    def replace(self, data: bytes) -> None:
        if self._claim is not None:
            self._check_ours(self._claim)
        replace_durably(self._files, self._path, data)
        claim = self._files.claim(self._path)
        if self._claim is not None:
            self._claim.release()
        self._claim = claim

    def _check_ours(self, claim: FileLock) -> None:
        """Raise OSError if another file has taken the place of the one that was read or written last."""
        try:
            ours = self._files.identity(self._path) == claim.identity
        except FileNotFoundError:
            _log.warning("persistence file %s: it was removed; it is written again", self._path)
            return
        if not ours:
            raise FileExistsError(
                errno.EEXIST, "another file was put in its place; remove that, or start the directory again", self._path
            )

    def put_aside(self) -> str:
        folder, name = os.path.split(self._path)
        aside = os.path.join(folder, _unused(name, set(self._files.names(folder or "."))))
        self._files.replace(self._path, aside)
        if self._claim is not None:
            self._claim.release()
            self._claim = None
        self._files.sync_folder(folder or ".")
        return aside

    def close(self) -> None:
        for lock in (self._lock, self._claim):
            if lock is not None:
                lock.release()
        self._lock = self._claim = None


class _Versioned(ABC):
    """What is elsewhere: each content has a version, and is replaced only if that is still the one."""

    locked = False
    name: str

    def __init__(self) -> None:
        self._version: Any = None
        self._content = b""
        self._written: list[bytes] = []  # what an earlier write may have left, whose answer was lost

    def open(self) -> bytes | None:
        self._prepare()
        found = self._read()
        if found is None:
            return None
        self._content, self._version = found
        return self._content

    def replace(self, data: bytes) -> None:
        try:
            try:
                self._version = self._write(data, self._version)
            except ChangedError:
                self._version = self._write_again(data)
        except OSError:
            self._written.append(data)
            raise
        self._content, self._written = data, []

    def _write_again(self, data: bytes) -> Any:
        """Write over a version of our own whose answer was lost, or write again what was removed."""
        found = self._read()
        if found is None:
            _log.warning("persistence file %s: it was removed; it is written again", self.name)
            return self._write(data, None)
        content, version = found
        if content not in (self._content, data, *self._written):
            text = "another directory has written it; stop one of the two, and start this one again"
            raise FileExistsError(errno.EEXIST, text, self.name)
        return self._write(data, version)

    def put_aside(self) -> str:
        number = 1
        while True:
            suffix = ASIDE if number == 1 else f"{ASIDE}.{number}"
            try:
                return self._keep(suffix, self._content)
            except FileExistsError:
                number += 1

    def close(self) -> None:
        self._written = []  # nothing is open between two operations

    @abstractmethod
    def _prepare(self) -> None:
        """See that the place can be used."""

    @abstractmethod
    def _read(self) -> tuple[bytes, Any] | None:
        """Return the content and its version; None: there is none."""

    @abstractmethod
    def _write(self, data: bytes, version: Any) -> Any:
        """Replace this version (None: nothing), and return the new one. Raises ChangedError: it is another one."""

    @abstractmethod
    def _keep(self, suffix: str, data: bytes) -> str:
        """Keep bytes beside the content; return where. Raises FileExistsError: that is taken."""


class _Object(_Versioned):
    """An object in a bucket, with its ETag as version."""

    def __init__(self, url: str) -> None:
        super().__init__()
        prefix, _, self._key = url.rpartition("/")
        if not self._key or prefix.endswith((":/", "/")):
            raise InvalidArgumentError(f"expected an object in a bucket, s3://bucket/key, got {url!r}")
        self.name = url
        self._objects = ObjectStore(prefix)

    def _prepare(self) -> None:
        self._objects.check()

    def _read(self) -> tuple[bytes, Any] | None:
        try:
            found = self._objects.get(self._key)
        except FileNotFoundError:
            return None
        return found.data, found.version

    def _write(self, data: bytes, version: Any) -> Any:
        if version is not None:
            return self._objects.put(self._key, data, version=version)
        try:
            return self._objects.create(self._key, data)
        except FileExistsError as error:
            raise ChangedError(*error.args[:2], self.name) from None

    def _keep(self, suffix: str, data: bytes) -> str:
        self._objects.create(self._key + suffix, data)
        return self.name + suffix


class _Row(_Versioned):
    """A row of PostgreSQL, with a number as version; each operation has a connection of its own, as they are rare."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address, _, fragment = address.partition("#")
        check_address(self._address)
        self._key = fragment or _ROW
        self.name = shown(address)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Have a connection for the time of the block.

        Raises:
            OSError: it cannot be made, or is lost; a write may have had its effect.
        """
        try:
            with connect(self._address, purpose="directory") as connection, database_errors(f"{self.name}"):
                yield connection
        except CogmentError as error:
            raise OSError(errno.EIO, str(error), self.name) from error

    def _prepare(self) -> None:
        with self._connected() as connection:
            if connection.execute("SELECT to_regclass('documents')").fetchone() == (None,):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
                connection.execute(_TABLE)

    def _read(self) -> tuple[bytes, Any] | None:
        with self._connected() as connection:
            row = connection.execute("SELECT content, version FROM documents WHERE name = %s", (self._key,)).fetchone()
        return None if row is None else (bytes(row[0]), row[1])

    def _write(self, data: bytes, version: Any) -> Any:
        with self._connected() as connection:
            if version is None:
                row = connection.execute(_INSERT, (self._key, data)).fetchone()
            else:
                row = connection.execute(_UPDATE, (data, self._key, version)).fetchone()
        if row is None:
            raise ChangedError(errno.ESTALE, "it was changed", self.name)
        return row[0]

    def _keep(self, suffix: str, data: bytes) -> str:
        with self._connected() as connection:
            if connection.execute(_INSERT, (self._key + suffix, data)).fetchone() is None:
                raise FileExistsError(errno.EEXIST, "there is one already", self.name)
        return f"the row {self._key + suffix!r} of {self.name}"


def _unused(name: str, taken: set[str]) -> str:
    number, aside = 1, name + ASIDE
    while aside in taken:
        number += 1
        aside = f"{name}{ASIDE}.{number}"
    return aside
