"""The samples of watched trials that were committed last, so that followers get them without a thread and a query.

The store notes here what each transaction has changed, in the order of the transactions. A trial that was changed in a
way that is not known in detail is forgotten. So what is kept of a trial is always all that was added since a position.

A query sees a transaction as soon as it is committed, and that may be before it is noted. What a query has found out
about a trial whose samples are kept is therefore told as of the last transaction that was noted (`as_noted`): else a
reader could learn that the trial has ended, and then be given samples from here that lack the last ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from trio_cogment.servers.datastore._write_rules import Head
from trio_cogment.servers.datastore.storage import StoredSample, StoredTrial, TrialEnd

#: The bytes that are kept of a trial (when there are more, half of them are dropped), and the number of trials.
_MAX_BYTES = 1024 * 1024
_MAX_TRIALS = 16
#: The estimated memory of a sample beside its data, so that many small ones are limited, too.
_OVERHEAD_BYTES = 256

_position_of = attrgetter("position")


@dataclass(slots=True)
class TrialChanges:
    """What a transaction has changed in a watched trial.

    Attributes:
        trial_id: of the trial.
        samples: those that were added, in the order of their positions.
        only_added: no sample was changed or removed.
        head: the trial's new head.
    """

    trial_id: str
    head: Head
    samples: list[StoredSample] = field(default_factory=list)
    only_added: bool = True


@dataclass(slots=True)
class ChangeSet:
    """What a transaction has changed.

    Attributes:
        trial_ids: the trials that were written to.
        trials: a trial was created, ended, opened again or deleted, or its parameters have changed.
        watched_trials: the changes of watched trials, by their numbers.
        numbers: the numbers of all trials that were written to.
        base: the highest position before the transaction.
        others_wrote: other processes may have written since the last transaction.
    """

    trial_ids: set[str] = field(default_factory=set)
    trials: bool = False
    watched_trials: dict[int, TrialChanges] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    base: int = 0
    others_wrote: bool = False


@dataclass(slots=True)
class _Trial:
    """All samples above a position, and what is known of the trial, if it is."""

    trial_id: str
    base: int
    #: `trial_changes` when more of it than samples may have changed last.
    changed: int = 0
    #: What the last transaction that was noted has made of it: samples, the state of the last of them, and its end.
    count: int = 0
    last_state: int = 0
    end: TrialEnd = TrialEnd.OPEN
    samples: list[StoredSample] = field(default_factory=list)
    bytes: int = 0
    stored: StoredTrial | None = None


class RecentSamples:
    """The samples that were added last, by the numbers of their trials."""

    def __init__(self) -> None:
        #: In the order of the last writes.
        self._trials: dict[int, _Trial] = {}
        self._numbers: dict[str, int] = {}
        #: Counts transactions that may have changed more of a trial than its samples, to see whether there was one
        #: during a query. A deletion needs no count: the number of a trial that is deleted never comes again.
        self.trial_changes = 0

    def note(self, changes: ChangeSet) -> None:
        """Take note of a transaction."""
        self.trial_changes += changes.trials or changes.others_wrote
        if changes.others_wrote:
            self._trials.clear()
            self._numbers.clear()
        for number in changes.numbers:
            found = changes.watched_trials.get(number)
            if found is None or not found.only_added:
                self._forget(number)
                continue
            trial = self._trials.pop(number, None)
            if trial is None:
                trial = _Trial(found.trial_id, changes.base)
                self._numbers[found.trial_id] = number
            self._trials[number] = trial
            if found.samples:
                self._add(trial, found.samples)
            if changes.trials:
                trial.changed = self.trial_changes
            head = found.head
            trial.count, trial.last_state, trial.end = head.count, head.last_state, head.end
            if trial.stored is not None:
                trial.stored = None if changes.trials else _as_noted(trial.stored, trial)
        while len(self._trials) > _MAX_TRIALS:
            self._forget(next(iter(self._trials)))

    def samples(self, number: int, after: int, limit: int, max_bytes: int) -> list[StoredSample] | None:
        """Return what `TrialStore.samples` does; None: that is not known here."""
        trial = self._trials.get(number)
        if trial is None or after < trial.base:
            return None
        first = bisect_right(trial.samples, after, key=_position_of)
        size = 0
        for last in range(first, min(first + limit, len(trial.samples))):
            size += len(trial.samples[last].data)
            if size >= max_bytes:
                return trial.samples[first : last + 1]
        return trial.samples[first : first + limit]

    def trial(self, trial_id: str) -> StoredTrial | None:
        """Return what is known of a trial; None: nothing is known here."""
        number = self._numbers.get(trial_id)
        return None if number is None else self._trials[number].stored

    def has(self, trial_id: str) -> bool:
        """Return whether samples of a trial are kept."""
        return trial_id in self._numbers

    def changed_since(self, changes: int, found: Iterable[StoredTrial]) -> bool:
        """Return whether more than samples of one of these trials may have changed.

        Args:
            changes: what `trial_changes` was.
            found: what a query has returned.
        """
        kept = (self._trials.get(trial.number) for trial in found)
        return any(trial is not None and trial.changed > changes for trial in kept)

    def as_noted(self, found: StoredTrial, *, keep: bool) -> StoredTrial:
        """Return what a query has found out about a trial, as of the last transaction that was noted.

        Args:
            found: what the query has returned. Nothing but samples may have been added to the trial since it began.
            keep: keep it, if anything of the trial is kept; `trial_changes` must be as it was before the query.
        """
        trial = self._trials.get(found.number)
        if trial is None:
            return found
        noted = _as_noted(found, trial)
        if keep:
            trial.stored = noted
        return noted

    def forget(self, trial_ids: Collection[str]) -> None:
        """Forget trials: they were deleted, or are watched no more."""
        for trial_id in trial_ids:
            number = self._numbers.get(trial_id)
            if number is not None:
                self._forget(number)

    def _forget(self, number: int) -> None:
        trial = self._trials.pop(number, None)
        if trial is not None:
            del self._numbers[trial.trial_id]

    def _add(self, trial: _Trial, samples: Sequence[StoredSample]) -> None:
        trial.samples += samples
        trial.bytes += sum(map(_size, samples))
        if trial.bytes > _MAX_BYTES:
            gone = 0
            while trial.bytes > _MAX_BYTES // 2:
                trial.bytes -= _size(trial.samples[gone])
                gone += 1
            trial.base = trial.samples[gone - 1].position
            del trial.samples[:gone]


def _as_noted(stored: StoredTrial, trial: _Trial) -> StoredTrial:
    return replace(stored, samples_count=trial.count, last_state=trial.last_state, end=trial.end)


def _size(sample: StoredSample) -> int:
    return len(sample.data) + _OVERHEAD_BYTES
