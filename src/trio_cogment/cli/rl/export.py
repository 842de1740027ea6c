"""`trio-cogment rl export`: writes stored trials as Parquet files, or as a data set of Minari."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.errors import CogmentError, install_command
from trio_cogment.base.object_store import is_object_url
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client.common import ClientSettings, client_options, client_settings, run_client
from trio_cogment.cli.client.reaching import reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FolderOrBucket, properties_option
from trio_cogment.cli.services.types_option import EXPECTED, load_types, needs_compiler
from trio_cogment.cli.text import print_json
from trio_cogment.cli.tls import load_tls

if TYPE_CHECKING:
    from trio_cogment.rl import Exported
    from trio_cogment.sdk import DatastoreClient
    from trio_cogment.sdk.spec import Spec

#: What each extra installs and the command imports; `generate` compiles the protos of `--spec`.
_PACKAGES = {
    "export": ("pyarrow", "numpy"),
    "minari": ("minari", "h5py", "PIL", "gymnasium", "numpy"),
    "generate": ("grpc_tools",),
    "s3": ("obstore",),
}


@click.command()
@click.argument("source", metavar="SOURCE")
@click.option(
    "--parquet",
    type=FolderOrBucket(path_type=Path),
    metavar="FOLDER",
    help="Write Parquet files to this folder, or bucket (s3://BUCKET/PREFIX).",
)
@click.option("--minari", metavar="ID", help="Write a data set of Minari with this id, such as rps/duel-v0.")
@click.option(
    "--chat",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the trials as chats, a row for each actor, to this folder.",
)
@click.option(
    "--chat_tools", is_flag=True, help="An action in chats is a call of a tool, and not the assistant's text."
)
@click.option("--trial", "trials", multiple=True, metavar="TRIAL_ID", help="Only this trial; repeatable.")
@properties_option("Only trials")
@click.option(
    "--spec",
    default="",
    metavar="FILE|MODULE:SPEC",
    help=f"Types of observations and actions, if they are not values of spaces: {EXPECTED}.",
)
@click.option("--partial", is_flag=True, help="Also trials that still run, with the samples that there are.")
@click.option("--overwrite", is_flag=True, help="Replace a data set that is there.")
@click.option(
    "--tensors",
    type=click.Choice(["fixed_size_list", "fixed_shape_tensor"]),
    default="fixed_size_list",
    show_default=True,
    help="Arrow's type of arrays in Parquet files.",
)
@client_options
@click.pass_context
def export(
    ctx: click.Context,
    /,
    source: str,
    parquet: Path | str | None,
    minari: str | None,
    chat: Path | None,
    chat_tools: bool,
    trials: tuple[str, ...],
    properties: dict[str, str],
    spec: str,
    partial: bool,
    overwrite: bool,
    tensors: Literal["fixed_size_list", "fixed_shape_tensor"],
    **_options: Any,
) -> None:
    """Write stored trials as a data set: Parquet files, a data set of Minari, chats, or several of these.

    SOURCE is a file of trials, sqlite:trials.db, which nobody else may use meanwhile; or a datastore that runs,
    grpc://host:port. Trials that still run are left out, unless --partial.
    """
    settings = client_settings(ctx)
    if parquet is None and minari is None and chat is None:
        raise click.UsageError("expected --parquet FOLDER, --minari ID, or --chat FOLDER")
    if chat_tools and chat is None:
        raise click.UsageError("--chat_tools: expected --chat FOLDER, too")
    bucket = parquet if is_object_url(parquet) else None
    _check_extras({"export": parquet, "s3": bucket, "minari": minari, "generate": needs_compiler(spec) or None})

    from trio_cogment.rl import export_async

    types = load_types("--spec", spec)

    async def write() -> Exported:
        async with _opened(source, settings, types) as found:
            return await export_async(
                found,
                parquet=parquet,
                minari=minari,
                chat=chat,
                chat_tools=chat_tools,
                trials=trials or None,
                properties=properties,
                spec=types,
                partial=partial,
                overwrite=overwrite,
                tensors=tensors,
                progress=True,
            )

    try:
        done = run_client(write)
    except OSError as error:
        raise Failure(f"{error.filename or parquet or minari}: {error.strerror or error}") from error
    _report(done, settings.output == "json")


@asynccontextmanager
async def _opened(source: str, settings: ClientSettings, types: Spec | None) -> AsyncIterator[DatastoreClient | str]:
    """Give a client of a datastore that runs; any other source as it is."""
    if not source.startswith(("grpc://", "cogment://")):
        yield source
        return
    from trio_cogment.rl.datasets.sources import SOURCE_RPC
    from trio_cogment.sdk import DatastoreClient, connect

    try:
        place = parse_server_endpoint(source, discovery=True, field_name="SOURCE")
    except CogmentError as error:
        raise Failure(str(error)) from None
    if isinstance(place, GrpcEndpoint):
        found = reached(settings, ServiceKind.DATASTORE, [place], config=SOURCE_RPC, bounded=False)
        async with found as channel:
            yield DatastoreClient(channel, spec=types)
        return
    tls = None if settings.tls is None else load_tls(settings.tls).client
    async with connect(source, spec=types, tls=tls, access_token=settings.token, config=SOURCE_RPC) as client:
        yield await client.datastore()


def _check_extras(asked: Mapping[str, object]) -> None:
    """Name at once all extras of this package that the command needs and that are not installed."""
    wanted = [extra for extra, value in asked.items() if value is not None]
    absent = [extra for extra in wanted if not all(map(importlib.util.find_spec, _PACKAGES[extra]))]
    if absent:
        packages = (name for extra in absent for name in _PACKAGES[extra] if not importlib.util.find_spec(name))
        names = ", ".join(dict.fromkeys(packages))
        raise Failure(f"not installed: {names}; {install_command(*absent)}")


def _report(done: Exported, as_json: bool) -> None:
    folders = [str(folder) for folder in (done.parquet, done.chat) if folder is not None]
    written = [*folders, *done.minari]
    if as_json:
        data = {
            "trials": done.trials,
            "samples": done.samples,
            "steps": done.steps,
            "parquet": None if done.parquet is None else str(done.parquet),
            "chat": None if done.chat is None else str(done.chat),
            "minari": done.minari,
            "skipped": done.skipped,
        }
        print_json(data)
        return
    from trio_cogment.base.outcome import counted

    written_text = f"{counted(done.steps, 'step')} of {counted(done.trials, 'trial')} written"
    click.echo(f"{written_text}: {', '.join(written)}")
    if done.skipped:
        click.echo(f"left out, because they still run or have no samples: {', '.join(done.skipped)}", err=True)
