"""How a run shows how far it is: a bar in a terminal, a function of the caller's, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        done: so many trials have ended.
        total: so many trials the run has.
        running: so many run now.
        failed: so many of those done have failed.
        paused: no trial is started.
    """

    done: int
    total: int
    running: int
    failed: int
    paused: bool


#: Takes each change; it is called in the run's task and must not wait.
ProgressFunction: TypeAlias = Callable[[Progress], None]


@contextmanager
def shown(progress: bool | ProgressFunction) -> Iterator[ProgressFunction]:
    """Give the function that shows the progress, for the time of a `with` block.

    Args:
        progress: True for a bar on stderr, if that is a terminal; False for nothing; or a function.
    """
    if callable(progress):
        yield progress
    elif progress and sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield lambda _progress: None


@contextmanager
def _bar() -> Iterator[ProgressFunction]:
    # Rich takes time to import, and is not needed without a terminal.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("trials", total=None)

        def show(progress: Progress) -> None:
            failed = f", {progress.failed} failed" if progress.failed else ""
            text = f"trials{failed}{', paused' if progress.paused else ''}"
            bar.update(task, description=text, completed=progress.done, total=progress.total)

        yield show
