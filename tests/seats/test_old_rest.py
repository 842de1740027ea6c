"""The table of the web proxy's seats and that of mailboxes: the same answers, for every pair that the old one has."""

from __future__ import annotations

import pytest

from trio_cogment.errors import FailedPreconditionError, NotFoundError
from trio_cogment.gateways.rest.seat_states import ANSWERABLE, FINISHED, TABLE, Refusal, SeatInput, SeatState, after
from trio_cogment.seats.mailbox import REFUSED, Answer, MailboxInput, MailboxState
from trio_cogment.seats.mailbox import TABLE as NEW

_S, _I, _N = SeatState, SeatInput, MailboxState

#: The state of the mailbox in each old state. That nobody has joined is not the mailbox's business.
STATES: dict[SeatState, set[MailboxState]] = {
    _S.FREE: {_N.WAITING},
    _S.WAITING: {_N.WAITING, _N.ACTED},
    _S.TURN: {_N.TURN, _N.FINAL_TURN},
    _S.LAST_TURN: {_N.ENDED_TURN},
    _S.OVER: {_N.OVER},
    _S.ENDED: {_N.CLOSED},
    _S.LEFT: {_N.LEFT},
}
#: Inputs of the mailbox for each old one. A join is none; the end of a seat that nobody has taken is told to nobody.
INPUTS: dict[SeatInput, list[MailboxInput]] = {
    _I.JOIN: [],
    _I.ACT: [MailboxInput.ACT],
    _I.LEAVE: [MailboxInput.LEAVE],
    _I.OBSERVATION: [MailboxInput.OBSERVATION],
    _I.END: [MailboxInput.END],
    _I.TOLD: [MailboxInput.TAKE],
}


def followed(state: MailboxState, given: list[MailboxInput]) -> tuple[MailboxState, list[Answer]]:
    answers = []
    for one in given:
        state, answer = NEW[state, one]
        answers.append(answer)
    return state, answers


def test_every_pair_of_the_old_table_has_the_same_answer() -> None:
    todo = [(_S.FREE, _N.WAITING)]
    seen: set[tuple[SeatState, MailboxState]] = set()
    pairs: set[tuple[SeatState, SeatInput]] = set()
    while todo:
        old, new = todo.pop()
        if (old, new) in seen:
            continue
        seen.add((old, new))
        assert new in STATES[old]
        # Whoever waits has an answer in the same states; before somebody has joined nobody waits.
        assert (old in ANSWERABLE) == bool(NEW[new, MailboxInput.TAKE][1])
        assert (old in FINISHED) == (new in (_N.CLOSED, _N.LEFT))
        for given in TABLE[old]:
            pairs.add((old, given))
            ways = [INPUTS[given]]
            if given is _I.OBSERVATION:
                ways.append([MailboxInput.FINAL])
            elif (old, given) == (_S.FREE, _I.END):
                ways = [[MailboxInput.END, MailboxInput.TAKE]]
            for way in ways:
                if new is _N.FINAL_TURN and way == [MailboxInput.OBSERVATION]:
                    continue  # the old table does not know the final observation from others
                todo.append(same_answer(old, new, given, way))
    assert pairs == {(state, given) for state, row in TABLE.items() for given in row}
    assert {new for _, new in seen} == set(MailboxState)


def same_answer(
    old: SeatState, new: MailboxState, given: SeatInput, way: list[MailboxInput]
) -> tuple[SeatState, MailboxState]:
    """Return the states that follow."""
    after_new, answers = followed(new, way)
    found = TABLE[old][given]
    if isinstance(found, Refusal):
        if given is _I.JOIN:
            assert new in (_N.CLOSED, _N.LEFT)
        else:
            assert answers[0] in REFUSED
            expected = NotFoundError if answers[0] is Answer.GONE else FailedPreconditionError
            with pytest.raises(expected):
                after(old, given)
        assert after_new is new
        return old, new
    if given in (_I.ACT, _I.LEAVE):
        assert answers[0] not in REFUSED
    # The action goes to the session where the trial still takes it.
    if given is _I.ACT and new is not _N.FINAL_TURN:
        assert (old is _S.TURN) == (answers[0] is Answer.SEND)
    return found, after_new
