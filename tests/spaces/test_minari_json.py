"""Spaces as Minari's JSON, held against Minari itself."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minari.serialization import deserialize_space, serialize_space

from tests.spaces import strategies as some
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    OneOf,
    Sequence,
    Space,
    SpaceError,
    Text,
    Tuple,
    from_gymnasium,
    from_json,
    to_gymnasium,
    to_json,
)
from trio_cogment.spaces.errors import MAX_DEPTH


def gymnasium_has(space: Space) -> bool:
    """Gymnasium refuses integers near the ends of 64 bits, for example."""
    try:
        to_gymnasium(space)
    except SpaceError:
        return False
    return True


@given(some.spaces)
def test_every_space_survives(space: Space) -> None:
    assert from_json(to_json(space)) == space


@given(some.minari_spaces.filter(gymnasium_has))
def test_the_text_is_that_of_minari(space: Space) -> None:
    text = serialize_space(to_gymnasium(space))
    if not any(isinstance(leaf, Discrete) and leaf.row.name != "int64" for _, leaf in space.leaves()):
        assert to_json(space) == text
    assert json.loads(text).keys() == json.loads(to_json(space)).keys()


@given(some.minari_spaces.filter(gymnasium_has))
def test_minari_reads_it(space: Space) -> None:
    if any(isinstance(leaf, Discrete) and leaf.row.name != "int64" for _, leaf in space.leaves()):
        return
    if any(isinstance(leaf, Box) and 0 in leaf.shape for _, leaf in space.leaves()):
        return  # nested empty lists do not tell Minari the shape
    assert from_gymnasium(deserialize_space(to_json(space))) == space


def test_the_others_are_written_in_the_same_manner() -> None:
    coin = '{"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}'
    assert to_json(Sequence(Discrete(2), stack=True)) == f'{{"type": "Sequence", "subspace": {coin}, "stack": true}}'
    assert to_json(OneOf([Discrete(2)])) == f'{{"type": "OneOf", "subspaces": [{coin}]}}'
    assert to_json(Graph(Discrete(2), None)) == f'{{"type": "Graph", "node_space": {coin}, "edge_space": null}}'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "space: expected JSON"),
        ("[" * 100_000, "space: expected JSON"),
        (b"\xff", "space: expected JSON"),
        ("[]", "space: expected an object, got []"),
        ("{}", "space: type: expected it, but there is none"),
        ('{"type": 1}', "space: type: expected str, got 1"),
        ('{"type": "Cube"}', "space: type: expected one of Box, Discrete"),
        ('{"type": "Box"}', "space: dtype: expected it"),
        ('{"type": "Box", "dtype": "complex64", "shape": []}', "space: dtype: expected one of"),
        (
            '{"type": "Box", "dtype": "int8", "shape": [2], "low": [0], "high": [1, 1]}',
            "space: low: expected the shape",
        ),
        ('{"type": "Box", "dtype": "int8", "shape": [1], "low": ["a"], "high": [1]}', "space: low: expected numbers"),
        (
            '{"type": "Box", "dtype": "int8", "shape": [1], "low": [[], [1]], "high": [1]}',
            "space: low: expected numbers",
        ),
        (
            '{"type": "Box", "dtype": "int8", "shape": [1], "low": [1e400], "high": [-1]}',
            "space: low: expected no value",
        ),
        (
            '{"type": "Box", "dtype": "int8", "shape": [1e9], "low": [], "high": []}',
            "space: shape: expected an integer",
        ),
        (
            '{"type": "Box", "dtype": "int8", "shape": [NaN], "low": [], "high": []}',
            "space: shape: expected an integer",
        ),
        ('{"type": "Discrete", "n": true}', "space: n: expected an integer, got True"),
        ('{"type": "Discrete", "n": 2, "dtype": []}', "space: dtype: expected one of"),
        ('{"type": "MultiDiscrete", "nvec": [[1], 2]}', "space: nvec: expected numbers"),
        ('{"type": "MultiBinary", "n": "3"}', "space: n: expected int or list"),
        ('{"type": "Text", "max_length": 1, "min_length": 0, "charset": ["a"]}', "space: charset: expected str"),
        (
            '{"type": "Dict", "subspaces": {"a": {"type": "Tuple", "subspaces": [0]}}}',
            'space["a"][0]: expected an object',
        ),
        ('{"type": "Tuple", "subspaces": {}}', "space: subspaces: expected list"),
        ('{"type": "Sequence", "subspace": {"type": "Discrete", "n": 1}, "stack": 1}', "space: stack: expected bool"),
        ('{"type": "Graph", "node_space": {"type": "Discrete", "n": 1}}', "space: edge_space: expected it"),
    ],
)
def test_what_is_no_space(text: str | bytes, error: str) -> None:
    with pytest.raises(SpaceError) as caught:
        from_json(text)
    assert str(caught.value).startswith(error)


def test_depth_is_bounded() -> None:
    space: Space = Discrete(2)
    for _ in range(MAX_DEPTH - 1):
        space = Tuple([space])
    assert from_json(to_json(space)) == space
    with pytest.raises(SpaceError, match="expected at most 24 levels"):
        to_json(Tuple([space]))
    with pytest.raises(SpaceError, match="expected at most 24 levels"):
        from_json(f'{{"type": "Tuple", "subspaces": [{to_json(space)}]}}')


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=2),
    max_leaves=6,
)


@given(some.spaces, st.data())
def test_any_change_gives_a_space_or_an_error(space: Space, data: st.DataObject) -> None:
    description: Any = json.loads(to_json(space))
    part = description
    while isinstance(part, dict) and part:
        key = data.draw(st.sampled_from(sorted(part)))
        if not isinstance(part[key], dict) or data.draw(st.booleans()):
            part[key] = data.draw(values)
            break
        part = part[key]
    with suppress(SpaceError):
        assert isinstance(from_json(json.dumps(description)), Space)


def test_examples_of_each_space() -> None:
    space = Dict({"b": Box(0, 1, (1,)), "a": Tuple([MultiBinary(2), MultiBinary((2,)), Text(2, charset="ba")])})
    assert to_json(space) == (
        '{"type": "Dict", "subspaces": {"b": {"type": "Box", "dtype": "float32", "shape": [1], "low": [0.0], '
        '"high": [1.0]}, "a": {"type": "Tuple", "subspaces": [{"type": "MultiBinary", "n": 2}, '
        '{"type": "MultiBinary", "n": [2]}, {"type": "Text", "max_length": 2, "min_length": 1, "charset": "ab"}]}}}'
    )
