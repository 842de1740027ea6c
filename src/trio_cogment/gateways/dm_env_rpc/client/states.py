"""The states of a connection with a server of dm_env_rpc, as a table: which reply is legal, and what it leads to.

Rule 1: everything about states is in this module; it knows neither connections nor messages.

Rule 2: replies move the state, requests do not. A client may send many requests before it reads the first reply, and
the server judges each by the state that the one before has left. Replies come in the order of the requests, so that
who follows the replies is in the state in which the server was when it gave the last one.

A sequence begins with a reply RUNNING to a step, and ends with a reply TERMINATED or INTERRUPTED. A connection that has
joined a world counts as TERMINATED before its first step. Between two sequences there is at least one RUNNING: from
either end a step leads only there, so that no end is told twice.

An error as the reply leaves every state as it is, and is legal for every request; it is not in the table. Any other
reply that the table does not have breaks the protocol.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trio_cogment.base.errors import RemoteProtocolError


class State(enum.Enum):
    """Where a connection is; three of them have the names of the protocol."""

    NOT_JOINED = "not joined"
    RUNNING = "running"
    TERMINATED = "terminated"
    INTERRUPTED = "interrupted"


class Answer(enum.Enum):
    """A reply, as far as states are concerned; for `step` with the state that it names."""

    CREATED = "create_world"
    JOINED = "join_world"
    STEP_RUNNING = "step: RUNNING"
    STEP_TERMINATED = "step: TERMINATED"
    STEP_INTERRUPTED = "step: INTERRUPTED"
    STEP_INVALID = "step: without a state"
    RESET = "reset"
    #: Of the world that the connection has joined.
    WORLD_RESET = "reset_world"
    #: Of another one.
    OTHER_WORLD_RESET = "reset_world of another world"
    LEFT = "leave_world"
    DESTROYED = "destroy_world"
    EXTENSION = "extension"


_ANYWHERE = (Answer.CREATED, Answer.OTHER_WORLD_RESET, Answer.DESTROYED, Answer.EXTENSION)


def _staying(state: State) -> dict[Answer, State]:
    return dict.fromkeys(_ANYWHERE, state)


_ENDED = {Answer.LEFT: State.NOT_JOINED, Answer.STEP_RUNNING: State.RUNNING}

#: What is absent breaks the protocol.
TRANSITIONS: Mapping[State, Mapping[Answer, State]] = {
    State.NOT_JOINED: {
        **_staying(State.NOT_JOINED),
        Answer.JOINED: State.TERMINATED,
        Answer.WORLD_RESET: State.NOT_JOINED,
        Answer.LEFT: State.NOT_JOINED,
    },
    State.RUNNING: {
        **_staying(State.RUNNING),
        Answer.STEP_RUNNING: State.RUNNING,
        Answer.STEP_TERMINATED: State.TERMINATED,
        Answer.STEP_INTERRUPTED: State.INTERRUPTED,
        Answer.RESET: State.INTERRUPTED,
        Answer.WORLD_RESET: State.INTERRUPTED,
        Answer.LEFT: State.NOT_JOINED,
    },
    State.TERMINATED: {
        **_staying(State.TERMINATED),
        **_ENDED,
        Answer.RESET: State.TERMINATED,
        Answer.WORLD_RESET: State.TERMINATED,
    },
    State.INTERRUPTED: {
        **_staying(State.INTERRUPTED),
        **_ENDED,
        Answer.RESET: State.INTERRUPTED,
        Answer.WORLD_RESET: State.INTERRUPTED,
    },
}


def after(state: State, answer: Answer) -> State:
    """Return the state that a reply leads to.

    Raises:
        RemoteProtocolError: the reply is not legal in this state.
    """
    found = TRANSITIONS[state].get(answer)
    if found is None:
        legal = ", ".join(known.value for known in TRANSITIONS[state])
        raise RemoteProtocolError(
            f"expected an error, or a reply that is legal while the connection is {state.value} ({legal}); got "
            f"{answer.value}"
        )
    return found


def begins_sequence(before: State, state: State) -> bool:
    """Whether the reply to a step was the first of its sequence."""
    return state is State.RUNNING and before is not State.RUNNING


def ends_sequence(before: State, state: State) -> bool:
    """Whether the reply to a step was the last of its sequence."""
    return before is State.RUNNING and state is not State.RUNNING
