"""The file of registrations on a disk."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host.blocking import Runner
from trio_cogment.base.host.files import LOCK, FileLock, Files, LockedError, replace_durably
from trio_cogment.servers.directory._entries import SALT_BYTES, Entries, Hasher
from trio_cogment.servers.directory._file_format import FormatError, decode, encode

#: The suffix that a file gets which cannot be parsed; a number follows if that name is taken.
ASIDE = ".unreadable"

_log = logging.getLogger(__name__)


class StateFile:
    """Reads the registrations once, and writes them whenever they have changed, under an exclusive lock.

    There are two locks, as a file can be removed: one on a separate file beside the file of registrations, and one on
    that file itself, which each new file gets when it has been written.

    Args:
        path: the file; empty: nothing is stored.
        files: the file system.
        run: runs blocking functions.
        random_bytes: the source of the salt.

    Attributes:
        hasher: makes digests with the file's salt; valid after `load`.
    """

    def __init__(self, path: str, files: Files, run: Runner, random_bytes: Callable[[int], bytes]) -> None:
        self.hasher = Hasher(random_bytes(SALT_BYTES))
        self._path = path
        self._files = files
        self._run = run
        self._lock: FileLock | None = None
        self._claim: FileLock | None = None

    async def load(self) -> tuple[Entries, bool]:
        """Return the registrations, and whether the file should be written at once.

        A file that cannot be parsed is renamed, and there are no registrations. The file stays locked until `close`,
        which the caller must call.

        Raises:
            FailedPreconditionError: another directory uses the file, or it cannot be read or renamed.
        """
        if not self._path:
            return Entries(), False
        try:
            entries, current = await self._run(self._open)
        except LockedError as error:
            raise FailedPreconditionError(
                f"persistence file {self._path}: it is in use by another directory{error.who}. "
                "Stop that one, or name another file"
            ) from error
        except OSError as error:
            raise FailedPreconditionError(
                f"persistence file {self._path}: {error}. Correct that, move the file away, or name another one"
            ) from error
        return entries, not current

    def close(self) -> None:
        """Release the locks. May be called again."""
        for lock in (self._lock, self._claim):
            if lock is not None:
                lock.release()
        self._lock = self._claim = None

    async def save(self, entries: Entries) -> None:
        """Write the registrations; when this returns, they are durable.

        Raises:
            OSError: the write failed; either the old or the new registrations are in the file. Or somebody else has
                put another file there, which was not touched. A file that is gone is written again.
        """
        if self._path:
            # Nothing else touches the copy until this returns, so the thread may read it.
            await self._run(self._replace, entries)

    def _replace(self, entries: Entries) -> None:
        if self._claim is not None:
            self._check_ours(self._claim)
        replace_durably(self._files, self._path, encode(entries, self.hasher))
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

    def _open(self) -> tuple[Entries, bool]:
        try:
            self._lock = self._files.lock(self._path + LOCK)
            self._claim = self._claimed()
        except LockedError:
            raise
        except OSError as error:
            # The file may be read-only on purpose, with registrations that are meant to stay as they are.
            _log.warning("persistence file %s: not locked, another directory may use it too: %s", self._path, error)
        return self._load()

    def _claimed(self) -> FileLock | None:
        try:
            return self._files.claim(self._path)
        except FileNotFoundError:
            return None

    def _load(self) -> tuple[Entries, bool]:
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            return Entries(), False
        try:
            content = decode(data, lambda: self.hasher.salt)
        except FormatError as error:
            aside = self._put_aside()
            _log.warning(
                "persistence file %s: %s; it was renamed to %s, and there are no registrations",
                self._path,
                error,
                aside,
            )
            return Entries(), False
        for problem in content.dropped:
            _log.warning("persistence file %s: left out a registration: %s", self._path, problem)
        self.hasher = content.hasher
        return content.entries, not content.foreign

    def _put_aside(self) -> str:
        folder, name = os.path.split(self._path)
        taken = set(self._files.names(folder or "."))
        number, aside = 1, name + ASIDE
        while aside in taken:
            number += 1
            aside = f"{name}{ASIDE}.{number}"
        path = os.path.join(folder, aside)
        self._files.replace(self._path, path)
        if self._claim is not None:
            self._claim.release()
            self._claim = None
        self._files.sync_folder(folder or ".")
        return path
