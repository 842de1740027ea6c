from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given

from tests.spaces.strategies import generators, same, spaces
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphValue,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    SpaceError,
    Text,
    Tuple,
)
from trio_cogment.spaces.json_values import dumps, from_json_value, loads, to_json_value


@given(spaces, generators)
@example(Box(-np.inf, np.inf, (2, 0), "float32"), np.random.default_rng(1))
def test_every_value_of_every_space_survives(space: Space, generator: np.random.Generator) -> None:
    value = space.sample(generator)
    assert same(from_json_value(loads(dumps(to_json_value(value))), space), value)


def test_what_json_has_no_numbers_for() -> None:
    space = Box(-np.inf, np.inf, (3,), "float32")
    value = np.array([np.inf, -np.inf, 0.1], np.float32)
    found = to_json_value(value)
    assert found == ["Infinity", "-Infinity", 0.10000000149011612]
    assert same(from_json_value(found, space), value)
    # A program in Python may write the numbers as such.
    assert from_json_value(loads("[Infinity, -Infinity, 0]"), space).tolist() == [math.inf, -math.inf, 0.0]
    assert to_json_value({"loss": math.nan, "best": math.inf}) == {"loss": "NaN", "best": "Infinity"}


def test_information_without_a_space() -> None:
    info = {"lap": np.int64(2), "won": [True, None], "at": (1, 2.5), "grid": np.eye(2), "raw": b"\x00\xff", "": ""}
    expected = {
        "lap": 2,
        "won": [True, None],
        "at": [1, 2.5],
        "grid": [[1.0, 0.0], [0.0, 1.0]],
        "raw": {"base64": "AP8="},
        "": "",
    }
    assert json.loads(dumps(to_json_value(info))) == expected
    with pytest.raises(SpaceError, match=r'value\["a"\]\[1\]: expected what JSON can hold.*got object'):
        to_json_value({"a": [1, object()]})


@pytest.mark.parametrize(
    ("found", "space", "expected"),
    [
        (3.0, Discrete(4), np.int64(3)),
        (True, Discrete(2), np.int64(1)),
        ([0, 1, 0], MultiBinary(3), np.array([0, 1, 0], np.int8)),
        ([True, False], Box(False, True, (2,), "bool"), np.array([True, False])),
        ([1, 2], Box(0, 9, (2,), "float32"), np.array([1, 2], np.float32)),
        ([], Sequence(Discrete(2)), ()),
        ({"b": 1, "a": "x"}, Dict({"a": Text(3), "b": Discrete(2)}), {"a": "x", "b": np.int64(1)}),
    ],
)
def test_what_a_peer_may_write(found: Any, space: Space, expected: Any) -> None:
    assert same(from_json_value(found, space), space.check(expected))


def test_graphs_and_their_links() -> None:
    space = Graph(Discrete(5), Discrete(3))
    found = from_json_value({"nodes": [1, 2], "edges": [0], "edge_links": [[0, 1]]}, space)
    assert same(found, GraphValue(np.array([1, 2]), np.array([0]), np.array([[0, 1]], np.int32)))
    assert from_json_value({"nodes": [1]}, space).edges is None
    assert from_json_value({"nodes": [1], "edges": [], "edge_links": []}, space).edge_links.shape == (0, 2)
    with pytest.raises(SpaceError, match="nodes, edges, edge_links"):
        from_json_value([1], space)


@pytest.mark.parametrize(
    ("found", "space", "text"),
    [
        (True, Discrete(3), "value: expected a number, got True"),
        (None, Discrete(3), "value: expected a number, got None"),
        ("1", Discrete(3), "value: expected a number, got '1'"),
        (7, Discrete(3), "value: expected 0 to 2, got 7"),
        (1.5, Discrete(3), "value: expected integers, got 1.5"),
        ("Infinity", Discrete(3), "expected a number"),
        ("12345", Discrete(3), "expected a number"),
        (1e300, Discrete(3), r"expected integers, got 1e\+300"),
        (2**70, Discrete(3), "expected numbers"),
        (300, Box(0, 255, (), "uint8"), "expected numbers of uint8, got 300"),
        (-1, Box(0, 2**63, (), "uint64"), "expected numbers of uint64, got -1"),
        (1e39, Box(-np.inf, np.inf, (), "float32"), r"expected a number of float32, got 1e\+39"),
        ([1, 2], Box(0, 9, (3,)), r"expected the shape \(3,\), got \(2,\)"),
        ([[1], [2, 3]], Box(0, 9, (2, 2)), "expected numbers, in lists of the shape"),
        (["NaN", 0], Box(0, 9, (2,)), "expected numbers"),
        (1, Box(0, 9, (2,)), r"expected the shape \(2,\), got \(\)"),
        ("x", Box(0, 9, (2,)), "expected a list, got 'x'"),
        ([0, 4], MultiDiscrete([2, 3]), r"value\[1\]: expected 0 to 2, got 4"),
        (3, Text(4), "expected a string, got int"),
        ([], Dict({}), "expected an object, got"),
        (
            {"a": 1, "c": 2},
            Dict({"a": Discrete(2), "b": Discrete(2)}),
            "keys 'a', 'b'; got no 'b' and 'c'",
        ),
        ({"a": {"b": "x"}}, Dict({"a": Dict({"b": Discrete(2)})}), r'value\["a"\]\["b"\]: expected a number'),
        ([1], Tuple([Discrete(2), Discrete(2)]), "expected a list of 2, got one of 1"),
        ({"0": 1}, Sequence(Discrete(2)), "expected a list"),
        ([9, 1], OneOf([Discrete(2)]), r"value\[0\]: expected a position from 0 to 0, got 9"),
        ([True, 1], OneOf([Discrete(2), Discrete(2)]), "expected a position"),
        ({"a": [1]}, Sequence(Dict({"b": Discrete(2)}), stack=True), "expected an object with b"),
    ],
)
def test_what_is_in_no_space(found: Any, space: Space, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        from_json_value(found, space)


def test_texts_that_are_no_json() -> None:
    for text in ("{", "[" * 100_000, b"\xff", ""):
        with pytest.raises(InvalidArgumentError, match="expected JSON"):
            loads(text)
    with pytest.raises(InvalidArgumentError, match="expected what JSON has"):
        dumps(math.inf)


@pytest.mark.parametrize("wrong", [{}, [], {"a": 1}, None, "x"])
def test_what_is_no_number_is_told(wrong: Any) -> None:
    with pytest.raises(SpaceError, match="expected"):
        from_json_value(wrong, Discrete(2))


def test_integers_that_javascript_would_round_may_be_texts() -> None:
    space = Box(-(2**63), 2**63 - 1, (2,), "int64")
    found = from_json_value(["7136970930957654897", -5], space)
    assert found.tolist() == [7136970930957654897, -5]
