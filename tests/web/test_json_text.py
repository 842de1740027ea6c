"""Numbers in the JSON of pages: none is rounded, and none has digits that say nothing."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trio_cogment.web.json_text import json_text, shortest, shortest_mean
from trio_cogment.web.replies import json_data

LARGE = 7136970930957654897  # as the id of a service


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**53 - 1, "9007199254740991"),
        (2**53, '"9007199254740992"'),
        (-(2**53), '"-9007199254740992"'),
        ({"id": LARGE, "more": [1, (LARGE, True, 0.5)]}, f'{{"id":"{LARGE}","more":[1,["{LARGE}",true,0.5]]}}'),
        ({"text": "1234567890123456", "pi": 3.141592653589793}, '{"text":"1234567890123456","pi":3.141592653589793}'),
        (1e300, "1e+300"),
        ("né\ud800", '"n\\u00e9\\ud800"'),  # half of a character, which UTF-8 does not have
    ],
)
def test_integers_that_would_be_rounded_are_texts(value: Any, text: str) -> None:
    assert json_text(value) == text
    assert json_data(value).body == text.encode()


def test_what_json_does_not_have() -> None:
    assert json_text(math.nan) == '"NaN"'
    assert json_text({"rewards": (math.inf, -math.inf, 0.5), "id": LARGE}) == (
        f'{{"rewards":["Infinity","-Infinity",0.5],"id":"{LARGE}"}}'
    )


@given(
    st.recursive(
        st.integers() | st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_javascript_reads_all_of_it(value: Any) -> None:
    def read(text: str) -> int:
        assert float(text) == int(text)
        return int(text)

    json.loads(json_text(value), parse_int=read)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.10000000149011612, 0.1), (-0.20000000298023224, -0.2), (0.0, 0.0), (1e300, 1e300)],
)
def test_the_fewest_digits(value: float, shown: float) -> None:
    assert shortest(value) == shown


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(999999986991104.0)
def test_the_same_number_in_32_bits(value: float) -> None:
    found = shortest(value)
    assert struct.pack("f", found) == struct.pack("f", value)
    assert digits_of(found) <= digits_of(value)


def digits_of(value: float) -> int:
    """Return how many digits a number has that say something; how many zeros are behind them is another matter."""
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([(0.3, 1.0), (-0.1, 1.0)], 0.1),
        ([(0.3, 3.0), (-0.1, 1.0)], 0.2),
        ([(1.0, 1.0), (0.0, 1.0), (0.0, 1.0)], 0.333333333333),
        ([(0.1, 1.0), (-0.1, 1.0)], 0.0),
        ([(-0.1, 0.5)], -0.1),
        ([], 0.0),
        ([(0.1, 0.0), (0.3, 0.0)], 0.0),
    ],
)
def test_a_mean_of_numbers_of_32_bits(parts: list[tuple[float, float]], shown: float) -> None:
    """As the orchestrator computes it, which adds what it is sent."""
    stored = [(as_float32(value), weight) for value, weight in parts]
    weights = sum(weight for _, weight in stored)
    mean = as_float32(sum(value * weight for value, weight in stored) / weights) if weights else 0.0
    assert shortest_mean(mean, stored) == shown


def test_a_mean_that_somebody_else_has_computed_is_shown_as_it_is() -> None:
    assert shortest_mean(0.5, [(0.25, 1.0), (1.0, 1.0)]) == 0.5


def as_float32(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found
