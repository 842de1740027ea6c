"""The progress of a run: what a function that the caller gives is told, and the bar in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from trio_cogment.rl.progress import BarState


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        done: the number of trials that have ended.
        total: the number of trials of the run.
        running: the number of those that run now.
        failed: the number of those done that have failed.
        paused: no trial is started.
    """

    done: int
    total: int
    running: int
    failed: int
    paused: bool


#: Takes each change; it is called in the run's task and must not wait.
ProgressFunction: TypeAlias = Callable[[Progress], None]


def bar_of(progress: Progress) -> BarState:
    """Return the bar for the progress of a run."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return BarState(f"trials{failed}{', paused' if progress.paused else ''}", progress.done, progress.total)
