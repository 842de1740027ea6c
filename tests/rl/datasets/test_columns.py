"""Every space and every type of elements survives Parquet."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces.strategies import generators, same, spaces
from trio_cogment.rl.datasets.arrow import keeps_missing_lists
from trio_cogment.rl.datasets.column_values import masks_of, values_of
from trio_cogment.rl.datasets.tables import MaskColumns, SpaceColumns, StepTable
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    SpaceError,
    Tuple,
    decode_value,
    encode_value,
    from_json,
    to_json,
)


def stored(columns: SpaceColumns | MaskColumns, count: int) -> Any:
    """Return the columns after they were in a Parquet file."""
    arrays: dict[str, Any] = {name: column.take() for name, column in columns.columns.items()}
    schema = pa.schema([("row", pa.int64()), *((name, column.type) for name, column in columns.columns.items())])
    table = pa.table({"row": pa.array(range(count)), **arrays}, schema=schema)
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return pq.read_table(io.BytesIO(file.getvalue()))


@given(spaces, generators, st.lists(st.booleans(), min_size=1, max_size=5), st.booleans())
def test_values_survive_message_json_and_parquet(
    space: Space, generator: np.random.Generator, present: list[bool], tensors: bool
) -> None:
    assert from_json(to_json(space)) == space
    optional = not all(present)
    if optional and not keeps_missing_lists():
        tensors = False
    try:
        columns = SpaceColumns(from_json(to_json(space)), "observation", optional=optional, tensors=tensors)
    except SpaceError:
        return  # a key with a dot in it
    values = [space.sample(generator) if there else None for there in present]
    for value in values:
        columns.append(None if value is None else decode_value(encode_value(value, space)))
    table = stored(columns, len(values))
    for begin in (0, 1):
        found = values_of(space, "observation", table.slice(begin))
        assert len(found) == len(values) - begin
        for value, back in zip(values[begin:], found, strict=True):
            # A dict with nothing inside has no columns, in which it could be missing.
            assert same(value, back) or (value is None and not columns.columns)


def test_arrays_are_lists_of_their_shape() -> None:
    columns = SpaceColumns(Box(0, 9, (2, 3), np.float32), "observation", optional=False)
    columns.append(np.arange(6, dtype=np.float32).reshape(2, 3))
    table = stored(columns, 1)
    assert table.column("observation").to_pylist() == [[[0, 1, 2], [3, 4, 5]]]
    assert columns.columns["observation"].feature == {"dtype": "float32", "shape": [2, 3]}


MASKED = Dict(
    {
        "move": Discrete(3),
        "flags": MultiBinary((2, 2)),
        "pair": Tuple([Discrete(2), MultiDiscrete([2, 3])]),
        "push": Box(0, 1, (2,)),
    }
)


def test_masks() -> None:
    columns = MaskColumns(MASKED, "action_mask")
    mask = {
        "move": np.array([1, 0, 1], np.int8),
        "flags": np.array([[0, 1], [2, 2]], np.int8),
        "pair": (None, (np.array([1, 0], np.int8), np.array([1, 1, 0], np.int8))),
        "push": None,
    }
    for one in (mask, None):
        columns.append(one)
    table = stored(columns, 2)
    assert table.column("action_mask.move").to_pylist() == [[1, 0, 1], None]
    found = masks_of(MASKED, "action_mask", table)
    assert same(found[0], mask)
    assert found[1] is None


def test_masks_that_older_versions_have_stored() -> None:
    columns = MaskColumns(Discrete(3), "action_mask")
    for one in ([1, 0, 1], np.array([1.0, 0.0, 1.0]), np.array([True, False, True])):
        columns.append(one)
    assert stored(columns, 3).column("action_mask").to_pylist() == [[1, 0, 1]] * 3
    with pytest.raises(SpaceError, match=r"action_mask: expected a mask of the shape \(3,\), got \(2,\)"):
        columns.append([1, 0])
    of_parts = MaskColumns(Dict({"a": Discrete(2)}), "action_mask")
    of_parts.append(np.array([1, 0], np.int8))
    assert stored(of_parts, 1).column("action_mask.a").to_pylist() == [None], "it is no mask of the action"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros(3), 'observation["a"]: expected the shape (2,), got (3,)'),
        (np.zeros(2, "U1"), 'observation["a"]: expected float64, got <U1'),
        ([0.0, 0.0], 'observation["a"]: expected an array, got list'),
    ],
)
def test_what_does_not_fit(value: Any, text: str) -> None:
    columns = SpaceColumns(Dict({"a": Box(0, 1, (2,), np.float64)}), "observation", optional=False)
    with pytest.raises(SpaceError) as caught:
        columns.append({"a": value})
    assert str(caught.value) == text


def test_parts_that_are_missing() -> None:
    columns = SpaceColumns(Dict({"a": Discrete(2)}), "observation", optional=False)
    with pytest.raises(SpaceError, match="expected the keys 'a'"):
        columns.append({"b": np.int64(1)})
    with pytest.raises(SpaceError, match=r"expected the column 'observation\.a'"):
        values_of(Dict({"a": Discrete(2)}), "observation", pa.table({"row": [1]}))


@pytest.mark.parametrize(
    ("rows", "size", "row", "room"),
    [
        (0, 0, 10, 10),
        (0, 0, 40, 3),
        (0, 0, 50, 2),
        (0, 0, 1000, 1),
        (7, 0, 10, 3),
        (7, 90, 10, 1),
        (2, 41, 20, 3),
        (9, 500, 1, 1),
    ],
)
def test_there_is_room_for_rows_until_there_are_so_many_or_so_many_bytes(
    rows: int, size: int, row: int, room: int
) -> None:
    """The row that makes it full belongs to it, and one always has room."""
    table: Any = SimpleNamespace(rows=rows, size_bytes=size)
    assert StepTable.room(table, 10, 100, row) == room
