"""Arrays, spaces and values of them, for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from trio_cogment.spaces.dtypes import DTYPES

NUMBERS = [row.name for row in DTYPES if row.size]
INTEGERS = [row.name for row in DTYPES if row.kind in "iu"]
#: What messages and NumPy can hold: no surrogates.
CHARACTERS = st.characters(codec="utf-8")
KEYS = st.text(CHARACTERS, max_size=5)
SHAPES = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def numbers(name: str) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    return SHAPES.flatmap(lambda shape: npst.arrays(name, shape))


@st.composite
def strings(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    shape = draw(SHAPES)
    # NumPy drops null characters at the end.
    texts = st.text(CHARACTERS, max_size=4).map(lambda text: text.rstrip("\0"))
    count = int(np.prod(shape))
    return np.array(draw(st.lists(texts, min_size=count, max_size=count)), dtype=str).reshape(shape)


arrays: st.SearchStrategy[np.ndarray[Any, Any]] = st.one_of(st.sampled_from(NUMBERS).flatmap(numbers), strings())


@st.composite
def layouts(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Arrays in any byte order and memory layout."""
    array = draw(arrays)
    if draw(st.booleans()):
        array = array.astype(array.dtype.newbyteorder(">"))
    if draw(st.booleans()):
        array = np.asfortranarray(array) if array.ndim else array
    if array.ndim and draw(st.booleans()):
        array = np.repeat(array, 2, axis=0)[::-2]
    if draw(st.booleans()):
        array = array.T
    return array


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    name = draw(st.sampled_from(NUMBERS))
    shape = draw(SHAPES)
    if np.dtype(name).kind == "f":
        width = np.dtype(name).itemsize * 8
        ends = npst.arrays(name, shape, elements=st.floats(width=width, allow_nan=False))  # type: ignore[arg-type]  # 16, 32 or 64
    else:
        ends = npst.arrays(name, shape)
    first, second = draw(ends), draw(ends)
    return Box(np.minimum(first, second), np.maximum(first, second), shape, name)


@st.composite
def discretes(draw: st.DrawFn) -> Discrete:
    name = draw(st.sampled_from(INTEGERS))
    info = np.iinfo(name)
    start = draw(st.integers(max(int(info.min), -(2**63)), min(int(info.max), 2**63 - 1)))
    return Discrete(draw(st.integers(1, min(int(info.max) - start + 1, 2**63 - 1))), start, name)


@st.composite
def multi_discretes(draw: st.DrawFn) -> MultiDiscrete:
    name = draw(st.sampled_from(INTEGERS))
    info = np.iinfo(name)
    shape = draw(npst.array_shapes(min_dims=0, max_dims=3, max_side=3))
    start = draw(npst.arrays(name, shape, elements=st.integers(int(info.min), int(info.max) - 1)))
    room = [min(int(info.max) - value + 1, int(info.max)) for value in start.ravel().tolist()]
    nvec = [draw(st.integers(1, most)) for most in room]
    return MultiDiscrete(np.array(nvec, name).reshape(start.shape), start, name)


multi_binaries = st.one_of(
    st.integers(1, 5).map(MultiBinary),
    npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4).map(MultiBinary),
)


@st.composite
def texts(draw: st.DrawFn) -> Text:
    lowest = draw(st.integers(0, 4))
    highest = draw(st.integers(lowest, 8))
    return Text(highest, lowest, draw(st.sets(CHARACTERS, min_size=1, max_size=6)))


leaf_spaces: st.SearchStrategy[Space] = st.one_of(boxes(), discretes(), multi_discretes(), multi_binaries, texts())


def composites(parts: st.SearchStrategy[Space]) -> st.SearchStrategy[Space]:
    """Those that Minari knows, too."""
    return st.one_of(
        st.dictionaries(KEYS, parts, max_size=3).map(Dict),
        st.lists(parts, max_size=3).map(Tuple),
    )


def all_composites(parts: st.SearchStrategy[Space]) -> st.SearchStrategy[Space]:
    return st.one_of(
        composites(parts),
        st.builds(Sequence, parts, st.booleans()),
        st.builds(Graph, parts, st.none() | parts),
        st.lists(parts, min_size=1, max_size=3).map(OneOf),
    )


spaces: st.SearchStrategy[Space] = st.recursive(leaf_spaces, all_composites, max_leaves=6)
minari_spaces: st.SearchStrategy[Space] = st.recursive(leaf_spaces, composites, max_leaves=6)
generators = st.integers(0, 2**32).map(np.random.default_rng)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, in the same types; NaN is equal to itself."""
    if isinstance(one, np.ndarray | np.generic):
        return (
            type(one) is type(other)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return (
            type(one) is type(other)
            and len(one) == len(other)
            and all(same(part, opposite) for part, opposite in zip(one, other, strict=True))
        )
    return type(one) is type(other) and (one == other or (one != one and other != other))
