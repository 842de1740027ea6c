"""`trio-cogment client trial_datastore`: lists, deletes, exports and imports stored trials."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment._version import __version__
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client.common import (
    ClientSettings,
    as_file,
    client_options,
    client_settings,
    file_option,
    run_client,
    show,
)
from trio_cogment.cli.client.reaching import places_option, reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import Group, nearest, properties_option
from trio_cogment.cli.text import columns, fields_of, size_text
from trio_cogment.cli.trials_view import end_text, state_text

if TYPE_CHECKING:
    from trio_cogment.api.trial_datastore_pb2 import RetrieveTrialsReply
    from trio_cogment.rpc import Channel
    from trio_cogment.sdk import Transferred

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_MAX_COUNT = 2**32 - 1
#: How many trials are asked for at a time.
_PAGE = 1000
#: How many are deleted at a time.
_DELETED = 100
#: A sample, with pictures for example, may be larger than the default limit of a message.
_RPC = RpcConfig(max_receive_message_bytes=256 * 1024 * 1024, max_send_message_bytes=256 * 1024 * 1024)


def _datastore_options(command: _Decorated) -> _Decorated:
    endpoint = places_option(
        "--endpoint",
        ServiceKind.DATASTORE,
        variable="COGMENT_TRIAL_DATASTORE_ENDPOINT",
        text="Endpoint of the datastore.",
    )
    return endpoint(client_options(command))


def _channel(
    ctx: click.Context, settings: ClientSettings, *, bounded: bool = True
) -> AbstractAsyncContextManager[Channel]:
    places = nearest(ctx, "endpoint")
    return reached(settings, ServiceKind.DATASTORE, places, config=_RPC, bounded=bounded, flag="--endpoint")


@click.group("trial_datastore", cls=Group)
@_datastore_options
def trial_datastore(**_options: Any) -> None:
    """Call a trial datastore."""


@click.command("list_trials")
@click.option("--from", "handle", default="", metavar="HANDLE", help="Continue after an earlier list.")
@properties_option("List only trials")
@click.option(
    "--count",
    type=click.IntRange(1, _MAX_COUNT),
    default=10,
    show_default=True,
    metavar="TRIALS",
    help="Maximum number of trials.",
)
@_datastore_options
@click.pass_context
def list_trials(ctx: click.Context, /, count: int, properties: dict[str, str], handle: str, **_options: Any) -> None:
    """List stored trials in the order of their creation."""
    from trio_cogment.api.trial_datastore_pb2 import RetrieveTrialsReply, RetrieveTrialsRequest
    from trio_cogment.sdk import DatastoreClient

    settings = client_settings(ctx)

    async def ask() -> tuple[RetrieveTrialsReply, bool]:
        whole, follows = RetrieveTrialsReply(next_trial_handle=handle), True
        async with _channel(ctx, settings) as channel:
            client = DatastoreClient(channel)
            while missing := count - len(whole.trial_infos):
                request = RetrieveTrialsRequest(
                    trials_count=min(missing, _PAGE), properties=properties, trial_handle=whole.next_trial_handle
                )
                reply = await client.page_of_trials(request)
                whole.MergeFrom(reply)
                if len(reply.trial_infos) < request.trials_count:
                    follows = False
                    break
            if follows and settings.output != "json":
                request = RetrieveTrialsRequest(
                    trials_count=1, properties=properties, trial_handle=whole.next_trial_handle
                )
                follows = bool((await client.page_of_trials(request)).trial_infos)
        return whole, follows

    reply, follows = run_client(ask)
    show(settings, _table(reply, follows), fields_of(reply))


def _table(reply: RetrieveTrialsReply, follows: bool) -> str:
    rows = [("TRIAL", "STATE", "SAMPLES", "STORED", "RAW", "USER", "END")]
    for info in reply.trial_infos:
        state = state_text(info.last_state) if info.last_state or info.samples_count else "-"
        if info.ended_abnormally:
            state += " (abnormally)"
        end = end_text(info.trial_id, info.end) if info.HasField("end") else ""
        if info.storage_trouble:
            end = f"samples wait to be stored: {info.storage_trouble}"
        stored, raw = (size_text(size) if size else "-" for size in (info.stored_bytes, info.raw_bytes))
        rows.append((info.trial_id, state, str(info.samples_count), stored, raw, info.user_id, end))
    table = columns(rows)
    return f"{table}\nnext: --from {reply.next_trial_handle}" if follows else table


@click.command("delete_trials")
@click.argument("trial_ids", nargs=-1, required=True, metavar="TRIAL_ID...")
@_datastore_options
@click.pass_context
def delete_trials(ctx: click.Context, /, trial_ids: tuple[str, ...], **_options: Any) -> None:
    """Delete trials and their samples.

    Trials that do not exist are named, and make the exit code 1; the others are deleted.
    """
    from trio_cogment.cli.client.transfer import progress, progress_deadline
    from trio_cogment.sdk import DatastoreClient

    settings, asked = client_settings(ctx), list(dict.fromkeys(trial_ids))

    async def ask() -> set[str]:
        stored: set[str] = set()
        async with _channel(ctx, settings, bounded=False) as channel, progress_deadline(settings) as deadline:
            client = DatastoreClient(channel)
            with progress("delete", len(asked)) as show_progress:
                for done in range(0, len(asked), _DELETED):
                    some = asked[done : done + _DELETED]
                    stored |= {trial.trial_id for trial in await client.trials(some)}
                    await client.delete_trials(some)
                    show_progress(done + len(some))
                    deadline.renew()
        return stored

    stored = run_client(ask)
    there = [trial_id for trial_id in asked if trial_id in stored]
    missing = [trial_id for trial_id in asked if trial_id not in stored]
    parts = (("deleted", there), ("no such trial", missing))
    message = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
    if there or settings.output == "json":
        text = f"deleted: {', '.join(there)}"
        show(settings, text, {"message": message, "trial_ids": list(trial_ids), "missing": missing})
    if missing:
        raise Failure(f"no such trial: {', '.join(missing)}")


@click.command()
@click.argument("trial_ids", nargs=-1, required=True, metavar="TRIAL_ID...")
@file_option("File to write, replaced in one step; the default, also -, is standard output.")
@_datastore_options
@click.pass_context
def export(ctx: click.Context, /, trial_ids: tuple[str, ...], file: Path, **_options: Any) -> None:
    """Write all samples of trials to a file. Samples that running trials add meanwhile are not in it."""
    from trio_cogment.cli.client.transfer import open_target, progress, progress_deadline, report
    from trio_cogment.sdk import DatastoreClient, export_trials

    settings, path = client_settings(ctx), as_file(file)

    async def write() -> Transferred:
        async with _channel(ctx, settings, bounded=False) as channel, progress_deadline(settings) as deadline:
            client = DatastoreClient(channel)
            export = await export_trials(client, trial_ids, version=__version__, timestamp=time.time_ns())
            async with export, open_target(path) as target:
                with progress("export", export.samples_count) as on_progress:
                    async for piece in export:
                        await target.write(piece)
                        on_progress(export.done.samples_count)
                        deadline.renew()
        return export.done

    done = run_client(write)
    message = f"{_stored_text(done.samples_count, len(done.samples))} exported"
    data = {
        "bytes": done.size_bytes,
        "message": message,
        "trial_ids": list(done.samples),
        "filepath": "" if path is None else str(path),
    }
    report(settings, message, data, to_stderr=path is None)


@click.command("import")
@click.option("--user_id", default="cogment CLI", show_default=True, help="User of the stored trials.")
@click.option("--prefix", default="", metavar="TEXT", help="Prefix for the id of each trial.")
@file_option("File to read; the default, also -, is standard input.")
@_datastore_options
@click.pass_context
def import_(ctx: click.Context, /, file: Path, prefix: str, user_id: str, **_options: Any) -> None:
    """Store the trials of an exported file: all of them, or none."""
    from trio_cogment.base.errors import AlreadyExistsError
    from trio_cogment.cli.client.transfer import open_source, progress, progress_deadline, report
    from trio_cogment.sdk import DatastoreClient, import_samples

    settings, path = client_settings(ctx), as_file(file)

    async def store() -> Transferred:
        async with (
            open_source(path) as (read, size),
            _channel(ctx, settings, bounded=False) as channel,
            progress_deadline(settings) as deadline,
        ):
            with progress("import", size) as show_progress:

                def on_progress(done: Transferred) -> None:
                    show_progress(done.size_bytes)
                    deadline.renew()

                try:
                    return await import_samples(
                        DatastoreClient(channel), read, prefix=prefix, user_id=user_id, on_progress=on_progress
                    )
                except AlreadyExistsError as error:
                    raise Failure(f"{error} (use --prefix={prefix}copy-)") from error

    done = run_client(store)
    message = f"{_stored_text(done.samples_count, len(done.samples))} imported"
    trials = [{"trial_id": trial_id, "samples_count": count} for trial_id, count in done.samples.items()]
    data = {
        "message": message,
        "samples_count": done.samples_count,
        "trials": trials,
        "filepath": "" if path is None else str(path),
    }
    report(settings, message, data)


trial_datastore.add_command(list_trials, aliases=("list",))
trial_datastore.add_command(delete_trials, aliases=("delete",))
trial_datastore.add_command(export)
trial_datastore.add_command(import_)


def _stored_text(samples: int, trials: int) -> str:
    from trio_cogment.base.outcome import counted

    return f"{counted(samples, 'sample')} of {counted(trials, 'trial')}"
