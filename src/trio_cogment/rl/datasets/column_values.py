"""Values of spaces, and masks, read back from the columns of a table; `tables` says what these are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from trio_cogment.api.spaces_pb2 import Value
from trio_cogment.rl.datasets.arrow import is_tensor, whole_column
from trio_cogment.spaces import (
    ArraySpace,
    Dict,
    Discrete,
    MultiBinary,
    Space,
    SpaceError,
    Text,
    Tuple,
    column_names,
    decode_value,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def values_of(space: Space, prefix: str, table: Any) -> list[Any]:
    """Return the values of the rows of a table; None where all parts are null.

    Raises:
        SpaceError: a column is missing.
    """
    leaves = column_names(space, prefix)
    columns = [_read(leaf, _column(table, name)) for name, leaf in leaves.items()]
    found: list[Any] = []
    for row in range(table.num_rows):
        parts = [column[row] for column in columns]
        gone = bool(parts) and all(part is None for part in parts)
        found.append(None if gone else space.from_leaf_values(iter(parts)))
    return found


def masks_of(space: Space, prefix: str, table: Any) -> list[Any]:
    """Return the masks of the rows of a table; None where there are none."""
    columns = {
        name: [_mask(leaf, part) for part in _column(table, name).to_pylist()]
        for name, leaf in column_names(space, prefix).items()
    }
    found = []
    for row in range(table.num_rows):
        parts = [column[row] for column in columns.values()]
        found.append(None if all(part is None for part in parts) else _whole_mask(space, iter(parts)))
    return found


def _whole_mask(space: Space, parts: Iterator[Any]) -> Any:
    if isinstance(space, Dict):
        return {key: _whole_mask(part, parts) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_whole_mask(part, parts) for part in space.spaces)
    return next(parts)


def _mask(leaf: Space, part: Any) -> Any:
    if part is None:
        return None
    if isinstance(leaf, Discrete | MultiBinary):
        array = np.array(part, np.int8)
        return array.reshape(leaf.shape) if isinstance(leaf, MultiBinary) else array
    return _decoded(part)


def _column(table: Any, name: str) -> Any:
    if name not in table.column_names:
        raise SpaceError(f"expected the column {name!r}, but there is none", root="table")
    return whole_column(table, name)


def _read(leaf: Space, column: Any) -> list[Any]:
    if isinstance(leaf, ArraySpace):
        return _arrays(leaf, column)
    read: Callable[[Any], Any] = (lambda part: part) if isinstance(leaf, Text) else _decoded
    return [None if part is None else read(part) for part in column.to_pylist()]


def _decoded(data: bytes) -> Any:
    return decode_value(Value.FromString(data))


def _arrays(leaf: ArraySpace, column: Any) -> list[Any]:
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    count = len(column)
    rows: NDArray[Any] = np.zeros((count, *leaf.shape), leaf.dtype)
    if not leaf.shape:
        rows[valid] = column.drop_null().to_numpy(zero_copy_only=False)
    elif rows.size:
        # `flatten` leaves out what is null.
        values = column
        if is_tensor(column.type):
            values = column.storage.flatten()
        else:
            for _ in leaf.shape:
                values = values.flatten()
        rows[valid] = values.to_numpy(zero_copy_only=False).reshape(-1, *leaf.shape)
    if isinstance(leaf, Discrete):
        return [rows[row] if valid[row] else None for row in range(count)]
    # A 0-dimensional part of an array is a number otherwise.
    return [rows[row, ...] if valid[row] else None for row in range(count)]
