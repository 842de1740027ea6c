"""The seat of a person in a trial as a table: who sits there, and who acts.

Theory of operation: a server holds the seat for the whole trial; pages come and go. The seat is OPEN until the first
page attaches, HELD while one is, AWAY from when the last one has gone until the grace is over, and ABSENT after that:
then something else acts (the default action, or a bot), until a page comes back. Where the seat is configured to be
lost instead, it is LEFT: the actor has left its trial, and nobody can come back. OVER is the end of the trial.

At most one page has the seat. The newest one does: whoever opens the link a second time wants to go on there. The other
one is told.

An observation that is to be answered is *asked*. At most one is: the newest. An action answers it if it names its tick;
another one comes too late. Where an action has a time limit, and in ABSENT at once, a stand-in is asked; whatever
answers first counts, if the seat is the one's who answers.

Rule: this file knows no time, no page and no trial. Time comes in as `GRACE_OVER` and `TIME_UP`.
"""

from __future__ import annotations

import enum


class SeatState(enum.Enum):
    """Who sits there."""

    #: Nobody has come yet.
    OPEN = "open"
    HELD = "held"
    #: The page is gone, and may come back in time.
    AWAY = "away"
    #: The grace is over; somebody else acts until a page comes back.
    ABSENT = "absent"
    #: The actor has left the trial.
    LEFT = "left"
    OVER = "over"


class SeatInput(enum.Enum):
    """What can happen to a seat."""

    #: A page comes.
    ATTACH = "attach"
    #: The page that has the seat goes. (One that has lost it before makes no difference.)
    DETACH = "detach"
    #: The trial asks for an action.
    ASK = "ask"
    #: The page that has the seat answers what is asked.
    ACT = "act"
    #: The stand-in does.
    STAND_IN_ACTS = "stand-in acts"
    #: There is no stand-in any more.
    STAND_IN_FAILS = "stand-in fails"
    #: Nobody has come, or come back, in time.
    GRACE_OVER = "grace over"
    #: What is asked has not been answered in time.
    TIME_UP = "time up"
    #: The person gives up the seat.
    RESIGN = "resign"
    #: The trial has ended.
    END = "end"


class SeatAction(enum.Enum):
    """What is done about it."""

    #: Nothing: it came too late to matter.
    DROP = "drop"
    #: The page gets what there is to see, and its time begins to run.
    WELCOME = "welcome"
    #: The same, and the page before it is told.
    TAKE_OVER = "take over"
    #: The same, and the stand-in goes.
    RELIEVE = "relieve"
    #: The page is told that there is nothing to do here any more.
    TURN_AWAY = "turn away"
    #: The grace begins.
    WAIT = "wait"
    #: The page is shown what is asked, and its time begins to run.
    SHOW = "show"
    #: What is asked waits for somebody to come.
    KEEP = "keep"
    #: The stand-in is asked.
    STAND_IN = "stand in"
    #: The action goes to the trial.
    SEND = "send"
    #: The person is not coming back, or not in time: as configured, the stand-in acts from now on or the actor leaves.
    GIVE_UP = "give up"
    #: Nothing answers any more: the actor leaves.
    LEAVE = "leave"
    #: As configured, the stand-in answers this once, or the actor leaves.
    ANSWER_FOR = "answer for"
    #: All timers end, and the page is told.
    FINISH = "finish"


_S, _I, _A = SeatState, SeatInput, SeatAction
#: The state after `GIVE_UP` is that of a seat with a stand-in; where it is to be lost, it is that of `LEAVE`.
SEAT_TABLE: dict[tuple[SeatState, SeatInput], tuple[SeatState, SeatAction]] = {
    (_S.OPEN, _I.ATTACH): (_S.HELD, _A.WELCOME),
    (_S.OPEN, _I.DETACH): (_S.OPEN, _A.DROP),
    (_S.OPEN, _I.ASK): (_S.OPEN, _A.KEEP),
    (_S.OPEN, _I.ACT): (_S.OPEN, _A.DROP),
    (_S.OPEN, _I.STAND_IN_ACTS): (_S.OPEN, _A.DROP),
    (_S.OPEN, _I.STAND_IN_FAILS): (_S.OPEN, _A.DROP),
    (_S.OPEN, _I.GRACE_OVER): (_S.ABSENT, _A.GIVE_UP),
    (_S.OPEN, _I.TIME_UP): (_S.OPEN, _A.DROP),
    (_S.OPEN, _I.RESIGN): (_S.OPEN, _A.DROP),
    (_S.OPEN, _I.END): (_S.OVER, _A.FINISH),
    (_S.HELD, _I.ATTACH): (_S.HELD, _A.TAKE_OVER),
    (_S.HELD, _I.DETACH): (_S.AWAY, _A.WAIT),
    (_S.HELD, _I.ASK): (_S.HELD, _A.SHOW),
    (_S.HELD, _I.ACT): (_S.HELD, _A.SEND),
    (_S.HELD, _I.STAND_IN_ACTS): (_S.HELD, _A.SEND),
    (_S.HELD, _I.STAND_IN_FAILS): (_S.HELD, _A.DROP),
    (_S.HELD, _I.GRACE_OVER): (_S.HELD, _A.DROP),
    (_S.HELD, _I.TIME_UP): (_S.HELD, _A.ANSWER_FOR),
    (_S.HELD, _I.RESIGN): (_S.ABSENT, _A.GIVE_UP),
    (_S.HELD, _I.END): (_S.OVER, _A.FINISH),
    # The time limit of an action goes on: others should not wait for a page that is being loaded again.
    (_S.AWAY, _I.ATTACH): (_S.HELD, _A.WELCOME),
    (_S.AWAY, _I.DETACH): (_S.AWAY, _A.DROP),
    (_S.AWAY, _I.ASK): (_S.AWAY, _A.SHOW),
    (_S.AWAY, _I.ACT): (_S.AWAY, _A.DROP),
    (_S.AWAY, _I.STAND_IN_ACTS): (_S.AWAY, _A.SEND),
    (_S.AWAY, _I.STAND_IN_FAILS): (_S.AWAY, _A.DROP),
    (_S.AWAY, _I.GRACE_OVER): (_S.ABSENT, _A.GIVE_UP),
    (_S.AWAY, _I.TIME_UP): (_S.AWAY, _A.ANSWER_FOR),
    (_S.AWAY, _I.RESIGN): (_S.AWAY, _A.DROP),
    (_S.AWAY, _I.END): (_S.OVER, _A.FINISH),
    # Who comes back may answer what the stand-in has not answered yet.
    (_S.ABSENT, _I.ATTACH): (_S.HELD, _A.RELIEVE),
    (_S.ABSENT, _I.DETACH): (_S.ABSENT, _A.DROP),
    (_S.ABSENT, _I.ASK): (_S.ABSENT, _A.STAND_IN),
    (_S.ABSENT, _I.ACT): (_S.ABSENT, _A.DROP),
    (_S.ABSENT, _I.STAND_IN_ACTS): (_S.ABSENT, _A.SEND),
    (_S.ABSENT, _I.STAND_IN_FAILS): (_S.LEFT, _A.LEAVE),
    (_S.ABSENT, _I.GRACE_OVER): (_S.ABSENT, _A.DROP),
    (_S.ABSENT, _I.TIME_UP): (_S.ABSENT, _A.DROP),
    (_S.ABSENT, _I.RESIGN): (_S.ABSENT, _A.DROP),
    (_S.ABSENT, _I.END): (_S.OVER, _A.FINISH),
    **{(_S.LEFT, each): (_S.LEFT, _A.DROP) for each in _I},
    (_S.LEFT, _I.ATTACH): (_S.LEFT, _A.TURN_AWAY),
    (_S.LEFT, _I.END): (_S.OVER, _A.FINISH),
    **{(_S.OVER, each): (_S.OVER, _A.DROP) for each in _I},
    (_S.OVER, _I.ATTACH): (_S.OVER, _A.TURN_AWAY),
}
