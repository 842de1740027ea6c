"""Arguments of `trio-cogment rl`: environments and other things by name, and arguments for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError, MissingExtraError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import PairType
from trio_cogment.cli.users_code import imported, member, print_traceback

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

HOSTINGS = ("inline", "thread", "process")


class Argument(PairType):
    """`NAME=VALUE`; the value is JSON, or text if it is none."""

    name = "argument"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Return the name and the value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not self.is_name(name):
            self.fail(f"expected NAME=VALUE, got {value!r}", param, ctx)
        try:
            return name, json.loads(text)
        except ValueError:
            return name, text

    def is_name(self, text: str) -> bool:
        """Tell whether something can have this name."""
        return text.isidentifier()


def environment_options(command: _Decorated) -> _Decorated:
    """Add the flags about how an environment is made and where it runs."""
    arguments = click.option(
        "--argument",
        type=Argument(),
        multiple=True,
        metavar="NAME=VALUE",
        help="With which it is made; the value is JSON, or text. Repeatable.",
    )
    hosting = click.option(
        "--hosting",
        type=click.Choice(HOSTINGS),
        default="inline",
        show_default=True,
        help="Where it runs: on the server's own thread, on a thread or in a process for each trial.",
    )
    return arguments(hosting(command))


def target_of(name: str | None, command: str, folder: str = "") -> Any:
    """Return a function of a module, or the name of something else as it is.

    Args:
        name: `MODULE:FUNCTION`, or an id, or None.
        command: which wants to know, for errors.
        folder: in which the module is looked up first; by default the current one.

    Raises:
        Failure: there is no such module, it fails, or it has no such function.
    """
    if name is None or ":" not in name:
        return name
    module, _, attribute = name.partition(":")
    try:
        found = imported(module, folder)
        if hasattr(found, attribute) or (attribute.isidentifier() and not _is_registered(attribute)):
            return member(found, attribute)
    except Failure as failure:
        raise Failure(f"{command}: {failure.message}") from None
    return name  # an id of Gymnasium, which the module registers


def _is_registered(name: str) -> bool:
    """Tell whether Gymnasium has an environment of this name, in any version."""
    gymnasium = sys.modules.get("gymnasium")
    return gymnasium is not None and any(spec.name == name for spec in gymnasium.registry.values())


@contextmanager
def failures(command: str) -> Iterator[None]:
    """Turn errors within the block into those that end a command with one line.

    What an environment itself raised while it was made is printed first, from the frames on that are its own.
    """
    try:
        yield
    except CogmentError as error:
        if isinstance(error, MissingExtraError):  # the next import could not be made
            raise Failure(f"{command}: {error}") from error
        from trio_cogment.environments.errors import EnvironmentFailedError

        if isinstance(error, EnvironmentFailedError):
            if error.__cause__ is not None:
                print_traceback(error.__cause__)
            for note in getattr(error, "__notes__", ()):
                click.echo(note, err=True)
        raise Failure(f"{command}: {error}") from error
