"""`trio-cogment generate`: writes a project's modules for the SDKs."""

from __future__ import annotations

from pathlib import Path

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, json_option
from trio_cogment.cli.text import print_json


@click.command()
@click.option(
    "-f",
    "--file",
    "--spec",
    "file",
    type=FilePath(path_type=Path),
    default=Path(),
    help="Project file, or its folder. Default: cogment.yaml, or cogment.yml, in the current folder.",
)
@click.option(
    "-p", "--python_dir", type=FilePath(path_type=Path), help="Write the Python modules here; the folder is made."
)
@click.option(
    "--output",
    type=FilePath(path_type=Path),
    help="Write the Python modules beside this file, which is the module for the published SDK. Default, unless there "
    "is --python_dir or --js_dir: cog_settings.py.",
)
@click.option("-j", "--js_dir", type=FilePath(path_type=Path), help="Write the JavaScript modules here.")
@click.option("-t", "--typescript", is_flag=True, help="Write CogSettings.ts, not CogSettings.js; needs --js_dir.")
@click.option(
    "--grpc",
    is_flag=True,
    help="Also write a module for each proto that has services, as `greeter_grpc.py`: typed stubs for clients, base "
    "classes for servers.",
)
@json_option("Print the paths as JSON.")
def generate(
    file: Path,
    python_dir: Path | None,
    output: Path | None,
    js_dir: Path | None,
    typescript: bool,
    grpc: bool,
    as_json: bool,
) -> None:
    """Write a project's modules: messages, typed settings for this SDK, and settings for the published SDKs.

    Prints the path of each file that has changed. The same project gives the same files.
    """
    from trio_cogment.sdk.spec.generation import DEFAULT_SETTINGS, javascript_modules, python_modules, write_files
    from trio_cogment.sdk.spec.project import Project

    if python_dir is not None and output is not None:
        raise click.UsageError("--output and --python_dir both say where the Python modules go; give one")
    if typescript and js_dir is None:
        raise click.UsageError("--typescript needs --js_dir")
    if grpc and js_dir is not None and python_dir is None and output is None:
        raise click.UsageError("--grpc writes Python modules; it needs --python_dir or --output beside --js_dir")
    if python_dir is None and output is None and js_dir is None:
        output = Path(DEFAULT_SETTINGS)
    if output is not None and output.suffix != ".py":
        raise click.UsageError(f"--output: expected the path of a .py file, got {str(output)!r}")
    try:
        project = Project(file)
        # Everything is made before anything is written.
        made = []
        if output is not None:
            made.append((output.parent, python_modules(project, output.name, grpc=grpc)))
        if python_dir is not None:
            made.append((python_dir, python_modules(project, grpc=grpc)))
        if js_dir is not None:
            made.append((js_dir, javascript_modules(project, typescript=typescript)))
        written = [folder / path for folder, files in made for path in write_files(folder, files)]
    except CogmentError as error:
        raise Failure(f"generate: {error}") from error
    except OSError as error:
        raise Failure(f"generate: {error.filename or file}: {error.strerror or error}") from error
    if as_json:
        print_json({"written": list(map(str, written))})
    else:
        for path in written:
            click.echo(path)
