"""A lobby as a machine: people come, wait and go; trials start. `lobby_table` has the way of each of them.

A group's time begins when its first person is ready, and stops when nobody is ready any more. Bots that wait (members
that are `automated`) begin no time, and no trial starts for bots alone.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from trio_cogment.base.config.declarations import Shared, setting
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.records import record
from trio_cogment.play.lobby_table import MEMBER_TABLE, MemberAction, MemberInput, MemberState


class Shortage(enum.Enum):
    """What happens when a group has waited for its time, and is not complete."""

    #: Bots take the other seats.
    BOTS = "bots"
    #: The trial has fewer actors, if those who are there are enough.
    FEWER = "fewer"
    #: There is no trial.
    GIVE_UP = "give up"


@record(kw_only=True)
class LobbyRules:
    """How people wait.

    Raises:
        InvalidArgumentError: a number is out of range.
    """

    seats: int = setting(1, "how many a trial takes", of="lobby")
    fewest: int = setting(
        1, "how many it needs, people and bots that wait, when time is over; with fewer there is no trial", of="lobby"
    )
    wait_seconds: float = setting(300.0, "how long a group waits, once its first person is ready")
    away_seconds: float = setting(30.0, "how long a place is kept for somebody whose page has gone")
    shortage: Shortage = setting(Shortage.GIVE_UP, "what happens when a group is not complete in time")
    most: int = setting(
        1000,
        "how many may wait; others are turned away. Who is here takes the place of who is away",
        shared=Shared(
            "people in a lobby",
            "who is here takes the place of who is away; connections have shares",
            "the page",
            "the way out; `lobby.away_seconds` after the page has gone",
        ),
    )
    most_trials: int = setting(
        500,
        "how many trials there may be at a time; others begin when some have ended",
        shared=Shared(
            "trials of a lobby",
            "as many as there are people who are ready and here",
            "the lobby",
            "nobody is there: at once when nobody comes (`lobby.take_up_seconds`) or all have left, else "
            "`play.empty_seconds` after the grace",
        ),
    )
    take_up_seconds: float = setting(
        5.0, "how long a seat waits for somebody whose page has gone from here, and has not come there"
    )

    def __post_init__(self) -> None:
        for name in ("wait_seconds", "away_seconds", "take_up_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(f"{name}: expected seconds, more than 0; got {getattr(self, name)}")
        if not 1 <= self.fewest <= self.seats <= self.most:
            text = f"got {self.fewest}, {self.seats} and {self.most}"
            raise InvalidArgumentError(f"fewest, seats, most: expected them to be in this order, from 1 on; {text}")
        if self.most_trials < 1:
            raise InvalidArgumentError(f"most_trials: expected 1 or more; got {self.most_trials}")


#: With this many on the way from here to their seats, the next trial waits until some have come there, or have not.
MOST_ON_THE_WAY = 32

#: What stands for a member: anything that is equal to itself alone.
MemberId: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell a member's page where its person is."""

    member: MemberId
    state: MemberState


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Tell a page that there is no room."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class StartTrial:
    """Start a trial with these members, and this many bots; then `started`, or `start_failed`."""

    members: tuple[MemberId, ...]
    bots: int


@dataclass(frozen=True, slots=True)
class Vacate:
    """Have the seat of a member wait no more, unless somebody has taken it."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class ArmAway:
    """Begin to count the time for which a member may be away. It fires with this number."""

    member: MemberId
    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class ArmWait:
    """Begin to count the time of the group. It fires with this number."""

    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class DisarmWait:
    """Nobody waits any more."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Tell everybody who waits how many there are."""

    ready: int
    reading: int
    away: int
    bots: int
    seats: int


LobbyEffect: TypeAlias = Tell | TurnAway | StartTrial | Vacate | ArmAway | ArmWait | DisarmWait | Counts

_AWAY = frozenset({MemberState.READING_AWAY, MemberState.AWAY})
_WAITING = frozenset({MemberState.READING, MemberState.READY, *_AWAY})


@dataclass(slots=True)
class _Member:
    member: MemberId
    automated: bool
    state: MemberState
    number: int = 0  # of the timer
    on_the_way: bool = False  # its page has gone from here, and has not come to the seat
    is_there: bool = False  # somebody has come to the seat


class LobbyMachine:
    """One lobby. Every method returns what is to be done about what has happened, in this order."""

    def __init__(self, rules: LobbyRules) -> None:
        self._rules = rules
        self._members: dict[MemberId, _Member] = {}
        self._waits = False  # the group's time runs
        self._trials = 0  # that have been started, and are not over
        self._on_the_way = 0
        self._number = 0
        self._told = Counts(0, 0, 0, 0, rules.seats)

    def state_of(self, member: MemberId) -> MemberState | None:
        """Return where somebody is; None: nobody of this name has come, or it is long ago."""
        found = self._members.get(member)
        return None if found is None else found.state

    @property
    def waiting(self) -> int:
        """How many wait for a trial, those who read what it says before included."""
        return sum(each.state in _WAITING for each in self._members.values())

    def come(self, member: MemberId, *, automated: bool = False) -> list[LobbyEffect]:
        """Have somebody come who has not been here before; a bot is ready at once."""
        waiting = [each for each in self._members.values() if each.state in _WAITING]
        gone: list[LobbyEffect] = []
        if len(waiting) >= self._rules.most:
            away = next((each for each in waiting if each.state in _AWAY), None)
            if away is None:
                return [TurnAway(member)]
            gone = self._moved(away, MemberInput.AWAY_OVER)
        self._forget()
        state = MemberState.READY if automated else MemberState.READING
        self._members[member] = _Member(member, automated, state)
        return [*gone, Tell(member, state), *self._settled()]

    def ready(self, member: MemberId) -> list[LobbyEffect]:
        """Have somebody say that they are ready."""
        return self._one(member, MemberInput.READY)

    def attach(self, member: MemberId) -> list[LobbyEffect]:
        """Have somebody's page come back."""
        return self._one(member, MemberInput.ATTACH)

    def detach(self, member: MemberId) -> list[LobbyEffect]:
        """Have somebody's page go."""
        return self._one(member, MemberInput.DETACH)

    def leave(self, member: MemberId) -> list[LobbyEffect]:
        """Have somebody take the way out."""
        return self._one(member, MemberInput.LEAVE)

    def taken(self, member: MemberId) -> list[LobbyEffect]:
        """Have somebody come to the seat."""
        found = self._members.get(member)
        if found is None:
            return []
        found.is_there = True
        self._note_way(found, False)
        return self._settled()

    def away_over(self, member: MemberId, number: int) -> list[LobbyEffect]:
        """Have the time be over for which somebody may be away; a timer of before changes nothing."""
        found = self._members.get(member)
        return self._one(member, MemberInput.AWAY_OVER) if found is not None and found.number == number else []

    def wait_over(self, number: int) -> list[LobbyEffect]:
        """Have the time of a group be over; that of one before changes nothing."""
        if not self._waits or number != self._number:
            return []
        self._waits = False
        if not self._has_room():
            return self._settled()  # it goes on waiting
        taken = self._takes()
        if self._rules.shortage is Shortage.BOTS:
            effects = self._start(taken, bots=self._rules.seats - len(taken))
        elif self._rules.shortage is Shortage.FEWER and len(taken) >= self._rules.fewest:
            effects = self._start(taken, bots=0)
        else:
            effects = [effect for each in self._ready() for effect in self._moved(each, MemberInput.WAIT_OVER)]
        return [*effects, *self._settled()]

    def start_failed(self, members: tuple[MemberId, ...]) -> list[LobbyEffect]:
        """Have a trial not start."""
        self._trials -= 1
        return self._several(members, MemberInput.START_FAILED)

    def trial_over(self, members: tuple[MemberId, ...]) -> list[LobbyEffect]:
        """Have a trial end."""
        self._trials -= 1
        return self._several(members, MemberInput.TRIAL_OVER)

    # --- what is done ---

    def _one(self, member: MemberId, happened: MemberInput) -> list[LobbyEffect]:
        return self._several((member,), happened)

    def _several(self, members: tuple[MemberId, ...], happened: MemberInput) -> list[LobbyEffect]:
        found = [self._members[each] for each in members if each in self._members]
        return [*(effect for each in found for effect in self._moved(each, happened)), *self._settled()]

    def _has_room(self) -> bool:
        return self._trials < self._rules.most_trials and self._on_the_way < MOST_ON_THE_WAY

    def _note_way(self, member: _Member, on_the_way: bool) -> None:
        self._on_the_way += on_the_way - member.on_the_way
        member.on_the_way = on_the_way

    def _moved(self, member: _Member, happened: MemberInput) -> list[LobbyEffect]:
        member.state, action = MEMBER_TABLE[member.state, happened]
        if happened is MemberInput.SEAT:
            member.is_there = False
        seated = member.state is MemberState.SEATED
        self._note_way(member, seated and action is MemberAction.KEEP_PLACE and not member.is_there)
        if action is MemberAction.DROP:
            return []
        if action is MemberAction.KEEP_PLACE:
            member.number += 1
            rules = self._rules
            seconds = rules.take_up_seconds if seated else rules.away_seconds
            return [ArmAway(member.member, seconds, member.number)]
        if action is MemberAction.VACATE:
            return [Vacate(member.member), Tell(member.member, member.state)]
        if action is MemberAction.RETURN:
            member.number += 1  # the timer that runs is that of before
        return [Tell(member.member, member.state)]

    def _ready(self, *, automated: bool = False) -> list[_Member]:
        waiting = self._members.values()
        return [each for each in waiting if each.state is MemberState.READY and each.automated is automated]

    def _takes(self) -> list[_Member]:
        """Return who would be in a trial that starts now: people before bots, and in the order in which they came."""
        return [*self._ready(), *self._ready(automated=True)][: self._rules.seats]

    def _start(self, taken: list[_Member], bots: int) -> list[LobbyEffect]:
        self._trials += 1
        seated = [effect for each in taken for effect in self._moved(each, MemberInput.SEAT)]
        return [StartTrial(tuple(each.member for each in taken), bots), *seated]

    def _settled(self) -> list[LobbyEffect]:
        """Start the trials that are complete, and see to the group's time."""
        effects: list[LobbyEffect] = []
        while self._has_room() and self._ready() and len(taken := self._takes()) == self._rules.seats:
            effects += self._start(taken, bots=0)
            if self._waits:
                self._waits = False
                effects.append(DisarmWait())
        if self._ready() and not self._waits:
            self._waits = True
            self._number += 1
            effects.append(ArmWait(self._rules.wait_seconds, self._number))
        elif self._waits and not self._ready():
            self._waits = False
            effects.append(DisarmWait())
        counts = self._current_counts()
        if counts != self._told or effects:
            self._told = counts
            effects.append(counts)
        return effects

    def _current_counts(self) -> Counts:
        states = [each.state for each in self._members.values() if not each.automated]
        away = states.count(MemberState.AWAY) + states.count(MemberState.READING_AWAY)
        return Counts(
            states.count(MemberState.READY),
            states.count(MemberState.READING),
            away,
            len(self._ready(automated=True)),
            self._rules.seats,
        )

    def _forget(self) -> None:
        """Forget who came first of those who do not wait and do not play, if there are too many."""
        gone = (MemberState.TIMED_OUT, MemberState.LEFT, MemberState.FAILED, MemberState.PLAYED)
        past = [each.member for each in self._members.values() if each.state in gone]
        for member in past[: max(len(past) - self._rules.most + 1, 0)]:
            del self._members[member]
