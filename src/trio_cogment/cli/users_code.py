"""Code of the user in commands: what it raises is printed from its own frames on, and ends the command."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from trio_cogment.base.suggestions import with_suggestion
from trio_cogment.cli.errors import Failure

_PACKAGE = str(Path(__file__).parent.parent)


def imported(name: str, folder: str = "") -> Any:
    """Return a module.

    Args:
        name: of the module.
        folder: in which it is looked up first; by default the current one.

    Raises:
        Failure: there is none, or it fails; an exception in the module itself is printed first.
    """
    folder = os.path.abspath(folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return run_users_code(functools.partial(importlib.import_module, name), f"cannot import {name!r}")
    except (ValueError, TypeError):  # a name with an empty part, or a relative one
        raise Failure(f"expected the name of a module, got {name!r}") from None
    except ModuleNotFoundError:
        raise Failure(f"there is no module {name!r} in {folder}, nor among the installed packages") from None


def member(module: Any, attribute: str) -> Any:
    """Return what a module has under a name, or under several with dots between them.

    Raises:
        Failure: there is nothing; the text suggests the name that may have been meant.
    """
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        text = f"{module.__name__}:{attribute}: {error}"
        raise Failure(with_suggestion(text, str(error.name), dir(error.obj))) from None


def run_users_code(run: Callable[[], Any], failed: str) -> Any:
    """Run code of the user; an exception in it is printed with its traceback, one of the import itself is raised."""
    try:
        return run()
    except Exception as error:
        # A file with wrong syntax has not run, and has no frame.
        if _without_ours(error.__traceback__) is None and not isinstance(error, SyntaxError):
            raise
        print_traceback(error)
        summary = traceback.format_exception_only(error)[-1].strip()
        raise Failure(f"{failed}: {summary}") from None


def print_traceback(error: BaseException) -> None:
    """Print an exception with its traceback, from the first frame on that is the user's."""
    theirs = _without_ours(error.__traceback__)
    lines = traceback.format_exception(type(error), error.with_traceback(theirs), theirs)
    click.echo("".join(lines).rstrip("\n"), err=True)


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    """Return the rest of a traceback from the first frame on that is neither of this program nor of the import."""
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith((_PACKAGE, "<frozen importlib")) and file != importlib.__file__:
            return frames
        frames = frames.tb_next
    return None
