"""A simulated disk: what was not synced may be lost when the power fails, a sync may fail, and the disk may be full."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from trio_cogment.base.host.files import FileLock, Identity, LockedError, OpenFile, ReadFile
from trio_cogment.base.recount import Count

#: A write reaches the medium in pieces of this size, each whole or not at all.
SECTOR_BYTES = 512


Handle = TypeVar("Handle", "_SimFile", "_SimReadFile")


class PowerLossError(OSError):
    """The power failed in the middle of an operation; nothing works until `SimDisk.restart`."""


@dataclass(slots=True, eq=False)
class _Node:
    """A file apart from its name: what programs see, what is durable, and the writes in between. Or a folder."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    is_folder: bool = False


class SimDisk:
    """Implements `trio_cogment.base.host.files.Files`, in memory.

    A folder need not be made before it is used. One that was made is lost with everything in it at a loss of power,
    unless its parent folder was synced.

    Programs see what the page cache of an operating system would hold; `crash` loses that. Of each write that was not
    synced, all, nothing or a part survives. Of the renames and removals that were not synced, a random number of the
    first ones survive.

    Args:
        rng: decides what survives; for example `World.stream("disk")`.
        capacity_bytes: what all files together may hold.

    Attributes:
        capacity_bytes: may be changed at any time; 0 is a full disk.
        operations: how many there have been; the power may fail at each of them.
    """

    def __init__(self, rng: random.Random, *, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self._rng = rng
        self._names: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}
        self._pending_names: list[tuple[str, dict[str, _Node | None]]] = []  # folder, and what one change sets
        self._made: set[str] = set()
        self._locks: dict[_Node, _SimLock] = {}
        self._failing_syncs = 0
        self._crash_at: int | None = None
        self._era = 0
        self._down = False
        #: Handles of this era.
        self._handles: set[_SimFile | _SimReadFile] = set()

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`: at rest nobody has left a file open."""
        yield Count("open files", len(self._handles), len(self._handles))

    # Faults

    def fail_syncs(self, count: int = 1) -> None:
        """Let the next syncs fail with EIO. As on Linux, what they should have made durable stays volatile.

        It can be read until the power fails, and the sync after the failed one succeeds.
        """
        self._failing_syncs = count

    def crash_at(self, operation: int | None) -> None:
        """Let the power fail in the middle of an operation, counted like `operations` from 0; None for never."""
        self._crash_at = operation

    def crash(self) -> None:
        """Let the power fail now: open files are lost, and what was not synced may be."""
        for node in {id(node): node for node in [*self._names.values(), *self._durable_names.values()]}.values():
            self._survive(node)
        for _, change in self._pending_names[: self._rng.randint(0, len(self._pending_names))]:
            self._settle(change)
        for path in [path for path in self._durable_names if self._is_lost(path)]:
            del self._durable_names[path]
        self._names = dict(self._durable_names)
        self._pending_names.clear()
        self._locks.clear()
        self._handles.clear()
        self._era += 1
        self._down = True

    def restart(self) -> None:
        """Bring the power back."""
        self._down = False
        self._crash_at = None

    def _is_lost(self, path: str) -> bool:
        folder = os.path.dirname(path)
        while folder not in ("", "/"):
            if folder in self._made and folder not in self._durable_names:
                return True
            folder = os.path.dirname(folder)
        return False

    def _survive(self, node: _Node) -> None:
        for offset, data in node.pending:
            fate = self._rng.choice(("lost", "whole", "torn"))
            if fate == "torn":
                data = data[: self._rng.randrange(0, len(data) + 1, SECTOR_BYTES)]
            if fate != "lost" and data:
                if len(node.durable) < offset:  # a hole, where an earlier write was lost
                    node.durable.extend(bytes(offset - len(node.durable)))
                node.durable[offset : offset + len(data)] = data
        node.pending.clear()
        node.content = bytearray(node.durable)

    def _operation(self) -> None:
        if self._down:
            raise PowerLossError(errno.EIO, "the power is off")
        number = self.operations
        self.operations += 1
        if number == self._crash_at:
            self.crash()
            raise PowerLossError(errno.EIO, "the power went")

    def _find(self, path: str) -> _Node:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if node.is_folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _change(self, folder: str, change: dict[str, _Node | None]) -> None:
        _apply(self._names, change)
        self._pending_names.append((folder, change))

    # trio_cogment.base.host.files.Files

    def open(self, path: str, *, append: bool = False, exclusive: bool = False) -> OpenFile:
        """See `Files.open`."""
        self._operation()
        node = self._names.get(path)
        if exclusive and node is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if node is None or (not append and node.content):
            # Emptying a file is as durable as making one: not at all, without a sync of the folder.
            node = _Node()
            self._change(os.path.dirname(path), {path: node})
        return self._opened(_SimFile(self, node, self._era))

    def open_read(self, path: str) -> ReadFile:
        """See `Files.open_read`."""
        self._operation()
        return self._opened(_SimReadFile(self, self._find(path), self._era))

    def _opened(self, handle: Handle) -> Handle:
        self._handles.add(handle)
        return handle

    def closed(self, handle: _SimFile | _SimReadFile) -> None:
        """Count an open file less."""
        self._handles.discard(handle)

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        self._operation()
        return bytes(self._find(path).content)

    def size(self, path: str) -> int:
        """See `Files.size`."""
        self._operation()
        return len(self._find(path).content)

    def replace(self, source: str, target: str) -> None:
        """See `Files.replace`."""
        self._operation()
        node = self._find(source)
        self._change(os.path.dirname(target), {target: node, source: None})

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        self._operation()
        self._find(path)
        self._change(os.path.dirname(path), {path: None})

    def names(self, folder: str) -> list[str]:
        """See `Files.names`."""
        self._operation()
        return sorted(os.path.basename(path) for path in self._inside(folder))

    def folders(self, folder: str) -> list[str]:
        """See `Files.folders`."""
        self._operation()
        return sorted(os.path.basename(path) for path in self._inside(folder) if self._names[path].is_folder)

    def _inside(self, folder: str) -> list[str]:
        folder = "" if folder == "." else folder
        return [path for path in self._names if os.path.dirname(path) == folder]

    def make_folder(self, path: str) -> None:
        """See `Files.make_folder`."""
        self._operation()
        if path in self._names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._made.add(path)
        self._change(os.path.dirname(path), {path: _Node(is_folder=True)})

    def remove_folder(self, path: str) -> None:
        """See `Files.remove_folder`."""
        self._operation()
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._inside(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._change(os.path.dirname(path), {path: None})

    def owner_only(self) -> SimDisk:
        """See `Files.owner_only`; there are no users here."""
        return self

    def lock(self, path: str) -> FileLock:
        """See `Files.lock`."""
        self._operation()
        if path not in self._names:
            self._change(os.path.dirname(path), {path: _Node()})
        return self._hold(path)

    def claim(self, path: str) -> FileLock:
        """See `Files.claim`."""
        self.identity(path)
        return self._hold(path)

    def _hold(self, path: str) -> FileLock:
        node = self._names[path]
        if node in self._locks:
            raise LockedError(path)
        lock = self._locks[node] = _SimLock(self._locks, node)
        return lock

    def identity(self, path: str) -> Identity:
        """See `Files.identity`."""
        self._operation()
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return 0, id(self._names[path])

    def sync_folder(self, folder: str) -> None:
        """See `Files.sync_folder`."""
        self._operation()
        self._check_sync()
        folder = "" if folder == "." else folder
        kept: list[tuple[str, dict[str, _Node | None]]] = []
        for where, change in self._pending_names:
            if where == folder:
                self._settle(change)
                # With a folder go the changes that it has had; what follows is about another one of its name.
                kept = [(inner, one) for inner, one in kept if not (inner in change and change[inner] is None)]
            else:
                kept.append((where, change))
        self._pending_names = kept

    def _settle(self, change: dict[str, _Node | None]) -> None:
        """Make a change durable."""
        _apply(self._durable_names, change)
        for folder in [path for path, node in change.items() if node is None and path in self._made]:
            for path in [path for path in self._durable_names if path.startswith(f"{folder}/")]:
                del self._durable_names[path]

    def _check_sync(self) -> None:
        if self._failing_syncs:
            self._failing_syncs -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(self, node: _Node, era: int, data: bytes) -> int:
        """Write to an open file."""
        self.check_handle(era)
        self._operation()
        room = self.capacity_bytes - sum(len(one.content) for one in self._names.values())
        if data and room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[:room]
        node.pending.append((len(node.content), data))
        node.content += data
        return len(data)

    def sync(self, node: _Node, era: int) -> None:
        """Sync an open file."""
        self.check_handle(era)
        self._operation()
        try:
            self._check_sync()
        except OSError:
            node.pending.clear()  # the cache takes it for written
            raise
        for offset, data in node.pending:
            node.durable[offset : offset + len(data)] = data
        node.pending.clear()

    def read_open(self, era: int) -> None:
        """Count a look into an open file."""
        self.check_handle(era)
        self._operation()

    def check_handle(self, era: int) -> None:
        """Raise when the power went since a file was opened."""
        if era != self._era:
            raise OSError(errno.EBADF, "the file was open when the power went")


class _SimFile:
    def __init__(self, disk: SimDisk, node: _Node, era: int) -> None:
        self._disk = disk
        self._node = node
        self._era = era
        self._closed = False

    def write(self, data: bytes) -> int:
        self._check()
        return self._disk.write(self._node, self._era, data)

    def sync(self) -> None:
        self._check()
        self._disk.sync(self._node, self._era)

    def close(self) -> None:
        self._closed = True
        self._disk.closed(self)

    def _check(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class _SimReadFile:
    def __init__(self, disk: SimDisk, node: _Node, era: int) -> None:
        self._disk = disk
        self._node = node
        self._era = era

    def size(self) -> int:
        self._disk.read_open(self._era)
        return len(self._node.content)

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.read_open(self._era)
        return bytes(self._node.content[offset : offset + size])

    def close(self) -> None:
        self._era = -1
        self._disk.closed(self)


class _SimLock:
    def __init__(self, locks: dict[_Node, _SimLock], node: _Node) -> None:
        self._locks = locks
        self._node = node
        self.identity = 0, id(node)

    def release(self) -> None:
        if self._locks.get(self._node) is self:
            del self._locks[self._node]


def _apply(names: dict[str, _Node], change: dict[str, _Node | None]) -> None:
    for path, node in change.items():
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node
