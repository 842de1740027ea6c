"""Every state and input of a seat."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.errors import CogmentError, FailedPreconditionError, LocalProtocolError, NotFoundError
from trio_cogment.gateways.rest.seat_states import ANSWERABLE, FINISHED, TABLE, SeatInput, SeatState, after

_S, _I = SeatState, SeatInput
REQUESTS = (_I.JOIN, _I.ACT, _I.LEAVE)


@pytest.mark.parametrize("state", SeatState)
def test_every_request_has_an_answer_in_every_state(state: SeatState) -> None:
    assert set(REQUESTS) <= set(TABLE[state])


@pytest.mark.parametrize(("state", "happened"), list(itertools.product(SeatState, SeatInput)))
def test_every_pair(state: SeatState, happened: SeatInput) -> None:
    expected: Any = {
        (_S.FREE, _I.JOIN): _S.WAITING,
        (_S.FREE, _I.ACT): FailedPreconditionError,
        (_S.FREE, _I.LEAVE): _S.LEFT,
        (_S.FREE, _I.END): _S.ENDED,
        (_S.WAITING, _I.JOIN): _S.WAITING,
        (_S.WAITING, _I.ACT): FailedPreconditionError,
        (_S.WAITING, _I.LEAVE): _S.LEFT,
        (_S.WAITING, _I.OBSERVATION): _S.TURN,
        (_S.WAITING, _I.END): _S.OVER,
        (_S.TURN, _I.JOIN): _S.TURN,
        (_S.TURN, _I.ACT): _S.WAITING,
        (_S.TURN, _I.LEAVE): _S.LEFT,
        (_S.TURN, _I.OBSERVATION): _S.TURN,
        (_S.TURN, _I.END): _S.LAST_TURN,
        (_S.LAST_TURN, _I.JOIN): _S.LAST_TURN,
        (_S.LAST_TURN, _I.ACT): _S.OVER,
        (_S.LAST_TURN, _I.LEAVE): _S.LEFT,
        (_S.OVER, _I.JOIN): _S.OVER,
        (_S.OVER, _I.ACT): _S.OVER,
        (_S.OVER, _I.LEAVE): _S.LEFT,
        (_S.OVER, _I.TOLD): _S.ENDED,
        (_S.ENDED, _I.JOIN): FailedPreconditionError,
        (_S.ENDED, _I.ACT): NotFoundError,
        (_S.ENDED, _I.LEAVE): NotFoundError,
        (_S.ENDED, _I.TOLD): _S.ENDED,
        (_S.LEFT, _I.JOIN): FailedPreconditionError,
        (_S.LEFT, _I.ACT): NotFoundError,
        (_S.LEFT, _I.LEAVE): NotFoundError,
        (_S.LEFT, _I.END): _S.LEFT,
        (_S.LEFT, _I.TOLD): _S.LEFT,
    }.get((state, happened), LocalProtocolError)
    if isinstance(expected, SeatState):
        assert after(state, happened) is expected
    else:
        with pytest.raises(expected):
            after(state, happened)


@given(st.lists(st.sampled_from(SeatInput)))
def test_what_is_over_stays_over_and_is_told(happened: list[SeatInput]) -> None:
    state = _S.FREE
    for one in happened:
        before = state
        try:
            state = after(state, one)
        except CogmentError:
            continue
        if before in FINISHED:
            assert state is before
        if one is _I.END:
            assert state in ANSWERABLE
        if one is _I.OBSERVATION:
            assert state is _S.TURN
