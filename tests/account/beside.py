"""The account beside a trial's machine: the same inputs for both, and what comes of them compared, whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from difflib import ndiff
from typing import Any

from google.protobuf.message import Message as AnyMessage

from tests.account.account import Account, ImpossibleError, Patience
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.base.shared_message import SharedSample
from trio_cogment.trial import (
    Announce,
    Begin,
    Close,
    Connect,
    Effect,
    EmitSample,
    Event,
    HalfClosed,
    HardEnd,
    Joined,
    Lost,
    ParametersComplete,
    Received,
    Send,
    SoftEnd,
    TimerFired,
    TrialMachine,
    TrialRules,
    unbatched,
)

#: How much of what led to a difference is shown.
SHOWN = 24
#: And of each message.
MOST_OF_A_LINE = 300

Seen = tuple[str, int, Any]


class DiffersError(AssertionError):
    """A trial was not as the account says; the text has what was expected, what was seen, and what led there."""


class Beside:
    """A machine and its account.

    Args:
        machine: the one that is looked at.
        handle: feeds it.

    Attributes:
        difference: the first, as a text; empty while there is none.
        account: says what is right.
        expected: everything that the account has said, for those who look at what arrived.
    """

    def __init__(self, machine: TrialMachine, handle: Callable[[Event, float, int], list[Effect]]) -> None:
        self.machine = machine
        self._handle = handle
        self.account = Account(Patience(**asdict(machine.rules)))
        self.difference = ""
        self.expected: list[Seen] = []
        self._recent: deque[tuple[float, Event]] = deque(maxlen=SHOWN)

    def handle(self, event: Event, now: float, wall_ns: int) -> list[Effect]:
        """Feed both; after a difference only the machine, as what follows would differ because of it."""
        if self.difference:
            return self._handle(event, now, wall_ns)
        self._recent.append((now, event))
        refused = False
        account = self.account
        account.at(now, wall_ns)
        try:
            _TELL[type(event)](account, event, self.machine)
        except ImpossibleError:
            refused = True
        try:
            effects = self._handle(event, now, wall_ns)
        except LocalProtocolError:
            if not refused:
                self._differs("that this is possible", "that it is refused")
            raise
        except Exception as error:
            self._differs("an answer", f"{type(error).__name__}: {error}")
            raise
        if refused:
            self._differs("that this is refused", f"{len(effects)} effects")
        else:
            self._compare([seen for seen in map(_seen, unbatched(effects)) if seen is not None])
        return effects

    def _compare(self, seen: list[Seen]) -> None:
        account, machine = self.account, self.machine
        self.expected.extend(account.seen)
        for problem in account.wrong:
            self._differs("every deadline at its time", problem)
        for number, (ours, theirs) in enumerate(zip(account.seen, seen, strict=False)):
            if not _same(ours, theirs):
                where = f"(number {number + 1} of what follows from the last input)"
                self._differs(shown(ours), shown(theirs) + _fields(ours[2], theirs[2]), where)
                return
        count = min(len(account.seen), len(seen))
        if len(account.seen) != len(seen):
            self._differs(
                "\n".join(map(shown, account.seen[count:])) or "nothing more",
                "\n".join(map(shown, seen[count:])) or "nothing more",
            )
        elif (account.state, account.tick) != (machine.state, machine.tick_id):
            self._differs(
                f"{TrialState.Name(account.state)} and tick {account.tick}",
                f"{TrialState.Name(machine.state)} and tick {machine.tick_id}",
            )
        elif (told := (account.missed, account.late, account.absent)) != (
            counted := (machine.missed_ticks, machine.late_actions, machine.absent_actions)
        ):
            self._differs(f"missed, late, absent: {told}", str(counted))
        elif machine.outcome is not None and machine.outcome.message(tracebacks=True) != account.outcome:
            self._differs(str(account.outcome), str(machine.outcome.message(tracebacks=True)))

    def _differs(self, expected: str, seen: str, where: str = "") -> None:
        led = "\n".join(f"  {now:.6f} {_line(event)}" for now, event in self._recent)
        text = f"trial {self.machine.trial_id} is not as its account says {where}"
        self.difference = self.difference or f"{text}\nexpected: {expected}\nseen:     {seen}\nled there:\n{led}"

    def check(self) -> None:
        """Raise DiffersError if there was a difference."""
        if self.difference:
            raise DiffersError(self.difference)


class AccountedMachine(TrialMachine):
    """A machine with its account beside it, for an orchestrator (`make_machine`)."""

    __slots__ = ("beside",)

    def __init__(self, trial_id: str, *, rules: TrialRules) -> None:
        super().__init__(trial_id, rules=rules)
        self.beside = Beside(self, super().handle)

    def handle(self, event: Event, now: float, wall_ns: int) -> list[Effect]:
        """See `TrialMachine.handle`."""
        return self.beside.handle(event, now, wall_ns)


def _copy(message: Any) -> Any:
    # Theirs may be changed by whoever has it.
    if message is None:
        return None
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


_TELL: dict[type[Any], Callable[[Account, Any, TrialMachine], None]] = {
    Begin: lambda account, _event, _machine: account.begun(),
    ParametersComplete: lambda account, event, machine: account.complete(
        event.params, event.taken_up, trial_id=machine.trial_id, logged=machine.collect_samples
    ),
    Joined: lambda account, event, _machine: account.joined(event.participant),
    Received: lambda account, event, _machine: account.said(event.participant, _copy(event.message)),
    HalfClosed: lambda account, event, _machine: account.stopped_sending(event.participant),
    Lost: lambda account, event, _machine: account.gone(event.participant, event.reason, event.cause, event.traceback),
    TimerFired: lambda account, event, _machine: account.time_over(event.timer.kind.name, event.timer.participant),
    SoftEnd: lambda account, _event, _machine: account.soft_end(),
    HardEnd: lambda account, event, _machine: account.hard_end(event.details, event.cause),
}


def _seen(effect: Effect) -> Seen | None:
    """Return what somebody sees of an effect; None of timers and notes."""
    if isinstance(effect, Send):
        return "message", effect.participant, effect.message
    if isinstance(effect, Connect):
        return "contact", effect.participant, None
    if isinstance(effect, Close):
        return "hang up", effect.participant, effect.error is not None
    if isinstance(effect, EmitSample):
        sample = effect.sample
        return "sample", 0, sample.whole() if isinstance(sample, SharedSample) else sample
    if isinstance(effect, Announce):
        return "state", 0, effect.state
    return None


def _same(ours: Seen, theirs: Seen) -> bool:
    if ours[:2] != theirs[:2]:
        return False
    return same_detail(ours[2], theirs[2])


def same_detail(ours: Any, theirs: Any) -> bool:
    """Tell whether two details are the same, field by field."""
    if isinstance(ours, AnyMessage) and isinstance(theirs, AnyMessage):
        # As bytes: a NaN is no NaN's equal.
        return ours == theirs or ours.SerializeToString(deterministic=True) == theirs.SerializeToString(
            deterministic=True
        )
    return bool(ours == theirs)


def _fields(ours: Any, theirs: Any) -> str:
    """Return the lines in which two messages differ, if they are messages."""
    if not (isinstance(ours, AnyMessage) and isinstance(theirs, AnyMessage)):
        return ""
    lines = [line for line in ndiff(str(ours).splitlines(), str(theirs).splitlines()) if line[:1] in "+-"]
    return "".join(f"\n  {line}" for line in lines[:SHOWN])


def shown(seen: Seen) -> str:
    """Return something that was seen on one line."""
    what, who, detail = seen
    if what == "state":
        return f"state {TrialState.Name(detail)}"
    return f"{what} {'to' if what == 'message' else 'of'} {who}: {_line(detail)}"


def _line(anything: Any) -> str:
    if isinstance(anything, Received):
        return f"{anything.participant} says {_line(anything.message)}"
    text = " ".join(str(anything).split())
    return text if len(text) <= MOST_OF_A_LINE else f"{text[:MOST_OF_A_LINE]}..."
