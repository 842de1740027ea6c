"""`trio-cogment init`: writes a small project, or an experiment with people, that runs and has a test."""

from __future__ import annotations

import re
import shlex
import shutil
import string
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, json_option
from trio_cogment.cli.text import print_json

_DEFAULT_CLASS = "player"
_DEFAULT_ACTORS = 2
_MOST_ACTORS = 100
#: Pages of one's own that an experiment can begin with.
_PAGES = ("canvas", "chat", "drawing")


@click.command()
@click.argument("destination", type=FilePath(path_type=Path), metavar="DEST")
@click.option("--actor-class", metavar="NAME", help=f"Name of the actor class. Default: {_DEFAULT_CLASS}.")
@click.option(
    "--actors",
    type=click.IntRange(1, _MOST_ACTORS),
    help=f"How many actors take part in a trial. Default: {_DEFAULT_ACTORS}.",
)
@click.option("--experiment", is_flag=True, help="Write an experiment with people: a file, a game, two agents.")
@click.option(
    "--page",
    type=click.Choice(_PAGES),
    help="With --experiment, a page of your own for its game: a canvas, a chat with an agent, or what the environment "
    "draws.",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing, and take the defaults.")
@json_option("Print the paths as JSON.")
def init(
    destination: Path,
    actor_class: str | None,
    actors: int | None,
    experiment: bool,
    page: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Write a small project into the folder DEST, which must be empty or not exist.

    On a terminal it asks for what no flag says.
    """
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise Failure(f"init: {destination}: expected a folder that is empty or does not exist")
    if experiment:
        for flag, value in (("--actor-class", actor_class), ("--actors", actors)):
            if value is not None:
                raise Failure(f"init: {flag}: it is for a project; with --experiment the game says who takes part")
        command = "trio-cogment play experiment.yaml --demo, or trio-cogment play experiment.yaml"
        _write(destination, _experiment_files(page), command, as_json)
        return
    if page is not None:
        raise Failure("init: --page: it is for an experiment; expected --experiment beside it")
    asks = not yes and sys.stdin.isatty()
    if actor_class is None:
        actor_class = click.prompt("Name of the actor class", default=_DEFAULT_CLASS) if asks else _DEFAULT_CLASS
    if not re.fullmatch(r"[a-z][a-z0-9_]*", actor_class) or actor_class == "environment":
        raise Failure(
            f"init: --actor-class: expected a name of lower-case letters, digits and underscores, got {actor_class!r}"
        )
    if actors is None:
        kind = click.IntRange(1, _MOST_ACTORS)
        actors = click.prompt("Actors in a trial", default=_DEFAULT_ACTORS, type=kind) if asks else _DEFAULT_ACTORS
    try:
        files = _project_files(actor_class, actors)
    except CogmentError as error:
        raise Failure(f"init: {error}") from error
    _write(destination, files, "python main.py, or trio-cogment launch", as_json)


def _write(destination: Path, files: dict[str, str], command: str, as_json: bool) -> None:
    """Write files by their paths, and say which, and what to do now."""
    from trio_cogment.sdk.spec.generation import write_files

    try:
        written = write_files(destination, files)
    except CogmentError as error:
        raise Failure(f"init: {error}") from error
    except OSError as error:
        raise Failure(f"init: {error.filename or destination}: {error.strerror or error}") from error
    if as_json:
        print_json({"written": [str(destination / path) for path in written]})
        return
    for path in written:
        click.echo(destination / path)
    click.echo(f"\nNow: {_activation()}cd {shlex.quote(str(destination))} && {command}")


def _activation() -> str:
    """Return the command that makes `python` this one, if it is another."""
    scripts = Path(sysconfig.get_path("scripts"))
    python = shutil.which("python")
    if (python is None or Path(python).parent != scripts) and (scripts / "activate").exists():
        return f". {shlex.quote(str(scripts / 'activate'))} && "
    return ""


def _templates(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of the templates in a folder."""
    for template in resources.files("trio_cogment.cli").joinpath(folder).iterdir():
        if template.name.endswith(".template"):
            yield template.name.removesuffix(".template"), template.read_text(encoding="utf-8")


def _experiment_files(page: str | None) -> dict[str, str]:
    """Return the texts of an experiment by path; with a page, that one is in its file."""
    files, pages = dict(_templates("new_experiment")), dict(_templates("new_experiment/pages"))
    if page is None:
        return files
    files[f"{page}.html"] = pages[f"{page}.html"]
    if page == "chat":
        del files["coordination.py"]
        note = "`coordination.py` has the game, and an agent for each condition"
        files["README.md"] = files["README.md"].replace(note, "`conversation.py` has the environment and the agent")
        return {**files, "experiment.yaml": pages["chat.yaml"], "conversation.py": pages["chat.py"]}
    # The buttons of `drawing` have the labels; a canvas has its own.
    labels, shown = "    labels: [park, museum, station]\n", "    show: [members, roles, actions]\n"
    kept = labels if page == "drawing" else ""
    own = f"{kept}    page: {page}.html\n    show: [members, roles]\n"
    text = files["experiment.yaml"].replace(labels + shown, own)
    files["experiment.yaml"] = text.replace("render_mode: ansi", "render_mode: rgb_array") if kept else text
    return files


def _project_files(actor_class: str, actors: int) -> dict[str, str]:
    """Return the texts of the project by path, its generated modules among them."""
    from trio_cogment.sdk.spec.generation import pascal_case, python_modules
    from trio_cogment.sdk.spec.project import Project

    values = {"actor_class": actor_class, "session": f"{pascal_case(actor_class)}Session", "actors": str(actors)}
    files = {path: string.Template(text).substitute(values) for path, text in _templates("new_project")}
    with tempfile.TemporaryDirectory(prefix="trio-cogment-") as folder:
        for path, text in files.items():
            Path(folder, path).write_text(text, encoding="utf-8")
        return {**python_modules(Project(folder)), **files}
