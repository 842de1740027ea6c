"""`trio-cogment run`: runs a command of the section `commands` of a project file, or calls a trainer.

The names of what a trainer is asked come first; `run -f FILE NAME` is always a command of a project file.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, Group
from trio_cogment.cli.runs.table import VERBS
from trio_cogment.cli.search_path import search_path


class RunGroup(Group):
    """What a trainer is asked, by name; everything else is for the command of a project file."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a line names, and its arguments."""
        if args[0] in self.list_commands(ctx):
            return super().resolve_command(ctx, args)
        return "", project_command, args


@click.group(
    cls=RunGroup,
    lazy=VERBS,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    subcommand_metavar="[-f FILE] NAME [ARGUMENTS]...",
)
def run() -> None:
    """Run the command NAME of a project file, in the folder of the file; or submit, watch and control training runs.

    The commands below ask a trainer. A command of a project file that has one of their names needs "-f FILE" before it.

    Any other NAME is a script for /bin/sh, or for what its first line says (#!). It takes the place of this process, so
    its exit code and signals are its own. Further arguments are the script's: "$1", "$2", ..., "$@". "-f FILE", the
    project file or its folder (default: cogment.yaml, or cogment.yml, in the current folder), may also follow NAME;
    "--" says that what comes next is for the script.
    """


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-f",
    "--file",
    type=FilePath(path_type=Path),
    default=Path(),
    help="Project file, or its folder. Default: cogment.yaml, or cogment.yml, in the current folder.",
)
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def project_command(file: Path, name: str, arguments: tuple[str, ...]) -> None:
    """Run the command NAME of a project file, in the folder of the file.

    It is a script for /bin/sh, or for what its first line says (#!). It takes the place of this process, so its exit
    code and signals are its own. Further arguments are the script's: "$1", "$2", ..., "$@". "-f FILE" may also follow
    NAME; "--" says that what comes next is for the script.
    """
    from trio_cogment.sdk.spec.commands import find_file, read_commands

    file, arguments = _after_name(file, arguments)
    try:
        file = find_file(file)
        commands = read_commands(file)
    except CogmentError as error:
        raise Failure(f"run: {error}") from error
    if name not in commands:
        raise Failure(f"run: {file}: there is no command {name!r}; {_advice(commands, name)}")
    sys.stdout.flush()
    os.chdir(file.parent)
    os.environ["PATH"] = search_path(os.environ)
    script = commands[name]
    # Python ignores it, which its successor would inherit.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        if script.startswith("#!"):
            _execute_file(script, name, arguments)
        os.execv("/bin/sh", ["sh", "-c", script, name, *arguments])
    except OSError as error:
        raise Failure(f"run: {name}: {error.strerror or error}") from error


def _after_name(file: Path, arguments: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Return the file and the script's arguments, once `-f FILE` and `--` are taken from their beginning.

    Raises:
        click.UsageError: `-f` has no value.
    """
    if arguments[:1] in {("-f",), ("--file",)}:
        if len(arguments) < 2:
            raise click.UsageError(f"Option '{arguments[0]}' requires an argument.")
        file, arguments = Path(arguments[1]), arguments[2:]
    elif arguments and arguments[0].startswith("--file="):
        file, arguments = Path(arguments[0].removeprefix("--file=")), arguments[1:]
    return file, arguments[1:] if arguments[:1] == ("--",) else arguments


def _execute_file(script: str, name: str, arguments: tuple[str, ...]) -> None:
    """Replace this process by a script with a #! line; its file is in memory, and gone with the process."""
    if not hasattr(os, "memfd_create"):
        raise Failure(f"run: {name}: a command that begins with #! needs Linux")
    # The interpreter opens the file by its number, so it must stay open.
    descriptor = os.memfd_create(name, 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(script.encode("utf-8"))
    os.execv(f"/proc/self/fd/{descriptor}", [name, *arguments])


def _advice(commands: dict[str, str], name: str) -> str:
    if not commands:
        return "it has no section 'commands'"
    return suggestion(name, commands)
