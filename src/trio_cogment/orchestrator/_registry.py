"""The trials an orchestrator knows: running ones, and for a while those that ended."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

import trio

from trio_cogment.config import OrchestratorConfig
from trio_cogment.orchestrator._trial import Trial


class Registry:
    """Trials by id, in the order of their starts. An id is taken for as long as it is here.

    Args:
        config: how many ended ones are kept, and how long.
        on_collected: told how long it took to forget ended trials, whenever some were.
    """

    def __init__(self, config: OrchestratorConfig, on_collected: Callable[[float], None] | None = None) -> None:
        self._config = config
        self._on_collected = on_collected
        self._trials: dict[str, Trial] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, trial_id: str) -> bool:
        self._collect()
        return trial_id in self._trials

    def __iter__(self) -> Iterator[Trial]:
        self._collect()
        return iter(list(self._trials.values()))

    def get(self, trial_id: str) -> Trial | None:
        """Return a trial, None for an unknown id."""
        self._collect()
        return self._trials.get(trial_id)

    def add(self, trial: Trial) -> None:
        """Take the trial's id."""
        self._collect()
        self._trials[trial.trial_id] = trial

    def remove(self, trial: Trial) -> None:
        """Free the trial's id."""
        if self._trials.get(trial.trial_id) is trial:
            self._ended.pop(trial.trial_id, None)
            del self._trials[trial.trial_id]

    def ended(self, trial: Trial) -> None:
        """Keep an ended trial by count and age from now on."""
        if self._trials.get(trial.trial_id) is trial:
            self._ended[trial.trial_id] = trio.current_time()
            self._collect()

    def collect_ended(self) -> None:
        """Forget every ended trial."""
        self._forget(len(self._ended))

    def _collect(self) -> None:
        oldest = trio.current_time() - self._config.ended_trial_age_seconds
        surplus = len(self._ended) - self._config.max_ended_trials
        due = 0
        for ended_at in self._ended.values():
            if due >= surplus and ended_at > oldest:
                break
            due += 1
        self._forget(due)

    def _forget(self, count: int) -> None:
        if not count:
            return
        # Measured in computing time, which has nothing to do with the trials' own.
        began = time.perf_counter()
        for _ in range(count):
            trial_id, _ended_at = self._ended.popitem(last=False)
            del self._trials[trial_id]
        if self._on_collected is not None:
            self._on_collected(time.perf_counter() - began)
