"""Results of a run: one for each trial, and all of them as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trio_cogment.base.errors import CogmentError, MissingExtraError
from trio_cogment.base.outcome import EndCause, TrialOutcome, counted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Stands for "no seed" in the array of seeds.
NO_SEED = -1


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial of a run.

    Attributes:
        index: its place in the run, from 0.
        trial_id: its id; empty if it was never started.
        seed: the seed of its environment; None if it had none.
        orchestrator: the name of the site that ran it; empty: it was run by an earlier run of the same name.
        cause: why it ended; UNKNOWN if its site was lost or does not say.
        ticks: how many observation sets there were, the first and the final one included.
        seconds: from the request to start it until it had ended and its samples were stored.
        returns: the undiscounted return of each actor, in double precision; without those that are not known.
        terminated: the actors for whom the episode ended by its own rules.
        truncated: the actors for whom it was cut off: by the environment, by `max_steps`, or by a stop.
        error: why the trial failed, in words; empty if it has not.
        attempts: how often it was started.
        outcome: how it ended, in full; None if that is not known.
    """

    index: int
    trial_id: str
    seed: int | None
    orchestrator: str
    cause: EndCause = EndCause.UNKNOWN
    ticks: int = 0
    seconds: float = 0.0
    returns: Mapping[str, float] = field(default_factory=dict)
    terminated: frozenset[str] = frozenset()
    truncated: frozenset[str] = frozenset()
    error: str = ""
    attempts: int = 1
    outcome: TrialOutcome | None = None

    @property
    def failed(self) -> bool:
        """Whether the trial failed, or was lost."""
        return bool(self.error)


class RunFailedError(CogmentError):
    """Trials of a run have failed, and the run was to raise then.

    Attributes:
        results: of the whole run.
    """

    def __init__(self, results: Results) -> None:
        super().__init__(results)
        self.results = results

    def __str__(self) -> str:
        first = self.results.failures[0]
        more = len(self.results.failures) - 1
        others = f" (and {more} more)" if more else ""
        return f"{len(self.results.failures)} of {counted(len(self.results), 'trial')} failed: {first.error}{others}"


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """The trials of a run as arrays, one row for each that was started, in the order of the run.

    Attributes:
        trials: the results one by one.
        actors: the names of the actors, in the order of the columns of `returns`, `terminated` and `truncated`.
        index: the place of each trial in the run; without gaps, unless the run was stopped.
        seeds: int64; -1 for a trial without a seed.
        ticks: int64, how many observation sets there were.
        returns: float64, one column for each actor; NaN where it is not known.
        terminated: bool, one column for each actor.
        truncated: bool, one column for each actor.
        causes: the labels of `EndCause`, such as `environment` or `step_limit`.
        seconds: float64, how long each trial took.
        trial_ids: the ids.
        orchestrators: the names of the sites that ran them.
        failures: the trials that failed; their rows are in the arrays, too.
        lost: attempts that failed and were repeated, or that a site was given that was lost; they have no rows.
        requested: how many trials the run was to have.
    """

    trials: Sequence[TrialResult]
    actors: tuple[str, ...]
    index: npt.NDArray[np.int64]
    seeds: npt.NDArray[np.int64]
    ticks: npt.NDArray[np.int64]
    returns: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    causes: npt.NDArray[np.str_]
    seconds: npt.NDArray[np.float64]
    trial_ids: npt.NDArray[np.str_]
    orchestrators: npt.NDArray[np.str_]
    failures: Sequence[TrialResult]
    lost: Sequence[TrialResult]
    requested: int

    def __len__(self) -> int:
        return len(self.trials)

    def returns_of(self, actor: str) -> npt.NDArray[np.float64]:
        """Return the returns of one actor.

        Raises:
            KeyError: there is no such actor.
        """
        if actor not in self.actors:
            raise KeyError(f"actor: expected one of {', '.join(self.actors)}, got {actor!r}")
        return self.returns[:, self.actors.index(actor)]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything as columns, for a data frame or `numpy.savez`: a column for each actor's return."""
        columns: dict[str, npt.NDArray[Any]] = {
            name: getattr(self, name)
            for name in ("index", "trial_ids", "seeds", "ticks", "seconds", "causes", "orchestrators")
        }
        for column, actor in enumerate(self.actors):
            for name in ("returns", "terminated", "truncated"):
                columns[f"{name}.{actor}"] = getattr(self, name)[:, column]
        return columns

    @classmethod
    def of(
        cls,
        trials: Iterable[TrialResult],
        actors: Iterable[str],
        *,
        requested: int,
        lost: Iterable[TrialResult] = (),
    ) -> Results:
        """Return the results of these trials as arrays.

        Raises:
            MissingExtraError: NumPy is not installed.
        """
        try:
            import numpy as np
        except ModuleNotFoundError:
            raise MissingExtraError.of("numpy", "arrays") from None
        rows = sorted(trials, key=lambda trial: trial.index)
        names = tuple(actors)

        def table(of: Any, dtype: Any) -> npt.NDArray[Any]:
            return np.array([[of(row, name) for name in names] for row in rows], dtype).reshape(len(rows), len(names))

        return cls(
            trials=rows,
            actors=names,
            index=np.array([row.index for row in rows], np.int64),
            seeds=np.array([NO_SEED if row.seed is None else row.seed for row in rows], np.int64),
            ticks=np.array([row.ticks for row in rows], np.int64),
            returns=table(lambda row, name: row.returns.get(name, math.nan), np.float64),
            terminated=table(lambda row, name: name in row.terminated, np.bool_),
            truncated=table(lambda row, name: name in row.truncated, np.bool_),
            causes=np.array([row.cause.label for row in rows], np.str_),
            seconds=np.array([row.seconds for row in rows], np.float64),
            trial_ids=np.array([row.trial_id for row in rows], np.str_),
            orchestrators=np.array([row.orchestrator for row in rows], np.str_),
            failures=tuple(row for row in rows if row.failed),
            lost=tuple(lost),
            requested=requested,
        )
