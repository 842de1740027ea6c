from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.trial._participant import Actor
from trio_cogment.trial._rewards import merge, resolve

from .harness import actor, make_params


def names(pattern: str) -> list[str]:
    params = make_params(actor("a", "k"), actor("b", "l"), actor("k.b", "l"), actor("k.a", "k"))
    return [found.name for found in resolve(pattern, [Actor(index, params) for index in range(4)])]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a"]),
        ("*", ["a", "b", "k.b", "k.a"]),
        ("k.*", ["a", "k.a"]),
        # An exact name comes before the class and name it could be.
        ("k.a", ["k.a"]),
        ("k.b", ["k.b"]),
        ("l.k.b", ["k.b"]),
        ("l.b", ["b"]),
        ("l.a", []),
        ("k.", []),
        ("nobody", []),
    ],
)
def test_resolve(pattern: str, expected: list[str]) -> None:
    assert names(pattern) == expected


@pytest.mark.parametrize(
    ("sources", "value"),
    [
        ([(1, 1), (8, 1), (10, 0), (11, -1)], 4.5),
        ([(1, 3), (5, 1)], 2),
        ([(7, 0)], 0),
        ([(7, -1)], 0),
        ([(math.nan, 1)], math.nan),
        ([(math.nan, 0), (2, 1)], 2),
        ([(2, math.nan)], 0),
        ([(math.inf, 1)], math.inf),
        ([(3e38, 3e38), (3e38, 3e38)], pytest.approx(3e38)),
    ],
)
def test_merge(sources: list[tuple[float, float]], value: float) -> None:
    reward = merge(3, "x", [RewardSource(value=v, confidence=c) for v, c in sources])
    assert (reward.tick_id, reward.receiver_name, len(reward.sources)) == (3, "x", len(sources))
    assert reward.value == value or (math.isnan(value) and math.isnan(reward.value))


FLOATS = st.floats(width=32)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=6))
def test_merge_takes_any_floats(sources: list[tuple[float, float]]) -> None:
    reward = merge(0, "x", [RewardSource(value=v, confidence=c) for v, c in sources])
    assert len(reward.sources) == len(sources)
