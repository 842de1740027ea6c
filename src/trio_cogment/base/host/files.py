"""The few file operations that durable writers need, behind one interface: the system's, or a simulated disk's.

Everything here blocks, so it belongs into a worker thread. `trio_cogment.testing.SimDisk` is the other implementation;
it needs no thread.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from typing import Protocol, TypeAlias

#: What comes behind the name of a file, or stands alone in a folder, for the lock of whoever uses it.
LOCK = ".lock"

#: What a file is called until it is whole.
TEMPORARY = ".tmp"


#: What tells a file from another one that has got its name since.
Identity: TypeAlias = tuple[int, int]


class OpenFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> int:
        """Write some of the bytes, at least one, at the end; return how many. Raises OSError."""

    def sync(self) -> None:
        """Make durable what was written.

        Raises:
            OSError: it may be lost, and a further `sync` would not tell: open the file again and write it again.
        """

    def close(self) -> None:
        """Close the file; what was not synced may be lost with the power. Never raises."""


class ReadFile(Protocol):
    """A file that is being read. It stays readable when its name is removed or given to another file."""

    def size(self) -> int:
        """Return how long it is now, in bytes. Raises OSError."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return this many bytes from there on; fewer only where the file ends. Raises OSError."""

    def close(self) -> None:
        """Close the file. Never raises."""


class LockedError(BlockingIOError):
    """Somebody holds a lock.

    Attributes:
        holder: the number of the process, if that is known.
    """

    def __init__(self, path: str, holder: int | None = None) -> None:
        super().__init__(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.holder = holder

    @property
    def who(self) -> str:
        """Who it is, to go behind a name in a text; nothing if that is not known."""
        return "" if self.holder is None else f" (process {self.holder})"


class FileLock(Protocol):
    """A lock that is held.

    Attributes:
        identity: of the file that is locked; no other file gets it as long as the lock is held.
    """

    identity: Identity

    def release(self) -> None:
        """Let others have it. Never raises."""


class Files(Protocol):
    """A file system. Paths are texts; every operation raises OSError."""

    def open(self, path: str, *, append: bool = False, exclusive: bool = False) -> OpenFile:
        """Open a file for writing; it comes into being, and begins empty unless `append`.

        Raises:
            FileExistsError: `exclusive`, and there is something of that name.
        """

    def open_read(self, path: str) -> ReadFile:
        """Open a file for reading."""

    def read(self, path: str) -> bytes:
        """Return the whole content."""

    def size(self, path: str) -> int:
        """Return how long a file is, in bytes."""

    def replace(self, source: str, target: str) -> None:
        """Give a file another name, in one step; durable after `sync_folder`."""

    def remove(self, path: str) -> None:
        """Remove a file; durable after `sync_folder`."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, those of its own folders too, sorted."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted."""

    def make_folder(self, path: str) -> None:
        """Make a folder; durable, with all that is in it, after `sync_folder` of the one it is in.

        Raises:
            FileExistsError: there is something of that name.
        """

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder; durable after `sync_folder` of the one it is in."""

    def sync_folder(self, folder: str) -> None:
        """Make durable which names the folder has."""

    def owner_only(self) -> Files:
        """Return the same file system, where nobody but their owner can use new files and folders."""

    def lock(self, path: str) -> FileLock:
        """Hold a lock until it is released or this process ends, however it ends.

        The file has the number of the process in it, if there was room, and stays: removing it would let two of them
        each hold "the" lock.

        Raises:
            LockedError: somebody holds it, in this process or another one.
        """

    def claim(self, path: str) -> FileLock:
        """Hold a lock on a file or folder that is there, as `lock` does; nothing is written to it.

        It is for what a lock file stands for, because a lock file can be removed. The lock belongs to the file and not
        to its name: a file that takes its place has another one.

        Raises:
            LockedError: somebody holds it, in this process or another one.
        """

    def identity(self, path: str) -> Identity:
        """Return what tells this file or folder from another one of its name, as long as either is open or locked."""


class SystemFiles:
    """The system's files: `Files` over `os`.

    Args:
        mode: who may do what with a file that comes into being; the process's umask takes from it.
    """

    def __init__(self, mode: int = 0o666) -> None:
        self._mode = mode

    def open(self, path: str, *, append: bool = False, exclusive: bool = False) -> OpenFile:
        """See `Files.open`."""
        flag = os.O_APPEND if append else os.O_TRUNC
        flag |= os.O_EXCL if exclusive else 0
        return _SystemFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, self._mode))

    def open_read(self, path: str) -> ReadFile:
        """See `Files.open_read`."""
        return _SystemReadFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        with open(path, "rb") as file:
            return file.read()

    def size(self, path: str) -> int:
        """See `Files.size`."""
        return os.stat(path).st_size

    def replace(self, source: str, target: str) -> None:
        """See `Files.replace`."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        os.remove(path)

    def names(self, folder: str) -> list[str]:
        """See `Files.names`."""
        return sorted(os.listdir(folder))

    def folders(self, folder: str) -> list[str]:
        """See `Files.folders`."""
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def make_folder(self, path: str) -> None:
        """See `Files.make_folder`."""
        os.mkdir(path, 0o777 if self._mode & 0o077 else 0o700)

    def remove_folder(self, path: str) -> None:
        """See `Files.remove_folder`."""
        os.rmdir(path)

    def sync_folder(self, folder: str) -> None:
        """See `Files.sync_folder`."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int | None:
        """Return how much may still be written where a path is; None: nobody knows. Other files need not have this."""
        if sys.platform == "win32":
            return None
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize

    def owner_only(self) -> SystemFiles:
        """See `Files.owner_only`."""
        return type(self)(mode=self._mode & 0o600)

    def lock(self, path: str) -> FileLock:
        """See `Files.lock`."""
        import fcntl  # not on every system, and who locks nothing needs none

        lock = _SystemLock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode))
        try:
            fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.holder()
            lock.close()
            raise LockedError(path, holder) from None
        except OSError:
            lock.close()
            raise
        lock.sign()
        return lock

    def claim(self, path: str) -> FileLock:
        """See `Files.claim`."""
        import fcntl

        lock = _SystemLock(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        for attempt in range(_CLAIM_ATTEMPTS):
            try:
                fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_CLAIM_PAUSE_SECONDS if attempt < _CLAIM_ATTEMPTS - 1 else 0)
            except OSError:
                lock.close()
                raise
            else:
                return lock
        lock.close()
        raise LockedError(path)

    def identity(self, path: str) -> Identity:
        """See `Files.identity`."""
        return _identity_of(os.stat(path))


#: Who looks whether a file is free (`trio-cogment doctor`) holds it for a moment.
_CLAIM_ATTEMPTS = 3
_CLAIM_PAUSE_SECONDS = 0.01


def _identity_of(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


class _Descriptor:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError:
                pass  # some file systems report here what an earlier write met; whoever needs to know syncs


class _SystemFile(_Descriptor):
    def write(self, data: bytes) -> int:
        return os.write(self.descriptor, data)

    def sync(self) -> None:
        os.fsync(self.descriptor)


class _SystemReadFile(_Descriptor):
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self.descriptor, size, offset)
        if not data or len(data) == size:
            return data
        pieces = [data]  # a signal, or a limit of the system on one read
        while data:
            offset, size = offset + len(data), size - len(data)
            data = os.pread(self.descriptor, size, offset)
            pieces.append(data)
        return b"".join(pieces)


#: More digits than a process's number has.
_HOLDER_BYTES = 20


class _SystemLock(_Descriptor):
    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.identity = _identity_of(os.fstat(descriptor))

    def holder(self) -> int | None:
        try:
            text = os.pread(self.descriptor, _HOLDER_BYTES, 0).strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else None

    def sign(self) -> None:
        try:
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, b"%d\n" % os.getpid(), 0)
        except OSError:
            pass  # a full disk; the lock holds without a name

    def release(self) -> None:
        self.close()


class _Writer(Protocol):
    def write(self, data: bytes, /) -> int:
        """Write some of the bytes; return how many."""


def write_whole(file: _Writer, data: bytes) -> None:
    """Write all of the bytes, in as many pieces as the file takes."""
    written = file.write(data) if data else 0  # nearly always all of it, and not copied then
    while written < len(data):
        written += file.write(data[written:])


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
