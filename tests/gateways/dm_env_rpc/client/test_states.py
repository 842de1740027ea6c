"""The table of a connection's states: every state with every reply."""

from __future__ import annotations

import pytest

from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.gateways.dm_env_rpc.client.states import (
    TRANSITIONS,
    Answer,
    State,
    after,
    begins_sequence,
    ends_sequence,
)

NOT_JOINED, RUNNING, TERMINATED, INTERRUPTED = State
STAYING = {Answer.CREATED, Answer.OTHER_WORLD_RESET, Answer.DESTROYED, Answer.EXTENSION}
#: What the protocol's document says of each pair; the rest must be refused.
LEGAL = {
    (NOT_JOINED, Answer.JOINED): TERMINATED,
    (NOT_JOINED, Answer.WORLD_RESET): NOT_JOINED,
    (RUNNING, Answer.STEP_RUNNING): RUNNING,
    (RUNNING, Answer.STEP_TERMINATED): TERMINATED,
    (RUNNING, Answer.STEP_INTERRUPTED): INTERRUPTED,
    (RUNNING, Answer.RESET): INTERRUPTED,
    (RUNNING, Answer.WORLD_RESET): INTERRUPTED,
    (TERMINATED, Answer.STEP_RUNNING): RUNNING,
    (TERMINATED, Answer.RESET): TERMINATED,
    (TERMINATED, Answer.WORLD_RESET): TERMINATED,
    (INTERRUPTED, Answer.STEP_RUNNING): RUNNING,
    (INTERRUPTED, Answer.RESET): INTERRUPTED,
    (INTERRUPTED, Answer.WORLD_RESET): INTERRUPTED,
    **{(state, Answer.LEFT): NOT_JOINED for state in State},
    **{(state, answer): state for state in State for answer in STAYING},
}


@pytest.mark.parametrize("answer", Answer)
@pytest.mark.parametrize("state", State)
def test_every_pair(state: State, answer: Answer) -> None:
    expected = LEGAL.get((state, answer))
    if expected is None:
        with pytest.raises(RemoteProtocolError, match=f"while the connection is {state.value} .*; got {answer.value}$"):
            after(state, answer)
    else:
        assert after(state, answer) is expected


def test_every_state_is_in_the_table() -> None:
    assert list(TRANSITIONS) == list(State)


def test_the_ends_of_a_sequence() -> None:
    assert begins_sequence(TERMINATED, RUNNING)
    assert begins_sequence(INTERRUPTED, RUNNING)
    assert not begins_sequence(RUNNING, RUNNING)
    assert ends_sequence(RUNNING, INTERRUPTED)
    assert not ends_sequence(RUNNING, RUNNING)
