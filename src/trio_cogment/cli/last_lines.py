"""The last lines of a terminal, which are redrawn while everything else is written above them."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence

import trio

#: To the begin of the line, and empty it.
_ERASE = b"\r\x1b[K"


class LastLines:
    """Writes to descriptors; with lines at the end that stay there.

    Bytes go straight to the descriptors, from a worker thread: a reader that does not read holds up those who write,
    but not signals.

    Args:
        descriptor: where the last lines are.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._height = 0
        self._lock = trio.Lock()

    async def write(self, descriptor: int, data: bytes, lines: Sequence[bytes] = ()) -> None:
        """Write something above the last lines, and put these in the place of the former ones.

        Args:
            descriptor: where the data goes.
            data: whole lines, or nothing.
            lines: without their ends, none wider than the terminal.
        """
        async with self._lock:
            parts = [(self._descriptor, self._erasing()), (descriptor, data), (self._descriptor, b"\n".join(lines))]
            self._height = len(lines)
            await trio.to_thread.run_sync(write_all, parts, abandon_on_cancel=True)

    def erase(self) -> None:
        """Remove the last lines; at once, because the program is about to leave the terminal."""
        self._write_now(self._erasing())

    def leave(self) -> None:
        """Let the last lines stay where they are, and go on below them."""
        self._write_now(b"\n" if self._height else b"")

    def _write_now(self, data: bytes) -> None:
        self._height = 0
        with contextlib.suppress(OSError):  # the terminal has gone
            write_all([(self._descriptor, data)])

    def _erasing(self) -> bytes:
        if self._height <= 1:
            return _ERASE if self._height else b""
        return b"\r\x1b[%dA\x1b[J" % (self._height - 1)


def write_all(parts: Sequence[tuple[int, bytes]]) -> None:
    """Write bytes to descriptors, all of them, waiting for as long as it takes."""
    for descriptor, data in parts:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                # Whoever shares the pipe or terminal may have made it non-blocking, for all of its users.
                waiting = select.poll()
                waiting.register(descriptor, select.POLLOUT)
                waiting.poll()
