"""The commands of `trio-cogment`, and the answers that need none of them: the help of the whole program, its version.

Nothing slow is imported here, not even click: these two are what people and scripts ask for first. The help is the text
that click would write.
"""

from __future__ import annotations

import os
import sys

from trio_cogment._version import __version__

TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "trio-cogment"
#: The variable with which a shell asks how a line might go on, as click names it.
COMPLETION = "_TRIO_COGMENT_COMPLETE"
#: What the program is. It fits on a line of 80 columns, as the help of each command does.
ABOUT = "The Cogment platform on Trio: humans, agents and an environment in trials."

#: Name of a command -> the module that has it, by the same name, and its line in the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "client": ("trio_cogment.cli.client", "Call running services."),
    "completion": ("trio_cogment.cli.completion", "Print what lets a shell complete commands and flags."),
    "conformance": ("trio_cogment.cli.conformance", "Test a server against the API and Cogment 2.22."),
    "copy": ("trio_cogment.cli.copy", "Copy files into folders."),
    "datastore": ("trio_cogment.cli.datastore", "Look after storages of trials."),
    "demo": ("trio_cogment.cli.demo", "Run a small trial: two actors invent a code for colours."),
    "dm_env_rpc": ("trio_cogment.cli.dm_env_rpc", "Look at servers of dm_env_rpc."),
    "doctor": ("trio_cogment.cli.doctor", "Check what a server needs, and say what to do."),
    "experiment": ("trio_cogment.cli.experiment", "Work with experiments with people and their data."),
    "generate": ("trio_cogment.cli.generate", "Write a project's modules for the SDKs."),
    "health": ("trio_cogment.cli.health", "Ask whether a server serves."),
    "init": ("trio_cogment.cli.init", "Write a small project that runs and has a test."),
    "launch": ("trio_cogment.cli.launch", "Run the scripts of a launch file together, until one ends."),
    "participants": ("trio_cogment.cli.participants", "Serve the participants that a Python module registers."),
    "play": ("trio_cogment.cli.play", "Let people take part in trials, in a browser."),
    "replay": ("trio_cogment.cli.replay", "Play a recorded trial through this version's rules."),
    "rl": ("trio_cogment.cli.rl", "Use trials for reinforcement learning."),
    "run": ("trio_cogment.cli.run", "Run a project file's command, or training runs at a trainer."),
    "serve": ("trio_cogment.cli.serve", "Serve everything on one port."),
    "services": ("trio_cogment.cli.services", "Serve one service, with the flags of the reference."),
    "status": ("trio_cogment.cli.status", "Ask services for their statuses."),
    "token": ("trio_cogment.cli.token", "Make, show and revoke tokens, for servers with --auth=token."),
    "version": ("trio_cogment.cli.root", "Print the version."),
}

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
