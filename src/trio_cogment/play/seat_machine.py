"""The seat of a person as a machine: what happens to it comes in, what is to be done goes out.

`seat_table` says which state follows. Here is what a seat remembers: which page has it, and which tick is asked.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.seat_table import SEAT_TABLE, SeatAction, SeatInput, SeatState


class Outcome(enum.Enum):
    """What happens to a seat when nobody has come back in time, or what is asked was not answered in time."""

    #: The default action is taken.
    DEFAULT = "default"
    #: A bot acts.
    BOT = "bot"
    #: The actor leaves its trial.
    LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRules:
    """How a seat is held.

    Attributes:
        come_seconds: how long the trial waits for somebody to come.
        grace_seconds: for how long the seat is kept for somebody who has gone.
        action_seconds: how long an action may take; infinite: as long as it takes.
        outcome: what happens after that.

    Raises:
        InvalidArgumentError: a time is not positive.
    """

    come_seconds: float = 600.0
    grace_seconds: float = 30.0
    action_seconds: float = math.inf
    outcome: Outcome = Outcome.LOSS

    def __post_init__(self) -> None:
        for name in ("come_seconds", "grace_seconds", "action_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(f"{name}: expected seconds, more than 0; got {getattr(self, name)}")


#: What stands for a page: anything that is equal to itself alone.
PageId: TypeAlias = Hashable


class Timer(enum.Enum):
    """What a seat has timers for."""

    #: For somebody to come, or to come back.
    GRACE = "grace"
    #: For an action.
    ACTION = "action"


@dataclass(frozen=True, slots=True)
class Arm:
    """Begin to count the time; a timer of the same kind that runs is forgotten. It fires with this number."""

    timer: Timer
    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class Disarm:
    """Forget a timer."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Greet:
    """Show a page everything that there is."""

    page: PageId


@dataclass(frozen=True, slots=True)
class Show:
    """Show a page the newest observation."""

    page: PageId


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Tell a page why it does not have the seat any more, or does not get it."""

    page: PageId
    reason: str


@dataclass(frozen=True, slots=True)
class TooLate:
    """Tell a page that its action has not been taken."""

    page: PageId
    tick_id: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send an action to the trial."""

    action: Any


@dataclass(frozen=True, slots=True)
class AskStandIn:
    """Ask the default action, or the bot, for an action for a tick."""

    tick_id: int


@dataclass(frozen=True, slots=True)
class DropStandIn:
    """The bot is not needed any more."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the trial."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The state is another one."""

    state: SeatState


SeatEffect: TypeAlias = (
    Arm | Disarm | Greet | Show | Dismiss | TooLate | Send | AskStandIn | DropStandIn | Leave | Changed
)

TAKEN_OVER = "taken over"
LEFT = "left"
OVER = "over"


class SeatMachine:
    """One seat in one trial. Every method returns what is to be done about what has happened, in this order.

    Attributes:
        state: who sits there.
        page: that has the seat; None if there is none.
        asked: the tick that is to be answered; None if there is none.
    """

    def __init__(self, rules: SeatRules) -> None:
        self._rules = rules
        self.state = SeatState.OPEN
        self.page: PageId | None = None
        self.asked: int | None = None
        self._numbers = {Timer.GRACE: 0, Timer.ACTION: 0}
        self._running: set[Timer] = set()

    def begin(self) -> list[SeatEffect]:
        """Begin: the trial waits for somebody to come."""
        return self._arm(Timer.GRACE, self._rules.come_seconds)

    def attach(self, page: PageId) -> list[SeatEffect]:
        """Have a page come."""
        return self._handle(SeatInput.ATTACH, page)

    def detach(self, page: PageId) -> list[SeatEffect]:
        """Have a page go."""
        return self._handle(SeatInput.DETACH) if page == self.page else []

    def ask(self, tick_id: int) -> list[SeatEffect]:
        """Have the trial ask for an action."""
        self.asked = tick_id
        return self._handle(SeatInput.ASK)

    def show(self) -> list[SeatEffect]:
        """Have the trial show something that needs no action."""
        self.asked = None
        return [*self._disarm(Timer.ACTION), *([Show(self.page)] if self.page is not None else [])]

    def act(self, page: PageId, tick_id: int, action: Any) -> list[SeatEffect]:
        """Have a page act."""
        if page != self.page:
            return []  # it has been told
        if tick_id != self.asked:
            return [TooLate(page, tick_id)]
        return self._handle(SeatInput.ACT, action)

    def stand_in_acts(self, tick_id: int, action: Any) -> list[SeatEffect]:
        """Have the stand-in act."""
        return self._handle(SeatInput.STAND_IN_ACTS, action) if tick_id == self.asked else []

    def stand_in_fails(self) -> list[SeatEffect]:
        """Have the stand-in fail: it will not act any more."""
        return self._handle(SeatInput.STAND_IN_FAILS)

    def resign(self, page: PageId) -> list[SeatEffect]:
        """Have the person give up the seat."""
        return self._handle(SeatInput.RESIGN) if page == self.page else []

    def nobody_comes(self) -> list[SeatEffect]:
        """Have nobody come, if nobody has."""
        return self._handle(SeatInput.GRACE_OVER) if self.state is SeatState.OPEN else []

    def end(self) -> list[SeatEffect]:
        """Have the trial end."""
        return self._handle(SeatInput.END)

    def fire(self, timer: Timer, number: int) -> list[SeatEffect]:
        """Have a timer fire; one that has been forgotten, or armed again, changes nothing."""
        if timer not in self._running or number != self._numbers[timer]:
            return []
        self._running.discard(timer)
        return self._handle(SeatInput.GRACE_OVER if timer is Timer.GRACE else SeatInput.TIME_UP)

    # --- what is done ---

    def _handle(self, happened: SeatInput, detail: Any = None) -> list[SeatEffect]:
        before = self.state
        self.state, action = SEAT_TABLE[before, happened]
        effects = _DOING[action](self, detail)
        if self.state is not before:
            effects.append(Changed(self.state))
        return effects

    def _arm(self, timer: Timer, seconds: float) -> list[SeatEffect]:
        if seconds == math.inf:
            return []
        self._numbers[timer] += 1
        self._running.add(timer)
        return [Arm(timer, seconds, self._numbers[timer])]

    def _disarm(self, timer: Timer) -> list[SeatEffect]:
        if timer not in self._running:
            return []
        self._running.discard(timer)
        return [Disarm(timer)]

    def _drop(self, _detail: Any) -> list[SeatEffect]:
        return []

    def _welcome(self, page: PageId) -> list[SeatEffect]:
        self.page = page
        effects = [*self._disarm(Timer.GRACE), Greet(page)]
        if self.asked is not None and Timer.ACTION not in self._running:
            effects += self._arm(Timer.ACTION, self._rules.action_seconds)
        return effects

    def _take_over(self, page: PageId) -> list[SeatEffect]:
        return [Dismiss(self.page, TAKEN_OVER), *self._welcome(page)]

    def _relieve(self, page: PageId) -> list[SeatEffect]:
        return [DropStandIn(), *self._welcome(page)]

    def _turn_away(self, page: PageId) -> list[SeatEffect]:
        over = self.state is SeatState.OVER
        # The end of a trial is something to see.
        return [*([Greet(page)] if over else []), Dismiss(page, OVER if over else LEFT)]

    def _wait(self, _detail: Any) -> list[SeatEffect]:
        self.page = None
        return self._arm(Timer.GRACE, self._rules.grace_seconds)

    def _show(self, _detail: Any) -> list[SeatEffect]:
        shown: list[SeatEffect] = [Show(self.page)] if self.page is not None else []
        return [*self._arm(Timer.ACTION, self._rules.action_seconds), *shown]

    def _keep(self, _detail: Any) -> list[SeatEffect]:
        return []

    def _stand_in(self, _detail: Any) -> list[SeatEffect]:
        return [] if self.asked is None else [AskStandIn(self.asked)]

    def _send(self, action: Any) -> list[SeatEffect]:
        self.asked = None
        return [*self._disarm(Timer.ACTION), Send(action)]

    def _give_up(self, _detail: Any) -> list[SeatEffect]:
        page, self.page = self.page, None
        told: list[SeatEffect] = [] if page is None else [Dismiss(page, LEFT)]
        if self._rules.outcome is Outcome.LOSS:
            return [*told, *self._leave(None)]
        return [*told, *self._disarm(Timer.GRACE), *self._disarm(Timer.ACTION), *self._stand_in(None)]

    def _answer_for(self, _detail: Any) -> list[SeatEffect]:
        if self._rules.outcome is Outcome.LOSS:
            return self._give_up(None)
        return self._stand_in(None)

    def _leave(self, _detail: Any) -> list[SeatEffect]:
        self.state, self.asked = SeatState.LEFT, None
        return [*self._disarm(Timer.GRACE), *self._disarm(Timer.ACTION), DropStandIn(), Leave()]

    def _finish(self, _detail: Any) -> list[SeatEffect]:
        page, self.page, self.asked = self.page, None, None
        ended: list[SeatEffect] = [*self._disarm(Timer.GRACE), *self._disarm(Timer.ACTION), DropStandIn()]
        return ended if page is None else [*ended, Greet(page), Dismiss(page, OVER)]


_DOING: dict[SeatAction, Callable[[SeatMachine, Any], list[SeatEffect]]] = {
    SeatAction.DROP: SeatMachine._drop,
    SeatAction.WELCOME: SeatMachine._welcome,
    SeatAction.TAKE_OVER: SeatMachine._take_over,
    SeatAction.RELIEVE: SeatMachine._relieve,
    SeatAction.TURN_AWAY: SeatMachine._turn_away,
    SeatAction.WAIT: SeatMachine._wait,
    SeatAction.SHOW: SeatMachine._show,
    SeatAction.KEEP: SeatMachine._keep,
    SeatAction.STAND_IN: SeatMachine._stand_in,
    SeatAction.SEND: SeatMachine._send,
    SeatAction.GIVE_UP: SeatMachine._give_up,
    SeatAction.LEAVE: SeatMachine._leave,
    SeatAction.ANSWER_FOR: SeatMachine._answer_for,
    SeatAction.FINISH: SeatMachine._finish,
}
