"""The presence of a person at a seat, as a table: there, away or absent, and how long others wait for each.

Rule 1: every change of it is in this file. This file knows no trial, no time and no Trio, and of a page only that it is
equal to itself. Time comes in as `GRACE_OVER` and `TIME_UP`.

Rule 2: what the trial asks, and which action answers it, is the mailbox's business. Here is who may act.

Theory of operation: a server holds the seat for the whole trial; pages come and go. The seat is OPEN until the first
page attaches, HELD while one is there, AWAY from when the last one has gone until the grace is over, and ABSENT after
that: then a substitute acts (the default action, or a bot), until a page comes back. Where the seat is to be lost
instead (`Outcome.LOSS`), it is LEFT: the actor has left its trial, and nobody can come back. OVER is the end of the
trial. It is a state because whoever opens a link after the end is told of it, and not of somebody who has left.

At most one page has the seat. The newest one does: whoever opens the link a second time wants to go on there. The other
one is told. So `page` is set in HELD and in no other state.

Two times may run, and whoever holds the seat counts them. The *grace* runs in OPEN and in AWAY. The time for an
*action* runs from when somebody is shown what is asked; it goes on in AWAY, because others should not wait for a page
that is being loaded again, and it does not begin in OPEN, where the trial waits anyway.

Where the table falls short: it has the states of a seat with a substitute. Where the seat is to be lost, nothing
substitutes, and `SUBSTITUTE` is LEAVE, to the state LEFT; so ABSENT is not reached.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

from trio_cogment.base.errors import InvalidArgumentError


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


class PresenceState(enum.Enum):
    """Where the person is. Pages are told the values."""

    #: Nobody has come yet.
    OPEN = "open"
    HELD = "held"
    #: The page is gone, and may come back in time.
    AWAY = "away"
    #: The grace is over, or the person has given up the seat; a substitute acts until a page comes.
    ABSENT = "absent"
    #: The actor has left the trial.
    LEFT = "left"
    OVER = "over"


class PresenceInput(enum.IntEnum):
    """What can happen."""

    #: A page comes.
    ATTACH = enum.auto()
    #: The page that has the seat goes.
    DETACH = enum.auto()
    #: The trial asks for an action.
    TURN = enum.auto()
    #: What is asked has not been answered in time.
    TIME_UP = enum.auto()
    #: Nobody has come, or come back, in time.
    GRACE_OVER = enum.auto()
    #: The person gives up the seat.
    RESIGN = enum.auto()
    #: There is no substitute any more.
    SUBSTITUTE_FAILS = enum.auto()
    #: The trial has ended.
    END = enum.auto()


class Then(enum.IntEnum):
    """What is to be done about it."""

    #: Nothing: it came too late to matter, or waits for somebody to come.
    NOTHING = enum.auto()
    #: The page is shown everything, the grace ends, and the time for what is asked begins unless it runs.
    WELCOME = enum.auto()
    #: The same, and the page before it is told.
    TAKE_OVER = enum.auto()
    #: As WELCOME, and the substitute goes.
    RELIEVE = enum.auto()
    #: The page is told that there is nothing to do here any more.
    TURN_AWAY = enum.auto()
    #: The grace begins.
    WAIT = enum.auto()
    #: The page, if there is one, is shown what is asked, and the time for it begins.
    SHOW = enum.auto()
    #: The substitute is asked, if anything is. If nobody is there any more: the page is told, and both times end.
    SUBSTITUTE = enum.auto()
    #: The actor leaves its trial: the page is told, both times end, and the substitute goes.
    LEAVE = enum.auto()
    #: The page is shown the end and told, both times end, and the substitute goes.
    FINISH = enum.auto()


#: States in which nobody is there, nor has time to come.
VACANT: Final = frozenset([PresenceState.ABSENT, PresenceState.LEFT, PresenceState.OVER])

_S, _I, _T = PresenceState, PresenceInput, Then

TABLE: Final[dict[tuple[PresenceState, PresenceInput], tuple[PresenceState, Then]]] = {
    (_S.OPEN, _I.ATTACH): (_S.HELD, _T.WELCOME),
    (_S.OPEN, _I.DETACH): (_S.OPEN, _T.NOTHING),
    (_S.OPEN, _I.TURN): (_S.OPEN, _T.NOTHING),
    (_S.OPEN, _I.TIME_UP): (_S.OPEN, _T.NOTHING),
    (_S.OPEN, _I.GRACE_OVER): (_S.ABSENT, _T.SUBSTITUTE),
    (_S.OPEN, _I.RESIGN): (_S.OPEN, _T.NOTHING),
    (_S.OPEN, _I.SUBSTITUTE_FAILS): (_S.OPEN, _T.NOTHING),
    (_S.OPEN, _I.END): (_S.OVER, _T.FINISH),
    (_S.HELD, _I.ATTACH): (_S.HELD, _T.TAKE_OVER),
    (_S.HELD, _I.DETACH): (_S.AWAY, _T.WAIT),
    (_S.HELD, _I.TURN): (_S.HELD, _T.SHOW),
    (_S.HELD, _I.TIME_UP): (_S.HELD, _T.SUBSTITUTE),
    (_S.HELD, _I.GRACE_OVER): (_S.HELD, _T.NOTHING),
    (_S.HELD, _I.RESIGN): (_S.ABSENT, _T.SUBSTITUTE),
    # It had one action to take, and the person is there.
    (_S.HELD, _I.SUBSTITUTE_FAILS): (_S.HELD, _T.NOTHING),
    (_S.HELD, _I.END): (_S.OVER, _T.FINISH),
    (_S.AWAY, _I.ATTACH): (_S.HELD, _T.WELCOME),
    (_S.AWAY, _I.DETACH): (_S.AWAY, _T.NOTHING),
    (_S.AWAY, _I.TURN): (_S.AWAY, _T.SHOW),
    (_S.AWAY, _I.TIME_UP): (_S.AWAY, _T.SUBSTITUTE),
    (_S.AWAY, _I.GRACE_OVER): (_S.ABSENT, _T.SUBSTITUTE),
    (_S.AWAY, _I.RESIGN): (_S.AWAY, _T.NOTHING),
    (_S.AWAY, _I.SUBSTITUTE_FAILS): (_S.AWAY, _T.NOTHING),
    (_S.AWAY, _I.END): (_S.OVER, _T.FINISH),
    # Whoever comes back may answer what the substitute has not answered yet.
    (_S.ABSENT, _I.ATTACH): (_S.HELD, _T.RELIEVE),
    (_S.ABSENT, _I.DETACH): (_S.ABSENT, _T.NOTHING),
    (_S.ABSENT, _I.TURN): (_S.ABSENT, _T.SUBSTITUTE),
    (_S.ABSENT, _I.TIME_UP): (_S.ABSENT, _T.NOTHING),
    (_S.ABSENT, _I.GRACE_OVER): (_S.ABSENT, _T.NOTHING),
    (_S.ABSENT, _I.RESIGN): (_S.ABSENT, _T.NOTHING),
    (_S.ABSENT, _I.SUBSTITUTE_FAILS): (_S.LEFT, _T.LEAVE),
    (_S.ABSENT, _I.END): (_S.OVER, _T.FINISH),
    **{(_S.LEFT, each): (_S.LEFT, _T.NOTHING) for each in _I},
    (_S.LEFT, _I.ATTACH): (_S.LEFT, _T.TURN_AWAY),
    (_S.LEFT, _I.END): (_S.OVER, _T.FINISH),
    **{(_S.OVER, each): (_S.OVER, _T.NOTHING) for each in _I},
    (_S.OVER, _I.ATTACH): (_S.OVER, _T.TURN_AWAY),
}

#: What stands for a page: anything that is equal to itself alone.
PageId: TypeAlias = Hashable


class Presence:
    """The presence at one seat. Every method returns what is to be done; `state` and `page` are those of afterwards.

    Args:
        outcome: what happens when nobody comes in time.

    Attributes:
        state: where the person is.
        page: that has the seat; None if there is none.
        taken: a page has come at some time.
        resigned: the person has given up the seat, and nobody has come since.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self.state = PresenceState.OPEN
        self.page: PageId | None = None
        self.taken = self.resigned = False

    @property
    def is_vacant(self) -> bool:
        """Whether nobody is there, nor has time to come."""
        return self.state in VACANT

    @property
    def is_given_up(self) -> bool:
        """Whether nobody is expected to come back: nobody has come at all, or who was there has left."""
        return self.is_vacant and (self.state is not PresenceState.ABSENT or self.resigned or not self.taken)

    def attach(self, page: PageId) -> Then:
        """Have a page come."""
        self.taken, self.resigned = True, False
        then = self._enter(_I.ATTACH)
        if self.state is _S.HELD:
            self.page = page
        return then

    def detach(self, page: PageId) -> Then:
        """Have a page go. One that has lost the seat before makes no difference."""
        return self._enter(_I.DETACH) if page == self.page else _T.NOTHING

    def resign(self, page: PageId) -> Then:
        """Have the person at a page give up the seat, if that page has it."""
        if page != self.page:
            return _T.NOTHING
        self.resigned = True
        return self._enter(_I.RESIGN)

    def turn(self) -> Then:
        """Have the trial ask for an action."""
        return self._enter(_I.TURN)

    def time_up(self) -> Then:
        """Have the time be up for the action that is asked."""
        return self._enter(_I.TIME_UP)

    def grace_over(self) -> Then:
        """Have nobody come, or come back, in time."""
        return self._enter(_I.GRACE_OVER)

    def nobody_comes(self) -> Then:
        """Have nobody come, if nobody has."""
        return self._enter(_I.GRACE_OVER) if self.state is _S.OPEN else _T.NOTHING

    def substitute_fails(self) -> Then:
        """Have the substitute fail: it will not act any more."""
        return self._enter(_I.SUBSTITUTE_FAILS)

    def end(self) -> Then:
        """Have the trial end."""
        return self._enter(_I.END)

    def _enter(self, happened: PresenceInput) -> Then:
        self.state, then = TABLE[self.state, happened]
        if then is _T.SUBSTITUTE and self._outcome is Outcome.LOSS:
            self.state, then = _S.LEFT, _T.LEAVE
        if self.state is not _S.HELD:
            self.page = None
        return then
