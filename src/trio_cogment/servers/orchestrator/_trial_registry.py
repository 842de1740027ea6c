"""The trials an orchestrator knows: running ones, and for a while those that ended."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

import trio

from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.recount import Count
from trio_cogment.servers.orchestrator._trial import Trial


def _nothing(_seconds: float) -> None:
    pass


class TrialRegistry:
    """Trials by id, in the order of their starts. An id is taken for as long as it is here.

    Ended trials leave at once when there are too many of them, or when they take too much: the oldest of the account
    that has most of them. They also leave when they are too old (a task of the orchestrator's sees to that), and, if
    `gc_frequency` is set, all together whenever that many trials have been started.

    Args:
        config: how many, how large, how old, how often.

    Attributes:
        on_collected: told how long it took, whenever ended trials were looked through; for metrics.
    """

    def __init__(self, config: OrchestratorConfig) -> None:
        self._max_ended = config.max_ended_trials
        self._max_bytes = config.max_ended_trials_bytes
        self._max_age = config.ended_trial_age_seconds
        self._every = config.gc_frequency
        self._starts = 0
        self._trials: dict[str, Trial] = {}
        #: When each has ended, and about how much it takes.
        self._ended: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._ended_bytes = 0
        #: The same for each account: how many, and how much.
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._sleep = trio.CancelScope()
        self.on_collected: Callable[[float], None] = _nothing

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._trials

    def __iter__(self) -> Iterator[Trial]:
        return iter(list(self._trials.values()))

    def __len__(self) -> int:
        return len(self._trials)

    def get(self, trial_id: str) -> Trial | None:
        """Return a trial, None for an unknown id."""
        return self._trials.get(trial_id)

    def reserve(self, trial_id: str, make: Callable[[str], Trial]) -> Trial:
        """Take a free id for the new trial that `make` makes of it, and return the trial.

        Nothing may be waited for between looking whether the id is free and this. A start may be one that collects.
        """
        self._count_start()
        trial = make(trial_id)
        self._trials[trial_id] = trial
        return trial

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        size = sum(size for _, size in self._ended.values())
        yield Count("bytes of ended trials", self._ended_bytes, size, None)
        yield Count("ended trials", len(self._ended), sum(trial_id in self._trials for trial_id in self._ended), None)

    def _count_start(self) -> None:
        if self._every is None:
            return
        self._starts += 1
        if self._starts >= self._every:
            self._starts = 0
            self._collect(0)

    def remove(self, trial: Trial) -> None:
        """Free the trial's id."""
        if self._trials.get(trial.trial_id) is trial:
            self._uncount(trial.trial_id)
            del self._trials[trial.trial_id]

    def ended(self, trial: Trial) -> bool:
        """Keep an ended trial by count, size and age from now on.

        Returns:
            False: it has not started, and has not been a trial to anybody. It takes no other one's place.
        """
        outcome = trial.machine.outcome
        if trial.machine.params is None or (outcome is not None and outcome.cause is EndCause.NOT_STARTED):
            return False
        size = trial.kept_bytes
        self._ended[trial.trial_id] = trio.current_time(), size
        self._ended_bytes += size
        self._counts[trial.owner] += 1
        self._sizes[trial.owner] += size
        if len(self._ended) > self._max_ended or self._ended_bytes > self._max_bytes:
            self._collect(self._max_ended)
        elif len(self._ended) == 1:
            self._sleep.deadline = self._next()
        return True

    async def collect_by_age(self) -> None:
        """Collect each trial when it is too old, until cancelled."""
        while True:
            with self._sleep:
                await trio.sleep_forever()
            self._collect(self._max_ended)
            self._sleep = trio.CancelScope(deadline=self._next())

    def _next(self) -> float:
        # They are in the order of their ends, and all may grow equally old.
        return next(iter(self._ended.values()))[0] + self._max_age if self._ended else math.inf

    def _collect(self, count: int) -> None:
        """Forget the oldest of those who have most, until there are no more than this many; and whatever is too old."""
        began = trio.current_time()
        while self._ended:
            trial_id, (ended_at, _) = next(iter(self._ended.items()))
            if ended_at + self._max_age > began:
                if len(self._ended) > count:
                    trial_id = self._oldest_of_most(self._counts)
                elif self._ended_bytes > self._max_bytes:
                    trial_id = self._oldest_of_most(self._sizes)
                else:
                    break
            self._uncount(trial_id)
            del self._trials[trial_id]
        self.on_collected(trio.current_time() - began)

    def _oldest_of_most(self, measure: Counter[str]) -> str:
        """Return the oldest ended trial of the account that has most: nobody has others forgotten before its own."""
        account = max(measure, key=measure.__getitem__)
        return next(trial_id for trial_id in self._ended if self._trials[trial_id].owner == account)

    def _uncount(self, trial_id: str) -> None:
        _, size = self._ended.pop(trial_id, (0.0, None))
        if size is None:
            return
        owner = self._trials[trial_id].owner
        self._ended_bytes -= size
        self._sizes[owner] -= size
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner], self._sizes[owner]
