"""The output of a process as lines, whatever it writes and however it is cut into pieces."""

from __future__ import annotations

#: A longer line is cut: memory stays bounded, and the process can go on.
MAX_LINE_BYTES = 65536


class LineSplitter:
    """Joins pieces of output and cuts them into lines.

    Args:
        most: bytes of a line; what is longer is handed out in parts of that size.
    """

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._rest = b""
        #: A part of the line has been handed out already.
        self._cut = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends (LF, or CR LF)."""
        *lines, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in lines:
            line = self._rest + line
            self._rest = b""
            self._add(found, line)
            self._cut = False
        self._rest += rest
        while len(self._rest) > self._most:
            found.append(self._rest[: self._most])
            self._rest = self._rest[self._most :]
            self._cut = True
        return found

    def end(self) -> list[bytes]:
        """Return what is left at the end of the output."""
        found: list[bytes] = []
        if self._rest:
            self._add(found, self._rest)
        self._rest, self._cut = b"", False
        return found

    def _add(self, found: list[bytes], line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if not line and not self._cut:
            found.append(line)
        found += [line[start : start + self._most] for start in range(0, len(line), self._most)]
