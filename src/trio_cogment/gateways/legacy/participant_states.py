"""The states of an old agent or environment in a trial, as two tables: what is done with each thing that comes.

Rule 1: everything about states is in this module; it knows neither calls nor messages.

Rule 2: a participant that may have been told of a trial is told of its end, once. Whether it has been is not known when
the call that tells it fails for any other reason than its own refusal.

Rule 3: an environment that did not end the trial itself makes no step for the final observations: its last ones are
sent again. The legacy API has no call for that, and so an old environment makes as many steps as the trial may have.

What is absent from a table cannot happen: the session that brings the inputs keeps that order.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

from trio_cogment.base.errors import LocalProtocolError


class State(enum.Enum):
    """Where the participant is."""

    #: It is being told that the trial begins.
    STARTING = "starting"
    PLAYING = "playing"
    #: The trial is ending: what still comes to an agent is kept for its last call, and an environment has made its
    #: final observations, or is about to.
    ENDING = "ending"
    OVER = "over"


class Input(enum.Enum):
    """What comes; those that are last came when the trial was ending."""

    STARTED = "started"
    REFUSED = "refused to start"
    # To an agent:
    OBSERVATION = "observation"
    REWARD = "reward"
    #: A reward for another tick than the latest.
    OLD_REWARD = "reward for an earlier tick"
    LAST_OBSERVATION = "last observation"
    LAST_REWARD = "last reward"
    LAST_MESSAGE = "last message"
    # To an environment:
    ACTIONS = "actions"
    LAST_ACTIONS = "last actions"
    #: The environment ends the trial with its reply.
    ENDS_TRIAL = "end of the trial"
    # To both:
    MESSAGE = "message"
    #: The trial is over for the participant, in whichever way.
    STOP = "stop"


class Do(enum.Enum):
    """What is done."""

    NOTHING = "nothing"
    DECIDE = "Decide"
    REWARD = "Reward"
    UPDATE = "Update"
    ON_MESSAGE = "OnMessage"
    #: Keep it for the agent's last call.
    KEEP = "keep"
    #: Send the environment's last observations again, as the final ones.
    REPEAT = "repeat"
    END = "End"


Table: TypeAlias = Mapping[State, Mapping[Input, tuple[State, Do]]]

_STARTING = {
    Input.STARTED: (State.PLAYING, Do.NOTHING),
    Input.REFUSED: (State.OVER, Do.NOTHING),
    Input.STOP: (State.OVER, Do.END),
}
_OVER = {Input.STOP: (State.OVER, Do.NOTHING)}
_LAST = dict.fromkeys((Input.LAST_OBSERVATION, Input.LAST_REWARD, Input.LAST_MESSAGE), (State.ENDING, Do.KEEP))

AGENT: Table = {
    State.STARTING: _STARTING,
    State.PLAYING: {
        Input.OBSERVATION: (State.PLAYING, Do.DECIDE),
        Input.REWARD: (State.PLAYING, Do.REWARD),
        Input.OLD_REWARD: (State.PLAYING, Do.NOTHING),
        Input.MESSAGE: (State.PLAYING, Do.ON_MESSAGE),
        **_LAST,
        Input.STOP: (State.OVER, Do.END),
    },
    State.ENDING: {**_LAST, Input.STOP: (State.OVER, Do.END)},
    State.OVER: _OVER,
}
ENVIRONMENT: Table = {
    State.STARTING: _STARTING,
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
    State.OVER: _OVER,
}


def after(table: Table, state: State, given: Input) -> tuple[State, Do]:
    """Return the state that an input leads to, and what is to be done.

    Raises:
        LocalProtocolError: the input cannot come in this state.
    """
    found = table[state].get(given)
    if found is None:
        raise LocalProtocolError(f"the old participant is {state.value}: {given.value} cannot come")
    return found
