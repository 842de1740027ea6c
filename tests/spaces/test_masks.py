"""Action masks mean what they mean in Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.strategies import same
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    SpaceError,
    Text,
    Tuple,
    to_gymnasium,
)
from trio_cogment.spaces.masks import (
    allowed_numbers,
    check_allowed,
    flat_mask,
    has_masks,
    mask_in,
    may_be_mask,
    sample_allowed,
)

DRAWS = 200


def mask(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int8)


CASES: list[tuple[Space, Any]] = [
    (Discrete(4, start=-1), mask(0, 1, 0, 1)),
    (Discrete(3), mask(0, 0, 0)),
    (MultiDiscrete([2, 3]), (mask(1, 0), mask(0, 1, 1))),
    (MultiDiscrete([[2, 3], [1, 2]], start=[[5, 0], [0, 1]]), ((mask(0, 1), mask(1, 0, 1)), (mask(1), mask(0, 0)))),
    (MultiBinary(3), mask(0, 1, 2)),
    (Dict({"a": Discrete(2), "b": Box(0, 1, (1,))}), {"a": mask(0, 1), "b": None}),
    (Tuple([Discrete(2), MultiBinary((2, 1))]), (mask(1, 0), np.array([[2], [0]], np.int8))),
]


def flat(space: Space, value: Any) -> tuple[Any, ...]:
    """Return what a draw can be told by: bounded parts as they are, Boxes left out."""
    pairs = zip((leaf for _, leaf in space.leaves()), space.leaf_values(value), strict=True)
    return tuple(tuple(np.ravel(part).tolist()) for leaf, part in pairs if not isinstance(leaf, Box))


@pytest.mark.parametrize(("space", "own_mask"), CASES)
def test_what_is_drawn_is_what_gymnasium_draws(space: Space, own_mask: Any) -> None:
    generator = np.random.default_rng(1)
    ours = [sample_allowed(space, generator, own_mask) for _ in range(DRAWS)]
    theirs = to_gymnasium(space)
    theirs.seed(1)
    assert {flat(space, value) for value in ours} == {flat(space, theirs.sample(mask=own_mask)) for _ in range(DRAWS)}
    for value in ours:
        check_allowed(space, space.check(value), own_mask)
    others = [space.sample(generator) for _ in range(DRAWS)]
    allowed = {flat(space, value) for value in ours}
    for value in others:
        if flat(space, value) not in allowed:
            with pytest.raises(SpaceError, match=r"allowed now; got|which alone is allowed now"):
                check_allowed(space, value, own_mask)
    assert any(flat(space, value) not in allowed for value in others)


@pytest.mark.parametrize(("space", "own_mask"), CASES)
def test_a_mask_is_taken_as_it_is(space: Space, own_mask: Any) -> None:
    taken = mask_in(space, own_mask)
    assert same(taken, own_mask)
    if isinstance(own_mask, np.ndarray):
        assert taken is own_mask
    assert has_masks(space)


NESTED = ((mask(0, 1), mask(1, 0, 1)), (mask(1), mask(0, 0)))


@pytest.mark.parametrize(
    ("space", "found", "taken"),
    [
        (Discrete(3), [1, 0, 1], mask(1, 0, 1)),
        (Discrete(3), (True, False, True), mask(1, 0, 1)),
        (Discrete(3), np.array([1.0, 0.0, 1.0]), mask(1, 0, 1)),
        (Discrete(3), np.array([True, False, True]), mask(1, 0, 1)),
        (Discrete(3), np.array([1, 0, 1]), mask(1, 0, 1)),
        (MultiBinary((2, 1)), [[2], [0]], np.array([[2], [0]], np.int8)),
        (MultiDiscrete([2, 3]), [1, 0, 0, 1, 1], (mask(1, 0), mask(0, 1, 1))),
        (MultiDiscrete([2, 3]), np.array([1, 0, 0, 1, 1], bool), (mask(1, 0), mask(0, 1, 1))),
        (MultiDiscrete([2, 3]), [[1, 0], [0, 1, 1]], (mask(1, 0), mask(0, 1, 1))),
        (MultiDiscrete([2, 2]), np.array([[1, 0], [0, 1]]), (mask(1, 0), mask(0, 1))),
        (MultiDiscrete([1, 1]), [0, 1], (mask(0), mask(1))),
        (MultiDiscrete([[2, 3], [1, 2]]), [0, 1, 1, 0, 1, 1, 0, 0], NESTED),
        (MultiDiscrete([[2, 3], [1, 2]]), [[[0, 1], [1, 0, 1]], [[1], [0, 0]]], NESTED),
        (Dict({"a": Discrete(2), "b": Discrete(2)}), {"b": [0, 1]}, {"a": None, "b": mask(0, 1)}),
        (Tuple([Discrete(2), Text(1)]), [[0, 1], None], (mask(0, 1), None)),
        (Box(0, 1, ()), None, None),
    ],
)
def test_what_means_a_mask_is_taken_as_one(space: Space, found: Any, taken: Any) -> None:
    assert same(mask_in(space, found), taken)
    if taken is not None:
        assert same(
            sample_allowed(space, np.random.default_rng(1), found),
            sample_allowed(space, np.random.default_rng(1), taken),
        )


@pytest.mark.parametrize(
    ("space", "found", "text"),
    [
        (Discrete(3), "101", "expected an array as mask, got"),
        (Discrete(3), b"101", "expected an array as mask, got"),
        (Discrete(3), ["1", "0", "1"], "expected an array as mask, got list"),
        (Discrete(3), {0, 2}, "expected an array as mask, got set"),
        (Discrete(3), [[1], [0, 1]], "expected an array as mask, got list"),
        (Discrete(3), [1, 0], r"expected a mask of the shape \(3,\), got \(2,\)"),
        (Discrete(3), 1, r"expected a mask of the shape \(3,\), got \(\)"),
        (Discrete(3), [0.5, 0, 1], "expected a mask of 0, 1, 2 alone, got"),
        (Discrete(3), [float("nan"), 0, 1], "expected a mask of 0, 1, 2 alone, got"),
        (Discrete(3), [float("-inf"), 0, 1], "expected a mask of 0, 1, 2 alone, got"),
        (Discrete(3), [257, 0, 1], "expected a mask of 0, 1, 2 alone, got"),
        (Discrete(3), mask(-1, 0, 1), "expected a mask of 0, 1 alone, got"),
        (MultiDiscrete([2, 3]), "10011", "expected a tuple of 2 masks, got"),
        (MultiDiscrete([2, 3]), [[1, 0]], "expected a tuple of 2 masks, got"),
        (Dict({"a": Discrete(2), "b": Box(0, 1, ())}), [1, 0], "expected a dict of masks for 'a', 'b'; got"),
        (Dict({"a": Discrete(2)}), {"a": [1, 0], "c": None}, "expected a dict of masks for 'a'; got"),
        (Dict({"a": Discrete(2)}), {"a": [1]}, r'\["a"\]: expected a mask of the shape'),
        (Text(3), [1], "expected no mask for a space Text, which has none"),
    ],
)
def test_what_means_no_mask(space: Space, found: Any, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        mask_in(space, found)


def test_what_may_be_a_mask() -> None:
    parts = Dict({"a": Discrete(2), "b": Box(0, 1, ())})
    assert may_be_mask(parts, {"a": [1, 0]})
    assert not may_be_mask(parts, mask(1, 0))
    assert not may_be_mask(Dict({"b": Box(0, 1, ())}), {"b": mask(1, 0)})
    assert may_be_mask(Tuple([Discrete(2)]), ([1, 0],))
    assert not may_be_mask(Tuple([Discrete(2)]), mask(1))
    assert may_be_mask(Discrete(2), "10"), "it means one, and is wrong"
    assert not may_be_mask(Text(2), [1])


def test_which_spaces_have_masks() -> None:
    assert not has_masks(Box(0, 1, ()))
    assert not has_masks(Dict({"a": Box(0, 1, ()), "b": Tuple([Text(1)])}))
    assert has_masks(Tuple([Text(1), Dict({"a": Discrete(2)})]))


def test_without_a_mask_all_is_allowed() -> None:
    space = Text(3)
    drawn = sample_allowed(space, np.random.default_rng(1))
    assert space.contains(drawn)
    check_allowed(space, drawn)


def test_numbers() -> None:
    assert allowed_numbers(Discrete(3, start=5), mask(1, 0, 1)) == [5, 7]


@pytest.mark.parametrize(
    ("space", "value", "own_mask", "text"),
    [
        (Discrete(3), 1, mask(1, 0, 1), "value: expected one of 0, 2, which are allowed now; got 1"),
        (Discrete(3), 1, [1, 0, 1], "value: expected one of 0, 2, which are allowed now; got 1"),
        (Discrete(3), 1, mask(1, 0), r"value: expected a mask of the shape \(3,\), got \(2,\)"),
        (Discrete(3), 1, mask(1, 0, 2), "value: expected a mask of 0, 1 alone, got array"),
        (Box(0, 1, (1,)), np.zeros(1), mask(1), "value: expected no mask for a space Box, which has none"),
        (
            MultiDiscrete([2, 3]),
            np.array([0, 1]),
            mask(1, 0),
            "value: expected a tuple of 2 masks, or an array",
        ),
        (
            MultiDiscrete([2, 3]),
            np.array([0, 1]),
            (mask(1, 0), mask(1, 0, 1)),
            r"value\[1\]: expected one of 0, 2, which are allowed now; got 1",
        ),
        (MultiDiscrete([2, 3]), np.array([0, 1]), (mask(1, 0), mask(1)), r"value\[1\]: expected a mask of the shape"),
        (MultiBinary(2), mask(0, 1), mask(2, 0), r"value\[1\]: expected 0, which alone is allowed now; got 1"),
        (Dict({"a": Discrete(2)}), {"a": 0}, {"b": None}, "value: expected a dict of masks for 'a'; got"),
        (Dict({"a": Discrete(2)}), {"a": 0}, {"a": mask(0, 1)}, r'value\["a"\]: expected one of 1, which'),
        (Tuple([Discrete(2)]), (0,), (), r"value: expected a tuple of 1 masks, got \(\)"),
        (Tuple([Discrete(2)]), (0,), (mask(0, 1),), r"value\[0\]: expected one of 1, which"),
    ],
)
def test_what_is_not_allowed(space: Space, value: Any, own_mask: Any, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        check_allowed(space, value, own_mask)


@pytest.mark.parametrize(
    ("space", "mask", "row"),
    [
        (Discrete(3, start=-1), [0, 1, 1], [0, 1, 1]),
        (Discrete(3), None, [1, 1, 1]),
        (MultiDiscrete([[1, 2], [2, 1]]), (([1], [0, 1]), ([1, 0], [1])), [1, 0, 1, 1, 0, 1]),
        (MultiDiscrete([2, 3]), None, [1] * 5),
        (MultiBinary((2, 2)), [[0, 1], [2, 2]], [1, 0, 0, 1, 1, 1, 1, 1]),
        (MultiBinary(2), None, [1] * 4),
    ],
)
def test_masks_in_one_row(space: Space, mask: Any, row: list[int]) -> None:
    found = flat_mask(space, mask)
    assert found.dtype == np.bool_
    assert found.tolist() == [bool(each) for each in row]


def test_no_masks_in_one_row() -> None:
    with pytest.raises(SpaceError, match="expected a space Discrete, MultiDiscrete or MultiBinary, got Dict"):
        flat_mask(Dict({"a": Discrete(2)}), {"a": [1, 0]})
    with pytest.raises(SpaceError, match=r"expected a mask of the shape \(2,\), got \(3,\)"):
        flat_mask(Discrete(2), [1, 0, 1])
