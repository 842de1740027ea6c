"""Blobs as files in a directory: `<root>/<folder>/<name>`.

A blob is written to a file in the root, whose name begins with a dot, and renamed when it is durable.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import re
import threading
from collections.abc import Iterable

from trio_cogment.base.host.files import LOCK, TEMPORARY, FileLock, Files, OpenFile, ReadFile, SystemFiles, write_whole
from trio_cogment.servers.model_registry.blobs import Blob, Upload

logger = logging.getLogger(__name__)

#: The names that folders may have; see `BlobStore`.
_OURS = re.compile(r"[A-Za-z0-9%._-]+")


class LocalBlobs:
    """Implements `BlobStore` in a directory.

    Args:
        root: the directory; `open` makes it, and those above it, if need be.
        files: the system's, unless it is a simulated disk's. What is made has no other reader than its owner.

    One process at a time uses a root: the locks are the system's (flock), and gone with the process that holds them.
    One is on a file in the root, the other on the root itself, as the file can be removed. They hold on the machine
    they were taken on, so two machines must not share a root over a network.

    A root that was removed or replaced takes nothing more, and neither does a folder in it that was removed: what they
    had is lost, and so would be what builds on it.
    """

    def __init__(self, root: str | os.PathLike[str], *, files: Files | None = None) -> None:
        self.root = os.fspath(root)
        self.files: Files = (files or SystemFiles()).owner_only()
        self._locks: list[FileLock] = []
        self._known: set[str] = set()
        self._changing = threading.Lock()
        self._numbers = itertools.count()
        self._doubtful: set[str] = set()

    def open(self) -> None:
        """See `BlobStore.open`."""
        self._make_folder(self.root)
        self._locks.append(self.files.lock(self._path(LOCK)))
        try:
            self._locks.append(self.files.claim(self.root))
            for name in self.files.names(self.root):
                if name.startswith(".") and name.endswith(TEMPORARY):
                    self.files.remove(self._path(name))
            self._known = set(self.files.folders(self.root))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """See `BlobStore.close`."""
        while self._locks:
            self._locks.pop().release()

    def _check_root(self) -> None:
        """Raise OSError unless the root is the folder that was opened."""
        if self.files.identity(self.root) != self._locks[-1].identity:
            raise FileNotFoundError(errno.ENOENT, "it was replaced while it was in use", self.root)

    def free_bytes(self) -> int | None:
        """Return how much may still be written; None: nobody knows."""
        free = getattr(self.files, "free_bytes", None)
        return None if free is None else int(free(self.root))

    def folders(self) -> list[str]:
        """See `BlobStore.folders`; those whose name begins with a dot are not part of the store."""
        return [name for name in self.files.folders(self.root) if not name.startswith(".") and self._has_blobs(name)]

    def _has_blobs(self, folder: str) -> bool:
        try:
            return bool(self.names(folder))
        except PermissionError as error:
            if _OURS.fullmatch(folder):
                raise
            # A file system of its own has a `lost+found`.
            logger.warning("model registry: a folder is left alone: %s", error)
            return False

    def names(self, folder: str) -> list[str]:
        """See `BlobStore.names`."""
        path = self._path(folder)
        try:
            inner = set(self.files.folders(path))
            return [name for name in self.files.names(path) if name not in inner]
        except FileNotFoundError:
            return []

    def read(self, folder: str, name: str) -> bytes:
        """See `BlobStore.read`."""
        return self.files.read(self._path(folder, name))

    def open_blob(self, folder: str, name: str) -> Blob:
        """See `BlobStore.open_blob`."""
        return _LocalBlob(self.files.open_read(self._path(folder, name)))

    def upload(self) -> Upload:
        """See `BlobStore.upload`."""
        while True:
            path = self._path(f".{next(self._numbers)}{TEMPORARY}")
            try:
                return _LocalUpload(self, path, self.files.open(path, exclusive=True))
            except FileExistsError:
                continue  # it was created by hand

    def delete(self, folder: str, names: Iterable[str]) -> None:
        """See `BlobStore.delete`."""
        path = self._path(folder)
        with self._changing:
            self._check_root()  # what has taken its place is somebody else's
            for name in names:
                try:
                    self.files.remove(os.path.join(path, name))
                except FileNotFoundError:
                    continue
            try:
                empty = not self.files.names(path)
                if empty:
                    self.files.remove_folder(path)
                    self._known.discard(folder)
            except FileNotFoundError:
                self._known.discard(folder)
                return
        self.files.sync_folder(self.root if empty else path)

    def rename(self, source: str, folder: str, name: str, *, replace: bool) -> None:
        """Give a finished file its name; see `Upload.commit`."""
        path = self._path(folder)
        target = os.path.join(path, name)
        with self._changing:
            self._check_root()  # before, for what has taken its place; and behind, for what is acknowledged
            if not replace and self._exists(target):
                raise FileExistsError(f"{folder}/{name} exists")
            if folder in self._known and not self._exists(path):
                raise FileNotFoundError(errno.ENOENT, "it was removed while it was in use", path)
            self._make_folder(path)
            self._known.add(folder)
            self.files.replace(source, target)
        try:
            self.files.sync_folder(path)
            self._check_root()
        except OSError:
            if not replace:
                self.discard(target)
            raise

    def discard(self, path: str) -> None:
        """Remove a file that is not wanted, if that is possible."""
        try:
            self.files.remove(path)
        except OSError:
            pass  # the disk takes nothing any more; a temporary file is removed by the next `open`

    def _exists(self, path: str) -> bool:
        try:
            self.files.identity(path)
        except FileNotFoundError:
            return False
        return True

    def _make_folder(self, path: str) -> None:
        try:
            self.files.make_folder(path)
        except FileExistsError:
            if path not in self._doubtful:
                return
            self.files.remove_folder(path)
            self.files.make_folder(path)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            self.files.make_folder(path)
        # Until this has worked nothing is put into it: after a sync that failed another one tells nothing.
        self._doubtful.add(path)
        self.files.sync_folder(os.path.dirname(path) or ".")
        self._doubtful.discard(path)

    def _path(self, *parts: str) -> str:
        return os.path.join(self.root, *parts)


class _LocalUpload:
    def __init__(self, store: LocalBlobs, path: str, file: OpenFile) -> None:
        self._store = store
        self._path: str | None = path
        self._file = file

    def write(self, data: bytes) -> None:
        write_whole(self._file, data)

    def finish(self) -> None:
        self._file.sync()
        self._file.close()

    def commit(self, folder: str, name: str, *, replace: bool = False) -> None:
        assert self._path is not None
        self._store.rename(self._path, folder, name, replace=replace)
        self._path = None

    def abort(self) -> None:
        self._file.close()
        path, self._path = self._path, None
        if path is not None:
            self._store.discard(path)


class _LocalBlob:
    def __init__(self, file: ReadFile) -> None:
        self._file = file
        self.size = file.size()

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def close(self) -> None:
        self._file.close()
