"""Output of workers: lines, files with a limit, and the last lines of standard error."""

from __future__ import annotations

import logging
import math
from collections import deque

import trio

from trio_cogment.base.host import Runner
from trio_cogment.base.host.files import Files, OpenFile, write_whole

_log = logging.getLogger(__name__)

_PIECE_BYTES = 65536
#: More than a pipe holds.
_PIPE_BYTES = 2 * 1024 * 1024
#: Of a line of standard error that is shown.
_SHOWN_BYTES = 400


class Lines:
    """Joins pieces of output and cuts them into lines. Pure.

    Args:
        most: bytes of a line; a longer one is left out.

    Attributes:
        left_out: how many were.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._skipping = False
        self.left_out = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends."""
        found = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = self._joined(data[start:end])
            if line is not None:
                found.append(line)
            start = end + 1
        self._keep(data[start:])
        return found

    def end(self) -> list[bytes]:
        """Return what is left at the end of the output."""
        line = self._joined(b"")
        return [line] if line else []

    def _joined(self, last: bytes) -> bytes | None:
        self._keep(last)
        line = None if self._skipping else bytes(self._rest)
        self._rest.clear()
        self._skipping = False
        return line

    def _keep(self, data: bytes) -> None:
        if self._skipping:
            return
        self._rest += data
        if len(self._rest) > self._most:
            self._rest.clear()
            self._skipping = True
            self.left_out += 1


class LogFile:
    """A file with a worker's output. It never fails: a worker is not to end because its log cannot be written.

    Args:
        files: the file system.
        path: its name; None: nothing is kept.
        most: bytes of it; what is more is not kept.
        runner: runs what blocks.
    """

    def __init__(self, files: Files, path: str | None, most: int, runner: Runner) -> None:
        self._files = files
        self._path = path
        self._left = most
        self._runner = runner
        self._file: OpenFile | None = None

    async def write(self, data: bytes) -> None:
        """Write what a worker has written."""
        if self._path is None:
            return
        try:
            await self._runner(self._write, self._path, data)
        except OSError as error:
            _log.warning("%s: no more of the worker's output is kept: %s", self._path, error)
            self.close()

    def _write(self, path: str, data: bytes) -> None:
        if self._file is None:
            self._file = self._files.open(path, append=True)
        write_whole(self._file, data[: self._left])
        self._left -= len(data)
        if self._left <= 0:
            write_whole(self._file, b"\n(more is not kept: the file has its largest size)\n")
            self.close()

    def close(self) -> None:
        """Close the file; nothing more is kept."""
        self._path = None
        if self._file is not None:
            self._file.close()


class Tail:
    """The last lines of standard error. Pure.

    Args:
        lines: how many.
    """

    def __init__(self, lines: int) -> None:
        self._lines: deque[bytes] = deque(maxlen=lines)

    def add(self, lines: list[bytes]) -> None:
        """Take note of lines."""
        self._lines.extend(line[:_SHOWN_BYTES] for line in lines)

    @property
    def text(self) -> str:
        """What is known of them."""
        return "\n".join(line.decode(errors="replace").rstrip() for line in self._lines)


class Output:
    """A pipe from a worker.

    Args:
        stream: where it is read.
        log: where all of it is kept.
        lines: cuts it into lines.
    """

    def __init__(self, stream: trio.abc.ReceiveStream, log: LogFile, lines: Lines) -> None:
        self._stream = stream
        self._log = log
        self._lines = lines
        self._reading = trio.CancelScope()
        self._patience = math.inf
        self._left = math.inf

    def finish(self, seconds: float) -> None:
        """Read only what is there: the worker has ended, and whoever else has the pipe may go on indefinitely.

        Args:
            seconds: how long to wait for an end.
        """
        self._patience, self._left = seconds, _PIPE_BYTES
        self._reading.deadline = trio.current_time() + seconds

    async def read(self) -> list[bytes] | None:
        """Return further lines; None: there are none any more."""
        data = b""
        with trio.move_on_after(self._patience) as self._reading:
            try:
                data = bytes(await self._stream.receive_some(_PIECE_BYTES))
            except trio.BrokenResourceError:
                pass
        self._left -= len(data)
        if data and self._left > 0:
            await self._log.write(data)
            return self._lines.feed(data)
        self._log.close()
        return self._lines.end() or None
