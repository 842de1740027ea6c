"""`trio-cogment experiment export`: writes the data of an experiment as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
import trio

from trio_cogment.base.errors import CogmentError, NotFoundError, ResourceExhaustedError
from trio_cogment.base.host import Host
from trio_cogment.cli.errors import Failure
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

if TYPE_CHECKING:
    from trio_cogment.sdk import DatastoreClient

_COMMAND = "experiment export"
_TRIALS = "trials"
#: An archive is made in memory.
_MAX_ARCHIVED_BYTES = 128 * 2**20


@click.command()
@click.argument("file", metavar="EXPERIMENT", type=FilePath(path_type=Path))
@click.option(
    "--output",
    type=FilePath(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where the tables are written. Tables of before are replaced; trials of before that are not written again "
    "are removed.",
)
@trials_option("without them")
@data_option
@json_option("Print as JSON what was written.")
def export(file: Path, output: Path, storage: str | None, data: Path | None, as_json: bool) -> None:
    """Write the data of an experiment: participants, answers, events and actions as CSV, a codebook, trials as Parquet.

    EXPERIMENT is the experiment file. The server must not run meanwhile; the researchers' page exports while it does.
    """
    from trio_cogment.experiment.store import opened_store
    from trio_cogment.experiment.tables import played_trials, tables_of

    experiment = read_experiment(file, _COMMAND)
    path = existing_data(data, experiment.name, _COMMAND)
    storage = trials_storage(storage, path)
    try:
        with data_errors(_COMMAND, instead=", or export the data on the researchers' page"):
            with opened_store(path, experiment.name) as store:
                written, trials = tables_of(experiment, store), played_trials(store)
            output.mkdir(parents=True, exist_ok=True)
            for name, content in written.items():
                (output / name).write_bytes(content)
            counts = (0, 0)
            if storage != "none" and trials:
                counts = trio.run(_export_trials, storage, output / _TRIALS, trials)
            if not counts[0]:
                # Those of an export of before: of people who are forgotten by now, perhaps.
                _remove_trials(output / _TRIALS)
    except OSError as error:
        raise Failure(f"{_COMMAND}: {error.filename or output}: {error.strerror or error}") from error
    paths = [str(output / name) for name in written]
    if as_json:
        print_json({"written": paths, "trials": counts[0], "steps": counts[1]})
        return
    for path_of_table in paths:
        click.echo(path_of_table)
    if counts[0]:
        click.echo(f"{output / _TRIALS}: {counts[0]} trials, {counts[1]} steps")


def _remove_trials(folder: Path) -> None:
    if folder.is_dir():
        from trio_cogment.rl.datasets.parquet import remove_dataset

        remove_dataset(folder)


async def _export_trials(storage: str, folder: Path, trials: list[str]) -> tuple[int, int]:
    from trio_cogment.rl.datasets.sources import open_source

    async with open_source(storage) as client:
        return await _write_trials(client, folder, trials)


async def _write_trials(client: DatastoreClient, folder: Path, trials: Sequence[str]) -> tuple[int, int]:
    """Write the trials that have samples; return how many there are, and how many steps."""
    from trio_cogment.rl.datasets.exporting import export_async

    # A trial that was lost with its server may have no samples, and one of somebody who is forgotten is not there.
    wanted = set(trials)
    there = [each.trial_id async for each in client.all_trials() if each.trial_id in wanted and each.samples_count]
    try:
        done = await export_async(client, parquet=folder, trials=there, partial=True, overwrite=True)
    except NotFoundError:
        return 0, 0
    return done.trials, done.steps


async def trials_as_files(client: DatastoreClient, trials: Sequence[str]) -> dict[str, bytes]:
    """Return the files of trials, for an archive; if they are too large, or cannot be written, a text that says so."""
    run = Host().runner(1)

    def contents(folder: Path) -> dict[str, bytes]:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if sum(path.stat().st_size for path in paths) > _MAX_ARCHIVED_BYTES:
            raise ResourceExhaustedError(f"they have more than {_MAX_ARCHIVED_BYTES // 2**20} MiB")
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    try:
        with TemporaryDirectory(prefix="trio-cogment-") as folder:
            await _write_trials(client, Path(folder, _TRIALS), trials)
            return await run(contents, Path(folder))
    except CogmentError as error:
        return {"trials-are-missing.txt": f"{error}\n`trio-cogment {_COMMAND}` writes them.\n".encode()}
