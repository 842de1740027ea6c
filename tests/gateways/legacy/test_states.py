"""The tables of states: every pair of a state and an input."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.gateways.legacy import client_states, participant_states

P, C = participant_states, client_states
AI, AS, AD = P.Input, P.State, P.Do
EI, ES, ED = P.Input, P.State, P.Do
LAST = (AI.LAST_OBSERVATION, AI.LAST_REWARD, AI.LAST_MESSAGE)

AGENT: dict[Any, Any] = {
    (AS.STARTING, AI.STARTED): (AS.PLAYING, AD.NOTHING),
    (AS.STARTING, AI.REFUSED): (AS.OVER, AD.NOTHING),
    (AS.STARTING, AI.STOP): (AS.OVER, AD.END),
    (AS.PLAYING, AI.OBSERVATION): (AS.PLAYING, AD.DECIDE),
    (AS.PLAYING, AI.REWARD): (AS.PLAYING, AD.REWARD),
    (AS.PLAYING, AI.OLD_REWARD): (AS.PLAYING, AD.NOTHING),
    (AS.PLAYING, AI.MESSAGE): (AS.PLAYING, AD.ON_MESSAGE),
    (AS.PLAYING, AI.STOP): (AS.OVER, AD.END),
    **{(state, given): (AS.ENDING, AD.KEEP) for state in (AS.PLAYING, AS.ENDING) for given in LAST},
    (AS.ENDING, AI.STOP): (AS.OVER, AD.END),
    (AS.OVER, AI.STOP): (AS.OVER, AD.NOTHING),
}
ENVIRONMENT: dict[Any, Any] = {
    (ES.STARTING, EI.STARTED): (ES.PLAYING, ED.NOTHING),
    (ES.STARTING, EI.REFUSED): (ES.OVER, ED.NOTHING),
    (ES.STARTING, EI.STOP): (ES.OVER, ED.END),
    (ES.PLAYING, EI.ACTIONS): (ES.PLAYING, ED.UPDATE),
    (ES.PLAYING, EI.LAST_ACTIONS): (ES.ENDING, ED.REPEAT),
    (ES.PLAYING, EI.MESSAGE): (ES.PLAYING, ED.ON_MESSAGE),
    (ES.PLAYING, EI.ENDS_TRIAL): (ES.ENDING, ED.NOTHING),
    (ES.PLAYING, EI.STOP): (ES.OVER, ED.END),
    (ES.ENDING, EI.LAST_ACTIONS): (ES.ENDING, ED.NOTHING),
    (ES.ENDING, EI.ENDS_TRIAL): (ES.ENDING, ED.NOTHING),
    (ES.ENDING, EI.MESSAGE): (ES.ENDING, ED.ON_MESSAGE),
    (ES.ENDING, EI.STOP): (ES.OVER, ED.END),
    (ES.OVER, EI.STOP): (ES.OVER, ED.NOTHING),
}
CI, CS, CD = C.Input, C.State, C.Do
CLIENT: dict[Any, Any] = {
    (CS.FREE, CI.CALL_JOIN): (CS.JOINING, CD.JOIN),
    (CS.FREE, CI.CALL_ACTION): (CS.FREE, CD.NOT_JOINED),
    (CS.FREE, CI.END): (CS.OVER, CD.NOTHING),
    (CS.JOINING, CI.GONE): (CS.AWAY, CD.NOTHING),
    (CS.JOINING, CI.OBSERVATION): (CS.UNSEEN, CD.ANSWER),
    (CS.JOINING, CI.REFUSED): (CS.FREE, CD.FAIL),
    (CS.JOINING, CI.END): (CS.ENDED, CD.FAIL),
    (CS.AWAY, CI.CALL_JOIN): (CS.JOINING, CD.WAIT),
    (CS.AWAY, CI.CALL_ACTION): (CS.EARLY, CD.WAIT),
    (CS.AWAY, CI.OBSERVATION): (CS.UNSEEN, CD.NOTHING),
    (CS.AWAY, CI.REFUSED): (CS.FREE, CD.NOTHING),
    (CS.AWAY, CI.END): (CS.ENDED, CD.NOTHING),
    (CS.EARLY, CI.GONE): (CS.AWAY, CD.NOTHING),
    (CS.EARLY, CI.OBSERVATION): (CS.ACTING, CD.ACT),
    (CS.EARLY, CI.REFUSED): (CS.FREE, CD.FAIL),
    (CS.EARLY, CI.END): (CS.ENDED, CD.ANSWER),
    (CS.UNSEEN, CI.CALL_JOIN): (CS.TURN, CD.ANSWER),
    (CS.UNSEEN, CI.CALL_ACTION): (CS.ACTING, CD.ACT),
    (CS.UNSEEN, CI.TOLD): (CS.TURN, CD.NOTHING),
    (CS.UNSEEN, CI.GONE): (CS.UNSEEN, CD.NOTHING),
    (CS.UNSEEN, CI.OBSERVATION): (CS.UNSEEN, CD.NOTHING),
    (CS.UNSEEN, CI.END): (CS.ENDED, CD.NOTHING),
    (CS.TURN, CI.CALL_JOIN): (CS.TURN, CD.TAKEN),
    (CS.TURN, CI.CALL_ACTION): (CS.ACTING, CD.ACT),
    (CS.TURN, CI.OBSERVATION): (CS.TURN, CD.NOTHING),
    (CS.TURN, CI.END): (CS.ENDED, CD.NOTHING),
    (CS.ACTING, CI.GONE): (CS.ALONE, CD.NOTHING),
    (CS.ACTING, CI.OBSERVATION): (CS.UNREAD, CD.ANSWER),
    (CS.ACTING, CI.END): (CS.ENDED, CD.ANSWER),
    (CS.ALONE, CI.CALL_JOIN): (CS.ALONE, CD.TAKEN),
    (CS.ALONE, CI.CALL_ACTION): (CS.ACTING, CD.WAIT),
    (CS.ALONE, CI.OBSERVATION): (CS.UNREAD, CD.NOTHING),
    (CS.ALONE, CI.END): (CS.ENDED, CD.NOTHING),
    (CS.UNREAD, CI.CALL_JOIN): (CS.UNREAD, CD.TAKEN),
    (CS.UNREAD, CI.CALL_ACTION): (CS.TURN, CD.ANSWER),
    (CS.UNREAD, CI.TOLD): (CS.TURN, CD.NOTHING),
    (CS.UNREAD, CI.GONE): (CS.UNREAD, CD.NOTHING),
    (CS.UNREAD, CI.OBSERVATION): (CS.UNREAD, CD.NOTHING),
    (CS.UNREAD, CI.END): (CS.ENDED, CD.NOTHING),
    (CS.ENDED, CI.CALL_JOIN): (CS.ENDED, CD.OVER),
    (CS.ENDED, CI.CALL_ACTION): (CS.OVER, CD.ANSWER),
    (CS.ENDED, CI.TOLD): (CS.OVER, CD.NOTHING),
    (CS.ENDED, CI.GONE): (CS.ENDED, CD.NOTHING),
    (CS.ENDED, CI.END): (CS.ENDED, CD.NOTHING),
    (CS.OVER, CI.CALL_JOIN): (CS.OVER, CD.OVER),
    (CS.OVER, CI.CALL_ACTION): (CS.OVER, CD.ANSWER),
    (CS.OVER, CI.END): (CS.OVER, CD.NOTHING),
}
PAIRS = [
    *((partial(P.after, P.AGENT), AGENT, state, given) for state, given in itertools.product(AS, AI)),
    *((partial(P.after, P.ENVIRONMENT), ENVIRONMENT, state, given) for state, given in itertools.product(ES, EI)),
    *((C.after, CLIENT, state, given) for state, given in itertools.product(CS, CI)),
]


@pytest.mark.parametrize(("after", "table", "state", "given"), PAIRS)
def test_every_pair(after: Any, table: dict[Any, Any], state: Any, given: Any) -> None:
    expected = table.get((state, given))
    if expected is None:
        with pytest.raises(LocalProtocolError, match=f"is {state.value}: {given.value} cannot come"):
            after(state, given)
    else:
        assert after(state, given) == expected


@pytest.mark.parametrize("table", [P.AGENT, P.ENVIRONMENT], ids=["agent", "environment"])
def test_whatever_comes_the_end_is_told_once_to_who_may_know(table: Any) -> None:
    """In all sequences of inputs up to six."""
    reached = {(P.State.STARTING, 0, False)}
    for _ in range(6):
        following = set()
        for state, ends, refused in reached:
            for given, (then, do) in table[state].items():
                following.add((then, ends + (do is P.Do.END), refused or given is P.Input.REFUSED))
        reached |= following
    for state, ends, refused in reached:
        over = state is P.State.OVER
        assert ends == (1 if over and not refused else 0)


def test_an_action_counts_once_whatever_calls_come_and_go() -> None:
    """In all sequences of inputs up to seven: never two actions without an observation between them."""
    reached = {(CS.FREE, False)}
    for _ in range(7):
        following = set()
        for state, acted in reached:
            for given, (then, do) in C.TABLE[state].items():
                seen = given is CI.OBSERVATION
                assert do is not CD.ACT or seen or not acted, (state, given)
                following.add((then, do is CD.ACT or (acted and not seen)))
        reached |= following
    # Who has acted waits, or the trial is over.
    assert {state for state, acted in reached if acted} == {CS.ACTING, CS.ALONE, CS.ENDED, CS.OVER}


def test_an_answer_that_nobody_took_is_given_again() -> None:
    for state in (CS.UNSEEN, CS.UNREAD, CS.ENDED):
        assert C.after(state, CI.GONE) == (state, CD.NOTHING)
    assert C.after(CS.UNREAD, CI.CALL_ACTION) == (CS.TURN, CD.ANSWER)
    assert C.after(CS.UNSEEN, CI.CALL_JOIN) == (CS.TURN, CD.ANSWER)
    assert C.after(CS.ENDED, CI.CALL_ACTION) == (CS.OVER, CD.ANSWER)
