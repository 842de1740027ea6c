"""The states of an old agent in a trial, as a table: what is done with each thing that comes.

Rule 1: everything about states is in this module; it knows neither calls nor messages.

Rule 2: an agent that may have been told of a trial is told of its end, once. Whether it has been is not known when the
call that tells it fails for any other reason than the agent's own refusal.

What is absent from the table cannot happen: the session that brings the inputs keeps that order.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trio_cogment.base.errors import LocalProtocolError


class State(enum.Enum):
    """Where the agent is."""

    #: It is being told that the trial begins.
    STARTING = "starting"
    PLAYING = "playing"
    #: The trial is ending: what still comes is kept for the agent's last call.
    ENDING = "ending"
    OVER = "over"


class Input(enum.Enum):
    """What comes; those that are last came when the trial was ending."""

    STARTED = "started"
    REFUSED = "refused to start"
    OBSERVATION = "observation"
    REWARD = "reward"
    #: A reward for another tick than the latest.
    OLD_REWARD = "reward for an earlier tick"
    MESSAGE = "message"
    LAST_OBSERVATION = "last observation"
    LAST_REWARD = "last reward"
    LAST_MESSAGE = "last message"
    #: The trial is over for the agent, in whichever way.
    STOP = "stop"


class Do(enum.Enum):
    """What is done."""

    NOTHING = "nothing"
    DECIDE = "Decide"
    REWARD = "Reward"
    ON_MESSAGE = "OnMessage"
    #: Keep it for the agent's last call.
    KEEP = "keep"
    END = "End"


_LAST = dict.fromkeys((Input.LAST_OBSERVATION, Input.LAST_REWARD, Input.LAST_MESSAGE), (State.ENDING, Do.KEEP))

TABLE: Mapping[State, Mapping[Input, tuple[State, Do]]] = {
    State.STARTING: {
        Input.STARTED: (State.PLAYING, Do.NOTHING),
        Input.REFUSED: (State.OVER, Do.NOTHING),
        Input.STOP: (State.OVER, Do.END),
    },
    State.PLAYING: {
        Input.OBSERVATION: (State.PLAYING, Do.DECIDE),
        Input.REWARD: (State.PLAYING, Do.REWARD),
        Input.OLD_REWARD: (State.PLAYING, Do.NOTHING),
        Input.MESSAGE: (State.PLAYING, Do.ON_MESSAGE),
        **_LAST,
        Input.STOP: (State.OVER, Do.END),
    },
    State.ENDING: {**_LAST, Input.STOP: (State.OVER, Do.END)},
    State.OVER: {Input.STOP: (State.OVER, Do.NOTHING)},
}


def after(state: State, given: Input) -> tuple[State, Do]:
    """Return the state that an input leads to, and what is to be done.

    Raises:
        LocalProtocolError: the input cannot come in this state.
    """
    found = TABLE[state].get(given)
    if found is None:
        raise LocalProtocolError(f"the agent is {state.value}: {given.value} cannot come")
    return found
