"""Columns of a table for the values of spaces: collected row by row, given to Arrow, and read back.

| values | column |
|---|---|
| of `Discrete`; arrays without dimensions | a number |
| arrays | nested lists of fixed size, as large as the shape says |
| arrays without elements | an empty list |
| of `Text` | a string |
| of `Sequence`, `Graph`, `OneOf` | the bytes of the message `trio_cogment.spaces.Value` |
| action masks of `Discrete` and `MultiBinary` | a list of `int8` |
| other action masks | the bytes of the message `trio_cogment.spaces.Value` |

`Dict` and `Tuple` have a column for each part: `observation.arm.0`. What is not there is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trio_cogment.rl.datasets._arrow import pa
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
    encode_value,
)
from trio_cogment.spaces.base import described

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: How many rows a column has room for at first.
_FIRST_ROWS = 256


class Column(Protocol):
    """Collects the values of one column.

    Attributes:
        feature: what `meta/info.json` says of the column: `dtype`, `shape`, and `encoding` if it has one.
    """

    feature: dict[str, Any]

    @property
    def type(self) -> Any:
        """Arrow's type of the column."""

    def append(self, value: Any) -> int:
        """Add a value, or None; return about how many bytes it takes. Raises SpaceError."""

    def take(self) -> Any:
        """Return the values as an array of Arrow, and forget them."""


class PlainColumn:
    """Values that Arrow takes as they are.

    Args:
        kind: Arrow's type.
        name: of the type, for `feature`.
        size: about how many bytes a value takes.
    """

    def __init__(self, kind: Any, name: str, size: int = 8) -> None:
        self.type = kind
        self.feature: dict[str, Any] = {"dtype": name, "shape": []}
        self._size = size
        self._values: list[Any] = []

    def append(self, value: Any) -> int:
        """See `Column.append`."""
        self._values.append(value)
        return self._size

    def take(self) -> Any:
        """See `Column.take`."""
        values, self._values = self._values, []
        return pa.array(values, self.type)


class TextColumn(PlainColumn):
    """Strings."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "str")

    def append(self, value: Any) -> int:
        """See `Column.append`."""
        if value is None:
            return super().append(None)
        if not isinstance(value, str):
            raise SpaceError(f"expected a string, got {described(value)}")
        return super().append(value) + len(value)


class MessageColumn(PlainColumn):
    """Values of any space, or of none, as bytes of the message `Value`."""

    def __init__(self, space: Space | None) -> None:
        super().__init__(pa.binary(), "bytes")
        self.feature["encoding"] = "trio_cogment.spaces.Value"
        self._space = space

    def append(self, value: Any) -> int:
        """See `Column.append`."""
        if value is None:
            return super().append(None)
        data = encode_value(value).SerializeToString()
        return super().append(data) + len(data)


class MaskColumn(PlainColumn):
    """The masks of a `Discrete` or `MultiBinary`, as lists."""

    def __init__(self) -> None:
        super().__init__(pa.list_(pa.int8()), "int8")
        self.feature["shape"] = [None]

    def append(self, value: Any) -> int:
        """See `Column.append`."""
        if value is None:
            return super().append(None)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iub":
            raise SpaceError(f"expected an array of int8, got {described(value)}")
        return super().append(value.reshape(-1).astype(np.int8)) + value.size


def array_in(space: ArraySpace, value: Any) -> Any:
    """Return an array or number that has a space's shape, and a type that its type can take.

    Bounds do not matter: what was observed, was observed.

    Raises:
        SpaceError: it has another shape or type.
    """
    if not isinstance(value, np.ndarray | np.generic):
        raise SpaceError(f"expected an array, got {described(value)}")
    if value.shape != space.shape:
        raise SpaceError(f"expected the shape {space.shape}, got {value.shape}")
    if value.dtype != space.dtype and not space.fits(value.dtype):
        raise SpaceError(f"expected {space.row.name}, got {value.dtype}")
    return value


class ArrayColumn:
    """Arrays of one shape and type, or numbers, in one array."""

    def __init__(self, space: ArraySpace) -> None:
        self._space = space
        self._shape = space.shape
        self._bytes = space.dtype.itemsize * int(np.prod(space.shape, dtype=np.int64))
        self._rows: NDArray[Any] = np.empty((0, *space.shape), space.dtype)
        self._missing: list[int] = []
        self._count = 0
        self.feature: dict[str, Any] = {"dtype": space.row.name, "shape": list(space.shape)}

    @property
    def type(self) -> Any:
        """See `Column.type`."""
        kind = pa.from_numpy_dtype(self._space.dtype)
        if 0 in self._shape:
            return pa.list_(kind)  # Parquet has no lists of the fixed size 0
        for length in reversed(self._shape):
            kind = pa.list_(kind, length)
        return kind

    def append(self, value: Any) -> int:
        """See `Column.append`."""
        if self._count == len(self._rows):
            more = max(_FIRST_ROWS, 2 * self._count) if self._bytes < 2**16 else self._count + 16
            # Not `resize`, which would fill what is new.
            larger: NDArray[Any] = np.empty((more, *self._shape), self._space.dtype)
            larger[: self._count] = self._rows[: self._count]
            self._rows = larger
        if value is None:
            self._rows[self._count] = np.zeros((), self._space.dtype)
            self._missing.append(self._count)
        else:
            self._rows[self._count] = array_in(self._space, value)
        self._count += 1
        return self._bytes

    def take(self) -> Any:
        """See `Column.take`."""
        count, missing, rows = self._count, self._missing, self._rows
        self._count, self._missing = 0, []
        self._rows = np.empty((0, *self._shape), self._space.dtype)
        mask = None
        if missing:
            mask = np.zeros(count, bool)
            mask[missing] = True
        if 0 in self._shape:
            return pa.array([None if mask is not None and mask[row] else [] for row in range(count)], self.type)
        found = pa.array(rows[:count].reshape(-1), mask=mask if not self._shape else None)
        for place in range(len(self._shape) - 1, -1, -1):
            nulls = None if place or mask is None else pa.array(mask)
            found = pa.FixedSizeListArray.from_arrays(found, self._shape[place], mask=nulls)
        return found


def column_of(leaf: Space) -> Column:
    """Return the column for the values of a space that is neither `Dict` nor `Tuple`."""
    if isinstance(leaf, ArraySpace):
        return ArrayColumn(leaf)
    return TextColumn() if isinstance(leaf, Text) else MessageColumn(leaf)


class SpaceColumns:
    """The columns of a space's values.

    Attributes:
        columns: by name, in order.

    Raises:
        SpaceError: two parts of the space would have one name.
    """

    def __init__(self, space: Space, prefix: str) -> None:
        self._space = space
        self._prefix = prefix
        self._paths = [path for path, _ in space.leaves()]
        self.columns = {name: column_of(leaf) for name, leaf in column_names(space, prefix).items()}
        self._columns = list(self.columns.values())

    def append(self, value: Any) -> int:
        """Add a value, or None for one that is not there; return about how many bytes it takes.

        Raises:
            SpaceError: a part of it has another type or shape than those of the space; the text says which.
        """
        size, position = 0, 0
        try:
            values = iter([None] * len(self._columns)) if value is None else self._leaf_values(value)
            for column in self._columns:
                size += column.append(next(values))
                position += 1
        except SpaceError as error:
            raise error.inside(*self._paths[position]).of(self._prefix) from None
        return size

    def _leaf_values(self, value: Any) -> Iterator[Any]:
        try:
            return iter(list(self._space.leaf_values(value)))
        except (KeyError, TypeError, ValueError, IndexError):
            try:
                self._space.check(value)  # says what is wrong
            except SpaceError as error:
                raise error.of(self._prefix) from None
            raise


class MaskColumns:
    """The columns of the masks of an action space, in the form that its `sample` takes in Gymnasium.

    Attributes:
        columns: by name, in order; none for parts that have no masks.
    """

    def __init__(self, space: Space, prefix: str) -> None:
        self._space = space
        self._prefix = prefix
        self.columns: dict[str, Column] = {}
        for name, leaf in column_names(space, prefix).items():
            self.columns[name] = MaskColumn() if isinstance(leaf, Discrete | MultiBinary) else MessageColumn(None)
        self._columns = list(self.columns.values())

    def append(self, mask: Any) -> int:
        """Add a mask, or None; return about how many bytes it takes.

        Raises:
            SpaceError: it has not the form of the action space's masks.
        """
        size = 0
        try:
            for column, value in zip(self._columns, _mask_leaves(self._space, mask), strict=True):
                size += column.append(value)
        except SpaceError as error:
            raise error.of(self._prefix) from None
        return size


def _mask_leaves(space: Space, mask: Any) -> Iterator[Any]:
    if isinstance(space, Dict):
        if not (mask is None or isinstance(mask, dict)):
            raise SpaceError(f"expected a dict of masks, got {described(mask)}")
        for key, part in space.spaces.items():
            yield from _mask_leaves(part, None if mask is None else mask.get(key))
    elif isinstance(space, Tuple):
        if not (mask is None or (isinstance(mask, tuple | list) and len(mask) == len(space.spaces))):
            raise SpaceError(f"expected a tuple of {len(space.spaces)} masks, got {described(mask)}")
        for position, part in enumerate(space.spaces):
            yield from _mask_leaves(part, None if mask is None else mask[position])
    else:
        yield mask


# Reading


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
    found = table.column(name).combine_chunks()
    # Without chunks, and in some versions always, this is a chunked array still.
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks or [pa.array([], found.type)])


def _read(leaf: Space, column: Any) -> list[Any]:
    if isinstance(leaf, ArraySpace):
        return _arrays(leaf, column)
    read: Callable[[Any], Any] = (lambda part: part) if isinstance(leaf, Text) else _decoded
    return [None if part is None else read(part) for part in column.to_pylist()]


def _decoded(data: bytes) -> Any:
    from trio_cogment.api.spaces_pb2 import Value

    return decode_value(Value.FromString(data))


def _arrays(leaf: ArraySpace, column: Any) -> list[Any]:
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    count, values = len(column), column
    if 0 in leaf.shape:
        rows: NDArray[Any] = np.empty((count, *leaf.shape), leaf.dtype)
    else:
        start = 0
        for length in leaf.shape:
            # Not `flatten`, which leaves out what is null.
            start, values = (start + values.offset) * length, values.values
        values = values.slice(start, count * int(np.prod(leaf.shape, dtype=np.int64)))
        if values.null_count:
            values = values.fill_null(False if leaf.dtype.kind == "b" else 0)
        flat = values.to_numpy(zero_copy_only=False)
        rows = flat.astype(leaf.dtype, copy=False).reshape((count, *leaf.shape))
    if isinstance(leaf, Discrete):
        return [rows[row] if valid[row] else None for row in range(count)]
    # A 0-dimensional part of an array is a number otherwise.
    return [rows[row, ...] if valid[row] else None for row in range(count)]
