"""The presence of a person at a seat: every state and input, and any order of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.seats.presence import (
    TABLE,
    VACANT,
    Outcome,
    Presence,
    PresenceInput,
    PresenceState,
    SeatRules,
    Then,
)

SUBSTITUTED = [Outcome.BOT, Outcome.DEFAULT]


def held(outcome: Outcome = Outcome.BOT) -> Presence:
    presence = Presence(outcome)
    assert presence.attach("a") is Then.WELCOME
    return presence


def away(outcome: Outcome = Outcome.BOT) -> Presence:
    presence = held(outcome)
    assert presence.detach("a") is Then.WAIT
    assert presence.state is PresenceState.AWAY
    return presence


def absent(outcome: Outcome = Outcome.BOT) -> Presence:
    presence = away(outcome)
    assert presence.grace_over() is Then.SUBSTITUTE
    assert presence.state is PresenceState.ABSENT
    return presence


def left() -> Presence:
    presence = away(Outcome.LOSS)
    assert presence.grace_over() is Then.LEAVE
    return presence


def over() -> Presence:
    presence = held()
    presence.end()
    return presence


#: Leads to each state.
WAYS = {
    PresenceState.OPEN: lambda: Presence(Outcome.BOT),
    PresenceState.HELD: held,
    PresenceState.AWAY: away,
    PresenceState.ABSENT: absent,
    PresenceState.LEFT: left,
    PresenceState.OVER: over,
}
HAPPEN: dict[PresenceInput, Any] = {
    PresenceInput.ATTACH: lambda presence: presence.attach("b"),
    PresenceInput.DETACH: lambda presence: presence.detach("a"),
    PresenceInput.TURN: Presence.turn,
    PresenceInput.TIME_UP: Presence.time_up,
    PresenceInput.GRACE_OVER: Presence.grace_over,
    PresenceInput.RESIGN: lambda presence: presence.resign("a"),
    PresenceInput.SUBSTITUTE_FAILS: Presence.substitute_fails,
    PresenceInput.END: Presence.end,
}


def test_the_table_has_every_pair() -> None:
    assert TABLE.keys() == set(itertools.product(PresenceState, PresenceInput))


def test_every_answer_is_used() -> None:
    assert {then for _, then in TABLE.values()} == set(Then)


@pytest.mark.parametrize("happened", PresenceInput)
@pytest.mark.parametrize("state", PresenceState)
def test_every_state_and_input(state: PresenceState, happened: PresenceInput) -> None:
    presence = WAYS[state]()
    assert presence.state is state
    then = HAPPEN[happened](presence)
    expected = TABLE[state, happened]
    if state is PresenceState.LEFT and happened is not PresenceInput.END:
        assert presence.state is PresenceState.LEFT
    assert (presence.state, then) == expected
    assert (presence.page is not None) == (presence.state is PresenceState.HELD)


@pytest.mark.parametrize("state", PresenceState)
def test_where_the_seat_is_to_be_lost_nothing_substitutes(state: PresenceState) -> None:
    for happened in PresenceInput:
        presence = Presence(Outcome.LOSS)
        presence.state = state
        then = HAPPEN[happened](presence)
        if TABLE[state, happened][1] is Then.SUBSTITUTE and happened is not PresenceInput.RESIGN:
            assert (presence.state, then) == (PresenceState.LEFT, Then.LEAVE)
        else:
            assert then is not Then.SUBSTITUTE


def test_what_is_final_stays() -> None:
    for happened in PresenceInput:
        assert TABLE[PresenceState.OVER, happened][0] is PresenceState.OVER
        assert TABLE[PresenceState.LEFT, happened][0] in (PresenceState.LEFT, PresenceState.OVER)


def test_a_page_that_is_loaded_again_keeps_the_seat() -> None:
    presence = away()
    assert presence.turn() is Then.SHOW  # its time goes on meanwhile
    assert presence.attach("b") is Then.WELCOME
    assert (presence.state, presence.page) == (PresenceState.HELD, "b")
    assert presence.grace_over() is Then.NOTHING  # it was on its way


def test_a_second_page_takes_over() -> None:
    presence = held()
    assert presence.attach("b") is Then.TAKE_OVER
    assert presence.detach("a") is Then.NOTHING
    assert presence.resign("a") is Then.NOTHING
    assert not presence.resigned
    assert (presence.state, presence.page) == (PresenceState.HELD, "b")


@pytest.mark.parametrize("outcome", SUBSTITUTED)
def test_whoever_comes_back_relieves_the_substitute(outcome: Outcome) -> None:
    presence = absent(outcome)
    assert presence.turn() is Then.SUBSTITUTE
    assert presence.attach("b") is Then.RELIEVE
    assert presence.turn() is Then.SHOW
    assert presence.page == "b"


def test_an_action_that_takes_too_long() -> None:
    presence = held(Outcome.BOT)
    assert presence.time_up() is Then.SUBSTITUTE
    assert (presence.state, presence.page) == (PresenceState.HELD, "a")
    assert presence.substitute_fails() is Then.NOTHING  # the person is there
    presence = held(Outcome.LOSS)
    assert presence.time_up() is Then.LEAVE
    assert presence.page is None


def test_giving_up() -> None:
    presence = held(Outcome.BOT)
    assert presence.resign("b") is Then.NOTHING
    assert presence.resign("a") is Then.SUBSTITUTE
    assert (presence.state, presence.page) == (PresenceState.ABSENT, None)
    assert held(Outcome.LOSS).resign("a") is Then.LEAVE


def test_a_substitute_that_fails_loses_the_seat_of_who_is_absent() -> None:
    presence = absent()
    assert presence.substitute_fails() is Then.LEAVE
    assert presence.state is PresenceState.LEFT


@pytest.mark.parametrize("outcome", Outcome)
def test_nobody_comes_changes_nothing_once_somebody_has(outcome: Outcome) -> None:
    presence = away(outcome)
    assert presence.nobody_comes() is Then.NOTHING
    presence = Presence(outcome)
    assert presence.nobody_comes() is (Then.LEAVE if outcome is Outcome.LOSS else Then.SUBSTITUTE)


def test_who_may_come_back() -> None:
    assert [WAYS[state]().is_vacant for state in PresenceState] == [False, False, False, True, True, True]
    assert frozenset(state for state in PresenceState if WAYS[state]().is_vacant) == VACANT
    # Whoever is absent may come back.
    assert [WAYS[state]().is_given_up for state in PresenceState] == [False, False, False, False, True, True]
    presence = Presence(Outcome.BOT)
    presence.nobody_comes()
    assert presence.is_given_up  # nobody has ever come
    presence = held()
    presence.resign("a")
    assert presence.is_given_up  # and said so
    presence.attach("b")
    presence.detach("b")
    presence.grace_over()
    assert not presence.is_given_up


@pytest.mark.parametrize("name", ["come_seconds", "grace_seconds", "action_seconds"])
def test_times_are_positive(name: str) -> None:
    for seconds in (0, -1, float("nan")):
        with pytest.raises(InvalidArgumentError, match=name):
            SeatRules(**{name: seconds})  # type: ignore[arg-type]  # any of the names


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["attach", "detach", "resign"]), st.sampled_from("abc")),
        st.tuples(
            st.sampled_from(["turn", "time_up", "grace_over", "nobody_comes", "substitute_fails", "end"]),
        ),
    ),
    max_size=60,
)


@given(steps=_STEPS, outcome=st.sampled_from(Outcome))
def test_any_order_of_inputs(steps: list[tuple[str, ...]], outcome: Outcome) -> None:
    presence, here, left_times, over_times = Presence(outcome), set[str](), 0, 0
    for what, *page in steps:
        if what == "attach":
            if page[0] in here:
                continue
            here.add(page[0])
        elif what in ("detach", "resign"):
            if page[0] not in here:
                continue
            if what == "detach":
                here.discard(page[0])
        holder = presence.page
        then = getattr(presence, what)(*page)
        if then is Then.TAKE_OVER or (presence.page is None and then not in (Then.NOTHING, Then.WAIT, Then.TURN_AWAY)):
            here.discard(str(holder))
        elif then is Then.TURN_AWAY:
            here.discard(page[0])
        left_times += then is Then.LEAVE
        over_times += then is Then.FINISH
        assert (presence.page is not None) == (presence.state is PresenceState.HELD)
        assert presence.page is None or presence.page in here
        assert (then is Then.SHOW) <= (presence.state in (PresenceState.HELD, PresenceState.AWAY))
        assert (then is Then.SUBSTITUTE) <= (outcome is not Outcome.LOSS)
        assert (presence.state is PresenceState.ABSENT) <= (outcome is not Outcome.LOSS)
    assert left_times <= 1
    assert over_times <= 1
    assert (presence.state is PresenceState.OVER) == (over_times == 1)


def test_states_as_pages_are_told() -> None:
    assert [state.value for state in PresenceState] == ["open", "held", "away", "absent", "left", "over"]
