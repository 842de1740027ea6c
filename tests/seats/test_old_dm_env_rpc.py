"""The tables of the slots and connections of dm_env_rpc and that of mailboxes: the same answers.

A slot has a client for many trials, and a mailbox is one actor's in one trial. So the inputs that concern the client
alone have no counterpart: that it joins a world, resets, or has waited too long; neither has that no trial could be
started. READY is a client without a mailbox, or with one that is over.
"""

from __future__ import annotations

import itertools

import pytest

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.gateways.dm_env_rpc.gateway.connection_states import ConnectionState, Request, judge
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import (
    BLOCKED,
    CONNECTION_STATES,
    TABLE,
    Answer,
    SlotInput,
    SlotState,
    after,
)
from trio_cogment.sdk import Event, EventType, RecvObservation
from trio_cogment.seats import mailbox as new
from trio_cogment.seats.mailbox import Mailbox, MailboxState

_S, _I, _A, _M = SlotState, SlotInput, Answer, MailboxState

FINAL = "final observation"
#: The pairs that concern the trial.
MAPPED = {
    *itertools.product([_S.WAITING, _S.STEPPING, _S.ACTING], [_I.LEAVE, _I.OBSERVATION, _I.END]),
    *itertools.product([_S.ACTING, _S.OVER], [_I.STEP, _I.LEAVE]),
}


class Ported:
    """What a port makes of the same, with a mailbox: a step that waits has its answer when there is news."""

    def __init__(self) -> None:
        self.mailbox = Mailbox(self._on_news)
        self.waits = True
        self.answer = _A.NOTHING

    def _on_news(self) -> None:
        mailbox = self.mailbox
        if not self.waits or mailbox.state in (_M.FINAL_TURN, _M.LEFT):
            return  # the final observation is told with the end: until then there may be more rewards
        self.waits = False
        mailbox.take()
        self.answer = _A.END if mailbox.has_ended else _A.RUNNING

    def do(self, what: SlotInput | str) -> Answer:
        self.answer = _A.NOTHING
        mailbox = self.mailbox
        if what is _I.END:
            mailbox.end()
        elif what is _I.LEAVE:
            mailbox.leave()
        elif what is _I.STEP:
            self.waits = True
            if mailbox.act() is not new.Answer.SEND and mailbox.has_ended:
                self._on_news()
        else:
            kind = EventType.ENDING if what == FINAL else EventType.ACTIVE
            mailbox.put(Event(kind, 0, RecvObservation(0, 0, b"")))
        return self.answer


#: The states of the mailbox while the slot is in one; after the end of the sequence the slot is READY.
STATES = {
    _S.WAITING: {_M.WAITING},
    _S.ACTING: {_M.TURN, _M.FINAL_TURN},
    _S.STEPPING: {_M.ACTED, _M.FINAL_TURN},
    _S.OVER: {_M.ENDED_TURN, _M.OVER},
    _S.READY: {_M.CLOSED, _M.ENDED_TURN},
    _S.FREE: {_M.LEFT},
}


def test_every_sequence_has_the_same_answers() -> None:
    """A step waits for the first observation; then every sequence of six inputs that can come."""
    compared: set[tuple[SlotState, SlotInput]] = set()
    every: list[SlotInput | str] = [_I.OBSERVATION, FINAL, _I.END, _I.STEP, _I.LEAVE]
    for inputs in itertools.product(every, repeat=6):
        state, ported, final = _S.WAITING, Ported(), False
        for what in inputs:
            if final and what in (FINAL, _I.OBSERVATION):
                continue
            if isinstance(what, str):
                # The old table is told of it together with the end. A trial whose first observation is its last one
                # has no sequence.
                if state in (_S.ACTING, _S.STEPPING):
                    final = True
                    assert ported.do(what) is _A.NOTHING
                continue
            if (state, what) not in MAPPED or (state, what) == (_S.WAITING, _I.END):
                continue  # that is a failure of the start: see `Round`
            if what is _I.OBSERVATION and state is _S.OVER:
                continue
            compared.add((state, what))
            state, answer = after(state, what)
            assert ported.do(what) is answer
            assert ported.mailbox.state in STATES[state]
            assert (state in BLOCKED) <= ported.waits
            if state in (_S.READY, _S.FREE):
                break
    assert compared == {pair for pair in MAPPED if pair != (_S.WAITING, _I.END)}


@pytest.mark.parametrize("pair", sorted(set(TABLE) - MAPPED, key=str))
def test_the_other_pairs_concern_no_mailbox(pair: tuple[SlotState, SlotInput]) -> None:
    """Each is of a slot without a mailbox, or what the client itself or its connection does."""
    state, what = pair
    of_client = {_I.JOIN, _I.RESET, _I.RESET_NOW, _I.VOID, _I.TIMEOUT, _I.FAILURE}
    assert state in (_S.FREE, _S.READY, _S.RESETTING) or what in of_client or state is _S.OVER


def test_a_connection_without_a_seat_steps_in_vain() -> None:
    """What its table says of steps is whether there is a seat; the mailbox says the rest."""
    for state in SlotState:
        if CONNECTION_STATES[state] is ConnectionState.NOT_JOINED:
            with pytest.raises(FailedPreconditionError, match="after join_world"):
                judge(CONNECTION_STATES[state], Request.STEP)
        else:
            assert judge(CONNECTION_STATES[state], Request.STEP)
