"""Format of a launcher's output: lines of its processes with a prefix, its own actions, and a line of states."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Colours of names, as SGR parameters; no red, which reads as an error.
_COLOURS = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")
_ERROR = "1;31"
_WARNING = "1;33"
_DIM = "2"


class Level(enum.IntEnum):
    """How important something is that a launcher tells."""

    TRACE = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


_STYLES = {Level.WARNING: _WARNING, Level.ERROR: _ERROR}


class Stream(enum.Enum):
    """Where a process has written a line."""

    STDOUT = "stdout"
    STDERR = "stderr"


class State(enum.Enum):
    """How far a script is."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Source:
    """What something is told about.

    Attributes:
        script: its name; empty for the launcher itself.
        number: of the command, from 1; 0 if none has begun.
        total: how many commands the script has.
    """

    script: str = ""
    number: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Return it as it stands in a prefix."""
        if not self.script:
            return "[launch]"
        return f"[{self.script}:({self.number}/{self.total})]" if self.number else f"[{self.script}]"


@dataclass(frozen=True, slots=True)
class Format:
    """How it is shown.

    Attributes:
        names: of the scripts, in the order of their colours.
        quietness: 1: no TRACE; 2: no INFO either; 3: no WARNING either, and output without prefixes.
            Errors are always shown.
        colours: names have colours.
    """

    names: Sequence[str]
    quietness: int = 0
    colours: bool = False

    def message(self, level: Level, source: Source, text: str) -> bytes:
        """Return what the launcher tells as a line, or nothing if it is not to be shown."""
        if level < min(self.quietness, Level.ERROR):
            return b""
        style = _STYLES.get(level, _DIM)
        return f"{self._prefix(source)} {self._styled(level.name, style)}: {text}\n".encode(errors="backslashreplace")

    def output(self, source: Source, stream: Stream, lines: Iterable[bytes]) -> bytes:
        """Return lines of a process; they are shown as they are, whatever bytes they hold."""
        prefix = b"" if self.quietness >= Level.ERROR else f"{self._prefix(source)} {stream.value}: ".encode()
        return b"".join(b"%b%b\n" % (prefix, line) for line in lines)

    def states(self, states: Mapping[str, State], width: int) -> bytes:
        """Return the states as one line without its end that fits a terminal."""
        parts: list[str] = []
        room = width - 1
        for name, state in states.items():
            text = f"{name} {state.value}"
            room -= len(text) + 2
            if room < 0:
                parts.append("…")
                break
            parts.append(f"{self._styled(name, self._colour(name))} {self._styled(state.value, _DIM)}")
        return "  ".join(parts).encode()

    def _prefix(self, source: Source) -> str:
        return self._styled(str(source), self._colour(source.script))

    def _colour(self, name: str) -> str:
        return _COLOURS[self.names.index(name) % len(_COLOURS)] if name in self.names else _DIM

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colours else text
