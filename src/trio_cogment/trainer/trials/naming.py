"""The names of a run's trials: a trial is an episode, and its id says of which run. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_EPISODE = re.compile(r"(?:w(?P<worker>.{1,64})-)?ep(?P<index>[0-9]{1,18})(?:-(?P<count>[0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trial belongs in its run.

    Attributes:
        index: of the episode.
        worker_id: who has started it; empty: nobody in particular.
    """

    index: int
    worker_id: str = ""


def trial_id_of(run_id: str, index: int, count: int = 1) -> str:
    """Return the id of an episode's trial.

    Args:
        run_id: of which run.
        index: of the episode.
        count: how often it was started, this time included.
    """
    return f"{run_id}-ep{index:06d}" + (f"-{count}" if count > 1 else "")


def place_of(run_id: str, trial_id: str) -> Place | None:
    """Return where a trial belongs in a run; None: its id does not say, or it is not of this run."""
    if not trial_id.startswith(f"{run_id}-"):
        return None
    found = _EPISODE.fullmatch(trial_id.removeprefix(f"{run_id}-"))
    return None if found is None else Place(int(found["index"]), found["worker"] or "")
