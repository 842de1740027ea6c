"""The table of a slot's states: every pair, and walks by which no client is told what the protocol does not allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.gateways.dm_env_rpc.gateway.connection_states import ConnectionState
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import (
    BLOCKED,
    CONNECTION_STATES,
    TABLE,
    Answer,
    SlotInput,
    SlotState,
    after,
)
from trio_cogment.gateways.dm_env_rpc.gateway.slots import INTERRUPTED, RUNNING, Reply, Slot

FREE, READY, WAITING, ACTING, STEPPING, RESETTING, OVER = SlotState
JOIN, LEAVE, STEP, RESET, RESET_NOW, OBSERVATION, END, FAILURE, TIMEOUT, VOID = SlotInput
JOINED = [state for state in SlotState if state is not FREE]
IDLE = [state for state in JOINED if state not in BLOCKED]

#: Each pair that can happen, by what the client does and by what the trial does.
RULES: dict[tuple[SlotState, SlotInput], tuple[SlotState, Answer]] = {
    (FREE, JOIN): (READY, Answer.NOTHING),
    **{(state, LEAVE): (FREE, Answer.NOTHING) for state in JOINED},
    # Requests come while none waits.
    (READY, STEP): (WAITING, Answer.NOTHING),
    (ACTING, STEP): (STEPPING, Answer.NOTHING),
    (OVER, STEP): (READY, Answer.END),
    (READY, RESET_NOW): (READY, Answer.SPECS),
    (ACTING, RESET): (RESETTING, Answer.NOTHING),
    (OVER, RESET_NOW): (READY, Answer.SPECS),
    **{(state, VOID): (READY, Answer.NOTHING) for state in IDLE},
    # What a client waits for.
    (WAITING, OBSERVATION): (ACTING, Answer.RUNNING),
    (STEPPING, OBSERVATION): (ACTING, Answer.RUNNING),
    (STEPPING, END): (READY, Answer.END),
    (RESETTING, END): (READY, Answer.SPECS),
    (ACTING, END): (OVER, Answer.NOTHING),
    # Without an observation there is no sequence; with one the client is still to be told of its end.
    (WAITING, FAILURE): (READY, Answer.ERROR),
    (WAITING, TIMEOUT): (READY, Answer.ERROR),
    **{(state, happened): (OVER, Answer.ERROR) for state in (STEPPING, RESETTING) for happened in (FAILURE, TIMEOUT)},
    # What does not concern the client.
    **{
        (state, happened): (state, Answer.NOTHING)
        for state in (READY, OVER)
        for happened in (OBSERVATION, END, FAILURE)
    },
    (ACTING, OBSERVATION): (ACTING, Answer.NOTHING),
    (RESETTING, OBSERVATION): (RESETTING, Answer.NOTHING),
    (WAITING, END): (WAITING, Answer.NOTHING),
}


@pytest.mark.parametrize("happened", SlotInput)
@pytest.mark.parametrize("state", SlotState)
def test_every_pair(state: SlotState, happened: SlotInput) -> None:
    expected = RULES.get((state, happened))
    if expected is None:
        with pytest.raises(LocalProtocolError, match=f"a slot that is {state.value} cannot get {happened.value}"):
            after(state, happened)
    else:
        assert after(state, happened) == expected


def test_a_request_that_waits_is_answered_or_goes_on_waiting() -> None:
    for (state, happened), (following, answer) in TABLE.items():
        if state in BLOCKED and happened is not LEAVE:
            assert (answer is Answer.NOTHING) == (following is state), (state, happened)


def test_every_state_is_known_to_the_client() -> None:
    assert set(CONNECTION_STATES) == set(SlotState)
    assert {state for state, known in CONNECTION_STATES.items() if known is ConnectionState.NOT_RUNNING} == {
        READY,
        WAITING,
    }


#: What the answers tell a client, as its library counts them: from which states, and to which.
TOLD = {
    Answer.RUNNING: ((ConnectionState.NOT_RUNNING, ConnectionState.RUNNING), ConnectionState.RUNNING),
    Answer.END: ((ConnectionState.RUNNING,), ConnectionState.NOT_RUNNING),
    Answer.SPECS: ((ConnectionState.NOT_RUNNING, ConnectionState.RUNNING), ConnectionState.NOT_RUNNING),
}


@given(st.lists(st.sampled_from(SlotInput), max_size=60))
def test_the_client_is_told_each_change(inputs: list[SlotInput]) -> None:
    """What a client has been told, by answers alone, is the state that its requests are judged by."""
    state, known = FREE, ConnectionState.NOT_JOINED
    for happened in inputs:
        if (state, happened) not in TABLE:
            continue
        state, answer = after(state, happened)
        if answer in TOLD:
            before, known_now = TOLD[answer]
            assert known in before
            known = known_now
        elif happened in (JOIN, VOID):
            known = ConnectionState.NOT_RUNNING
        elif happened is LEAVE:
            known = ConnectionState.NOT_JOINED
        assert CONNECTION_STATES[state] is known


@pytest.mark.parametrize("happened", [FAILURE, TIMEOUT])
@pytest.mark.parametrize("request_made", [STEP, RESET])
async def test_after_an_error_the_end_comes_with_the_last_observation(
    happened: SlotInput, request_made: SlotInput
) -> None:
    slot = Slot("ann", "player", lambda: None)
    for each in (JOIN, STEP):
        slot.feed(each)
    slot.feed(OBSERVATION, Reply(RUNNING, b"first"))
    assert await slot.answered(1, "world") == Reply(RUNNING, b"first")
    slot.feed(request_made)
    error = ValueError("no")
    slot.feed(happened, Reply(error=error))
    assert (await slot.answered(1, "world")).error is error
    slot.feed(STEP)
    assert await slot.answered(1, "world") == Reply(INTERRUPTED, b"first")
    assert slot.state is READY


def test_names_in_errors() -> None:
    for each in (*SlotState, *SlotInput):
        assert each.value == each.name.lower().replace("_", " ")


def test_it_is_told_when_a_sequence_has_ended_or_a_client_came_or_went() -> None:
    told: list[SlotState] = []
    slot = Slot("ann", "player", lambda: told.append(slot.state))
    for happened, then in [
        (JOIN, [READY]),
        (STEP, []),
        (OBSERVATION, []),
        (END, [OVER]),
        (STEP, [READY]),
        (LEAVE, [FREE]),
    ]:
        told.clear()
        slot.feed(happened, Reply(RUNNING, b"seen"))
        assert told == then, happened
