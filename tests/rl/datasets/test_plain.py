"""Shared parts of the kinds of data set need none of these."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces.strategies import same
from trio_cogment.rl.datasets.plain import array_in, as_json, restored, types_of
from trio_cogment.spaces import Box, Discrete, GraphValue, SpaceError


@pytest.mark.parametrize(("module", "without"), [("minari", "pyarrow"), ("parquet", "minari"), ("plain", "pyarrow")])
def test_one_extra_does_not_need_the_other(module: str, without: str) -> None:
    code = f"import sys; sys.modules[{without!r}] = None; import trio_cogment.rl.datasets.{module}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


DTYPES = ["bool", "int8", "uint64", "float16", "float32", "float64"]
values = st.recursive(
    st.one_of(
        st.sampled_from([None, True, 3, 0.5, "text", b"", b"\xff", np.str_("a"), np.array(["a", "bcd"]), np.array(7)]),
        st.builds(lambda name: np.dtype(name).type(1), st.sampled_from(DTYPES)),
        st.builds(np.ones, st.sampled_from([(), (0,), (2,), (3, 0), (2, 1, 2)]), st.sampled_from(DTYPES)),
        st.just(GraphValue(np.ones((2, 1), np.float32), None, np.zeros((0, 2), np.int32))),
    ),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(st.text("ab0[", max_size=2), parts, max_size=3),
    ),
    max_leaves=8,
)


@given(values)
def test_information_survives_json(value: Any) -> None:
    types = types_of(value)
    assert same(restored(json.loads(as_json(value)), json.loads(as_json(types))), value)


def test_no_types_where_json_has_them() -> None:
    assert types_of({"count": 1, "deep": [{"text": "a", "none": None}, 0.5]}) is None
    assert types_of({"near": np.zeros((2, 3), np.float32), "turn": (1, np.bool_(True)), "count": 1}) == {
        "dict": {"near": "float32[2, 3]", "turn": {"tuple": {"1": "bool"}}}
    }


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Box(-5, 5, (), np.int8), 3),
        (Box(-5, 5, (), np.float32), 3),
        (Box(-5, 5, (), np.float32), 0.5),
        (Discrete(3), 2),
    ],
)
def test_a_number_is_taken_where_there_are_no_dimensions(space: Any, value: float) -> None:
    found = array_in(space, value)
    assert (found.shape, found.dtype, found) == ((), space.dtype, value)


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (Box(-5, 5, (), np.int8), 300, "expected int8, got 300"),
        (Box(-5, 5, (), np.int64), 2**70, "expected int64, got 1180591620717411303424"),
        (Box(0, 5, (), np.uint8), -1, "expected uint8, got -1"),
        (Box(-5, 5, (), np.int8), 0.5, "expected int8, got 0.5"),
        (Box(-5, 5, (), np.int8), True, "expected int8, got True"),
        (Box(-5, 5, (1,), np.int8), 1, "expected an array, got int"),
    ],
)
def test_a_number_that_the_type_cannot_hold(space: Any, value: float, expected: str) -> None:
    with pytest.raises(SpaceError, match=expected):
        array_in(space, value)
