"""Experiment files and the files of their data, as commands find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied
from trio_cogment.cli.services.trial_datastore import DEFAULT_FILE, PLAY_FILE

if TYPE_CHECKING:
    from trio_cogment.experiment.definition import Experiment

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SUFFIXES = (".yaml", ".yml")


def data_option(command: _Decorated) -> _Decorated:
    """Add `--data`: the file with the data of an experiment."""
    option = click.option(
        "--data",
        type=FilePath(path_type=Path),
        metavar="PATH",
        help="File with the data of an experiment: participants, answers, events. Default: "
        f"{DEFAULT_FILE.parent}/NAME.experiment.db, with the name in the experiment file.",
    )
    return applied((option,), command)


def trials_option(none: str) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds `--storage`: where the trials are.

    Args:
        none: means this.
    """
    option = click.option(
        "--storage",
        metavar="ADDRESS",
        help=f"Where the trials are stored; none: {none}. Default: sqlite:{PLAY_FILE}, and with the data of a "
        "demonstration the file beside it.",
    )
    return lambda command: applied((option,), command)


def is_experiment(target: str) -> bool:
    """Tell whether what is to be played is an experiment file."""
    return target.endswith(_SUFFIXES)


def read_experiment(path: str | Path, command: str) -> Experiment:
    """Return an experiment.

    Raises:
        Failure: something is wrong with the file.
    """
    from trio_cogment.experiment.experiment_file import load_experiment

    try:
        return load_experiment(path)
    except CogmentError as error:
        raise Failure(f"{command}: {error}") from error


@contextmanager
def data_errors(command: str, *, instead: str = "") -> Iterator[None]:
    """Turn errors within the block, which has the data open, into those that end a command with one line.

    Args:
        command: for their texts.
        instead: something else that can be done while a server has the data.
    """
    from trio_cogment.base.host.files import LockedError

    try:
        yield
    except CogmentError as error:
        hint = f"; stop the server first{instead}" if isinstance(error.__cause__, LockedError) else ""
        raise Failure(f"{command}: {error}{hint}") from error


def data_file(given: Path | None, name: str) -> Path:
    """Return the file with the data of an experiment."""
    return given or DEFAULT_FILE.parent / f"{name}.experiment.db"


def trials_file(data: Path) -> Path:
    """Return the file with the trials of a demonstration, of the name of its other file."""
    return data.with_name(f"{data.name.removesuffix('.db')}.play.db")


def trials_storage(given: str | None, data: Path) -> str:
    """Return where the trials of an experiment are.

    Args:
        given: the flag; None: those of a demonstration are beside its data, and those of people where `play` has them.
        data: the file with the data of the experiment.
    """
    if given is not None:
        return given
    beside = trials_file(data)
    return f"sqlite:{beside if beside.is_file() else PLAY_FILE}"


def existing_data(given: Path | None, name: str, command: str) -> Path:
    """Return the file with the data of an experiment that is there.

    Raises:
        Failure: there is none.
    """
    path = data_file(given, name)
    if not path.is_file():
        raise Failure(f"{command}: {path}: there is no such file, so nobody has taken part; --data names another one")
    return path
