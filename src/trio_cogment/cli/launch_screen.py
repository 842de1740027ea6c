"""The screen of `trio-cogment launch`: stdout and stderr, and on a terminal a last line with the states."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from trio_cogment.cli.last_lines import LastLines
from trio_cogment.cli.launching import Format, Level, Source, State, Stream

_OUT, _ERR = 1, 2


class Screen:
    """The display of a launcher: what processes write to stdout goes to stdout, everything else to stderr.

    Args:
        form: how things are shown.
        states: there is a last line with the states; stderr is a terminal.
    """

    def __init__(self, form: Format, *, states: bool) -> None:
        self._format = form
        self._with_states = states
        self._states: Mapping[str, State] = {}
        self._lines = LastLines(_ERR)

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
            self._lines.erase()

    async def _write(self, descriptor: int, data: bytes, *, always: bool = False) -> None:
        if not data and not always:
            return
        line = self._format.states(self._states, shutil.get_terminal_size().columns)
        await self._lines.write(descriptor, data, [line] if self._with_states else [])
