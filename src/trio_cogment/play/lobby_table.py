"""One who waits for a trial, as a table: from coming into the lobby to having played.

Theory of operation: whoever comes is READING first (what the study is about, and how the game is played), and says
READY then; only those count. One whose page has gone is AWAY and does not count, but keeps a place for a while: whoever
reloads is back where they were. A trial takes those who are ready, who are SEATED then, and PLAYED when it is over.

Four states are final for a member, and each can be told from the others: TIMED_OUT (nobody came in time, or too few),
LEFT (by the way out, or gone for too long), FAILED (the trial could not start), and PLAYED. Who has timed out is never
given a seat: such a page says so, and its person may be doing something else already. Whoever wants to wait again comes
again, as a new member.

Rule: this file knows one member. When a trial starts is the lobby's business, in `lobby_machine`.
"""

from __future__ import annotations

import enum


class MemberState(enum.Enum):
    """Where somebody is on the way to a trial."""

    READING = "reading"
    READY = "ready"
    #: As READING, with the page gone.
    READING_AWAY = "reading, away"
    #: As READY, with the page gone.
    AWAY = "away"
    SEATED = "seated"
    PLAYED = "played"
    TIMED_OUT = "timed out"
    LEFT = "left"
    FAILED = "failed"


class MemberInput(enum.Enum):
    """What can happen to somebody."""

    READY = "ready"
    #: The page comes back.
    ATTACH = "attach"
    #: The page has gone.
    DETACH = "detach"
    #: By the way out.
    LEAVE = "leave"
    #: The page has been gone for too long.
    AWAY_OVER = "away over"
    #: A trial takes them.
    SEAT = "seat"
    #: That trial could not start.
    START_FAILED = "start failed"
    #: It is over.
    TRIAL_OVER = "trial over"
    #: The group has waited for too long, and there is no trial.
    WAIT_OVER = "wait over"


class MemberAction(enum.Enum):
    """What is done about it."""

    #: Nothing: it makes no difference.
    DROP = "drop"
    #: The page is told where they are.
    TELL = "tell"
    #: The same; and their seat is nobody's, if they have not taken it.
    VACATE = "vacate"
    #: The time begins to run after which they are gone.
    KEEP_PLACE = "keep place"
    #: They are back, and the page is told where they are.
    RETURN = "return"


_S, _I, _A = MemberState, MemberInput, MemberAction
_FINAL = (_S.TIMED_OUT, _S.LEFT, _S.FAILED)
MEMBER_TABLE: dict[tuple[MemberState, MemberInput], tuple[MemberState, MemberAction]] = {
    **{(state, each): (state, _A.DROP) for state in _S for each in _I},
    (_S.READING, _I.READY): (_S.READY, _A.TELL),
    (_S.READING, _I.ATTACH): (_S.READING, _A.TELL),
    (_S.READING, _I.DETACH): (_S.READING_AWAY, _A.KEEP_PLACE),
    (_S.READING, _I.LEAVE): (_S.LEFT, _A.TELL),
    (_S.READY, _I.READY): (_S.READY, _A.TELL),
    (_S.READY, _I.ATTACH): (_S.READY, _A.TELL),
    (_S.READY, _I.DETACH): (_S.AWAY, _A.KEEP_PLACE),
    (_S.READY, _I.LEAVE): (_S.LEFT, _A.TELL),
    (_S.READY, _I.SEAT): (_S.SEATED, _A.TELL),
    (_S.READY, _I.WAIT_OVER): (_S.TIMED_OUT, _A.TELL),
    (_S.READING_AWAY, _I.ATTACH): (_S.READING, _A.RETURN),
    (_S.READING_AWAY, _I.AWAY_OVER): (_S.LEFT, _A.DROP),
    # Who comes back after the group has started, or given up, waits with the next one.
    (_S.AWAY, _I.ATTACH): (_S.READY, _A.RETURN),
    (_S.AWAY, _I.AWAY_OVER): (_S.LEFT, _A.DROP),
    # Who is seated goes from here to the seat. Who has come there minds nothing of this.
    (_S.SEATED, _I.ATTACH): (_S.SEATED, _A.RETURN),
    (_S.SEATED, _I.DETACH): (_S.SEATED, _A.KEEP_PLACE),
    (_S.SEATED, _I.AWAY_OVER): (_S.SEATED, _A.VACATE),
    (_S.SEATED, _I.LEAVE): (_S.LEFT, _A.VACATE),
    (_S.SEATED, _I.READY): (_S.SEATED, _A.TELL),
    (_S.SEATED, _I.START_FAILED): (_S.FAILED, _A.TELL),
    (_S.SEATED, _I.TRIAL_OVER): (_S.PLAYED, _A.TELL),
    (_S.PLAYED, _I.ATTACH): (_S.PLAYED, _A.TELL),
    (_S.PLAYED, _I.READY): (_S.READY, _A.TELL),
    (_S.PLAYED, _I.DETACH): (_S.PLAYED, _A.DROP),
    (_S.PLAYED, _I.LEAVE): (_S.LEFT, _A.TELL),
    **{(state, each): (state, _A.TELL) for state in _FINAL for each in (_I.ATTACH, _I.READY, _I.LEAVE)},
}
