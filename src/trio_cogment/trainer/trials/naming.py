"""The names of a run's trials: a trial is an episode, and its id says of which run. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from trio_cogment.access import lasting
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


def names_run(info: TrialInfo, run_id: str) -> bool:
    """Tell whether a trial says that it is of a run: by its id, or by a property. Anybody can say so."""
    return info.properties.get(RUN_PROPERTY) == run_id or info.trial_id.startswith(f"{run_id}-")


def is_of(info: TrialInfo, run_id: str, owners: Collection[str]) -> bool:
    """Tell whether a trial is of a run: it says so, and was started by one of the run's owners, or its worker.

    Where the trainer or the orchestrator asks nobody who they are, anybody may report for a run, or start trials in
    anybody's name.

    Args:
        info: describes the trial.
        run_id: the run.
        owners: accounts, for example the one that has submitted the run.
    """
    if not names_run(info, run_id):
        return False
    if info.run_id or not info.owner:
        return info.run_id in ("", run_id)
    return info.owner in owners or any(owner and not lasting(owner) for owner in owners)


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
