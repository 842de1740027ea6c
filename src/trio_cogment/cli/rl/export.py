"""`trio-cogment rl export`: writes stored trials as Parquet files, or as a data set of Minari."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trio_cogment.cli.client.common import run_client
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, as_all_properties, json_option
from trio_cogment.cli.text import print_json
from trio_cogment.errors import CogmentError, install_command

if TYPE_CHECKING:
    from trio_cogment.rl import Exported

#: What each extra installs and the command imports; `generate` compiles the protos of `--spec`.
_PACKAGES = {
    "export": ("pyarrow", "numpy"),
    "minari": ("minari", "h5py", "PIL", "gymnasium", "numpy"),
    "generate": ("grpc_tools",),
}


@click.command()
@click.argument("source", metavar="SOURCE")
@click.option("--parquet", type=FilePath(path_type=Path), metavar="FOLDER", help="Write Parquet files to this folder.")
@click.option("--minari", metavar="ID", help="Write a data set of Minari with this id, such as rps/duel-v0.")
@click.option("--trial", "trials", multiple=True, metavar="TRIAL_ID", help="Only this trial; repeatable.")
@click.option(
    "--properties",
    multiple=True,
    callback=as_all_properties,
    metavar="NAME=VALUE,...",
    help="Only trials that have all of these properties; repeatable.",
)
@click.option(
    "--spec",
    type=FilePath(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Project file (cogment.yaml) with the types of observations and actions, if they are not values of spaces.",
)
@click.option("--partial", is_flag=True, help="Also trials that still run, with the samples that there are.")
@click.option("--overwrite", is_flag=True, help="Replace a data set that is there.")
@json_option()
def export(
    source: str,
    parquet: Path | None,
    minari: str | None,
    trials: tuple[str, ...],
    properties: dict[str, str],
    spec: Path | None,
    partial: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write stored trials as a data set: Parquet files, a data set of Minari, or both.

    SOURCE is a file of trials, sqlite:trials.db, which nobody else may use meanwhile; or a datastore that runs,
    grpc://host:port. Trials that still run are left out, unless --partial.
    """
    if parquet is None and minari is None:
        raise click.UsageError("expected --parquet FOLDER, or --minari ID")
    _check_extras({"export": parquet, "minari": minari, "generate": spec})

    from trio_cogment.rl import export_async
    from trio_cogment.spec import load_spec

    try:
        types = None if spec is None else load_spec(spec)
    except CogmentError as error:
        raise Failure(f"--spec: {error}") from error

    async def write() -> Exported:
        return await export_async(
            source,
            parquet=parquet,
            minari=minari,
            trials=trials or None,
            properties=properties,
            spec=types,
            partial=partial,
            overwrite=overwrite,
            progress=True,
        )

    try:
        done = run_client(write)
    except OSError as error:
        raise Failure(f"{error.filename or parquet or minari}: {error.strerror or error}") from error
    _report(done, as_json)


def _check_extras(asked: Mapping[str, object]) -> None:
    """Name at once all extras of this package that the command needs and that are not installed."""
    wanted = [extra for extra, value in asked.items() if value is not None]
    absent = [extra for extra in wanted if not all(map(importlib.util.find_spec, _PACKAGES[extra]))]
    if absent:
        packages = (name for extra in absent for name in _PACKAGES[extra] if not importlib.util.find_spec(name))
        names = ", ".join(dict.fromkeys(packages))
        raise Failure(f"not installed: {names}; {install_command(*absent)}")


def _report(done: Exported, as_json: bool) -> None:
    written = ([] if done.parquet is None else [str(done.parquet)]) + done.minari
    if as_json:
        data = {
            "trials": done.trials,
            "samples": done.samples,
            "steps": done.steps,
            "parquet": None if done.parquet is None else str(done.parquet),
            "minari": done.minari,
            "skipped": done.skipped,
        }
        print_json(data)
        return
    trials = "1 trial" if done.trials == 1 else f"{done.trials} trials"
    click.echo(f"{done.steps} steps of {trials} written: {', '.join(written)}")
    if done.skipped:
        click.echo(f"left out, because they still run or have no samples: {', '.join(done.skipped)}", err=True)
