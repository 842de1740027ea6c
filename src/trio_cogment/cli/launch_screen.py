"""Where `trio-cogment launch` shows things: stdout and stderr, and on a terminal a last line with the states."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
from collections.abc import Mapping, Sequence

import trio

from trio_cogment.launch import Format, Level, Source, State, Stream

_OUT, _ERR = 1, 2
#: To the begin of the line, and empty it.
_ERASE = b"\r\x1b[K"


class Screen:
    """The display of a launcher: what processes write to stdout goes to stdout, everything else to stderr.

    Bytes go straight to the descriptors, from a worker thread: a reader that does not read holds up those who write,
    but not signals.

    Args:
        form: how things are shown.
        states: there is a last line with the states; stderr is a terminal.
    """

    def __init__(self, form: Format, *, states: bool) -> None:
        self._format = form
        self._with_states = states
        self._states: Mapping[str, State] = {}
        self._lock = trio.Lock()

    async def tell(self, level: Level, source: Source, text: str) -> None:
        """Show what the launcher has done."""
        await self._write(_ERR, self._format.message(level, source, text))

    async def show(self, source: Source, stream: Stream, lines: Sequence[bytes]) -> None:
        """Show lines of a process."""
        await self._write(_OUT if stream is Stream.STDOUT else _ERR, self._format.output(source, stream, lines))

    async def states(self, states: Mapping[str, State]) -> None:
        """Show how far each script is."""
        self._states = dict(states)
        if self._with_states:
            await self._write(_ERR, b"", always=True)

    def close(self) -> None:
        """Remove the line of states."""
        if self._with_states:
            self._with_states = False
            with contextlib.suppress(OSError):  # the terminal has gone
                os.write(_ERR, _ERASE)

    async def _write(self, descriptor: int, data: bytes, *, always: bool = False) -> None:
        if not data and not always:
            return
        async with self._lock:
            parts = [(descriptor, data)]
            if self._with_states:
                line = self._format.states(self._states, shutil.get_terminal_size().columns)
                parts = [(_ERR, _ERASE), *parts, (_ERR, line)]
            await trio.to_thread.run_sync(_write_all, parts, abandon_on_cancel=True)


def _write_all(parts: Sequence[tuple[int, bytes]]) -> None:
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
