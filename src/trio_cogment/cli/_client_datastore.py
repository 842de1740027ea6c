"""`trio-cogment client trial_datastore`: the flags of its commands. What they do is in `_datastore_commands`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli._client import as_file, client_options, client_settings, file_option
from trio_cogment.cli._directory_options import as_properties
from trio_cogment.cli._groups import Group
from trio_cogment.cli._options import nearest
from trio_cogment.services import ServiceKind, default_address

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_MOST_COUNT = 2**32 - 1


def _datastore_options(command: _Decorated) -> _Decorated:
    endpoint = click.option(
        "--endpoint",
        default=default_address(ServiceKind.DATASTORE),
        metavar="ENDPOINT",
        envvar="COGMENT_TRIAL_DATASTORE_ENDPOINT",
        show_default=True,
        show_envvar=True,
        help="Where the datastore is.",
    )
    return endpoint(client_options(command))


def _options_of(ctx: click.Context) -> tuple[Any, str]:
    return client_settings(ctx), nearest(ctx, "endpoint")


@click.group("trial_datastore", cls=Group)
@_datastore_options
def trial_datastore(**_options: Any) -> None:
    """Ask a trial datastore."""


@click.command("list_trials")
@click.option("--from", "handle", default="", metavar="HANDLE", help="Go on where a list before has stopped.")
@click.option(
    "--properties",
    multiple=True,
    callback=as_properties,
    metavar="NAME=VALUE,...",
    help="Only trials that have all of these; repeatable.",
)
@click.option(
    "--count",
    type=click.IntRange(1, _MOST_COUNT),
    default=10,
    show_default=True,
    metavar="TRIALS",
    help="How many, at most.",
)
@_datastore_options
@click.pass_context
def list_trials(ctx: click.Context, /, count: int, properties: dict[str, str], handle: str, **_options: Any) -> None:
    """List stored trials, in the order of their creation."""
    from trio_cogment.cli._datastore_commands import list_stored_trials

    list_stored_trials(*_options_of(ctx), count=count, properties=properties, handle=handle)


@click.command("delete_trials")
@click.argument("trial_ids", nargs=-1, required=True, metavar="TRIAL_ID...")
@_datastore_options
@click.pass_context
def delete_trials(ctx: click.Context, /, trial_ids: tuple[str, ...], **_options: Any) -> None:
    """Delete trials and their samples; those that are not there are passed over."""
    from trio_cogment.cli._datastore_commands import delete_stored_trials

    delete_stored_trials(*_options_of(ctx), trial_ids)


@click.command()
@click.argument("trial_ids", nargs=-1, required=True, metavar="TRIAL_ID...")
@file_option("Where to; the file is replaced in one step. Without it, or with -: standard output.")
@_datastore_options
@click.pass_context
def export(ctx: click.Context, /, trial_ids: tuple[str, ...], file: Path, **_options: Any) -> None:
    """Write all samples of trials to a file. What a running trial adds meanwhile is not in it."""
    from trio_cogment.cli._datastore_commands import export_to_file

    export_to_file(*_options_of(ctx), trial_ids, as_file(file))


@click.command("import")
@click.option("--user_id", default="cogment CLI", show_default=True, help="Whose trials they are then.")
@click.option("--prefix", default="", metavar="TEXT", help="Goes before the id of each trial.")
@file_option("Where from. Without it, or with -: standard input.")
@_datastore_options
@click.pass_context
def import_(ctx: click.Context, /, file: Path, prefix: str, user_id: str, **_options: Any) -> None:
    """Store the trials of an exported file: all of them, or none."""
    from trio_cogment.cli._datastore_commands import import_from_file

    import_from_file(*_options_of(ctx), as_file(file), prefix=prefix, user_id=user_id)


trial_datastore.add_command(list_trials, aliases=("list",))
trial_datastore.add_command(delete_trials, aliases=("delete",))
trial_datastore.add_command(export)
trial_datastore.add_command(import_)
