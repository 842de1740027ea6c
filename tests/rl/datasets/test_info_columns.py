"""Information and action masks as columns: one absent value removes none, and all come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces.strategies import same
from trio_cogment.rl.datasets.info_columns import columns_of, infos_in, mask_columns, masks_in
from trio_cogment.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
NUMBERS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats())
ARRAYS = st.sampled_from(
    [
        np.array([1, 2], np.int16),
        np.array([0.5, np.nan], np.float32),
        np.zeros((2, 1), bool),
        np.zeros(0),
        np.array(3.0),
        np.array(["a"]),
        np.float32(0.1),
        np.uint8(7),
    ]
)
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS, st.binary(max_size=3), ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.lists(inner, max_size=2).map(tuple), st.dictionaries(TEXTS, inner, max_size=2)
    ),
    max_leaves=4,
)
#: Many steps have the same keys, so that there are columns.
KEYS = st.one_of(st.sampled_from(["a", "_a", "b", "info_json", "tick", "c/d"]), TEXTS)
INFOS = st.dictionaries(KEYS, VALUES, max_size=3)


def sorted_keys(value: Any) -> Any:
    """Return a value whose dicts have their keys in order: a data set does not keep it."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    if type(value) in (list, tuple):
        return type(value)(sorted_keys(part) for part in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) <= 2**53 else value  # beside floats
    return value


@given(st.lists(INFOS, min_size=1, max_size=4))
def test_all_information_comes_back(infos: list[dict[str, Any]]) -> None:
    columns = columns_of(infos, taken=("tick",))
    assert "tick" not in columns
    back = infos_in(columns, len(infos))
    assert same(sorted_keys(back), sorted_keys(infos))


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, 2], np.array([1, 2])),
        ([0, 0.5], np.array([0.0, 0.5])),
        ([True, np.bool_(False)], np.array([True, False])),
        ([np.float64(1), 2.0], np.array([1.0, 2.0])),
        ([np.ones(2, np.float32)] * 2, np.ones((2, 2), np.float32)),
        (["a", "é"], ["a", "é"]),
        ([{"x": 1}, {"x": 2}], {"x": np.array([1, 2]), "_x": np.array([True, True])}),
        ([1, "a"], None),
        ([np.ones(2), np.ones(3)], None),
        ([2**60, 0.5], None),
        (["a\0", "b"], None),
        ([{}, {}], None),
    ],
)
def test_which_values_have_a_column(values: list[Any], column: Any) -> None:
    columns = columns_of([{"key": value} for value in values])
    if column is not None:
        assert same(columns["key"], column)
        assert columns["_key"].tolist() == [True, True]
        assert columns.keys() == {"key", "_key"}
    else:
        assert columns.keys() == {"info_json", "info_json_types"}


def test_what_is_absent_has_a_filler() -> None:
    columns = columns_of([{}, {"speed": 0.5, "near": np.ones(2, np.int8), "way": "left"}, {}])
    assert columns["speed"].tolist() == [0, 0.5, 0]
    assert columns["near"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert columns["way"] == ["", "left", ""]
    for key in ("speed", "near", "way"):
        assert columns[f"_{key}"].tolist() == [False, True, False]
    assert columns_of([{}, {}]) == {}


FLAGS = np.array([1, 0, 1], np.int8)
MASKS: list[tuple[Space, Any, Any]] = [
    (Discrete(3), FLAGS, [[1, 0, 1], [1, 1, 1]]),
    (MultiBinary((1, 3)), FLAGS[None], [[[1, 0, 1]], [[2, 2, 2]]]),
    (MultiDiscrete([2, 1]), (FLAGS[:2], FLAGS[2:]), [[1, 0, 1], [1, 1, 1]]),
    (MultiDiscrete([[3], [3]]), ((FLAGS,), (FLAGS,)), [[1, 0, 1] * 2, [1] * 6]),
    (
        Dict({"a": Discrete(3), "b": Box(0, 1, ()), "c": Tuple([Discrete(3), Discrete(2)])}),
        {"a": FLAGS, "b": None, "c": (None, FLAGS[:2])},
        {"a": [[1, 0, 1], [1, 1, 1]], "c": {"0": [[1, 1, 1]] * 2, "1": [[1, 0], [1, 1]]}},
    ),
]


def plain(column: Any) -> Any:
    return {key: plain(part) for key, part in column.items()} if isinstance(column, dict) else column.tolist()


@pytest.mark.parametrize(("space", "mask", "column"), MASKS)
def test_masks_come_back_where_there_were_some(space: Space, mask: Any, column: Any) -> None:
    columns = mask_columns(space, [mask, None])
    assert plain(columns["action_mask"]) == column
    back = masks_in(space, columns, 2)
    assert same(back[0], mask)
    assert back[1] is None
    assert mask_columns(space, [None, None]) == {}
    assert masks_in(space, {}, 2) == [None, None]
    everywhere = {"action_mask": columns["action_mask"]}  # as data sets had it that older versions have written
    assert masks_in(space, everywhere, 2)[1] is not None


def test_a_key_may_begin_as_the_marks_of_presence_do() -> None:
    """`_key` says where there is a `key`, but only if there is one."""
    columns = {"_mine": [1, 2], "x": [3, 0], "_x": [True, False]}
    assert infos_in(columns, 2) == [{"_mine": 1, "x": 3}, {"_mine": 2}]


@pytest.mark.parametrize("key", ["", "_a", ".a", "a/b", "a\0b"])
def test_keys_that_a_file_cannot_have_are_no_columns(key: str) -> None:
    columns = columns_of([{key: 1, "b": 2}, {key: 3, "b": 4}])
    assert key not in columns
    assert "b" in columns
    assert infos_in(columns, 2) == [{key: 1, "b": 2}, {key: 3, "b": 4}]


@pytest.mark.parametrize("key", ["info_json", "info_json_types"])
def test_keys_of_our_own_columns_are_no_columns(key: str) -> None:
    infos = [{key: 1.5}, {key: 2.5}]
    assert columns_of(infos).keys() == {"info_json", "info_json_types"}
    assert infos_in(columns_of(infos), 2) == infos
