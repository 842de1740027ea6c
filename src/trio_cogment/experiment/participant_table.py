"""One participant as a table: from the first page to an end.

Theory of operation: whoever comes is READING the pages before the waiting room, then WAITING for a group. A member of a
group is PREPARING (the pages before a trial), READY (for the others), PLAYING, and after the last trial FINISHING (the
pages after). Each way out leads to OUT, with the name of an end (`definition.ENDS`), of which the table says the
reason: a page that is loaded again shows it again.

Whether somebody's page is open is no state of its own. It matters where somebody else would wait: groups are made of
people who are here, and a trial begins with people who are here. So each time that is over has two inputs: TIME_OVER
for who is here and dawdles, AWAY_OVER for who is not.

Rule: this file knows one participant. What that does to a group is in `machine`.
"""

from __future__ import annotations

import enum


class Step(enum.Enum):
    """Where somebody is."""

    READING = "reading"
    WAITING = "waiting"
    PREPARING = "preparing"
    READY = "ready"
    PLAYING = "playing"
    FINISHING = "finishing"
    OUT = "out"


class Input(enum.Enum):
    """What can happen to somebody."""

    #: A page is done.
    TURN = "turn"
    #: A page of consent was answered with no.
    DECLINE = "decline"
    #: The checks of a page were failed too often.
    FAIL = "fail"
    #: The page in the browser is there (again).
    ATTACH = "attach"
    #: It is gone.
    DETACH = "detach"
    #: The time for this step is over, and they are here.
    TIME_OVER = "time over"
    #: The same, and they are not.
    AWAY_OVER = "away over"
    #: They are tired of waiting.
    WAY_OUT = "way out"
    #: They leave for good.
    LEAVE = "leave"
    #: A researcher takes them out.
    TAKE_OUT = "take out"
    #: There are no places any more.
    FULL = "full"
    #: The waiting room was closed.
    CLOSE = "close"
    #: They are in a group now.
    GROUP = "group"
    #: The trial begins.
    PLAY = "play"
    #: It is over.
    TRIAL_OVER = "trial over"
    #: It is over, and they were not there any more.
    LOST = "lost"
    #: It was lost with its server, and is played again.
    INTERRUPTED = "interrupted"
    #: The group has come to an early end.
    GROUP_OVER = "group over"


class Action(enum.Enum):
    """What is done about it."""

    #: Nothing: it makes no difference.
    DROP = "drop"
    #: The next page; behind the last one, what comes after it.
    TURN = "turn"
    #: They are out, with the end that the table names.
    OUT = "out"
    #: They are here.
    RETURN = "return"
    #: They are not here.
    NOTE_AWAY = "note away"
    #: The first page before the first trial.
    SIT = "sit"
    #: To the trial.
    PLAY = "play"
    #: The first page before the next trial; after the last one, the first page after it.
    NEXT_TRIAL = "next trial"
    #: They wait for the trial again.
    WAIT_AGAIN = "wait again"
    #: The first page after the trials, and the end `partial`.
    FINISH_EARLY = "finish early"


_S, _I, _A = Step, Input, Action
#: (step, input) -> what is done, and the end if it is `Action.OUT`.
TABLE: dict[tuple[Step, Input], tuple[Action, str]] = {
    **{(step, each): (_A.DROP, "") for step in _S for each in _I},
    **{(step, _I.ATTACH): (_A.RETURN, "") for step in _S},
    **{(step, _I.DETACH): (_A.NOTE_AWAY, "") for step in _S},
    **{(step, _I.LEAVE): (_A.OUT, "left") for step in _S if step is not _S.OUT},
    **{(step, _I.TAKE_OUT): (_A.OUT, "removed") for step in _S if step is not _S.OUT},
    # Pages are the same wherever they are: too slow, a wrong answer and a no have the same ends.
    **{
        (step, each): then
        for step in (_S.READING, _S.PREPARING, _S.FINISHING)
        for each, then in {
            _I.TURN: (_A.TURN, ""),
            _I.DECLINE: (_A.OUT, "declined"),
            _I.FAIL: (_A.OUT, "screened"),
            _I.TIME_OVER: (_A.OUT, "idle"),
            _I.AWAY_OVER: (_A.OUT, "gone"),
        }.items()
    },
    (_S.READING, _I.FULL): (_A.OUT, "full"),
    (_S.WAITING, _I.FULL): (_A.OUT, "full"),
    (_S.READING, _I.CLOSE): (_A.OUT, "unmatched"),
    (_S.WAITING, _I.CLOSE): (_A.OUT, "unmatched"),
    (_S.WAITING, _I.WAY_OUT): (_A.OUT, "unmatched"),
    (_S.WAITING, _I.TIME_OVER): (_A.OUT, "unmatched"),
    (_S.WAITING, _I.AWAY_OVER): (_A.OUT, "gone"),
    (_S.WAITING, _I.GROUP): (_A.SIT, ""),
    # Who is ready and here is never too slow: the others are.
    (_S.READY, _I.AWAY_OVER): (_A.OUT, "gone"),
    (_S.READY, _I.PLAY): (_A.PLAY, ""),
    # The seat of the trial has times of its own.
    (_S.PLAYING, _I.TRIAL_OVER): (_A.NEXT_TRIAL, ""),
    (_S.PLAYING, _I.LOST): (_A.OUT, "gone"),
    (_S.PLAYING, _I.INTERRUPTED): (_A.WAIT_AGAIN, ""),
    **{(step, _I.GROUP_OVER): (_A.FINISH_EARLY, "") for step in (_S.PREPARING, _S.READY, _S.PLAYING)},
}
