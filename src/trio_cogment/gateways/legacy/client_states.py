"""The states of an old client's place in a trial, as a table: what is done with each call and each event.

Old clients pull: a call brings an action and waits for the observation after it. Trials of today push. Between the two
is a mailbox for one observation, and these states.

Rule 1: everything about states is in this module; it knows neither calls nor messages.

Rule 2: one call at a time. A second one is refused as busy before it comes here, so CALL inputs come only where no call
waits.

Rule 3: an action counts once. A call that goes away (a deadline, a lost connection) has acted nevertheless; the next
call for an action waits for the same observation, or gets it, and its own action is dropped.

Rule 4: nothing is lost with a call. What was to be its answer is kept until a call has taken it (TOLD), and the final
answer is given to every call that still asks.

What is absent from the table cannot happen.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trio_cogment.base.errors import LocalProtocolError


class State(enum.Enum):
    """Where the client is."""

    #: Nobody has joined.
    FREE = "free"
    #: Joining; a call waits for the first observation.
    JOINING = "joining"
    #: Joining; no call waits.
    AWAY = "away"
    #: Joining; a call with an action waits for the first observation, to act on it.
    EARLY = "early"
    #: The first observation is here, and no call has taken it.
    UNSEEN = "unseen"
    #: The client is to act.
    TURN = "turn"
    #: It has acted; its call waits for what comes of it.
    ACTING = "acting"
    #: It has acted; its call has gone.
    ALONE = "alone"
    #: What came of its action is here, and no call has taken it.
    UNREAD = "unread"
    #: The trial is over, and no call has taken the final answer.
    ENDED = "ended"
    OVER = "over"


class Input(enum.Enum):
    """What comes."""

    #: A call that asks for the first observation.
    CALL_JOIN = "join"
    #: A call with an action.
    CALL_ACTION = "action"
    #: The call that waited has gone.
    GONE = "call gone"
    #: The call that waited takes its answer.
    TOLD = "call answered"
    OBSERVATION = "observation"
    #: The trial does not have the client: its place is taken, say.
    REFUSED = "refused"
    #: The trial is over.
    END = "end"


class Do(enum.Enum):
    """What is done."""

    NOTHING = "nothing"
    #: Take the place in the trial; the call waits.
    JOIN = "join the trial"
    #: The call waits.
    WAIT = "wait"
    #: Send the action; its call waits.
    ACT = "act"
    #: Answer the call that comes, or the one that waits.
    ANSWER = "answer"
    #: Refuse the call that comes: somebody has joined.
    TAKEN = "refuse: taken"
    #: Refuse the call that comes: nobody has joined.
    NOT_JOINED = "refuse: not joined"
    #: Refuse the call that comes: the trial is over.
    OVER = "refuse: over"
    #: Refuse the call that waits.
    FAIL = "refuse"


_S, _I, _D = State, Input, Do

TABLE: Mapping[State, Mapping[Input, tuple[State, Do]]] = {
    _S.FREE: {
        _I.CALL_JOIN: (_S.JOINING, _D.JOIN),
        _I.CALL_ACTION: (_S.FREE, _D.NOT_JOINED),
        _I.END: (_S.OVER, _D.NOTHING),
    },
    _S.JOINING: {
        _I.GONE: (_S.AWAY, _D.NOTHING),
        _I.OBSERVATION: (_S.UNSEEN, _D.ANSWER),
        _I.REFUSED: (_S.FREE, _D.FAIL),
        _I.END: (_S.ENDED, _D.FAIL),
    },
    _S.AWAY: {
        _I.CALL_JOIN: (_S.JOINING, _D.WAIT),
        _I.CALL_ACTION: (_S.EARLY, _D.WAIT),
        _I.OBSERVATION: (_S.UNSEEN, _D.NOTHING),
        _I.REFUSED: (_S.FREE, _D.NOTHING),
        _I.END: (_S.ENDED, _D.NOTHING),
    },
    _S.EARLY: {
        _I.GONE: (_S.AWAY, _D.NOTHING),
        _I.OBSERVATION: (_S.ACTING, _D.ACT),
        _I.REFUSED: (_S.FREE, _D.FAIL),
        _I.END: (_S.ENDED, _D.ANSWER),
    },
    _S.UNSEEN: {
        _I.CALL_JOIN: (_S.TURN, _D.ANSWER),
        _I.CALL_ACTION: (_S.ACTING, _D.ACT),
        _I.TOLD: (_S.TURN, _D.NOTHING),
        _I.GONE: (_S.UNSEEN, _D.NOTHING),
        # A trial that goes on without the client's action.
        _I.OBSERVATION: (_S.UNSEEN, _D.NOTHING),
        _I.END: (_S.ENDED, _D.NOTHING),
    },
    _S.TURN: {
        _I.CALL_JOIN: (_S.TURN, _D.TAKEN),
        _I.CALL_ACTION: (_S.ACTING, _D.ACT),
        _I.OBSERVATION: (_S.TURN, _D.NOTHING),
        _I.END: (_S.ENDED, _D.NOTHING),
    },
    _S.ACTING: {
        _I.GONE: (_S.ALONE, _D.NOTHING),
        _I.OBSERVATION: (_S.UNREAD, _D.ANSWER),
        _I.END: (_S.ENDED, _D.ANSWER),
    },
    _S.ALONE: {
        _I.CALL_JOIN: (_S.ALONE, _D.TAKEN),
        _I.CALL_ACTION: (_S.ACTING, _D.WAIT),
        _I.OBSERVATION: (_S.UNREAD, _D.NOTHING),
        _I.END: (_S.ENDED, _D.NOTHING),
    },
    _S.UNREAD: {
        _I.CALL_JOIN: (_S.UNREAD, _D.TAKEN),
        _I.CALL_ACTION: (_S.TURN, _D.ANSWER),
        _I.TOLD: (_S.TURN, _D.NOTHING),
        _I.GONE: (_S.UNREAD, _D.NOTHING),
        _I.OBSERVATION: (_S.UNREAD, _D.NOTHING),
        _I.END: (_S.ENDED, _D.NOTHING),
    },
    _S.ENDED: {
        _I.CALL_JOIN: (_S.ENDED, _D.OVER),
        _I.CALL_ACTION: (_S.OVER, _D.ANSWER),
        _I.TOLD: (_S.OVER, _D.NOTHING),
        _I.GONE: (_S.ENDED, _D.NOTHING),
        _I.END: (_S.ENDED, _D.NOTHING),
    },
    _S.OVER: {
        _I.CALL_JOIN: (_S.OVER, _D.OVER),
        _I.CALL_ACTION: (_S.OVER, _D.ANSWER),
        _I.END: (_S.OVER, _D.NOTHING),
    },
}

#: Where a call for an action is expected: the trial waits for the client.
OWES_AN_ACTION = frozenset({State.UNSEEN, State.TURN})
#: Where the place in the trial is the client's.
JOINED = frozenset(State) - {State.FREE, State.ENDED, State.OVER}


def after(state: State, given: Input) -> tuple[State, Do]:
    """Return the state that an input leads to, and what is to be done.

    Raises:
        LocalProtocolError: the input cannot come in this state.
    """
    found = TABLE[state].get(given)
    if found is None:
        raise LocalProtocolError(f"the client is {state.value}: {given.value} cannot come")
    return found
