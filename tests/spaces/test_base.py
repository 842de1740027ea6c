"""Common behaviour of spaces: sample, check, name the place of a mistake, split values into leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from trio_cogment.base.errors import InvalidArgumentError, StatusCode, status_of
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
    decode_space,
    encode_space,
)

ARM = Dict({"arm": Tuple([Box(-1, 1, (2, 3)), Discrete(3, start=-1)]), "name": Text(3, charset="ab")})


def arm(**changes: Any) -> dict[str, Any]:
    return {"arm": (np.zeros((2, 3), np.float32), 0), "name": "ab", **changes}


@given(some.spaces, some.generators)
def test_what_is_sampled_is_in_the_space_as_it_is(space: Space, generator: np.random.Generator) -> None:
    value = space.sample(generator)
    assert space.contains(value)
    assert some.same(space.check(value), value)


@given(some.spaces, st.integers(0, 2**32))
def test_equal_generators_give_equal_samples(space: Space, seed: int) -> None:
    one, other = (space.sample(np.random.default_rng(seed)) for _ in range(2))
    assert some.same(one, other)


@given(some.spaces, some.generators, st.integers(0, 3))
def test_batches_are_batches(space: Space, generator: np.random.Generator, count: int) -> None:
    batch = space.sample_batch(generator, count)
    checked, found = space.check_batch(batch)
    assert some.same(checked, batch)
    assert found == (count if any(True for _ in space.leaves()) else None)


@given(some.spaces, some.spaces)
def test_spaces_are_equal_to_themselves_alone(one: Space, other: Space) -> None:
    assert one == one
    assert hash(one) == hash(one)
    assert (one == other) == (repr(one) == repr(other)) or isinstance(
        one, Box | Dict | Tuple | Sequence | Graph | OneOf
    )
    assert one != object()


@given(some.spaces, some.generators)
def test_leaves_split_and_join_values(space: Space, generator: np.random.Generator) -> None:
    value = space.sample(generator)
    leaves = list(space.leaves())
    values = list(space.leaf_values(value))
    assert len(values) == len(leaves)
    assert all(leaf.contains(inner) for (_, leaf), inner in zip(leaves, values, strict=True))
    assert some.same(space.from_leaf_values(iter(values)), value)
    for path, leaf in leaves:
        assert not isinstance(leaf, Dict | Tuple)
        found: Any = space
        for key in path:
            found = found.spaces[key]
        assert found is leaf


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "value: expected a dict, got list"),
        ({}, "value: expected the keys 'arm', 'name'; got no"),
        (arm(leg=1), "value: expected the keys 'arm', 'name'; got 'leg', too"),
        (arm(arm=[]), 'value["arm"]: expected a tuple, got list'),
        (arm(arm=(0,)), 'value["arm"]: expected a tuple of 2, got one of 1'),
        (arm(arm=([0.0], 0)), 'value["arm"][0]: expected an array, got list'),
        (arm(arm=(np.zeros(6, "f4"), 0)), 'value["arm"][0]: expected the shape (2, 3), got (6,)'),
        (arm(arm=(np.zeros((2, 3)), 0)), 'value["arm"][0]: expected float32, got float64'),
        (arm(arm=(np.eye(2, 3, dtype="f4") * 2, 0)), 'value["arm"][0][0][0]: expected -1.0 to 1.0, got 2.0'),
        (arm(arm=(np.full((2, 3), np.nan, "f4"), 0)), 'value["arm"][0][0][0]: expected -1.0 to 1.0, got nan'),
        (arm(arm=(np.zeros((2, 3), "f4"), 2)), 'value["arm"][1]: expected -1 to 1, got 2'),
        (arm(arm=(np.zeros((2, 3), "f4"), 0.0)), 'value["arm"][1]: expected an integer, got float 0.0'),
        (arm(arm=(np.zeros((2, 3), "f4"), np.bool_(True))), 'value["arm"][1]: expected an integer, got bool'),
        (arm(name=b"a"), 'value["name"]: expected a string, got bytes'),
        (arm(name="abab"), 'value["name"]: expected 1 to 3 characters, got 4'),
        (arm(name="ac"), "value[\"name\"]: expected characters of 'ab', got 'c'"),
    ],
)
def test_errors_name_the_place(value: Any, text: str) -> None:
    with pytest.raises(SpaceError) as caught:
        ARM.check(value)
    assert str(caught.value).startswith(text)
    assert status_of(caught.value) == (StatusCode.INVALID_ARGUMENT, str(caught.value))
    assert not ARM.contains(value)


GRAPH = Graph(Box(0, 1, (2,)), Discrete(3))
NODES = np.zeros((4, 2), np.float32)
EDGES = np.array([0, 2])
LINKS = np.array([[0, 1], [3, 3]], np.int32)


@pytest.mark.parametrize(
    ("space", "value", "text"),
    [
        (GRAPH, (NODES, None, None), "value: expected a graph (nodes, edges, edge_links), got tuple"),
        (GRAPH, GraphValue(NODES[:, :1]), 'value["nodes"]: expected the shape (n, 2), got (4, 1)'),
        (GRAPH, GraphValue(np.float32(0)), 'value["nodes"]: expected the shape (n, 2), got ()'),
        (GRAPH, GraphValue(NODES + 2, EDGES, LINKS), 'value["nodes"][0][0]: expected 0.0 to 1.0, got 2.0'),
        (GRAPH, GraphValue(NODES, EDGES), "value: expected both edges and edge_links, or neither"),
        (GRAPH, GraphValue(NODES, EDGES + 1, LINKS), 'value["edges"][1]: expected 0 to 2, got 3'),
        (
            GRAPH,
            GraphValue(NODES, EDGES, LINKS[:1]),
            'value["edge_links"]: expected as many as there are edges, 2; got 1',
        ),
        (GRAPH, GraphValue(NODES, EDGES, LINKS / 2), 'value["edge_links"]: expected an array of integers of the shape'),
        (GRAPH, GraphValue(NODES, EDGES, LINKS + 1), 'value["edge_links"]: expected positions of nodes from 0 to 3'),
        (Graph(Box(0, 1, (2,)), None), GraphValue(NODES, EDGES, LINKS), 'value["edges"]: expected no edges'),
        (Sequence(Discrete(2)), [0], "value: expected a tuple, got list"),
        (Sequence(Discrete(2)), (0, 2), "value[1]: expected 0 to 1, got 2"),
        (Sequence(Discrete(2), stack=True), np.array([0, 2]), "value[1]: expected 0 to 1, got 2"),
        (Sequence(Dict({"a": Text(2)}), stack=True), {"a": ("a", "?")}, 'value["a"][1]: expected characters of'),
        (
            Sequence(Tuple([Discrete(2), MultiBinary(1)]), stack=True),
            (np.zeros(2, int), np.zeros((3, 1), int)),
            "value: expected batches of one length, got 0: 2, 1: 3",
        ),
        (OneOf([Discrete(2), Text(2)]), 1, "value: expected a pair"),
        (OneOf([Discrete(2), Text(2)]), (2, 0), "value[0]: position: expected 0 to 1, got 2"),
        (OneOf([Discrete(2), Text(2)]), (1, 0), "value[1]: expected a string, got int"),
        (MultiDiscrete([2, 3], start=[0, -1]), np.array([0, 2]), "value[1]: expected -1 to 1, got 2"),
        (MultiDiscrete([2, 3]), np.array([0.0, 2.0]), "value: expected int64, got float64"),
        (MultiBinary(2), np.array([0, 2]), "value[1]: expected 0 to 1, got 2"),
        (MultiBinary(2), np.array([0.0, 1.0]), "value: expected int8, got float64"),
        (Box(0, 1, ()), np.float32(2), "value: expected 0.0 to 1.0, got 2.0"),
        (Box(0, 1), np.ma.masked_array(0.5, True), "value: expected an array, got MaskedArray"),
    ],
)
def test_what_is_not_in_a_space(space: Space, value: Any, text: str) -> None:
    with pytest.raises(SpaceError) as caught:
        space.check(value)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("space", "value", "found"),
    [
        (Discrete(3), 2, np.int64(2)),
        (Discrete(3), np.array(2, np.uint8), np.int64(2)),
        (Discrete(3, dtype="uint8"), np.int64(2), np.uint8(2)),
        (Discrete(2), True, np.int64(1)),
        (Box(0, 1, (1,), "float64"), np.array([0.5], np.float32), np.array([0.5])),
        (Box(0, 9, (1,), ">i4"), np.array([3], ">i4"), np.array([3], np.int32)),
        (MultiBinary(2), np.array([True, False]), np.array([1, 0], np.int8)),
        (GRAPH, GraphValue(NODES, EDGES.astype("u1"), LINKS.astype("i8")), GraphValue(NODES, EDGES, LINKS)),
        (OneOf([Text(2)]), (0, "a"), (np.int64(0), "a")),
    ],
)
def test_what_converts_without_loss_is_converted(space: Space, value: Any, found: Any) -> None:
    assert some.same(space.check(value), found)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Box(0, 1, dtype="complex64"), "dtype: expected one of float16"),
        (lambda: Box(0, 1, dtype="nothing"), "dtype: expected one of"),
        (lambda: Box(0, 1, dtype=str), "got str"),
        (lambda: Box(1, 0), "low: expected no value above that of high"),
        (lambda: Box(np.nan, 0), "low: expected numbers, got nan"),
        (lambda: Box("a", 0), "low: expected numbers"),
        (lambda: Box([0, 1], 2, (3,)), "low: expected one number, or numbers of the shape (3,)"),
        (lambda: Box(0, 256, dtype="uint8"), "high: expected values from 0 to 255"),
        (lambda: Box(0.5, 2, dtype="int8"), "low: expected integers"),
        (lambda: Box(0, 1, (-1,)), "shape: expected 0 to"),
        (lambda: Box(0, 1, 3), "shape: expected a sequence"),  # type: ignore[arg-type]  # that is the mistake
        (lambda: Discrete(0), "n: expected 1 to"),
        (lambda: Discrete(2.0), "n: expected an integer, got 2.0"),  # type: ignore[arg-type]  # that is the mistake
        (lambda: Discrete(257, dtype="uint8"), "n: expected 1 to 256, got 257"),
        (lambda: Discrete(1, start=-1, dtype="uint8"), "start: expected 0 to 255, got -1"),
        (lambda: Discrete(2, dtype="float32"), "dtype: expected one of int8"),
        (lambda: MultiDiscrete([2, 0]), "nvec: expected positive integers"),
        (lambda: MultiDiscrete([2.0]), "nvec: expected integers"),
        (lambda: MultiDiscrete([[1], [2, 3]]), "nvec: expected numbers, in lists of one length"),
        (lambda: MultiDiscrete([2], start=[0, 0]), "start: expected the shape (1,), got (2,)"),
        (lambda: MultiDiscrete([2], start=[127], dtype="int8"), "nvec: expected values up to 127 for int8, got 128"),
        (lambda: MultiDiscrete([300], dtype="uint8"), "nvec: expected values from 0 to 255 for uint8"),
        (lambda: MultiBinary(0), "n: expected 1 to"),
        (lambda: MultiBinary((2, 0)), "n: expected positive numbers"),
        (lambda: Text(2, 3), "min_length: expected 0 to 2, got 3"),
        (lambda: Text(-1), "max_length: expected 0 to"),
        (lambda: Text(2, charset=""), "charset: expected at least one character"),
        (lambda: Text(2, charset=["ab"]), "charset: expected single characters"),
        (lambda: Dict({"a": 1}), 'space["a"]: expected a space, got int'),  # type: ignore[arg-type]  # the mistake
        (lambda: Dict({1: Discrete(2)}), "expected strings as keys"),  # type: ignore[arg-type]  # the mistake
        (lambda: Tuple([Discrete(2), None]), "space[1]: expected a space"),  # type: ignore[list-item]  # the mistake
        (lambda: OneOf([]), "space: expected at least one space"),
    ],
)
def test_spaces_that_make_no_sense(make: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert text in str(caught.value)


def test_bounds_of_a_box() -> None:
    assert Box(-np.inf, np.inf, dtype="int8") == Box(-128, 127, dtype="int8")
    assert Box(np.array([0, -np.inf]), 5, dtype="int64") == Box(np.array([0, -(2**63)]), 5, dtype="int64")
    assert Box(0, 2**64 - 1, dtype="uint64").high == 2**64 - 1
    assert Box(0, 255, (2, 2), "uint8").low.shape == (2, 2)
    assert Box(0, 1, dtype=np.float64).dtype == np.float64
    assert Box([0, 1], 2).shape == (2,)
    assert Box(0, 1).shape == (1,)
    assert Box(np.array(0), 1).shape == ()
    with pytest.raises(ValueError, match="read-only"):
        Box(0, 1, (2,)).low[0] = 1


def test_samples_of_a_box_reach_its_parts() -> None:
    space = Box(np.array([0, 0, -np.inf, -np.inf]), np.array([1, np.inf, 0, np.inf]))
    drawn = space.sample_batch(np.random.default_rng(1), 1000)
    assert np.isfinite(drawn).all()
    assert 0.45 < drawn[:, 0].mean() < 0.55
    assert 0.9 < drawn[:, 1].mean() < 1.1
    assert -1.1 < drawn[:, 2].mean() < -0.9
    assert -0.1 < drawn[:, 3].mean() < 0.1
    whole = Box(-np.finfo("f8").max, np.finfo("f8").max, (1000,), "float64")
    assert (np.abs(whole.sample(np.random.default_rng(1))) > 1e300).mean() > 0.9


def test_representations_are_short() -> None:
    assert repr(Box(0, 255, (210, 160, 3), "uint8")) == "Box(0, 255, (210, 160, 3), uint8)"
    assert repr(ARM) == (
        "Dict({'arm': Tuple(Box(-1.0, 1.0, (2, 3), float32), Discrete(3, start=-1)), "
        "'name': Text(3, min_length=1, charset='ab')})"
    )
    assert repr(GRAPH) == "Graph(Box(0.0, 1.0, (2,), float32), Discrete(3))"
    assert repr(Sequence(OneOf([MultiBinary(2), MultiDiscrete([2], [1])]), True)) == (
        "Sequence(OneOf(MultiBinary(2), MultiDiscrete([2], start=[1])), stack=True)"
    )


def test_equal_bounds_of_many_elements_take_no_room() -> None:
    picture = (64, 64, 3)
    given = Box(np.zeros(picture, np.uint8), np.full(picture, 255, np.uint8), dtype="uint8")
    for box in (given, Box(0, 255, picture, "uint8"), decode_space(encode_space(given))):
        assert isinstance(box, Box)
        assert box == given
        assert (box.low.shape, box.high.shape, int(box.high.max())) == (picture, picture, 255)
        assert box.high.dtype == box.low.dtype == np.uint8
        assert not box.low.flags.writeable
        assert box.low.strides == box.high.strides == (0, 0, 0)
        assert box.low.tobytes() == bytes(64 * 64 * 3)
    uneven = np.zeros(picture, np.float32)
    uneven[0, 0, 0] = -1
    assert Box(uneven, np.ones(picture)).low.strides != (0, 0, 0)
