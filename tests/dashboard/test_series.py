"""Curves in bounded room, and the pace of trials."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.dashboard._board import Pace
from trio_cogment.dashboard._views import MAX_CURVES, Curve, Curves


def test_a_page_gets_each_point_once() -> None:
    curve = Curve()
    assert curve.news() == {"ticks": [], "values": [], "all": True}
    curve.add(0, 1.0)
    curve.add(1, 2.0)
    assert curve.news() == {"ticks": [0, 1], "values": [1.0, 2.0]}
    assert curve.news() is None
    curve.add(2, math.nan)
    curve.add(2, math.inf)
    curve.add(1, 5.0)
    assert curve.news() is None
    curve.add(5, -1.0)
    assert curve.news() == {"ticks": [5], "values": [-1.0]}


def told(page: tuple[list[int], list[float]], news: dict[str, Any] | None) -> tuple[list[int], list[float]]:
    if news is None:
        return page
    old = ([], []) if news.get("all") else page
    return [*old[0], *news["ticks"]], [*old[1], *news["values"]]


@given(st.lists(st.booleans(), max_size=300), st.integers(4, 40))
def test_room_is_bounded_and_the_page_has_the_same(looks: list[bool], most: int) -> None:
    curve = Curve(most)
    page: tuple[list[int], list[float]] = ([], [])
    for tick, seen in enumerate(looks):
        curve.add(tick, tick * 0.5)
        assert len(curve.ticks) <= most
        assert curve.ticks[-1] == tick
        if seen:
            page = told(page, curve.news())
            assert page == (curve.ticks, curve.values)
    assert curve.values == [tick * 0.5 for tick in curve.ticks]
    assert curve.ticks == sorted(set(curve.ticks))
    if curve.ticks:
        assert curve.ticks[0] == 0


def test_the_number_of_curves_is_bounded() -> None:
    curves = Curves()
    for number in range(MAX_CURVES + 10):
        curves.add(str(number), 0, 1.0)
    assert len(curves.news()) == MAX_CURVES
    assert curves.news() == {}
    curves.add("0", 1, 2.0)
    assert curves.news() == {"0": {"ticks": [1], "values": [2.0]}}


def test_pace() -> None:
    pace = Pace()
    assert pace.waited() == {}
    for step in range(10):
        pace.look(step * 0.1, step * 2, ["slow"] if step % 5 else ["slow", "other"])
    assert math.isclose(pace.ticks_per_second or 0.0, 20.0)
    assert pace.waited() == {"slow": 1.0, "other": 0.2}
    for step in range(10, 200):
        pace.look(step * 0.1, 18, [])
    assert pace.ticks_per_second == 0.0
    assert pace.waited() == {}


def test_pace_of_a_moment_is_unknown() -> None:
    pace = Pace()
    pace.look(1.0, 5, [])
    pace.look(1.0, 6, [])
    assert pace.ticks_per_second is None
