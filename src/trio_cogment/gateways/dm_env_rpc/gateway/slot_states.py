"""The states of a slot, as a table: what its client waits for, and what it is told.

A slot is an actor of a world that a client can be. What happens to it comes from two sides: from its client, whose
requests come one at a time, and from the trial, whose observations and end may come at any time.

Each row gives the next state and the answer to the request that waits, if one does. In the states WAITING, STEPPING and
RESETTING a request waits; every row that leads from one of them to another state answers it, but for the client's
leaving: nobody is there any more to be told. A pair without a row cannot happen.

An error has no effect that the client knows of: a sequence that was running for it still is, and so it is told of the
end by the next step.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.gateways.dm_env_rpc.gateway.connection_states import ConnectionState


class SlotState(enum.Enum):
    """Where a slot is."""

    # Every member is the only one of its kind, and a step looks into the table twice: the hash of `Enum` is slow.
    __hash__ = object.__hash__

    #: Nobody has joined as this actor.
    FREE = "free"
    #: No sequence; the next step begins one.
    READY = "ready"
    #: A step waits for a sequence to begin.
    WAITING = "waiting"
    #: The client has an observation, and is to act on it.
    ACTING = "acting"
    #: A step waits for the next observation.
    STEPPING = "stepping"
    #: A reset waits for the end of the trial.
    RESETTING = "resetting"
    #: The sequence has ended, and the client, for whom it is running, has not been told yet.
    OVER = "over"


class SlotInput(enum.Enum):
    """What happens to a slot."""

    __hash__ = object.__hash__

    JOIN = "join"
    #: The client leaves, in whatever way.
    LEAVE = "leave"
    STEP = "step"
    #: A reset that has to wait for the end of the trial.
    RESET = "reset"
    #: A reset that need not wait, because no trial runs.
    RESET_NOW = "reset now"
    #: An observation that is not the last one.
    OBSERVATION = "observation"
    #: The sequence has ended for this slot.
    END = "end"
    #: No trial could be started, or the world is gone.
    FAILURE = "failure"
    #: The request that waits has waited too long.
    TIMEOUT = "timeout"
    #: The client itself has reset the world: it is not told of the end of the sequence.
    VOID = "void"


class Answer(enum.Enum):
    """What the request that waits is answered with."""

    #: None, or there is no request.
    NOTHING = "nothing"
    #: An observation, RUNNING.
    RUNNING = "running"
    #: The last observation, TERMINATED or INTERRUPTED.
    END = "end"
    #: The specifications.
    SPECS = "specs"
    #: The error that goes with the input.
    ERROR = "error"


_S, _I, _A = SlotState, SlotInput, Answer

TABLE: Mapping[tuple[SlotState, SlotInput], tuple[SlotState, Answer]] = {
    (_S.FREE, _I.JOIN): (_S.READY, _A.NOTHING),
    #
    (_S.READY, _I.LEAVE): (_S.FREE, _A.NOTHING),
    (_S.READY, _I.STEP): (_S.WAITING, _A.NOTHING),
    (_S.READY, _I.RESET_NOW): (_S.READY, _A.SPECS),
    # Of a trial that goes on, or ends, without it.
    (_S.READY, _I.OBSERVATION): (_S.READY, _A.NOTHING),
    (_S.READY, _I.END): (_S.READY, _A.NOTHING),
    (_S.READY, _I.FAILURE): (_S.READY, _A.NOTHING),
    (_S.READY, _I.VOID): (_S.READY, _A.NOTHING),
    #
    (_S.WAITING, _I.LEAVE): (_S.FREE, _A.NOTHING),
    (_S.WAITING, _I.OBSERVATION): (_S.ACTING, _A.RUNNING),
    # The end of a trial that it takes no part in: it waits for the next one.
    (_S.WAITING, _I.END): (_S.WAITING, _A.NOTHING),
    (_S.WAITING, _I.FAILURE): (_S.READY, _A.ERROR),
    (_S.WAITING, _I.TIMEOUT): (_S.READY, _A.ERROR),
    #
    (_S.ACTING, _I.LEAVE): (_S.FREE, _A.NOTHING),
    (_S.ACTING, _I.STEP): (_S.STEPPING, _A.NOTHING),
    (_S.ACTING, _I.RESET): (_S.RESETTING, _A.NOTHING),
    # The trial has not waited for its action.
    (_S.ACTING, _I.OBSERVATION): (_S.ACTING, _A.NOTHING),
    (_S.ACTING, _I.END): (_S.OVER, _A.NOTHING),
    (_S.ACTING, _I.VOID): (_S.READY, _A.NOTHING),
    #
    (_S.STEPPING, _I.LEAVE): (_S.FREE, _A.NOTHING),
    (_S.STEPPING, _I.OBSERVATION): (_S.ACTING, _A.RUNNING),
    (_S.STEPPING, _I.END): (_S.READY, _A.END),
    (_S.STEPPING, _I.FAILURE): (_S.OVER, _A.ERROR),
    (_S.STEPPING, _I.TIMEOUT): (_S.OVER, _A.ERROR),
    #
    (_S.RESETTING, _I.LEAVE): (_S.FREE, _A.NOTHING),
    (_S.RESETTING, _I.OBSERVATION): (_S.RESETTING, _A.NOTHING),
    (_S.RESETTING, _I.END): (_S.READY, _A.SPECS),
    (_S.RESETTING, _I.FAILURE): (_S.OVER, _A.ERROR),
    (_S.RESETTING, _I.TIMEOUT): (_S.OVER, _A.ERROR),
    #
    (_S.OVER, _I.LEAVE): (_S.FREE, _A.NOTHING),
    (_S.OVER, _I.STEP): (_S.READY, _A.END),
    (_S.OVER, _I.RESET_NOW): (_S.READY, _A.SPECS),
    (_S.OVER, _I.VOID): (_S.READY, _A.NOTHING),
    # Of the trial that others have begun since.
    (_S.OVER, _I.OBSERVATION): (_S.OVER, _A.NOTHING),
    (_S.OVER, _I.END): (_S.OVER, _A.NOTHING),
    (_S.OVER, _I.FAILURE): (_S.OVER, _A.NOTHING),
}

#: What the client knows while its slot is in a state.
CONNECTION_STATES: Mapping[SlotState, ConnectionState] = {
    _S.FREE: ConnectionState.NOT_JOINED,
    _S.READY: ConnectionState.NOT_RUNNING,
    _S.WAITING: ConnectionState.NOT_RUNNING,
    _S.ACTING: ConnectionState.RUNNING,
    _S.STEPPING: ConnectionState.RUNNING,
    _S.RESETTING: ConnectionState.RUNNING,
    _S.OVER: ConnectionState.RUNNING,
}

#: A request waits for its answer.
BLOCKED = frozenset({_S.WAITING, _S.STEPPING, _S.RESETTING})


def after(state: SlotState, happened: SlotInput) -> tuple[SlotState, Answer]:
    """Return the next state, and the answer to the request that waits.

    Raises:
        LocalProtocolError: this cannot happen in this state.
    """
    found = TABLE.get((state, happened))
    if found is None:
        raise LocalProtocolError(f"a slot that is {state.value} cannot get {happened.value}")
    return found
