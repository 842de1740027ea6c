"""`trio-cogment experiment forget`: deletes everything that is kept of a participant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import trio

from trio_cogment.base.errors import NotFoundError
from trio_cogment.cli.experiment.files import (
    data_errors,
    data_option,
    existing_data,
    read_experiment,
    trials_option,
    trials_storage,
)
from trio_cogment.cli.options import FilePath, json_option
from trio_cogment.cli.text import print_json

_FILE = "sqlite:"
_COMMAND = "experiment forget"


class _Forget(click.Command):
    """Says what to do with an id that is taken for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "An id that begins with a dash goes to the end, behind `--`: EXPERIMENT -- ID"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@click.command(cls=_Forget)
@click.argument("file", metavar="EXPERIMENT", type=FilePath(path_type=Path))
@click.argument("participant", metavar="ID")
@trials_option("they were not")
@click.option(
    "--keep_trials",
    is_flag=True,
    help="Keep the trials, which others have taken part in. Nothing says any more who played in them.",
)
@data_option
@json_option("Print as JSON what was deleted.")
def forget(
    file: Path, participant: str, storage: str | None, keep_trials: bool, data: Path | None, as_json: bool
) -> None:
    """Delete everything that is kept of a participant: answers, events, actions, and the trials with their samples.

    EXPERIMENT is the experiment file. The server must not run meanwhile.
    """
    from trio_cogment.experiment.store import Batch, opened_store, trials_of
    from trio_cogment.servers.datastore.compacting import erase_deleted

    experiment = read_experiment(file, _COMMAND)
    path = existing_data(data, experiment.name, _COMMAND)
    storage = trials_storage(storage, path)
    with data_errors(_COMMAND), opened_store(path, experiment.name) as store:
        if store.is_unclean:  # of one before, which was interrupted
            store.clean()
            if all(each.id != participant for each in store.participants()):
                text = f"{path}: nothing is left of who was forgotten before; there is no participant {participant!r}"
                _say({"forgotten": None, "trials_deleted": 0, "trials": 0}, text, as_json)
                return
        played = trials_of(store, participant)
        # The trials first: who is interrupted here can do it again.
        deleted = 0
        if played and not keep_trials and storage != "none":
            deleted = trio.run(_delete, storage, played)
            if storage.startswith(_FILE):
                erase_deleted(storage.removeprefix(_FILE))
        groups = {
            int(group["number"]): {
                **group,
                "members": [None if member == participant else member for member in group["members"]],
                "places": [None if member == participant else member for member in group.get("places", [])],
                "absent": [member for member in group.get("absent", []) if member != participant],
            }
            for group in store.groups()
            if participant in group["members"]
        }
        store.write(Batch(forgotten=[participant], groups=groups))
    done = {"forgotten": participant, "trials_deleted": deleted, "trials": len(played)}
    _say(done, f"forgotten: {participant}; trials deleted: {deleted} of {len(played)}", as_json)


def _say(done: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        click.echo(text)


async def _delete(storage: str, trials: list[str]) -> int:
    """Delete trials; return how many were there."""
    from trio_cogment.rl.datasets.sources import open_source

    try:
        async with open_source(storage) as client:
            there = [each.trial_id async for each in client.all_trials() if each.trial_id in set(trials)]
            if there:
                await client.delete_trials(there)
            return len(there)
    except NotFoundError as error:
        raise NotFoundError(f"{error}; --storage says where the trials are, none that there are none") from None
