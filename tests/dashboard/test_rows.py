"""Deltas: a page that gets them has what the server has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.dashboard._rows import Differ, Row, applied

A: Row = {"state": "RUNNING", "tick": 1}
A2: Row = {"state": "RUNNING", "tick": 2}


@pytest.mark.parametrize(
    ("before", "after", "delta"),
    [
        ({}, {}, None),
        ({}, {"a": A}, {"set": {"a": A}}),
        ({"a": A}, {"a": A}, None),
        ({"a": A}, {"a": A2}, {"set": {"a": {"tick": 2}}}),
        ({"a": A}, {"a": {"tick": 1}}, {"set": {"a": {"state": None}}}),
        ({"a": A}, {}, {"gone": ["a"]}),
        ({"a": A, "b": A}, {"b": A}, {"gone": ["a"]}),
        ({"a": A}, {"a": A, "b": A}, {"set": {"b": A}}),
        ({"a": A}, {"b": A, "a": A}, {"set": {"b": A}, "order": ["b", "a"]}),
        ({"a": A, "b": A}, {"b": A, "a": A}, {"order": ["b", "a"]}),
    ],
)
def test_deltas(before: dict[str, Row], after: dict[str, Row], delta: dict[str, Any] | None) -> None:
    differ = Differ()
    differ.delta(before)
    assert differ.delta(after) == delta
    assert applied(before, delta) == after
    assert list(applied(before, delta)) == list(after)
    assert differ.delta(after) is None


VALUES = st.integers(0, 3) | st.sampled_from(["x", "<b>"]) | st.lists(st.integers(0, 2), max_size=2)
ROWS = st.dictionaries(st.sampled_from("abcde"), st.dictionaries(st.sampled_from("xyz"), VALUES), max_size=5)


@given(st.lists(ROWS, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_whichever_states_a_page_misses(states: list[dict[str, Row]], looks: list[bool]) -> None:
    """What lies between two looks does not matter: the page has the state of the last one."""
    differ = Differ()
    page: dict[str, Row] = {}
    for state, seen in zip(states, looks, strict=False):
        if seen:
            page = applied(page, differ.delta(state))
            assert page == state
            assert list(page) == list(state)
