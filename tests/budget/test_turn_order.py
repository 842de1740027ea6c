"""Turns, pure: every pass gives away what it has, nobody is passed over, and slow passes give less."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.budget.turn_order import PASS_SECONDS, Lane, TurnOrder

LANES = pytest.mark.parametrize("lane", list(Lane))


def drain(order: TurnOrder, lane: Lane) -> int:
    """Take all units of a lane; return how many there were."""
    taken = 0
    while order.take(lane):
        taken += 1
    return taken


@LANES
def test_who_finds_units_goes_at_once(lane: Lane) -> None:
    order = TurnOrder()
    assert drain(order, lane) == order.units(lane) > 0
    assert not order.crowded
    order.next_pass()
    assert drain(order, lane) == order.units(lane)


@LANES
def test_lanes_do_not_take_from_each_other(lane: Lane) -> None:
    order = TurnOrder()
    drain(order, lane)
    assert drain(order, Lane(1 - lane)) == order.units(Lane(1 - lane))


@LANES
def test_who_waits_goes_in_order_and_before_those_who_come_later(lane: Lane) -> None:
    order = TurnOrder()
    drain(order, lane)
    went: list[str] = []
    order.wait(lane, "one", lambda: went.append("one"))
    order.wait(lane, "two", lambda: went.append("two"))
    order.wait(lane, "gone", lambda: went.append("gone"))
    order.leave(lane, "gone")
    assert not order.take(lane)
    order.next_pass()
    assert went == ["one", "two"]
    assert not order.crowded
    assert order.take(lane)


def test_one_that_wants_much_goes_to_the_back_of_the_queue() -> None:
    order = TurnOrder()
    drain(order, Lane.OTHERS)
    went: list[str] = []

    def many() -> None:
        went.append("many")
        order.wait(Lane.OTHERS, "many", many)

    order.wait(Lane.OTHERS, "many", many)
    order.wait(Lane.OTHERS, "few", lambda: went.append("few"))
    order.next_pass()
    assert went[:3] == ["many", "few", "many"]
    assert len(went) == order.units(Lane.OTHERS)


def test_a_pass_lets_no_more_go_than_it_has_units_for() -> None:
    order = TurnOrder()
    drain(order, Lane.OTHERS)
    went: list[int] = []
    for number in range(100):
        order.wait(Lane.OTHERS, number, partial(went.append, number), 20)
    order.next_pass()
    assert len(went) == -(-order.units(Lane.OTHERS) // 20)


def test_what_was_charged_too_late_is_paid_by_the_next_passes() -> None:
    order = TurnOrder()
    size = order.units(Lane.OTHERS)
    assert order.take(Lane.OTHERS)
    order.charge(Lane.OTHERS, 3 * size)
    went: list[None] = []
    order.wait(Lane.OTHERS, "next", lambda: went.append(None))
    for _ in range(2):
        order.next_pass()
        assert not went
    order.next_pass()
    assert went
    order.charge(Lane.OTHERS, -5)  # it was less than expected
    order.next_pass()
    assert drain(order, Lane.OTHERS) == size  # what was left over is not added


def test_long_passes_get_fewer_units_and_short_ones_more_again() -> None:
    order = TurnOrder()
    full = [order.units(lane) for lane in Lane]
    while order.units(Lane.ESTABLISHED) == full[0]:
        order.adapt(2 * PASS_SECONDS)
    least = order.units(Lane.OTHERS)
    assert 0 < least < full[1]  # these give way first
    for _ in range(100):
        order.adapt(2 * PASS_SECONDS)
    assert order.units(Lane.OTHERS) == least
    assert 0 < order.units(Lane.ESTABLISHED) < full[0]
    order.adapt(0.75 * PASS_SECONDS)
    assert order.units(Lane.OTHERS) == least
    for _ in range(100):
        order.adapt(0.0)
    assert [order.units(lane) for lane in Lane] == full


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.integers(0, 9)),
            st.tuples(st.just("charge"), st.integers(0, 500)),
            st.tuples(st.just("pass"), st.integers(0, 40)),
        ),
        max_size=80,
    )
)
def test_everybody_gets_a_turn_once_for_each_time_they_wait(steps: list[tuple[str, int]]) -> None:
    order = TurnOrder()
    drain(order, Lane.OTHERS)
    waited: Counter[int] = Counter()
    went: Counter[int] = Counter()
    for step, number in steps:
        if step == "wait" and waited[number] == went[number]:
            waited[number] += 1
            order.wait(Lane.OTHERS, number, partial(went.update, [number]), 1 + number)
        elif step == "charge":
            order.charge(Lane.OTHERS, number)
        elif step == "pass":
            order.next_pass()
            order.adapt(number / 20 * PASS_SECONDS)
    passes = 0
    while order.crowded:
        order.next_pass()
        passes += 1
        assert passes < 10_000
    assert went == waited


def test_there_are_never_fewer_units_than_are_worth_having_nor_more_than_a_pass_can_have() -> None:
    """First the others give way, and only then those who were there before."""
    order = TurnOrder()
    seen = []
    for seconds in (*[0.01] * 20, *[0.0001] * 200):
        order.adapt(seconds)
        seen.append((order.units(Lane.ESTABLISHED), order.units(Lane.OTHERS)))
    assert seen[:8] == [(256, 64), (256, 32), (256, 16), (256, 8), (128, 8), (64, 8), (32, 8), (32, 8)]
    assert seen[19] == (32, 8)
    assert seen[-1] == (256, 128)


@pytest.mark.parametrize(("seconds", "units"), [(0.00201, 64), (0.002, 128), (0.001, 128)])
def test_a_pass_may_take_two_milliseconds(seconds: float, units: int) -> None:
    order = TurnOrder()
    order.adapt(seconds)
    assert order.units(Lane.OTHERS) == units
