"""Temporary files and folders, made beside what they are to become: `.name.4711.0.tmp`.

Whoever makes one holds a lock on it (flock), which ends with its process. So one that nobody holds was left behind by a
process that was killed: the next that makes one for the same name removes it. Where there are no such locks nothing is
removed.

Everything here blocks, so it belongs into a worker thread.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from trio_cogment.base.host.files import TEMPORARY, SystemFiles, write_whole

_log = logging.getLogger(__name__)

#: What a temporary file has of the name of the one beside it: all of it together fits into 255 bytes.
_NAME_CHARACTERS = 50


class Hold:
    """A lock on a folder, which shows others that somebody uses it, for as long as this process does.

    Nothing is locked where the system has no such locks.

    Args:
        path: of the folder.

    Raises:
        BlockingIOError: somebody else has it.
        OSError: it is not there.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if not _lock(self._descriptor):
            self.release()
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)

    def is_of(self, path: str) -> bool:
        """Whether it is the folder of this name."""
        return _is_there(self._descriptor, path)

    def release(self) -> None:
        """Let others have it. Never raises."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def make_folder_beside(path: str) -> tuple[str, Hold]:
    """Make a folder beside a path whose place it is to take; return its name and the lock on it.

    What killed processes have left there is removed.

    Raises:
        OSError: it cannot be made.
    """
    remove_left_beside(path)
    for temporary in _names(path, len(path)):
        try:
            os.mkdir(temporary)
        except FileExistsError:
            continue
        try:
            hold = Hold(temporary)
        except (BlockingIOError, FileNotFoundError):
            continue  # it was taken for what a killed process has left
        if hold.is_of(temporary):
            return temporary, hold
        hold.release()
    raise AssertionError("numbers do not end")


def open_beside(path: str, *, mode: int | None = None) -> tuple[BinaryIO, str]:
    """Open a new file in the folder of another one, whose place it is to take once it is whole; return it and its name.

    Nobody else writes to it, however many want to replace the same file. It has to get its final name before it is
    closed: then it is locked no more. What killed processes have left there is removed.

    Args:
        path: the other file.
        mode: who may do what with the new one, less the process's umask; None: what they may do with the other one, if
            that is there.

    Raises:
        OSError: it cannot be made.
    """
    remove_left_beside(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for temporary in _names(path, _NAME_CHARACTERS):
        try:
            descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
        except FileExistsError:
            continue
        if not (_lock(descriptor) and _is_there(descriptor, temporary)):
            os.close(descriptor)
            continue
        try:
            if mode is None:
                os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
        except OSError:
            pass  # there is none yet, or its file system knows no modes
        return open(descriptor, "wb"), temporary
    raise AssertionError("numbers do not end")


def _names(path: str, characters: int) -> Iterator[str]:
    folder, name = os.path.split(path)
    for number in itertools.count():
        # Processes of several containers that share a folder may have the same number.
        yield os.path.join(folder, f".{name[:characters]}.{os.getpid()}.{number}{TEMPORARY}")


def _lock(descriptor: int) -> bool:
    """Lock a file for as long as it is open; return False if another one has it."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass  # no such locks here: then nobody can get one, and take this for left behind
    return True


def _is_there(descriptor: int, path: str) -> bool:
    """Whether a file that is open still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


# What was left behind


def names_left_beside(path: str) -> list[str]:
    """Return the temporary files and folders beside a path, sorted, those that are in use included."""
    folder, name = os.path.split(path)
    names = "|".join(map(re.escape, {name, name[:_NAME_CHARACTERS]}))
    pattern = re.compile(rf"\.({names})\.\d+\.\w+{re.escape(TEMPORARY)}")
    try:
        return [os.path.join(folder, found) for found in sorted(os.listdir(folder or ".")) if pattern.fullmatch(found)]
    except OSError:
        return []


def remove_left_beside(path: str) -> None:
    """Remove what killed processes have left beside a path, and log it. Never raises."""
    for temporary in names_left_beside(path):
        with left_behind(temporary) as nobodys:
            if nobodys:
                remove(temporary)


@contextmanager
def left_behind(path: str) -> Iterator[bool]:
    """Yield whether nobody holds a file or folder; if so, nobody else gets it during the `with` block."""
    try:
        found = os.lstat(path)
        # Opening a pipe would wait for its other end.
        lock = SystemFiles().claim(path) if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None
    except (ImportError, OSError):
        lock = None
    if lock is None:
        yield False
        return
    try:
        yield lock.identity == (found.st_dev, found.st_ino)
    finally:
        lock.release()


def remove(path: str) -> None:
    """Remove what a killed process has left behind, and log it. Never raises."""
    try:
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("%s was left behind by a process that was killed, and cannot be removed: %s", path, error)
    else:
        _log.warning("%s was left behind by a process that was killed; it is removed", path)


# Files that are made once


#: A file system without hard links says one of these.
_NO_LINKS = frozenset([errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])


def create_durably(path: str, data: bytes, *, mode: int = 0o600) -> None:
    """Make a file that is not there yet: whoever finds it finds all of it, also after a full disk or a loss of power.

    Args:
        path: where it is to be.
        data: what is in it.
        mode: who may do what with it; the process's umask takes from it.

    Raises:
        FileExistsError: there is one, which is left alone.
        OSError: the disk is full or failed, and nothing is there.
    """
    files = SystemFiles(mode)
    file, temporary = open_beside(path, mode=mode)
    with file:
        try:
            write_whole(file, data)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                files.open(path, exclusive=True).close()  # the name is taken, and what it names replaced at once
                os.replace(temporary, path)
        finally:
            try:
                os.remove(temporary)
            except OSError:
                pass  # it has the final name
    files.sync_folder(os.path.dirname(path) or ".")
