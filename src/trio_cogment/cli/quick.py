"""The answers that need no command: the help of the whole program, and its version.

Importing click takes several times as long as starting Python, and these two are what people and scripts ask for first.
The help is the text that click would write; a test compares them.
"""

from __future__ import annotations

import os
import sys

from trio_cogment._version import __version__
from trio_cogment.cli.commands import ABOUT, COMMANDS, COMPLETION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "trio-cogment"

_HELP: tuple[list[str], ...] = ([], ["-h"], ["--help"])
_VERSION = (["version"], ["--version"])
#: With fewer columns click breaks lines.
_COLUMNS = 80
_OPTIONS = {"--version": "Show the version and exit.", "-h, --help": "Show this message and exit."}


def answered(arguments: Sequence[str]) -> bool:
    """Print the answer, if this is one of these questions; False: ask click."""
    if COMPLETION in os.environ:  # a shell asks how the line might go on
        return False
    if arguments in _VERSION:
        text = f"{__version__}\n"
    elif arguments in _HELP and _columns() >= _COLUMNS:
        text = root_help()
    else:
        return False
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        return False  # click will meet the same error, and report it
    return True


def root_help() -> str:
    """Return the help of the whole program, for 80 columns or more."""
    commands = {name: summary for name, (_, summary) in sorted(COMMANDS.items())}
    return "\n".join(
        [
            f"Usage: {PROGRAM} [OPTIONS] [COMMAND] [ARGS]...",
            "",
            f"  {ABOUT}",
            "",
            "Options:",
            *_listed(_OPTIONS),
            "",
            "Commands:",
            *_listed(commands),
            "",
        ]
    )


def _listed(entries: dict[str, str]) -> list[str]:
    width = max(map(len, entries)) + 2
    return [f"  {name.ljust(width)}{text}" for name, text in entries.items()]


def _columns() -> int:
    """Return the width of the terminal as `shutil.get_terminal_size` does, whose module takes long to import."""
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
        if columns <= 0 and sys.__stdout__ is not None:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns
    except (ValueError, OSError):  # no number; no terminal
        columns = 0
    return columns if columns > 0 else _COLUMNS
