"""An experiment as a machine: participants and their pages, groups and their conditions; pure.

`participant_table` has the way of each participant.

What happens goes in with its time, effects come out, and `server` performs them. The machine keeps no timers: each
participant has the time at which the present step is over, `next_deadline` says which of them comes first, and
`pass_time` lets those that are over be over. So the whole state is data, and a server that was stopped goes on where
it was.

Rules that the simulation holds it to: a group is complete, with people who were here when it was made (or with bots,
where the file says so); the numbers of groups in two conditions differ by one at most; nobody waits for longer than the
file says; and whoever is out never holds up anybody.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.experiment.definition import Experiment, PagePlan
from trio_cogment.experiment.participant_table import TABLE, Action, Input, Step

#: For so long at least a group waits for a member whose page is gone, once a server has started again.
RESUME_SECONDS = 60.0

#: The ends of those of whom nothing has to be known: whoever has failed a check, say, does not come again.
_PASSED_BY = ("", "full", "gone", "idle", "left", "unmatched")
_PAGES = (Step.READING, Step.PREPARING, Step.FINISHING)
_IN_GROUP = (Step.PREPARING, Step.READY, Step.PLAYING)


@dataclass(slots=True, kw_only=True)
class Participant:
    """Somebody.

    Attributes:
        id: of the participant.
        number: the first who came is 1.
        step: see `participant_table`.
        end: the name of the end, once they are out; before that `partial` if the group has ended early.
        group: the number of the group; None: there is none yet.
        place: in the group, from 0.
        trial: which one comes next, or is being played.
        page: which one of the present pages is shown.
        failed: how often the checks of this page were failed.
        pages_done: how many pages are done in all.
        here: a page is open.
        deadline: when the present step is over.
        since: when it began.
    """

    id: str
    number: int
    step: Step = Step.READING
    end: str = ""
    group: int | None = None
    place: int | None = None
    trial: int = 0
    page: int = 0
    failed: int = 0
    pages_done: int = 0
    here: bool = True
    deadline: float = math.inf
    since: float = 0.0

    def to_data(self) -> dict[str, Any]:
        """Return what JSON can have."""
        data = asdict(self)
        return {**data, "step": self.step.value, "deadline": None if self.deadline == math.inf else self.deadline}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Participant:
        """Return what `to_data` was made of; nobody is here."""
        deadline = math.inf if data["deadline"] is None else data["deadline"]
        return cls(**{**data, "step": Step(data["step"]), "deadline": deadline, "here": False})


@dataclass(slots=True, kw_only=True)
class Group:
    """People who play together.

    Attributes:
        number: of the group, from 1.
        condition: its name.
        members: ids by place; None: a bot has had it from the beginning, or it was of somebody who is forgotten.
        people: so many of the places are people's, the first ones.
        trial: which one comes next, or is being played.
        playing: a trial is going on.
        over: it is over, and no member is in it any more.
        trial_id: of the trial that is going on, or was when the server stopped; empty: there is none.
        places: who has which of its places; None: a bot does, or nobody.
        absent: the ids of those in whose places others act in it, until they come back.
    """

    number: int
    condition: str
    members: list[str | None]
    people: int
    trial: int = 0
    playing: bool = False
    over: bool = False
    trial_id: str = ""
    places: list[str | None] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        """Whether its trial goes on, as soon as everybody is back."""
        return bool(self.trial_id) and not self.playing

    def to_data(self) -> dict[str, Any]:
        """Return what JSON can have."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Group:
        """Return what `to_data` was made of."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Show:
    """Show somebody where they are."""

    id: str


@dataclass(frozen=True, slots=True)
class StartTrial:
    """Start the group's next trial, or go on with one; then `trial_over`, or `trial_not_resumed`.

    Attributes:
        group: the number of the group.
        trial: which one.
        places: who plays, by place; None: a bot does, or nobody.
        gone: the places that nobody has, where the group goes on with fewer.
        goes_on: the id of the trial that goes on after a restart, with the places that it had; empty: it is a new one.
    """

    group: int
    trial: int
    places: tuple[str | None, ...]
    gone: tuple[int, ...] = ()
    goes_on: str = ""


@dataclass(frozen=True, slots=True)
class EndTrial:
    """End the trial of a group; then `trial_over`, which changes nothing any more."""

    group: int


@dataclass(frozen=True, slots=True)
class GiveUpTrial:
    """A trial that was interrupted does not go on."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class GiveUpSeat:
    """Somebody in a trial has left: the seat is the bot's, or is lost."""

    group: int
    id: str


@dataclass(frozen=True, slots=True)
class Happened:
    """Something to store.

    Attributes:
        id: of the participant; empty: it is about a group.
        what: the kind of event.
        group: the number of the group; None: there is none.
        detail: what JSON can have.
    """

    id: str
    what: str
    group: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forget:
    """Keep nothing of somebody who has come and gone, and has done no page: others need the room."""

    id: str


Effect: TypeAlias = Show | StartTrial | EndTrial | GiveUpTrial | GiveUpSeat | Happened | Forget


class ExperimentMachine:
    """One experiment. Every method that takes `now` returns what is to be done, in this order.

    Args:
        experiment: the file.
        max_participants: who comes then takes the room of who has gone without doing a page; if there is nobody like
            that, it is full.

    Attributes:
        experiment: see above.
        people: participants by their ids, in the order in which they came.
        groups: by their numbers.
        closed: the waiting room was closed.
        changed, changed_groups: the ids and numbers of what is other than at the last `take_changes`.
    """

    def __init__(self, experiment: Experiment, *, max_participants: int = 10_000) -> None:
        self.experiment = experiment
        self.people: dict[str, Participant] = {}
        self.groups: dict[int, Group] = {}
        self.closed = False
        self.changed: set[str] = set()
        self.changed_groups: set[int] = set()
        self._max_participants = max_participants
        # Those who are not out, in the order in which they came: each event looks through these alone.
        self._live: dict[str, Participant] = {}
        self._newest_number = 0

    def add(self, person: Participant) -> None:
        """Know somebody, as a server does that starts again."""
        self.people[person.id] = person
        self._newest_number = max(self._newest_number, person.number)
        if person.step is not Step.OUT:
            self._live[person.id] = person

    # --- what is there ---

    def participant(self, who: str) -> Participant:
        """Return somebody.

        Raises:
            NotFoundError: there is nobody of this id.
        """
        found = self.people.get(who)
        if found is None:
            raise NotFoundError(f"there is no participant {who!r}")
        return found

    def condition_of(self, person: Participant) -> str:
        """Return the name of somebody's condition; empty: there is none yet."""
        return "" if person.group is None else self.groups[person.group].condition

    def pages_of(self, person: Participant) -> list[PagePlan]:
        """Return the pages of the present step."""
        if person.step is Step.READING:
            return list(self.experiment.before)
        trial = len(self.experiment.trials) if person.step is Step.FINISHING else person.trial
        return self.experiment.pages_of(trial, self.condition_of(person))

    def page_of(self, person: Participant) -> PagePlan | None:
        """Return the page that is shown; None: there is none in this step."""
        return self.pages_of(person)[person.page] if person.step in _PAGES else None

    def place_in_trial(self, trial: int, place: int) -> int:
        """Return which of the trial's people a place of a group is, which moves on where roles are swapped."""
        swaps = self.experiment.trials[trial].roles == "swap"
        return (place + trial) % self.experiment.waiting.size if swaps else place

    @property
    def is_full(self) -> bool:
        """There will be no more groups."""
        most = self.experiment.waiting.groups
        return most is not None and len(self.groups) >= most

    def counts(self) -> dict[str, int]:
        """Return how many groups each condition has."""
        found = Counter(group.condition for group in self.groups.values())
        return {condition.name: found[condition.name] for condition in self.experiment.conditions}

    def waiting(self) -> list[Participant]:
        """Return who waits and is here, the longest first."""
        found = [each for each in self._live.values() if each.step is Step.WAITING and each.here]
        return sorted(found, key=lambda each: (each.since, each.number))

    def next_deadline(self) -> float:
        """Return when something is over next; infinite: nothing is."""
        return min((each.deadline for each in self._live.values()), default=math.inf)

    def take_changes(self) -> tuple[list[Participant], list[Group]]:
        """Return what has changed since this was called last: what has to be stored."""
        people = [self.people[who] for who in self.changed if who in self.people]
        groups = [self.groups[number] for number in self.changed_groups]
        self.changed.clear()
        self.changed_groups.clear()
        return people, groups

    # --- what happens to participants ---

    def come(self, who: str, now: float) -> list[Effect]:
        """Have somebody come for the first time.

        Raises:
            InvalidArgumentError: there is somebody of this id already.
        """
        if who in self.people:
            raise InvalidArgumentError(f"there is a participant {who!r} already")
        person = Participant(id=who, number=1 + self._newest_number, since=now)
        effects = self._make_room()
        there_is_room = len(self.people) < self._max_participants
        self.add(person)
        self.changed.add(who)
        effects.append(Happened(who, "came"))
        if self.is_full or self.closed or not there_is_room:
            why = Input.CLOSE if self.closed and there_is_room and not self.is_full else Input.FULL
            return [*effects, *self._happen(person, why, now)]
        effects += self._begin(person, Step.READING, now)
        return [*effects, *self._settle(now)]

    def _make_room(self) -> list[Effect]:
        if len(self.people) < self._max_participants:
            return []
        passers_by = (
            each
            for each in self.people.values()
            if not each.here and not each.pages_done and not each.group and each.end in _PASSED_BY
        )
        gone = next(passers_by, None)
        if gone is None:
            return []
        del self.people[gone.id]
        self._live.pop(gone.id, None)
        self.changed.discard(gone.id)
        return [Forget(gone.id)]

    def attach(self, who: str, now: float) -> list[Effect]:
        """Have a page of somebody be there."""
        return self._one(who, Input.ATTACH, now)

    def detach(self, who: str, now: float) -> list[Effect]:
        """Have it be gone."""
        return self._one(who, Input.DETACH, now)

    def answer(self, who: str, page: str, answers: Mapping[str, Any], agrees: bool, now: float) -> list[Effect]:
        """Have somebody be done with a page.

        Args:
            who: of the participant.
            page: its name; a page that is not shown any more changes nothing.
            answers: those of its questions.
            agrees: to a page of consent.
            now: the time.

        Raises:
            InvalidArgumentError: an answer is missing, or wrong in kind.
        """
        person = self.participant(who)
        plan = self.page_of(person)
        if plan is None or plan.name != page:
            return []
        if plan.kind == "consent" and not agrees:
            return self._one(who, Input.DECLINE, now)
        checked = plan.checked(answers)
        wrong = plan.wrong(checked)
        attempt = person.failed + 1
        effects: list[Effect] = []
        if wrong:
            person.failed = attempt
            self.changed.add(who)
            detail = {"page": page, "wrong": wrong, "attempt": attempt, "answers": checked}
            effects.append(Happened(who, "check failed", person.group, detail))
            if attempt < plan.attempts:
                return [*effects, Show(who)]
        detail = {"page": page, "answers": checked, "attempts": attempt}
        effects.append(Happened(who, "answered", person.group, detail))
        then = Input.FAIL if wrong and plan.failed == "out" else Input.TURN
        return [*effects, *self._one(who, then, now)]

    def way_out(self, who: str, now: float) -> list[Effect]:
        """Have somebody be tired of waiting.

        Raises:
            FailedPreconditionError: the file offers that later.
        """
        person = self.participant(who)
        if person.step is Step.WAITING and now < person.since + self.experiment.waiting.way_out_seconds:
            raise FailedPreconditionError("please wait a little longer")
        return self._one(who, Input.WAY_OUT, now)

    def leave(self, who: str, now: float) -> list[Effect]:
        """Have somebody leave for good."""
        return self._one(who, Input.LEAVE, now)

    # --- what a researcher does ---

    def take_out(self, who: str, now: float) -> list[Effect]:
        """Take somebody out."""
        return self._one(who, Input.TAKE_OUT, now)

    def take_group_out(self, number: int, now: float) -> list[Effect]:
        """End a group early: its members see the pages after the trials.

        Raises:
            NotFoundError: there is no such group.
        """
        group = self.groups.get(number)
        if group is None:
            raise NotFoundError(f"there is no group {number}")
        return [*self._end_group(group, now), *self._settle(now)]

    def close(self, now: float) -> list[Effect]:
        """Close the waiting room: nobody comes any more, and those who are not in a group are let go."""
        self.closed = True
        effects: list[Effect] = [Happened("", "waiting room closed")]
        for person in list(self._live.values()):
            effects += self._happen(person, Input.CLOSE, now)
        return effects

    def reopen(self) -> list[Effect]:
        """Open it again."""
        self.closed = False
        return [Happened("", "waiting room opened")]

    # --- what happens to trials ---

    def trial_started(self, number: int, trial: int, trial_id: str) -> None:
        """Have a trial have an id, by which it is found after a restart."""
        group = self.groups[number]
        if group.playing and group.trial == trial:
            group.trial_id = trial_id
            self.changed_groups.add(number)

    def note_absent(self, number: int, trial: int, who: str, absent: bool) -> None:
        """Have somebody else act in a trial for somebody, or not any more."""
        group = self.groups[number]
        if group.playing and group.trial == trial and absent != (who in group.absent):
            group.absent = [*group.absent, who] if absent else [each for each in group.absent if each != who]
            self.changed_groups.add(number)

    def trial_not_resumed(self, number: int, trial: int, why: str, now: float) -> list[Effect]:
        """Have a trial that was to go on be lost: it is played again.

        Args:
            number: of the group.
            trial: which one; one of before changes nothing.
            why: it cannot go on.
            now: the time.
        """
        group = self.groups[number]
        if group.over or not group.playing or group.trial != trial:
            return []
        detail = {"trial": trial, "trial_id": group.trial_id, "reason": why}
        group.playing = False
        self._drop_trial(group)
        effects: list[Effect] = [Happened("", "trial lost", number, detail)]
        for person in self._members(group):
            effects += self._happen(person, Input.INTERRUPTED, now)
        return [*effects, *self._settle(now)]

    def trial_over(
        self, number: int, trial: int, lost: Iterable[str], now: float, *, failed: bool = False
    ) -> list[Effect]:
        """Have a trial be over.

        Args:
            number: of the group.
            trial: which one; one of before changes nothing.
            lost: the ids of those who were not there any more.
            now: the time.
            failed: it could not be started, or was lost: the group ends early.
        """
        group = self.groups[number]
        if group.over or not group.playing or group.trial != trial:
            return []
        group.playing = False
        self._drop_trial(group)
        effects: list[Effect] = [Happened("", "trial over", number, {"trial": trial, "failed": failed})]
        gone, dropout = set(lost), self.experiment.dropout
        cut_short = bool(gone) and dropout.in_the_trial == "end"
        ends = failed or (cut_short and dropout.then == "end")
        last = group.trial + 1 == len(self.experiment.trials)
        for person in self._members(group):
            # Who stays away from the last one may still come to the pages after it.
            if person.id in gone and (ends or not last or cut_short):
                effects += self._happen(person, Input.LOST, now)
        if ends:
            return [*effects, *self._end_group(group, now), *self._settle(now)]
        if cut_short:
            # `_settle` plays it again, or ends the group if there are too few.
            for person in self._members(group):
                effects += self._happen(person, Input.INTERRUPTED, now)
            return [*effects, *self._settle(now)]
        group.trial += 1
        for person in self._members(group):
            effects += self._happen(person, Input.TRIAL_OVER, now)
        return [*effects, *self._settle(now)]

    def resume(self, now: float, *, stopped_at: float, going_on: Container[str] = ()) -> list[Effect]:
        """Go on after a server was stopped: nobody is here, and trials wait until everybody is, or are played again.

        Args:
            now: the time.
            stopped_at: when the server was heard of last. For that long nobody's time has run.
            going_on: the ids of the trials that can go on.
        """
        effects: list[Effect] = [Happened("", "server started", None, {"stopped_seconds": max(now - stopped_at, 0.0)})]
        for person in self.people.values():
            person.here = False
            person.deadline += max(now - stopped_at, 0.0)
            person.since += max(now - stopped_at, 0.0)
            self.changed.add(person.id)
        for group in self.groups.values():
            if group.playing or group.interrupted:
                effects += self._interrupt(group, going_on)
            for person in self._members(group):
                if person.id not in group.absent:
                    effects += self._happen(person, Input.INTERRUPTED, now)
                self._limit_absence(person, now, max(self.experiment.dropout.grace_seconds, RESUME_SECONDS))
        return [*effects, *self._settle(now)]

    def _interrupt(self, group: Group, going_on: Container[str]) -> list[Effect]:
        """Have the trial of a group be interrupted, or lost."""
        detail: dict[str, Any] = {"trial": group.trial}
        if group.trial_id:
            detail["trial_id"] = group.trial_id
        self.changed_groups.add(group.number)
        was_playing, group.playing = group.playing, False
        if group.trial_id not in going_on:
            self._drop_trial(group)
            return [Happened("", "trial lost", group.number, detail)]
        if all(each.id in group.absent for each in self._members(group)):
            group.absent = []  # the first who is back goes on with it
        return [Happened("", "trial interrupted", group.number, detail)] if was_playing else []

    # --- time ---

    def pass_time(self, now: float) -> list[Effect]:
        """Have all times be over that are."""
        effects: list[Effect] = []
        over = [each for each in self._live.values() if each.deadline <= now]
        for person in sorted(over, key=lambda each: (each.deadline, each.number)):
            if person.deadline > now:
                continue  # another one has changed it
            if person.step is Step.WAITING and person.here and self._may_fill():
                effects += self._form(self.waiting()[: self.experiment.waiting.size], now)
            else:
                effects += self._happen(person, Input.TIME_OVER if person.here else Input.AWAY_OVER, now)
        return [*effects, *self._settle(now)] if effects else []

    def _may_fill(self) -> bool:
        return self.experiment.waiting.shortage == "bots" and not self.is_full and not self.closed

    # --- what is done ---

    def _one(self, who: str, happened: Input, now: float) -> list[Effect]:
        return [*self._happen(self.participant(who), happened, now), *self._settle(now)]

    def _happen(self, person: Participant, happened: Input, now: float) -> list[Effect]:
        action, end = TABLE[person.step, happened]
        if action is Action.DROP:
            return []
        self.changed.add(person.id)
        if action is Action.OUT:
            return self._out(person, end)
        if action is Action.RETURN:
            person.here = True
            self._limit_absence(person, now)
            return [Show(person.id)]
        if action is Action.NOTE_AWAY:
            person.here = False
            self._limit_absence(person, now)
            return []
        if action is Action.TURN:
            person.page += 1
            person.pages_done += 1
            person.failed = 0
            return self._begin_page(person, now)
        if action is Action.PLAY:
            return self._begin(person, Step.PLAYING, now)
        if action is Action.WAIT_AGAIN:
            return self._begin(person, Step.READY, now)
        if action is Action.FINISH_EARLY:
            person.end = "partial"
            return self._begin(person, Step.FINISHING, now)
        if action is Action.NEXT_TRIAL:
            person.trial += 1
        last = person.trial == len(self.experiment.trials)
        return self._begin(person, Step.FINISHING if last else Step.PREPARING, now)

    def _begin(self, person: Participant, step: Step, now: float) -> list[Effect]:
        """Have somebody come to a step, at its first page if it has some."""
        person.step, person.page, person.failed, person.since, person.deadline = step, 0, 0, now, math.inf
        if step in _PAGES:
            return self._begin_page(person, now)
        if step is Step.WAITING:
            person.deadline = now + self.experiment.waiting.seconds
        else:
            self._limit_absence(person, now)
        return [Happened(person.id, step.value, person.group, {"trial": person.trial}), Show(person.id)]

    def _begin_page(self, person: Participant, now: float) -> list[Effect]:
        """Have somebody see a page; behind the last one, come to what follows."""
        pages = self.pages_of(person)
        if person.page < len(pages):
            page = pages[person.page]
            person.since = now
            person.deadline = self._page_deadline(person, page)
            self._limit_absence(person, now)
            return [Happened(person.id, "page", person.group, {"page": page.name}), Show(person.id)]
        if person.step is Step.READING:
            return self._begin(person, Step.WAITING, now)
        if person.step is Step.PREPARING:
            return self._begin(person, Step.READY, now)
        return self._out(person, person.end or "complete")

    def _page_deadline(self, person: Participant, page: PagePlan) -> float:
        return person.since + (self.experiment.page_seconds if page.seconds is None else page.seconds)

    def _limit_absence(self, person: Participant, now: float, grace_seconds: float | None = None) -> None:
        """Set the time of somebody between trials: the group waits for who is away as it does in a trial."""
        grace = self.experiment.dropout.grace_seconds if grace_seconds is None else grace_seconds
        if person.step is Step.READY:
            person.deadline = math.inf if person.here else now + grace
        elif person.step is Step.PREPARING and (page := self.page_of(person)) is not None:
            person.deadline = self._page_deadline(person, page)
            # Who is alone in the group holds up nobody.
            if not person.here and person.group is not None and len(self._members(self.groups[person.group])) > 1:
                person.deadline = min(person.deadline, now + grace)

    def _out(self, person: Participant, end: str) -> list[Effect]:
        before = person.step
        person.step, person.end, person.deadline = Step.OUT, end, math.inf
        self._live.pop(person.id, None)
        effects: list[Effect] = [Happened(person.id, "out", person.group, {"end": end, "from": before.value})]
        if before is Step.PLAYING and person.group is not None:
            effects.append(GiveUpSeat(person.group, person.id))
        return [*effects, Show(person.id)]

    # --- groups ---

    def _members(self, group: Group) -> list[Participant]:
        """Return those who are still in a group."""
        found = [self.people[who] for who in group.members if who is not None]
        return [each for each in found if each.step in _IN_GROUP]

    def _form(self, taken: list[Participant], now: float) -> list[Effect]:
        """Make a group of people; bots have the places that are left."""
        size = self.experiment.waiting.size
        members: list[str | None] = [person.id for person in taken]
        members += [None] * (size - len(taken))
        group = Group(number=len(self.groups) + 1, condition=self._next_condition(), members=members, people=len(taken))
        self.groups[group.number] = group
        self.changed_groups.add(group.number)
        detail = {"condition": group.condition, "bots": size - len(taken)}
        effects: list[Effect] = [Happened("", "group", group.number, detail)]
        for place, person in enumerate(taken):
            person.group, person.place = group.number, place
            effects.append(Happened(person.id, "grouped", group.number, {"place": place, **detail}))
            effects += self._happen(person, Input.GROUP, now)
        return effects

    def _next_condition(self) -> str:
        """Return one of those that have the fewest groups."""
        counts = self.counts()
        fewest = [name for name, count in counts.items() if count == min(counts.values())]
        if self.experiment.assignment == "balanced":
            return fewest[0]
        # From the number alone, so that a server that starts again draws the same.
        return random.Random(f"{self.experiment.seed} {len(self.groups)}").choice(fewest)

    def _end_group(self, group: Group, now: float) -> list[Effect]:
        """Have a group come to an early end."""
        if group.over:
            return []
        effects: list[Effect] = [Happened("", "group ended early", group.number, {"trial": group.trial})]
        effects += self._drop_trial(group)
        for person in self._members(group):
            effects += self._happen(person, Input.GROUP_OVER, now)
        group.over = True
        self.changed_groups.add(group.number)
        return effects

    def _settle(self, now: float) -> list[Effect]:
        """Make the groups that are complete, start the trials that all are ready for, and end what nobody is in."""
        effects: list[Effect] = []
        size = self.experiment.waiting.size
        while not self.is_full and not self.closed and len(taken := self.waiting()[:size]) == size:
            effects += self._form(taken, now)
        for group in self.groups.values():
            if not group.over:
                effects += self._settle_group(group, now)
        if self.is_full:
            for person in list(self._live.values()):
                effects += self._happen(person, Input.FULL, now)
        return effects

    def _drop_trial(self, group: Group) -> list[Effect]:
        """Have a group have no trial; return what ends the one that it has."""
        effects: list[Effect] = []
        if group.playing:
            effects.append(EndTrial(group.number))
        elif group.interrupted:
            effects.append(GiveUpTrial(group.trial_id))
        group.playing, group.trial_id, group.places, group.absent = False, "", [], []
        self.changed_groups.add(group.number)
        return effects

    def _settle_group(self, group: Group, now: float) -> list[Effect]:
        members = self._members(group)
        dropout = self.experiment.dropout
        if not members:
            group.over = True
            return self._drop_trial(group)
        if (dropout.then == "end" and len(members) < group.people) or (
            dropout.then == "fewer" and len(members) < dropout.least
        ):
            return self._end_group(group, now)
        if group.playing:
            return []
        # In the places of these others act: the trial goes on without them, and they may come back into it.
        awaited = [each for each in members if each.id not in group.absent]
        if not awaited:
            return self._end_group(group, now)
        effects: list[Effect] = []
        if group.interrupted and dropout.in_the_trial == "end":
            here = {each.id for each in members}
            if not here.issuperset(who for who in group.places if who is not None):
                # It cannot go on without them: it is played again with who is left.
                lost = {"trial": group.trial, "trial_id": group.trial_id}
                effects.append(Happened("", "trial lost", group.number, lost))
                effects += self._drop_trial(group)
        if not all(each.step is Step.READY and each.here for each in awaited):
            return effects
        return [*effects, *self._start(group, awaited, now)]

    def _start(self, group: Group, ready: list[Participant], now: float) -> list[Effect]:
        """Have those who are ready play, or go on with the trial that was interrupted."""
        dropout, goes_on = self.experiment.dropout, group.trial_id
        group.playing = True
        self.changed_groups.add(group.number)
        if not goes_on:
            there = {each.id for each in ready}
            group.places = [who if who in there else None for who in group.members]
        fewer = dropout.then == "fewer"
        gone = [place for place in range(group.people) if group.places[place] is None] if fewer else []
        effects: list[Effect] = []
        if not goes_on:
            detail = {"trial": group.trial, "people": len(ready)}
            effects.append(Happened("", "trial", group.number, detail))
        for person in ready:
            effects += self._happen(person, Input.PLAY, now)
        start = StartTrial(group.number, group.trial, tuple(group.places), tuple(gone), goes_on)
        return [*effects, start]
