"""`trio-cogment run submit`, `list`, `cancel`, `pause`, `resume` and `rate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.runs.common import data_of, run_options, terminal_width, with_client
from trio_cogment.cli.runs.view import table
from trio_cogment.cli.text import print_json, printable

if TYPE_CHECKING:
    from trio_cogment.trainer.client import TrainerClient

_STATUSES = ("INIT", "HSHK", "RDY", "EXEC", "PAUSE", "FAULT", "TERM")
_YAML = (".yaml", ".yml")
#: How the refusal of a configuration begins.
_REFUSED = "INVALID_ARGUMENT: config_json: "
_MAX_RATE = 2**32 - 1


@click.command("submit")
@run_options
@click.option("--run-id", default="", metavar="ID", help="The id of the run; by default the trainer makes one.")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def submit(ctx: click.Context, /, file: Path, run_id: str, as_json: bool, **_options: Any) -> None:
    """Submit the run whose configuration is in FILE, as JSON or YAML; - is standard input. Prints its id.

    All that is wrong with the configuration is told at once, one finding a line.
    """
    text = _config(file)

    async def ask(client: TrainerClient) -> str:
        return await client.submit(text, run_id=run_id)

    try:
        found: str = with_client(ctx, ask)
    except Failure as error:
        *findings, last = error.message.removeprefix(_REFUSED).splitlines()
        for finding in findings:
            click.echo(f"trio-cogment: {file}: {printable(finding)}", err=True)
        raise Failure(f"{file}: {last}" if _REFUSED in error.message else last) from None
    if as_json:
        print_json({"run_id": found})
    else:
        click.echo(found)


def _config(file: Path) -> str:
    """Return a configuration as JSON; what is wrong with it the trainer says."""
    try:
        text = sys.stdin.read() if file == Path("-") else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if file.suffix not in _YAML:
        return text
    import yaml

    try:
        return json.dumps(yaml.safe_load(text))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise Failure(f"{file}: not YAML that JSON could say, too: {error}") from error


@click.command("list")
@run_options
@click.option(
    "--status",
    multiple=True,
    type=click.Choice(_STATUSES, case_sensitive=False),
    help="Only runs with this status; repeatable.",
)
@click.pass_context
def list_(ctx: click.Context, /, status: tuple[str, ...], as_json: bool, **_options: Any) -> None:
    """List the runs of a trainer, in the order in which they were submitted."""

    async def ask(client: TrainerClient) -> Any:
        return await client.runs(_STATUSES.index(name) + 1 for name in status)

    records = with_client(ctx, ask)
    if not as_json:
        click.echo(table(records, width=terminal_width()))
        return
    for record in records:
        print_json(data_of(record))


def _each(
    ctx: click.Context, runs: tuple[str, ...], as_json: bool, done: str, do: Callable[[Any, str], Awaitable[None]]
) -> None:
    """Do something to each run, and say so; the first one that fails ends it."""

    async def ask(client: TrainerClient) -> None:
        for run_id in runs:
            await do(client, run_id)
            if as_json:
                print_json({"run_id": run_id, "done": done})
            else:
                click.echo(f"{run_id}: {done}")

    with_client(ctx, ask)


def _of_runs(name: str, done: str, text: str) -> click.Command:
    """Return a command that takes runs, and does with each what the client's method of its name does."""

    @click.command(name, help=text)
    @run_options
    @click.argument("runs", metavar="RUN...", nargs=-1, required=True)
    @click.pass_context
    def command(ctx: click.Context, /, runs: tuple[str, ...], as_json: bool, **_options: Any) -> None:
        _each(ctx, runs, as_json, done, lambda client, run_id: getattr(client, name)(run_id))

    return command


cancel = _of_runs("cancel", "cancelled", "Cancel runs, and wait until their processes and trials have ended.")
pause = _of_runs("pause", "paused", "Pause runs: nothing new begins, and no telemetry is taken.")
resume = _of_runs("resume", "goes on", "Let paused runs go on.")


@click.command("rate")
@run_options
@click.argument("run")
@click.argument("hz", type=click.IntRange(0, _MAX_RATE))
@click.pass_context
def rate(ctx: click.Context, /, run: str, hz: int, as_json: bool, **_options: Any) -> None:
    """Allow RUN no more than HZ steps, or starts of trials, a second; 0: any number."""
    done = f"at most {hz} a second" if hz else "any number a second"
    _each(ctx, (run,), as_json, done, lambda client, run_id: client.limit_rate(run_id, hz))
