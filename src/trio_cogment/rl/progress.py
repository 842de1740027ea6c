"""Progress of long calls, as their argument `progress` asks: a bar in a terminal, a function, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.spaces.base import described

Told = TypeVar("Told")


class BarState(NamedTuple):
    """A bar at one time.

    Attributes:
        text: before the bar.
        done: how much is done.
        total: how much there is to do.
    """

    text: str
    done: int
    total: int


@contextmanager
def shown(
    progress: bool | Callable[[Told], None] | None, state_of: Callable[[Told], BarState]
) -> Iterator[Callable[[Told], None]]:
    """Give the function that shows the progress, for the time of a `with` block.

    Args:
        progress: True for a bar on stderr, if that is a terminal; False or None for nothing; or a function that takes
            each change.
        state_of: returns the bar for what such a function is told.

    Raises:
        InvalidArgumentError: `progress` is something else.
    """
    if callable(progress):
        yield progress
    elif not (progress is None or isinstance(progress, bool)):
        raise InvalidArgumentError(f"progress: expected True, False or a function, got {described(progress)}")
    elif progress and sys.stderr.isatty():
        with _bar() as show:
            yield lambda told: show(state_of(told))
    else:
        yield lambda _told: None


@contextmanager
def _bar() -> Iterator[Callable[[BarState], None]]:
    # Rich takes time to import, and is not needed without a terminal.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda state: bar.update(task, description=state.text, completed=state.done, total=state.total)
