"""A look whether files that a program has open are still where they were opened."""

from __future__ import annotations

import os

#: Where the system has it, the file is not really opened: closing such a descriptor releases no locks of the process.
_HELD = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC


class Presence:
    """Files that must stay under their names.

    They are held until `close`, so that no other file gets the same number meanwhile.

    Args:
        paths: of files that are there now; links are followed.

    Raises:
        OSError: one of them is not there.
    """

    def __init__(self, *paths: str) -> None:
        self._held: dict[str, int] = {}
        self._found: dict[str, tuple[int, int]] = {}
        try:
            for path in paths:
                self._held[path] = descriptor = os.open(path, _HELD)
                found = os.fstat(descriptor)
                self._found[path] = found.st_dev, found.st_ino
        except OSError:
            self.close()
            raise

    def missing(self) -> str:
        """Return the first path that leads to nothing or to another file by now; empty: none does."""
        for path, identity in self._found.items():
            try:
                found = os.stat(path)
            except OSError:
                return path
            if (found.st_dev, found.st_ino) != identity:
                return path
        return ""

    def close(self) -> None:
        """Let the files go. May be called again."""
        while self._held:
            os.close(self._held.popitem()[1])
