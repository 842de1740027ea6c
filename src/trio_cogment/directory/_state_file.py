"""The file of registrations on a disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from trio_cogment.directory._file_format import FormatError, decode, encode
from trio_cogment.directory._registry import SALT_BYTES, Hasher, Registry
from trio_cogment.errors import FailedPreconditionError
from trio_cogment.host.blocking import Runner
from trio_cogment.host.files import LOCK, FileLock, Files, LockedError, replace_durably

#: What a file that cannot be understood is called from then on, after a number if need be.
ASIDE = ".unreadable"

_log = logging.getLogger(__name__)


class StateFile:
    """Reads the registrations once, and writes them whenever they have changed. Nobody else does so meanwhile.

    The lock is a file beside it.

    Args:
        path: of the file; empty for none, then nothing is kept.
        files: where it is.
        run: runs what blocks.
        random_bytes: for the salt.

    Attributes:
        hasher: makes the digests that are in the file; known after `load`.
    """

    def __init__(self, path: str, files: Files, run: Runner, random_bytes: Callable[[int], bytes]) -> None:
        self.hasher = Hasher(random_bytes(SALT_BYTES))
        self._path = path
        self._files = files
        self._run = run
        self._lock: FileLock | None = None

    async def load(self) -> tuple[Registry, bool]:
        """Return the registrations, and whether the file should be written at once.

        A file that cannot be understood is kept under another name, and there are no registrations. The file is ours
        until `close`, which has to follow.

        Raises:
            FailedPreconditionError: another directory has it; or there is a file and it cannot be read, or not be kept.
        """
        if not self._path:
            return Registry(), False
        try:
            registry, current = await self._run(self._open)
        except LockedError as error:
            raise FailedPreconditionError(
                f"persistence file {self._path}: it is in use by another directory{error.who}"
            ) from error
        except OSError as error:
            raise FailedPreconditionError(
                f"persistence file {self._path}: {error}. Mend that, move the file away, or name another one"
            ) from error
        return registry, not current

    def close(self) -> None:
        """Let others have the file. May be called again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def save(self, registry: Registry) -> None:
        """Write the registrations; they are durable then.

        Raises:
            OSError: they may not be.
        """
        if self._path:
            # The copy belongs to us alone until we are done, so the thread may read it.
            await self._run(lambda: replace_durably(self._files, self._path, encode(registry, self.hasher)))

    def _open(self) -> tuple[Registry, bool]:
        try:
            self._lock = self._files.lock(self._path + LOCK)
        except LockedError:
            raise
        except OSError as error:
            # Somebody may have given us a file that nobody can write, with registrations that are to stay as they are.
            _log.warning("persistence file %s: nothing keeps another directory away: %s", self._path, error)
        return self._load()

    def _load(self) -> tuple[Registry, bool]:
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            return Registry(), False
        try:
            content = decode(data, lambda: self.hasher.salt)
        except FormatError as error:
            aside = self._put_aside()
            _log.warning("persistence file %s: %s; it is %s now, and nobody is registered", self._path, error, aside)
            return Registry(), False
        for problem in content.dropped:
            _log.warning("persistence file %s: left out a registration: %s", self._path, problem)
        self.hasher = content.hasher
        return content.registry, not content.foreign

    def _put_aside(self) -> str:
        folder, name = os.path.split(self._path)
        taken = set(self._files.names(folder or "."))
        number, aside = 1, name + ASIDE
        while aside in taken:
            number += 1
            aside = f"{name}{ASIDE}.{number}"
        path = os.path.join(folder, aside)
        self._files.replace(self._path, path)
        self._files.sync_folder(folder or ".")
        return path
