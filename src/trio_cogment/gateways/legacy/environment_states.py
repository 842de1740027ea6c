"""The states of an old environment in a trial, as a table: what is done with each thing that comes.

Rule 1: everything about states is in this module; it knows neither calls nor messages.

Rule 2: an environment that may have been told of a trial is told of its end, once.

Rule 3: an environment that did not end the trial itself makes no step for the final observations: its last ones are
sent again. The legacy API has no call for that, and so an old environment makes as many steps as the trial may have.

What is absent from the table cannot happen: the session that brings the inputs keeps that order.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trio_cogment.base.errors import LocalProtocolError


class State(enum.Enum):
    """Where the environment is."""

    #: It is being told that the trial begins.
    STARTING = "starting"
    PLAYING = "playing"
    #: The final observations have been made, or are.
    ENDING = "ending"
    OVER = "over"


class Input(enum.Enum):
    """What comes."""

    STARTED = "started"
    REFUSED = "refused to start"
    ACTIONS = "actions"
    #: Actions that came when the trial was ending.
    LAST_ACTIONS = "last actions"
    MESSAGE = "message"
    #: The environment ends the trial with its reply.
    ENDS_TRIAL = "end of the trial"
    #: The trial is over for the environment, in whichever way.
    STOP = "stop"


class Do(enum.Enum):
    """What is done."""

    NOTHING = "nothing"
    UPDATE = "Update"
    #: Send the last observations again, as the final ones.
    REPEAT = "repeat"
    ON_MESSAGE = "OnMessage"
    END = "End"


TABLE: Mapping[State, Mapping[Input, tuple[State, Do]]] = {
    State.STARTING: {
        Input.STARTED: (State.PLAYING, Do.NOTHING),
        Input.REFUSED: (State.OVER, Do.NOTHING),
        Input.STOP: (State.OVER, Do.END),
    },
    State.PLAYING: {
        Input.ACTIONS: (State.PLAYING, Do.UPDATE),
        Input.LAST_ACTIONS: (State.ENDING, Do.REPEAT),
        Input.MESSAGE: (State.PLAYING, Do.ON_MESSAGE),
        Input.ENDS_TRIAL: (State.ENDING, Do.NOTHING),
        Input.STOP: (State.OVER, Do.END),
    },
    State.ENDING: {
        # Somebody else may have ended the trial at the same moment.
        Input.LAST_ACTIONS: (State.ENDING, Do.NOTHING),
        Input.ENDS_TRIAL: (State.ENDING, Do.NOTHING),
        Input.MESSAGE: (State.ENDING, Do.ON_MESSAGE),
        Input.STOP: (State.OVER, Do.END),
    },
    State.OVER: {Input.STOP: (State.OVER, Do.NOTHING)},
}


def after(state: State, given: Input) -> tuple[State, Do]:
    """Return the state that an input leads to, and what is to be done.

    Raises:
        LocalProtocolError: the input cannot come in this state.
    """
    found = TABLE[state].get(given)
    if found is None:
        raise LocalProtocolError(f"the environment is {state.value}: {given.value} cannot come")
    return found
