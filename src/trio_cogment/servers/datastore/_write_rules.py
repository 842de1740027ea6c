"""The rules of writes, the same for every storage: tables and functions without I/O.

The sample of a tick is of one of four kinds, seen from a new one: there is none (NOTHING); out-of-sync samples wait
for it (WAITING); it is the same sample, by its timestamp (SAME); it is another one (OTHER). A storage finds out which,
looks up what `RULES` says, does that to its rows, and lets the trial's `Head` follow.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.servers.datastore.storage import (
    ELSEWHERE,
    RELEASED,
    EndWrite,
    ReplacedAttempt,
    SampleWrite,
    StoredTrial,
    TrialEnd,
    TrialWrite,
    Write,
    WriteKind,
    reached_at,
)

#: What a signed 64-bit integer holds: ticks and timestamps are stored as such.
MAX_NUMBER = (1 << 63) - 1
NO_TICK = -1


class Found(enum.Enum):
    """What the tick of a new sample has already."""

    NOTHING = enum.auto()
    WAITING = enum.auto()
    SAME = enum.auto()
    OTHER = enum.auto()

    @classmethod
    def of(cls, waiting: bool, same: bool) -> Found:
        """Return what a tick has that has a sample, by whether that waits and whether its timestamp is the same."""
        if waiting:
            return cls.WAITING
        return cls.SAME if same else cls.OTHER


class Action(enum.Enum):
    """What becomes of a new sample."""

    #: It is the tick's first.
    ADD = enum.auto()
    #: It waits for the tick's sample: stored as `_merging.begin_waiting` makes it, and marked.
    WAIT = enum.auto()
    #: Those that waited are merged into it; it takes their place, with a position of its own.
    COMPLETE = enum.auto()
    #: It is merged into the one that is there, which keeps position, timestamp and mark.
    MERGE = enum.auto()
    #: It is there already.
    KEEP = enum.auto()
    #: It takes the place of the one that is there, with a position of its own.
    REPLACE = enum.auto()
    #: The tick's sample and those of all later ticks are removed, then it is added.
    RERUN = enum.auto()


RULES: dict[tuple[WriteKind, Found], Action] = {
    (WriteKind.LOGGED, Found.NOTHING): Action.ADD,
    (WriteKind.LOGGED, Found.WAITING): Action.COMPLETE,
    (WriteKind.LOGGED, Found.SAME): Action.KEEP,
    (WriteKind.LOGGED, Found.OTHER): Action.RERUN,
    (WriteKind.STORED, Found.NOTHING): Action.ADD,
    (WriteKind.STORED, Found.WAITING): Action.REPLACE,
    (WriteKind.STORED, Found.SAME): Action.REPLACE,
    (WriteKind.STORED, Found.OTHER): Action.REPLACE,
    (WriteKind.LATE, Found.NOTHING): Action.WAIT,
    (WriteKind.LATE, Found.WAITING): Action.MERGE,
    (WriteKind.LATE, Found.SAME): Action.MERGE,
    (WriteKind.LATE, Found.OTHER): Action.MERGE,
}

# Names of their own: looking into the enumerations takes longer than all else in `grow`.
_OPEN, _ENDED, _ENDED_STATE = TrialEnd.OPEN, TrialEnd.ENDED, TrialState.ENDED

NO_SUCH_TRIAL = "no such trial: {!r}"


class Standing(enum.Enum):
    """The attempt that a write says, seen from the one that the trial has."""

    #: It says none.
    NONE = enum.auto()
    BEFORE = enum.auto()
    SAME = enum.auto()
    NEXT = enum.auto()
    #: Beyond the next one: somebody else has created the trial anew.
    BEYOND = enum.auto()

    @classmethod
    def of(cls, said: int, has: int) -> Standing:
        """Return how the attempt that is said stands to the one that there is."""
        if not said:
            return cls.NONE
        if said <= has:
            return cls.SAME if said == has else cls.BEFORE
        return cls.NEXT if said == has + 1 else cls.BEYOND


class Fate(enum.Enum):
    """What becomes of a `TrialWrite`, by its attempt."""

    #: It is done, unless the id is taken.
    BEGIN = enum.auto()
    #: It is done, whoever has the id.
    TAKE_OVER = enum.auto()
    #: Another attempt has the trial.
    REPLACED = enum.auto()
    #: It cannot be gone on with.
    ENDED = enum.auto()


_NOT_OVER = (TrialEnd.OPEN, TrialEnd.ABNORMAL)

#: By standing, the end of the trial that is stored, and whether it is to be taken over. Whoever takes a trial over has
#: read which attempt there was: of several who have, one says the next number first.
ATTEMPTS: dict[tuple[Standing, TrialEnd, bool], Fate] = {
    **{(standing, end, over): Fate.REPLACED for standing in Standing for end in TrialEnd for over in (False, True)},
    **{(Standing.NONE, end, False): Fate.BEGIN for end in TrialEnd},
    **{(Standing.SAME, end, False): Fate.BEGIN for end in TrialEnd},
    **{(Standing.NEXT, end, False): Fate.BEGIN for end in TrialEnd},
    **{(Standing.NEXT, end, True): Fate.TAKE_OVER for end in _NOT_OVER},
    (Standing.NEXT, TrialEnd.ENDED, True): Fate.ENDED,
}


def absent(write: TrialWrite) -> str | None:
    """Return why a trial cannot be created; None: it can. What is to be taken over has to be there."""
    return ReplacedAttempt(NO_SUCH_TRIAL.format(write.trial_id)) if write.takes_over else None


def taken(write: TrialWrite, end: TrialEnd, endpoint: str, attempt: int) -> str | None:
    """Return why a trial cannot be written under its id; None: it can.

    The first data log that writes a trial reserves its id for its orchestrator, until the trial has ended. So of two
    orchestrators that begin a trial with the same id at once, only one does. One that goes on with it takes it over.

    Args:
        write: the trial.
        end: of the one that is stored.
        endpoint: of its orchestrator.
        attempt: that it has.
    """
    standing = Standing.of(write.attempt, attempt)
    fate = ATTEMPTS[standing, end, write.takes_over]
    if fate is Fate.REPLACED:
        return _not_its_own(write, attempt)
    if fate is Fate.ENDED:
        return ReplacedAttempt(f"trial {write.trial_id!r}: it has ended, and cannot be gone on with")
    if fate is Fate.TAKE_OVER and write.endpoint.startswith(ELSEWHERE) and endpoint not in (RELEASED, write.endpoint):
        # It was released when that one was told of it, and its data log has come back since.
        return ReplacedAttempt(f"trial {write.trial_id!r}: its orchestrator has it still")
    has, says = reached_at(endpoint), reached_at(write.endpoint)
    if fate is Fate.BEGIN and end is TrialEnd.OPEN and says:
        # One that was released because its data log was away too long has it still, until somebody takes it over.
        if endpoint == RELEASED and standing is not Standing.SAME:
            return f"trial {write.trial_id!r}: its id is taken by a trial that another orchestrator will go on with"
        if has and has != says:
            return f"trial {write.trial_id!r}: its id is taken by a trial that the orchestrator at {has} runs"
    return None


def replaced(write: Write, attempt: int) -> ReplacedAttempt | None:
    """Return why a write is refused that says another attempt than its trial has; None: it says that one, or none."""
    return None if not write.attempt or write.attempt == attempt else _not_its_own(write, attempt)


def _not_its_own(write: Write, attempt: int) -> ReplacedAttempt:
    text = f"trial {write.trial_id!r}: attempt {write.attempt} may not write it, it is at attempt {attempt}"
    return ReplacedAttempt(text)


def is_deleted(number: int, end: TrialEnd, numbers: Collection[int] | None, *, ended: bool) -> bool:
    """Return whether a trial is deleted that `TrialStore.delete` was asked to delete; `numbers` and `ended` are its."""
    return (numbers is None or number in numbers) and not (ended and end is TrialEnd.OPEN)


def refusal(write: SampleWrite) -> str | None:
    """Return why a sample cannot be stored, whatever the state of its trial; None: it can."""
    if not 0 <= write.tick_id <= MAX_NUMBER:
        return f"tick_id: expected at most {MAX_NUMBER}, got {write.tick_id}"
    if not 0 <= write.timestamp <= MAX_NUMBER:
        return f"timestamp: expected at most {MAX_NUMBER} ns since the epoch, got {write.timestamp}"
    return None


@dataclass(slots=True)
class Head:
    """What changes about a trial as samples come.

    Attributes:
        number: of the trial.
        end: whether more samples are to come.
        count: how many ticks have a sample.
        high_tick: the highest tick with a sample that is not waiting; `NO_TICK` without one.
        state: the state in that sample.
        bytes: what the trial counts against its owner's quota; for storages that keep it here.
        raw_bytes: what its samples had as serialized messages; likewise.
        attempt: which run of the trial writes it.
    """

    number: int
    end: TrialEnd = TrialEnd.OPEN
    count: int = 0
    high_tick: int = NO_TICK
    state: int = TrialState.UNKNOWN
    bytes: int = 0
    raw_bytes: int = 0
    attempt: int = 0

    def describe(self, write: TrialWrite) -> None:
        """Take note of a `TrialWrite` that was not refused."""
        self.attempt = write.attempt or self.attempt
        if write.takes_over:
            self.end = _OPEN

    @property
    def last_state(self) -> int:
        """What readers are told: see `StoredTrial.last_state`."""
        return self.state if self.end == TrialEnd.OPEN else TrialState.ENDED

    def grow(self, tick_id: int, state: int, count: int = 1) -> None:
        """Take note of a new sample, not LATE, above all others, or of the last of several: what `follow` comes to."""
        self.count += count
        self.high_tick = tick_id
        self.state = state
        self.end = _ENDED if state == _ENDED_STATE else _OPEN

    def follow(self, write: SampleWrite, action: Action) -> None:
        """Take note of a sample that was written, after what had to be removed is off the count."""
        if action in (Action.ADD, Action.WAIT, Action.COMPLETE, Action.REPLACE, Action.RERUN):
            self.count += 1
        if write.kind == WriteKind.LATE:
            return
        if action is Action.RERUN:
            self.high_tick = write.tick_id
        if action is not Action.KEEP and write.tick_id >= self.high_tick:
            self.high_tick, self.state, self.end = write.tick_id, write.state, TrialEnd.OPEN
        if write.state == _ENDED_STATE:
            self.end = TrialEnd.ENDED

    def finish(self, write: EndWrite) -> None:
        """Take note of an end, which only an open trial has, or of a reopening."""
        if write.end == TrialEnd.OPEN or self.end == TrialEnd.OPEN:
            self.end = write.end


def stored_trial(row: Sequence[Any], text: Callable[[str], str] = str) -> StoredTrial:
    """Return a trial of what every database keeps of it.

    Args:
        row: its columns, in the order of the names below.
        text: returns a text as it was, from what is kept of it.
    """
    (
        number, trial_id, user_id, params, count, state, ending, logged, outcome, owner, endpoint, size, raw_bytes,
        attempt,
    ) = row  # fmt: skip
    head = Head(number, TrialEnd(ending), count, state=state)
    return StoredTrial(
        number=number,
        trial_id=text(trial_id),
        user_id=text(user_id),
        params=TrialParams.FromString(params),
        samples_count=count,
        last_state=head.last_state,
        end=head.end,
        logged=bool(logged),
        outcome=outcome,
        owner=text(owner),
        endpoint=endpoint,
        stored_bytes=size,
        raw_bytes=raw_bytes,
        attempt=attempt,
    )
