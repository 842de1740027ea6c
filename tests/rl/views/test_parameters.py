"""The parameters of a view's trials: whose seats are whose."""

from __future__ import annotations

from typing import Any

import pytest

import trio_cogment.rl as tc
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rl.views.parameters import driven_agents

AGENTS = ["a", "b", "c"]
SEAT = tc.random(1)


@pytest.mark.parametrize(
    ("seats", "mine", "driven"),
    [
        ({}, None, ("a", "b", "c")),
        ({"b": SEAT}, None, ("a", "c")),
        ({"b": SEAT}, ["c", "a"], ("a", "c")),
        ({"b": SEAT, "c": SEAT}, ["a"], ("a",)),
    ],
)
def test_agents_without_another_seat_are_the_views(seats: dict[str, Any], mine: Any, driven: tuple[str, ...]) -> None:
    assert driven_agents("e", AGENTS, seats, mine) == driven


@pytest.mark.parametrize(
    ("seats", "mine", "text"),
    [
        ({"a": SEAT}, ["a", "b", "c"], "actor 'a': seats: expected one seat, got both the view's and another's"),
        ({"a": SEAT}, ["b"], "actor 'c': seats: expected one seat, got none"),
        ({"d": SEAT}, None, "seats: 'd' is not an agent; its agents are 'a', 'b', 'c'"),
        ({}, ["d"], "seats: 'd' is not an agent"),
        ({"a": 1}, None, "seats: 'a': expected a seat, got int$"),
        ({"a": len}, None, r"seats: 'a': expected a seat, got builtin_function_or_method; write policy\(function\)"),
        (dict.fromkeys(AGENTS, SEAT), None, "expected an agent for the view, but all have other seats"),
    ],
)
def test_each_agent_has_one_seat(seats: dict[str, Any], mine: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        driven_agents("e", AGENTS, seats, mine)
