"""The names of a run's trials: a trial is an episode, and its id says of which run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trio_cogment.api.orchestrator_pb2 import TrialInfo

_EPISODE = re.compile(r"(?:w(?P<worker>.{1,64})-)?ep(?P<index>[0-9]{1,18})(?:-(?P<count>[0-9]{1,9}))?")


#: The property by which a trial of any name joins a run.
RUN_PROPERTY = "run_id"


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


def is_of(info: TrialInfo, run_id: str) -> bool:
    """Whether a trial is of a run: by its id, or because a property says so."""
    return info.properties.get(RUN_PROPERTY) == run_id or info.trial_id.startswith(f"{run_id}-")


def place_of(run_id: str, trial_id: str) -> Place | None:
    """Return where a trial belongs in a run; None: its id does not say, or it is not of this run."""
    if not trial_id.startswith(f"{run_id}-"):
        return None
    found = _EPISODE.fullmatch(trial_id.removeprefix(f"{run_id}-"))
    return None if found is None else Place(int(found["index"]), found["worker"] or "")


def starts_of(run_id: str, trial_ids: Iterable[str]) -> dict[int, int]:
    """Return how often each episode of a run was started, as far as these trials tell."""
    found: dict[int, int] = {}
    for trial_id in trial_ids:
        match = _EPISODE.fullmatch(trial_id.removeprefix(f"{run_id}-"))
        if match is not None and not match["worker"]:
            index = int(match["index"])
            found[index] = max(found.get(index, 0), int(match["count"] or 1))
    return found
