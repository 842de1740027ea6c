"""States of a connection, as a table: the requests that the protocol allows in each of them.

Rule 1: this table judges a request by the state that the answers before it have left, and by nothing else. Whether
there is such a world, a free slot or a good action is judged afterwards, by who knows it.

Rule 2: a refused request has no effect, so it is in no table of changes. The changes of a connection's state are those
of its slot; see `slot_states`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError


class ConnectionState(enum.Enum):
    """Where a connection is, as its client knows it."""

    NOT_JOINED = "the connection has not joined a world"
    #: It has joined a world; no sequence has begun, or the last one has ended.
    NOT_RUNNING = "no sequence is running"
    RUNNING = "a sequence is running"


class Request(enum.Enum):
    """A request; the values of the first eight are the names of the payloads."""

    CREATE_WORLD = "create_world"
    JOIN_WORLD = "join_world"
    STEP = "step"
    RESET = "reset"
    RESET_WORLD = "reset_world"
    LEAVE_WORLD = "leave_world"
    DESTROY_WORLD = "destroy_world"
    EXTENSION = "extension"
    #: `destroy_world` of the world that the connection has joined.
    DESTROY_OWN_WORLD = "destroy_world of the joined world"
    #: A request without a payload, or with one of a later version of the protocol.
    UNKNOWN = "a request without a payload that is known"


class Verdict(enum.Enum):
    """What becomes of a request."""

    #: It is carried out.
    CARRY_OUT = "carry out"
    #: It is answered, and changes nothing.
    NOTHING_TO_DO = "nothing to do"
    JOIN_FIRST = "expected it after join_world: the connection has not joined a world"
    LEAVE_FIRST = "expected it after leave_world: the connection has joined a world"
    LEAVE_BEFORE_DESTROYING = "expected it after leave_world: the connection has joined this world"
    NOT_A_REQUEST = "expected a request with one of the payloads that the protocol has"


_R, _V = Request, Verdict

_JOINED = {
    _R.CREATE_WORLD: _V.CARRY_OUT,
    _R.JOIN_WORLD: _V.LEAVE_FIRST,
    _R.STEP: _V.CARRY_OUT,
    _R.RESET: _V.CARRY_OUT,
    _R.RESET_WORLD: _V.CARRY_OUT,
    _R.LEAVE_WORLD: _V.CARRY_OUT,
    _R.DESTROY_WORLD: _V.CARRY_OUT,
    _R.DESTROY_OWN_WORLD: _V.LEAVE_BEFORE_DESTROYING,
    _R.EXTENSION: _V.CARRY_OUT,
    _R.UNKNOWN: _V.NOT_A_REQUEST,
}

#: Every pair of a state and a request.
TABLE: Mapping[ConnectionState, Mapping[Request, Verdict]] = {
    ConnectionState.NOT_JOINED: {
        _R.CREATE_WORLD: _V.CARRY_OUT,
        _R.JOIN_WORLD: _V.CARRY_OUT,
        _R.STEP: _V.JOIN_FIRST,
        _R.RESET: _V.JOIN_FIRST,
        _R.RESET_WORLD: _V.CARRY_OUT,
        _R.LEAVE_WORLD: _V.NOTHING_TO_DO,
        _R.DESTROY_WORLD: _V.CARRY_OUT,
        _R.DESTROY_OWN_WORLD: _V.CARRY_OUT,
        _R.EXTENSION: _V.CARRY_OUT,
        _R.UNKNOWN: _V.NOT_A_REQUEST,
    },
    # A step begins a sequence in one of the next two states, and goes on with it in the other; both are carried out.
    ConnectionState.NOT_RUNNING: _JOINED,
    ConnectionState.RUNNING: _JOINED,
}

_REFUSALS: Mapping[Verdict, type[Exception]] = {
    _V.JOIN_FIRST: FailedPreconditionError,
    _V.LEAVE_FIRST: FailedPreconditionError,
    _V.LEAVE_BEFORE_DESTROYING: FailedPreconditionError,
    _V.NOT_A_REQUEST: InvalidArgumentError,
}


def judge(state: ConnectionState, request: Request) -> bool:
    """Return whether a request is to be carried out; False: it is answered at once.

    Raises:
        FailedPreconditionError: it is refused in this state; the text says what has to come first.
        InvalidArgumentError: it is no request.
    """
    verdict = TABLE[state][request]
    refusal = _REFUSALS.get(verdict)
    if refusal is not None:
        raise refusal(f"{request.value.partition(' of ')[0]}: {verdict.value}")
    return verdict is Verdict.CARRY_OUT
