"""`trio-cogment run watch`, `steps`, `episodes` and `export`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath
from trio_cogment.cli.runs.common import data_of, run_options, with_client
from trio_cogment.cli.runs.view import Overview, Progress, episode_line, record_line, step_line
from trio_cogment.cli.text import print_json

if TYPE_CHECKING:
    from trio_cogment.trainer.client import TrainerClient

_SINCE = click.option(
    "--since",
    type=click.IntRange(0),
    default=0,
    metavar="NUMBER",
    help="Only what comes after this number (seq_id); the default is 0: everything.",
)
#: A screen is not drawn more often.
_DRAW_SECONDS = 0.1


@click.command("watch")
@run_options
@_SINCE
@click.argument("run", required=False)
@click.pass_context
def watch(ctx: click.Context, /, run: str | None, since: int, as_json: bool, **_options: Any) -> None:
    """Watch all runs, until Control-C; or RUN and the returns of its episodes, until it has ended.

    On a terminal runs are a table, and returns a curve. The exit code is 0 if RUN has succeeded, and 1 if it failed or
    was cancelled.
    """
    if run is None:
        with_client(ctx, lambda client: watch_runs(client, since, as_json))
    elif not with_client(ctx, lambda client: watch_run(client, run, since, as_json)):
        ctx.exit(1)


async def watch_runs(client: TrainerClient, since: int, as_json: bool) -> None:
    """Print every change of all runs, or draw them on a terminal as a table, indefinitely."""
    if not as_json and sys.stdout.isatty():
        await _draw_runs(client, since)
        return
    async with client.watch(since=since) as changes:
        async for record in changes:
            if as_json:
                print_json(data_of(record))
            else:
                click.echo(record_line(record))
            sys.stdout.flush()


async def _draw_runs(client: TrainerClient, since: int) -> None:
    import trio

    overview = Overview()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_draw_often, overview)
            async with client.watch(since=since) as changes:
                async for record in changes:
                    overview.add(record)
            nursery.cancel_scope.cancel()
    finally:
        _draw(overview)  # what came since it was drawn last


async def watch_run(client: TrainerClient, run_id: str, since: int, as_json: bool) -> bool:
    """Print the returns of a run until it has ended, or draw them on a terminal; return whether it has succeeded.

    Args:
        client: of its trainer.
        run_id: which run.
        since: the last number of an episode that is known.
        as_json: print each episode as a line of JSON, and at last the run.
    """
    import trio

    await client.run(run_id)  # raises if there is none
    progress = Progress()
    live = not as_json and sys.stdout.isatty()
    async with trio.open_nursery() as nursery:
        if live:
            nursery.start_soon(_draw_often, progress)
        nursery.start_soon(_follow_state, client, run_id, progress, as_json or live)
        async with client.episodes(run_id, since=since) as episodes:
            async for episode in episodes:
                progress.add(episode)
                if as_json:
                    print_json(data_of(episode))
                elif not live:
                    click.echo(episode_line(episode))
        last = await client.run(run_id)
        nursery.cancel_scope.cancel()
    progress.record = last  # not before: a change that was under way says less
    if as_json:
        print_json(data_of(progress.record))
    elif live:
        _draw(progress)
    else:
        click.echo(progress.summary)
    if not as_json:
        for line in progress.detail:
            click.echo(f"  {line}")
    return progress.succeeded


async def _follow_state(client: TrainerClient, run_id: str, progress: Progress, silent: bool) -> None:
    async with client.watch() as changes:
        async for record in changes:
            if record.run_id == run_id:
                progress.record = record
                if not silent:
                    click.echo(record_line(record))


async def _draw_often(seen: Progress | Overview) -> None:
    import trio

    while True:
        _draw(seen)
        await trio.sleep(_DRAW_SECONDS)


def _draw(seen: Progress | Overview) -> None:
    """Draw the screen again: the cursor goes up to its first line, and all below is emptied."""
    size = shutil.get_terminal_size()
    text = seen.screen(width=size.columns - 1, height=size.lines - 1)
    click.echo(f"\x1b[H\x1b[J{text}")


def _follow(name: str, line: Callable[[Any], str], text: str) -> click.Command:
    @click.command(name, help=text)
    @run_options
    @_SINCE
    @click.argument("run")
    @click.pass_context
    def command(ctx: click.Context, /, run: str, since: int, as_json: bool, **_options: Any) -> None:
        async def ask(client: TrainerClient) -> None:
            async with getattr(client, name)(run, since=since) as messages:
                async for message in messages:
                    if as_json:
                        print_json(data_of(message))
                    else:
                        click.echo(line(message))

        with_client(ctx, ask)

    return command


steps = _follow("steps", step_line, "Print the steps of RUN, those that are stored and new ones, until it has ended.")
episodes = _follow("episodes", episode_line, "Print the episodes of RUN, stored and new ones, until it has ended.")


@click.command("export")
@run_options
@click.option("--wait", is_flag=True, help="Wait for the end of a run that goes on.")
@click.argument("run")
@click.argument("folder", type=FilePath(file_okay=False, path_type=Path))
@click.pass_context
def export(ctx: click.Context, /, run: str, folder: Path, wait: bool, as_json: bool, **_options: Any) -> None:
    """Write the steps and the episodes of RUN into FOLDER, as steps.parquet and episodes.parquet."""

    async def ask(client: TrainerClient) -> dict[str, int]:
        from trio_cogment.trainer.exporting import export_run

        return await export_run(client, run, folder, wait=wait)

    try:
        counts: dict[str, int] = with_client(ctx, ask)
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror or error}") from error
    if as_json:
        print_json({"run_id": run, "folder": str(folder), **counts})
    else:
        from trio_cogment.base.outcome import counted

        click.echo(f"{counted(counts['steps'], 'step')} and {counted(counts['episodes'], 'episode')} written: {folder}")
