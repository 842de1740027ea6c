"""Lines of output in which an expression is looked for, in a process that a line may cost little time only.

RE2, whose syntax launch files have, takes time in proportion to a line. Python's `re` may take very long, and nothing
else runs in its process meanwhile, not even what a signal asks for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

import trio

#: Of the processor's time, for a line; what takes longer counts as not found.
LINE_SECONDS = 1.0
#: As much of a line is looked at.
LINE_BYTES = 65536
#: For each line at its standard input, after its length in ten digits, it answers with one byte. The timer ends it when
#: a line takes too long, whatever becomes of the process that has started it.
_PROGRAM = """
import re, signal, sys
pattern = re.compile(sys.argv[1], int(sys.argv[2]))
while length := sys.stdin.buffer.read(10):
    line = sys.stdin.buffer.read(int(length)).decode(errors="replace")
    signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[3]))
    found = pattern.search(line)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    sys.stdout.buffer.write(b"1" if found else b"0")
    sys.stdout.buffer.flush()
"""


class LineTooSlowError(Exception):
    """Looking for the expression in a line took too long."""


class LineMatcher:
    """Looks for an expression in lines. Its process starts with the first line, and ends with `aclose`.

    Args:
        pattern: the expression.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._turn = trio.Lock()
        self._process: trio.Process | None = None
        self._closed = False

    async def search(self, lines: Sequence[bytes]) -> bool:
        """Return whether the expression is found in one of the lines; False once it is closed, also meanwhile.

        Raises:
            LineTooSlowError: it was not found in the lines before one that took too long; those after it are not looked
                at. The next call begins again.
            OSError: the process cannot be started.

        After `Cancelled` the next call begins again.
        """
        async with self._turn:
            try:
                for line in lines:
                    if not self._closed and await self._search(line[:LINE_BYTES]):
                        return True
            except BaseException:
                await self._end()
                raise
            return False

    async def _search(self, line: bytes) -> bool:
        if self._process is None:
            command = [sys.executable, "-I", "-S", "-c", _PROGRAM, self._pattern.pattern]
            self._process = await trio.lowlevel.open_process(
                [*command, str(int(self._pattern.flags) & ~int(re.UNICODE)), str(LINE_SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Control-C at the terminal is the launcher's business
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            await self._process.stdin.send_all(b"%010d" % len(line) + line)
            answer = await self._process.stdout.receive_some(1)
        except trio.BrokenResourceError:  # the process has ended
            answer = b""
        if not answer and not self._closed:
            raise LineTooSlowError
        return answer == b"1"

    async def aclose(self) -> None:
        """End the process, for good. A search that is under way ends."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        with trio.CancelScope(shield=True):  # without its process the search ends at once
            async with self._turn:
                await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with trio.CancelScope(shield=True):  # a process that is killed ends at once
                await process.wait()
                for pipe in (process.stdin, process.stdout):
                    assert pipe is not None
                    await pipe.aclose()
