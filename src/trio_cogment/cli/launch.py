"""`trio-cogment launch`: runs the processes of a project together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure, cause_of
from trio_cogment.cli.options import FilePath, as_duration
from trio_cogment.cli.search_path import search_path
from trio_cogment.cli.terminal import can_draw

if TYPE_CHECKING:
    from trio_cogment.cli.launching import Launcher, Plan

#: Quietness at which only the processes' output is left.
_RAW = 3


@click.command(
    epilog="Everything after -- is an argument for the file, also what begins with a dash. "
    "The exit code is that of the first script that ends; 128 + N if signal N has ended it, or the launcher."
)
@click.argument("file", type=FilePath(path_type=Path), default=Path())
@click.argument("arguments", nargs=-1)
@click.option(
    "-q",
    "--quiet",
    count=True,
    help="-q: not which commands are run; -qq: nor what happens to them; -qqq: the output of processes as it is.",
)
@click.option(
    "--grace",
    callback=as_duration,
    default="5s",
    metavar="DURATION",
    show_default=True,
    help="How long processes may take to end after SIGTERM; then they get SIGKILL.",
)
def launch(file: Path, arguments: tuple[str, ...], quiet: int, grace: float) -> int:
    """Run the scripts of a launch file together, until one ends.

    FILE may be a folder, which has a launch.yaml or launch.yml; by default it is the current folder. ARGUMENTS are
    {{.__1}}, {{.__2}} and so on in the file.
    """
    import trio

    from trio_cogment.cli.launching import load_plan

    try:
        # Into a pipe, Python programs write what they print when they have printed a lot: too late for `ready_output`.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ, "PATH": search_path(os.environ)}
        plan = load_plan(file, arguments, environment)
    except CogmentError as error:
        raise Failure(str(error)) from error
    try:
        return trio.run(_launch, plan, quiet, grace)
    except BaseExceptionGroup as group:  # Control-C may be raised beside it
        cause = cause_of(group)
        if isinstance(cause, OSError):  # the output cannot be written
            raise cause from None
        raise


async def _launch(plan: Plan, quietness: int, grace_seconds: float) -> int:
    import trio

    from trio_cogment.cli.launch_screen import Screen
    from trio_cogment.cli.launching import Format, Launcher, Level, Programs, Source, Strays

    terminal = can_draw()
    colours = terminal and not os.environ.get("NO_COLOR")
    form = Format([script.name for script in plan.scripts], quietness, colours)
    screen = Screen(form, states=terminal and quietness < _RAW)
    ours = [sys.executable, "-m", "trio_cogment"]
    programs = Programs(search_path(os.environ), fallbacks={"cogment": ours, "trio-cogment": ours})
    stopping = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        stopping.remove(signal.SIGHUP)
    with Strays() as strays, trio.open_signal_receiver(*stopping) as signals:
        launcher = Launcher(plan, screen, programs=programs, find_strays=strays, grace_seconds=grace_seconds)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch_signals, signals, launcher)
                for warning in plan.warnings:
                    await screen.tell(Level.WARNING, Source(), warning)
                code = await launcher.run()
                nursery.cancel_scope.cancel()
        finally:
            screen.close()
    return code


async def _watch_signals(signals: AsyncIterator[int], launcher: Launcher) -> None:
    """Stop in order at the first signal, and at once at a second one, or at SIGQUIT."""
    number = await anext(signals)
    launcher.stop(128 + number)
    # The processes are in sessions of their own: the terminal sends them nothing.
    if number != signal.SIGQUIT:
        await anext(signals)
    launcher.kill()
