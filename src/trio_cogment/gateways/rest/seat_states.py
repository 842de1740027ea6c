"""The seat of one actor in one trial as a table: what may be asked for in which state, and what follows.

Rule 1: whether a request is in order is decided here, but for its token and its tick.

Rule 2: this file does not wait. A request whose answer is an event waits until the seat is in one of `ANSWERABLE`.

A seat comes into being when the orchestrator calls the actor (FREE): who has come before waits until then. Once
somebody has joined, observations come, and the actor acts on each (TURN), then waits for the next (WAITING). The trial
may end at any time. What the actor was sent before that it gets to see still (LAST_TURN), and then the end, once
(OVER). Afterwards the seat is kept for a while, so that whoever is late is told why (ENDED, LEFT).

An environment may go on without an actor: then an observation comes in TURN, and takes the place of the one before.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trio_cogment.errors import CogmentError, FailedPreconditionError, LocalProtocolError, NotFoundError


class SeatState(enum.Enum):
    """Where a seat is."""

    FREE = "nobody has joined"
    WAITING = "the next observation has not come"
    TURN = "it is the actor's turn"
    LAST_TURN = "it is the actor's turn, but the trial is over"
    OVER = "the trial is over, and the actor does not know it"
    ENDED = "the trial is over"
    LEFT = "the actor has left"


class SeatInput(enum.Enum):
    """What happens to a seat: the first three are requests, the others come from the trial and from the answers."""

    JOIN = "join"
    ACT = "act"
    LEAVE = "leave"
    OBSERVATION = "observation"
    END = "end"
    #: The end was told.
    TOLD = "told"


class Refusal(enum.Enum):
    """Why a request is refused in a state."""

    NOBODY_JOINED = "expected somebody to join first"
    ACTED = "the action was sent already, and the next observation has not come"
    OVER = "the trial is over for this actor"
    LEFT = "the actor has left the trial"
    NO_SEAT = "there is no such actor that plays here, or its trial is over"


_S, _I, _R = SeatState, SeatInput, Refusal

#: Every pair that can happen; any other is a bug.
TABLE: Mapping[SeatState, Mapping[SeatInput, SeatState | Refusal]] = {
    _S.FREE: {_I.JOIN: _S.WAITING, _I.ACT: _R.NOBODY_JOINED, _I.LEAVE: _S.LEFT, _I.END: _S.ENDED},
    _S.WAITING: {
        _I.JOIN: _S.WAITING,  # whoever has lost its answer asks again
        _I.ACT: _R.ACTED,
        _I.LEAVE: _S.LEFT,
        _I.OBSERVATION: _S.TURN,
        _I.END: _S.OVER,
    },
    _S.TURN: {
        _I.JOIN: _S.TURN,
        _I.ACT: _S.WAITING,
        _I.LEAVE: _S.LEFT,
        _I.OBSERVATION: _S.TURN,
        _I.END: _S.LAST_TURN,
    },
    _S.LAST_TURN: {_I.JOIN: _S.LAST_TURN, _I.ACT: _S.OVER, _I.LEAVE: _S.LEFT},
    # Two requests may wait for the end: the second is told it in ENDED.
    _S.OVER: {_I.JOIN: _S.OVER, _I.ACT: _S.OVER, _I.LEAVE: _S.LEFT, _I.TOLD: _S.ENDED},
    _S.ENDED: {_I.JOIN: _R.OVER, _I.ACT: _R.NO_SEAT, _I.LEAVE: _R.NO_SEAT, _I.TOLD: _S.ENDED},
    _S.LEFT: {_I.JOIN: _R.LEFT, _I.ACT: _R.NO_SEAT, _I.LEAVE: _R.NO_SEAT, _I.END: _S.LEFT, _I.TOLD: _S.LEFT},
}

#: There is something to answer to the client that waits.
ANSWERABLE = frozenset([_S.TURN, _S.LAST_TURN, _S.OVER, _S.ENDED, _S.LEFT])
#: Nothing comes from the trial any more, and nobody needs to be told.
FINISHED = frozenset([_S.ENDED, _S.LEFT])

_ERRORS: Mapping[Refusal, type[CogmentError]] = {
    _R.NOBODY_JOINED: FailedPreconditionError,
    _R.ACTED: FailedPreconditionError,
    _R.OVER: FailedPreconditionError,
    _R.LEFT: FailedPreconditionError,
    _R.NO_SEAT: NotFoundError,
}


def after(state: SeatState, happened: SeatInput) -> SeatState:
    """Return the state that follows.

    Raises:
        FailedPreconditionError, NotFoundError: the request is refused, and the state stays.
        LocalProtocolError: this cannot happen in that state.
    """
    found = TABLE[state].get(happened)
    if found is None:
        raise LocalProtocolError(f"a seat in {state.name}: there is no {happened.name}")
    if isinstance(found, Refusal):
        raise _ERRORS[found](found.value)
    return found
