"""`trio-cogment datastore copy`: copies trials from one storage into another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trio_cogment.base.outcome import counted
from trio_cogment.cli.client.common import run_client
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import json_option
from trio_cogment.cli.text import print_json

if TYPE_CHECKING:
    from trio_cogment.servers.datastore.copying import Copied


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@json_option("Print what was copied as JSON.")
def copy(source: str, target: str, as_json: bool) -> int:
    """Copy trials from one storage into another.

    SOURCE and TARGET are addresses: sqlite:trials.db, which no datastore may use meanwhile, postgresql://user@host/db,
    or one of an installed plugin. TARGET keeps what it has. Trials that still go on are left out. A copy that was
    interrupted goes on when the command is run again. The exit code is 1 if a trial could not be copied.
    """
    _check_source(source)
    if source == target:
        raise Failure("datastore copy: expected two storages, got the same one twice")
    done = run_client(_copied, source, target)
    if as_json:
        print_json(
            {
                "trials": done.trials,
                "samples": done.samples,
                "there": done.there,
                "open": done.open,
                "others": done.others,
                "lost": done.lost,
            }
        )
    else:
        _report(done)
    return int(bool(done.others or done.lost))


async def _copied(source: str, target: str) -> Copied:
    from trio_cogment.rl.progress import BarState, shown
    from trio_cogment.servers.datastore import open_store
    from trio_cogment.servers.datastore.copying import copy_trials

    def state(done: Copied) -> BarState:
        return BarState("samples", done.samples, done.total_samples)

    show = shown(True, state)
    async with open_store(source) as read, open_store(target) as written:
        with show as progress:
            return await copy_trials(read, written, progress)


def _check_source(address: str) -> None:
    """Raise for what has no trials for certain: a mistyped name must not make a file."""
    scheme, colon, path = address.partition(":")
    if address == "memory:":
        raise Failure("SOURCE: 'memory:' has no trials when it is opened")
    if scheme == "sqlite" and colon and not Path(path).is_file():
        raise Failure(f"SOURCE: there is no file {path!r}")


def _report(done: Copied) -> None:
    there = f"; {counted(len(done.there), 'trial')} there already" if done.there else ""
    click.echo(f"{counted(done.trials, 'trial')} copied{there}")
    if done.open:
        click.echo(f"left out, because they still go on: {', '.join(done.open)}", err=True)
    for trial_id in done.others:
        click.echo(f"{trial_id}: not copied: the target has another trial with this id", err=True)
    for trial_id, why in done.lost.items():
        click.echo(f"{trial_id}: not copied: {why}", err=True)
