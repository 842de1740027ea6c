"""The few file operations that durable writers need, behind one interface: the system's, or a simulated disk's.

Everything here blocks, so it belongs into a worker thread. `trio_cogment.testing.SimDisk` is the other implementation;
it needs no thread.
"""

from __future__ import annotations

import os
from typing import Protocol

#: What a file is called until it is whole.
TEMPORARY = ".tmp"


class OpenFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> int:
        """Write some of the bytes, at least one, at the end; return how many. Raises OSError."""

    def sync(self) -> None:
        """Make durable what was written.

        Raises:
            OSError: it may be lost, and a further `sync` would not tell: open the file anew and write it again.
        """

    def close(self) -> None:
        """Close the file; what was not synced may be lost with the power. Never raises."""


class Files(Protocol):
    """A file system. Paths are texts; every operation raises OSError."""

    def open(self, path: str, *, append: bool = False) -> OpenFile:
        """Open a file for writing; it comes into being, and begins empty unless `append`."""

    def read(self, path: str) -> bytes:
        """Return the whole content."""

    def replace(self, source: str, target: str) -> None:
        """Give a file another name, in one step; durable after `sync_folder`."""

    def remove(self, path: str) -> None:
        """Remove a file; durable after `sync_folder`."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""

    def sync_folder(self, folder: str) -> None:
        """Make durable which names the folder has."""


class SystemFiles:
    """The system's files: `Files` over `os`.

    Args:
        mode: who may do what with a file that comes into being; the process's umask takes from it.
    """

    def __init__(self, mode: int = 0o666) -> None:
        self._mode = mode

    def open(self, path: str, *, append: bool = False) -> OpenFile:
        """See `Files.open`."""
        flag = os.O_APPEND if append else os.O_TRUNC
        return _SystemFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, self._mode))

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        with open(path, "rb") as file:
            return file.read()

    def replace(self, source: str, target: str) -> None:
        """See `Files.replace`."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        os.remove(path)

    def names(self, folder: str) -> list[str]:
        """See `Files.names`."""
        return sorted(os.listdir(folder))

    def sync_folder(self, folder: str) -> None:
        """See `Files.sync_folder`."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _SystemFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_whole(file: OpenFile, data: bytes) -> None:
    """Write all of the bytes, in as many pieces as the file takes."""
    with memoryview(data) as rest:
        written = 0
        while written < len(data):
            written += file.write(bytes(rest[written:]))


def replace_durably(files: Files, path: str, data: bytes) -> None:
    """Give a file new content: whoever reads sees all of the old or all of the new, also after the power was lost.

    When this returns, the new content is durable.

    Raises:
        OSError: the disk is full or failed. The old content is still there, unless only the last step failed: then
            either is, and which one will be known after a loss of power only.
    """
    temporary = path + TEMPORARY
    try:
        file = files.open(temporary)
        try:
            write_whole(file, data)
            file.sync()
        finally:
            file.close()
        files.replace(temporary, path)
    except OSError:
        try:
            files.remove(temporary)
        except OSError:
            pass  # it has the final name already, or the disk takes nothing any more
        raise
    files.sync_folder(os.path.dirname(path) or ".")
