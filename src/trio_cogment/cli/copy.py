"""`trio-cogment copy`: copies files into folders."""

from __future__ import annotations

import glob
import shutil
from pathlib import Path

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import json_option
from trio_cogment.cli.text import print_json


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE... FOLDER...")
@json_option("Print what was copied as JSON.")
def copy(paths: tuple[str, ...], as_json: bool) -> None:
    """Copy every FILE into every FOLDER, in any order; for example: copy cogment.yaml '*.proto' client environment.

    Patterns (*, ?, [a-z]) are resolved here, too. Files of the same name are replaced; folders are not made.
    """
    found = [Path(path) for pattern in paths for path in _resolved(pattern)]
    folders = list(dict.fromkeys(path for path in found if path.is_dir()))
    files = list(dict.fromkeys(path for path in found if not path.is_dir()))
    if not files:
        raise Failure("copy: expected a file, got folders only")
    if not folders:
        raise Failure("copy: expected a folder that exists, got files only")
    names: dict[str, Path] = {}
    for file in files:
        if not file.is_file():
            raise Failure(f"copy: {file}: expected a regular file")
        if file.name in names:
            raise Failure(f"copy: {names[file.name]} and {file} have the same name; copy them one after the other")
        names[file.name] = file
    copied: list[dict[str, str]] = []
    for folder in folders:
        for file in files:
            copied.append({"from": str(file), "to": str(folder / file.name)})
            if not as_json:
                click.echo(f"{file} -> {folder / file.name}")
            try:
                shutil.copyfile(file, folder / file.name)
            except shutil.SameFileError:
                pass  # it is there already
            except OSError as error:
                raise Failure(f"copy: {error.filename or file}: {error.strerror or error}") from error
    if as_json:
        print_json({"copied": copied})


def _resolved(pattern: str) -> list[str]:
    if Path(pattern).exists():
        return [pattern]
    found = sorted(glob.glob(pattern))
    if not found:
        what = "matches nothing" if glob.has_magic(pattern) else "No such file or directory"
        raise Failure(f"copy: {pattern}: {what}")
    return found
