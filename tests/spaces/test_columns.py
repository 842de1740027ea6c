"""Leaves as columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.spaces import strategies as some
from trio_cogment.spaces import Box, Dict, Discrete, Space, SpaceError, Text, Tuple, column_names, values_of_columns


def test_names() -> None:
    space = Dict({"arm": Tuple([Box(0, 1), Discrete(2)]), "name": Text(3)})
    assert column_names(space, "observation") == {
        "observation.arm.0": Box(0, 1),
        "observation.arm.1": Discrete(2),
        "observation.name": Text(3),
    }
    assert column_names(Discrete(2), "action") == {"action": Discrete(2)}


def test_names_are_unique() -> None:
    space = Dict({"a.b": Discrete(2), "a": Dict({"b": Discrete(2)})})
    with pytest.raises(
        SpaceError, match=r'space\["a"\]\["b"\]: expected one name for each column, got \'x.a.b\' twice'
    ):
        column_names(space, "x")


@given(some.spaces.filter(lambda space: "." not in repr(list(space.leaves()))), some.generators)
def test_values_survive(space: Space, generator: np.random.Generator) -> None:
    value = space.sample(generator)
    row = dict(zip(column_names(space, "x"), space.leaf_values(value), strict=True))
    assert some.same(values_of_columns(space, "x", {**row, "other": 1}), value)


def test_missing_columns() -> None:
    with pytest.raises(SpaceError, match=r"row: expected the column 'x\.b', but there is none"):
        values_of_columns(Dict({"a": Discrete(2), "b": Discrete(2)}), "x", {"x.a": 1})
