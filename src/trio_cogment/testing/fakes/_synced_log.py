"""The file in which a fake data log keeps the ticks of its samples, synced before they are acknowledged."""

from __future__ import annotations

import os
import struct
import zlib

from trio_cogment.base.host.files import Files, OpenFile, replace_durably, write_whole

_TICK = struct.Struct(">qI")  # with a checksum, which shows a torn entry


class SyncedLog:
    """The ticks of a trial's samples, durable one by one, each at most once.

    Args:
        files: the file system.
        path: the file; what a loss of power has left of it is read first.

    Attributes:
        ticks: those that are durable.

    Raises:
        OSError: it cannot be read or made.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.ticks = read_ticks(files, path)
        # Begins with a file that has nothing else in it: what follows torn bytes could not be told from them.
        replace_durably(files, path, b"".join(map(_entry, self.ticks)))
        self._file: OpenFile = files.open(path, append=True)

    def add(self, tick_id: int) -> None:
        """Keep a tick; it is durable when this returns. One that is there already is not written again.

        Raises:
            OSError: it may be there or not, and this object is of no use any more: make another one.
        """
        if tick_id not in self.ticks:
            try:
                write_whole(self._file, _entry(tick_id))
                self._file.sync()
            except OSError:
                self._file.close()
                raise
            self.ticks.append(tick_id)

    def close(self) -> None:
        """Close the file; nothing is added any more."""
        self._file.close()


def read_ticks(files: Files, path: str) -> list[int]:
    """Return the ticks in a file, up to what was torn; none if there is no file. Raises OSError."""
    if os.path.basename(path) not in files.names(os.path.dirname(path) or "."):
        return []
    data = files.read(path)
    ticks = []
    for start in range(0, len(data) - _TICK.size + 1, _TICK.size):
        entry = data[start : start + _TICK.size]
        tick_id = int(_TICK.unpack(entry)[0])
        if entry != _entry(tick_id):
            break
        ticks.append(tick_id)
    return ticks


def _entry(tick_id: int) -> bytes:
    return _TICK.pack(tick_id, zlib.crc32(str(tick_id).encode()))
