"""The tables of states: every pair of a state and an input."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.gateways.legacy import participant_states

P = participant_states
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
PAIRS = [
    *((partial(P.after, P.AGENT), AGENT, state, given) for state, given in itertools.product(AS, AI)),
    *((partial(P.after, P.ENVIRONMENT), ENVIRONMENT, state, given) for state, given in itertools.product(ES, EI)),
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
