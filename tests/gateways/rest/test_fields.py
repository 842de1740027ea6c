"""Fields of requests: integers of 64 bits, as texts or numbers, and finite numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.rest.fields import fields_of, integer, number, text

LOWEST, HIGHEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("value", [0, -1, 7, LOWEST, HIGHEST])
def test_an_integer_is_its_digits_or_a_number(value: int) -> None:
    assert integer({"tick": value}, "tick", 3) == value
    assert integer({"tick": str(value)}, "tick", 3) == value
    assert integer({}, "tick", 3) == 3


@pytest.mark.parametrize(
    "value",
    [
        LOWEST - 1,
        HIGHEST + 1,
        str(LOWEST - 1),
        str(HIGHEST + 1),
        "",
        "-",
        "+1",
        " 1",
        "1\n",
        "1.0",
        1.0,
        True,
        None,
        [],
    ],
)
def test_what_is_no_integer(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^rewards\.tick: expected an integer as a text$"):
        integer({"tick": value}, "tick", 3, "rewards")


def test_a_number_is_finite() -> None:
    assert number({"value": -1}, "value", 1) == -1.0
    assert number({}, "value", 0.5) == 0.5
    for wrong in (math.inf, math.nan, 10**400, "1", True, None):
        with pytest.raises(InvalidArgumentError, match=r"^value: expected a"):
            number({"value": wrong}, "value", 1)


def test_a_text_may_be_missing() -> None:
    assert (text({}, "name"), text({"name": None}, "name"), text({"name": "a"}, "name")) == ("", "", "a")
    with pytest.raises(InvalidArgumentError, match=r"^actor\.name: expected a text$"):
        text({"name": 1}, "name", "actor")


def test_a_field_that_there_is_not_is_named() -> None:
    assert fields_of({"a": 1}, ("a", "b"), "") == {"a": 1}
    with pytest.raises(InvalidArgumentError, match=r"^x\.c: there is no such field; expected a, b$"):
        fields_of({"a": 1, "c": 2}, ("a", "b"), "x")
    with pytest.raises(InvalidArgumentError, match=r"^body: expected an object$"):
        fields_of([], ("a",), "")
