"""Contents that a disk may have after a loss of power, from a record of all that was written to it and synced.

The files of a database lie in a real folder while it is used. Beside them a `Record` is kept of each write, each sync
and each change of a name, in order. `Record.lose_power` says what may be on the medium if the power goes before one of
these operations:

* what was written before the last sync of its file is there;
* of what was written since, each sector of each write is there or not, whatever became of the others: they may reach
  the medium in any order, and a write may be torn;
* a file that has been made, or whose name has been removed, since the last sync of its folder is there or not, and one
  that was renamed has its new name or the former one. SQLite syncs the folder together with the first sync of a new log
  (`unixSync` in its `os_unix.c`), and so it counts here.

Sectors outside of a write are not changed by it, which SQLite assumes of today's disks
(`SQLITE_IOCAP_POWERSAFE_OVERWRITE`).
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trio_cogment.testing import SimDisk

SECTOR_BYTES = 512


class Wrote(NamedTuple):
    name: str
    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file has another length."""

    name: str
    size: int


class Synced(NamedTuple):
    name: str


class Made(NamedTuple):
    name: str


class Removed(NamedTuple):
    name: str
    #: The folder was synced with it.
    durably: bool


class Renamed(NamedTuple):
    name: str
    target: str


class FolderSynced(NamedTuple):
    """Whatever names there are stay."""


Operation = Wrote | Cut | Synced | Made | Removed | Renamed | FolderSynced


@dataclass
class _File:
    content: bytearray
    #: Whether its name is there for certain.
    named: bool
    pending: list[Wrote | Cut] = field(default_factory=list)
    removed: bool = False
    #: Its name until now, if it may still have that.
    former: str = ""

    def settle(self) -> None:
        """Everything that was written is there."""
        for change in self.pending:
            _apply(self.content, change)
        self.pending.clear()
        self.named = True

    def survive(self, rng: random.Random, share: float) -> None:
        """Some of what was written is there: about this share of the sectors."""
        for change in self.pending:
            if isinstance(change, Cut):
                if rng.random() < share:
                    _apply(self.content, change)
                continue
            start, end = change.offset, change.offset + len(change.data)
            while start < end:
                stop = min(end, start - start % SECTOR_BYTES + SECTOR_BYTES)
                if rng.random() < share:
                    _apply(self.content, Wrote("", start, change.data[start - change.offset : stop - change.offset]))
                start = stop
        self.pending.clear()


def _apply(content: bytearray, change: Wrote | Cut) -> None:
    if isinstance(change, Cut):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
        return
    if len(content) < change.offset:  # a hole, where an earlier write was lost
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


class Record:
    """All that happens to the files of a folder from now on.

    Args:
        folder: its files are taken for durable as they are.

    Attributes:
        operations: what has happened since.
    """

    def __init__(self, folder: Path) -> None:
        self.operations: list[Operation] = []
        self._before = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}

    def lose_power(self, before: int, rng: random.Random, folder: Path) -> None:
        """Write the files that may be left to a folder, which must be empty.

        Args:
            before: the first operation that does not happen, counted from 0.
            rng: decides what survives.
            folder: where to.
        """
        files = {name: _File(bytearray(content), named=True) for name, content in self._before.items()}
        for operation in self.operations[:before]:
            self._replay(files, operation)
        share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for name, file in files.items():
            if (file.removed or not file.named) and rng.random() < 0.5:
                continue
            file.survive(rng, share)
            (folder / (file.former if file.former and rng.random() < 0.5 else name)).write_bytes(file.content)

    def _replay(self, files: dict[str, _File], operation: Operation) -> None:
        match operation:
            case Made(name):
                files[name] = _File(bytearray(), named=False)
            case Removed(name, durably):
                if durably:
                    del files[name]
                else:
                    files[name].removed = True
            case Renamed(name, target):
                assert target not in files, f"{target} would be replaced, which no store does"
                file = files.pop(name)
                file.former = file.former or name
                files[target] = file
            case FolderSynced():
                for name in [name for name, file in files.items() if file.removed]:
                    del files[name]
                for file in files.values():
                    file.named, file.former = True, ""
            case Synced(name):
                files[name].settle()
            case Wrote() | Cut():
                files[operation.name].pending.append(operation)


def name_of(path: str) -> str:
    """Return what a file is called within its folder."""
    return os.path.basename(path)


class UnsyncedDisk(SimDisk):
    """A simulated disk that forgets to sync: for tests that must find that."""

    def sync(self, node: Any, era: int) -> None:
        self.check_handle(era)

    def sync_folder(self, folder: str) -> None:
        """See `Files.sync_folder`."""
