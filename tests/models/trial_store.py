"""A store of trials, one call at a time: a dictionary of trials, each with its samples in the order of arrival.

The state is one for the whole store, so that pages of trials are judged whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from trio_cogment.testing import LOST, SequentialModel

OK, NOT_FOUND, NOTHING = "OK", "NOT_FOUND", "nothing"
UNKNOWN, RUNNING, TERMINATING, ENDED = 0, 3, 4, 5


class Sample(NamedTuple):
    """What is stored of a tick; `text` is unique among all that is ever stored."""

    tick: int
    stamp: int
    state: int
    text: str


class Trial(NamedTuple):
    """A trial; `arrived` has the texts of all samples that it ever had, in order."""

    trial_id: str
    user: str
    samples: tuple[Sample, ...] = ()
    arrived: tuple[str, ...] = ()
    end: str = "open"

    @property
    def last_state(self) -> int:
        """ENDED once it has ended, in whichever way; else the state of its highest tick."""
        if self.end != "open":
            return ENDED
        return max(self.samples).state if self.samples else UNKNOWN

    @property
    def entry(self) -> Entry:
        """What a page says of it."""
        return Entry(self.trial_id, self.user, len(self.samples), self.last_state, self.end == "abnormal")


class Entry(NamedTuple):
    """A trial as it is on a page."""

    trial_id: str
    user: str
    samples: int
    last_state: int
    abnormal: bool


class Store(NamedTuple):
    """All there is: the trials in the order of their creation, by number.

    Attributes:
        created: how many trials were ever created.
        users: which trial was last given to a user; the users of a run are all different, and a page is found by them.
    """

    trials: dict[int, Trial]
    created: int
    users: dict[str, int]

    def find(self, trial_id: str) -> int | None:
        """Return the number of a trial."""
        return next((number for number, trial in self.trials.items() if trial.trial_id == trial_id), None)

    def put(self, number: int, trial: Trial) -> Store:
        """Return a store in which a trial is like this."""
        trials = {**self.trials, number: trial}
        return Store(trials, max(self.created, number), {**self.users, trial.user: number})

    def without(self, trial_ids: Iterable[str]) -> Store:
        """Return a store without some trials."""
        gone = set(trial_ids)
        return self._replace(trials={n: trial for n, trial in self.trials.items() if trial.trial_id not in gone})


# What may be asked


class AddTrial(NamedTuple):
    """By hand: create a trial, or give it to another user."""

    trial_id: str
    user: str


class BeginLog(NamedTuple):
    """A data log begins: like AddTrial; and a trial that was given up is open again."""

    trial_id: str
    user: str


class AddSample(NamedTuple):
    """By hand: it takes the place of the one of its tick."""

    trial_id: str
    sample: Sample


class LogSample(NamedTuple):
    """From a data log, which may say the same twice."""

    trial_id: str
    sample: Sample


class GiveUp(NamedTuple):
    """A trial whose data log is away too long has ended, unless it has already."""

    trial_id: str


class Delete(NamedTuple):
    """Delete trials, all in one step; those that are not there are passed over."""

    trial_ids: tuple[str, ...]


class Page(NamedTuple):
    """Trials in the order of their creation: those named, or all; after one of an earlier page; at most this many.

    The answer is a tuple of entries.
    """

    trial_ids: tuple[str, ...] = ()
    after: Entry | None = None
    most: int = 0


class Next(NamedTuple):
    """What a reader gets who follows a trial to its end: what comes after a sample, or first (""), at some moment.

    The answer is a text, NOTHING, or NOT_FOUND. A call ends in good order (`Ended`) when there is NOTHING more, and the
    trial had ended at some moment before: what has opened it again meanwhile may still be read.
    """

    trial_id: str
    after: str


class Ended(NamedTuple):
    """Whether a trial has ended. The answer is OK if it has."""

    trial_id: str


class TrialStoreModel(SequentialModel[Store]):
    """The rules."""

    def start(self, key: Hashable) -> Store:
        return Store({}, 0, {})

    def after(self, state: Store, request: Any, answer: Any) -> Iterator[Store]:
        right, states = self._answers(state, request)
        if answer is LOST or answer == right:
            yield from states

    def only_reads(self, request: Any) -> bool:
        return isinstance(request, (Page, Next, Ended))

    def expected(self, state: Store, request: Any) -> object:
        return self._answers(state, request)[0]

    def _answers(self, state: Store, request: Any) -> tuple[object, list[Store]]:
        if isinstance(request, Page):
            return page(state, request), [state]
        if isinstance(request, Next):
            return following(state, request), [state]
        if isinstance(request, Delete):
            return OK, [state.without(request.trial_ids)]
        number = state.find(request.trial_id)
        if isinstance(request, (AddTrial, BeginLog)):
            return OK, [state.put(*begun(state, number, request))]
        if number is None:
            return NOT_FOUND, [state]
        trial = state.trials[number]
        if isinstance(request, Ended):
            return trial.end if trial.end == "open" else OK, [state]
        if isinstance(request, GiveUp):
            return OK, [state.put(number, trial._replace(end="abnormal"))] if trial.end == "open" else [state]
        add = added if isinstance(request, AddSample) else logged
        return OK, [state.put(number, add(trial, request.sample))]


# The rules of each


def begun(state: Store, number: int | None, request: AddTrial | BeginLog) -> tuple[int, Trial]:
    """A trial is created, or has another user."""
    if number is None:
        return state.created + 1, Trial(request.trial_id, request.user)
    trial = state.trials[number]
    opened = isinstance(request, BeginLog) and trial.end == "abnormal"
    return number, trial._replace(user=request.user, end="open" if opened else trial.end)


def added(trial: Trial, sample: Sample) -> Trial:
    """A sample takes the place of the one of its tick, with a position of its own."""
    kept = tuple(one for one in trial.samples if one.tick != sample.tick)
    opens = all(sample.tick >= one.tick for one in trial.samples)
    return stored(trial, kept, sample, opens)


def logged(trial: Trial, sample: Sample) -> Trial:
    """The same time is the same sample; another time is another run: what there is of this tick and later goes."""
    old = next((one for one in trial.samples if one.tick == sample.tick), None)
    if old is not None and old.stamp == sample.stamp:
        return trial._replace(end="ended") if sample.state == ENDED else trial
    kept = trial.samples
    if old is not None:
        kept = tuple(one for one in trial.samples if one.tick < sample.tick)
    return stored(trial, kept, sample, all(sample.tick >= one.tick for one in kept))


def stored(trial: Trial, kept: tuple[Sample, ...], sample: Sample, opens: bool) -> Trial:
    """A new sample is there: the last one ends the trial, and another one that is the highest opens it again."""
    end = "ended" if sample.state == ENDED else "open" if opens else trial.end
    return trial._replace(samples=(*kept, sample), arrived=(*trial.arrived, sample.text), end=end)


def page(state: Store, request: Page) -> tuple[Entry, ...]:
    """Of the trials that were created after the one given."""
    last = 0 if request.after is None else state.users.get(request.after.user, 0)
    found = [
        trial.entry
        for number, trial in sorted(state.trials.items())
        if number > last and (not request.trial_ids or trial.trial_id in request.trial_ids)
    ]
    return tuple(found[: request.most or None])


def following(state: Store, request: Next) -> str:
    """What a reader gets who has read the trial up to a sample."""
    number = state.find(request.trial_id)
    if number is None:
        return NOT_FOUND
    trial = state.trials[number]
    if request.after and request.after not in trial.arrived:
        return NOT_FOUND  # it was deleted, and this is another one
    read = trial.arrived.index(request.after) + 1 if request.after else 0
    there = {sample.text for sample in trial.samples}
    left = [text for text in trial.arrived[read:] if text in there]
    if left:
        return left[0]
    return NOTHING
