"""PyArrow, or an error that says how to install it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from trio_cogment.base.errors import MissingExtraError

if TYPE_CHECKING:
    pa: Any
    pq: Any
else:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise MissingExtraError.of("pyarrow", "export") from error

#: What Parquet adds to the path of a list for that of its elements.
_ELEMENT = ".list.element"

__all__ = ["is_tensor", "keeps_missing_lists", "pa", "parquet_file", "pq", "whole_column"]


def whole_column(table: Any, name: str) -> Any:
    """Return a column of a table as one array."""
    found = table.column(name).combine_chunks()
    # Without chunks, and in some versions always, this is a chunked array still.
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks or [pa.array([], found.type)])


def is_tensor(kind: Any) -> bool:
    """Return whether a type is that of Arrow's own tensors."""
    return isinstance(kind, pa.FixedShapeTensorType)


@cache
def keeps_missing_lists() -> bool:
    """Return whether this PyArrow writes and reads lists of a fixed size that are null.

    24 and before do not write them, and 25 does not read what it has written.
    """
    rows = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2, mask=pa.array([False, True]))
    file = pa.BufferOutputStream()
    try:
        pq.write_table(pa.table({"rows": rows}), file)
        return bool(pq.read_table(pa.BufferReader(file.getvalue()))["rows"].to_pylist() == [[1, 2], None])
    except pa.ArrowException:
        return False


def parquet_file(target: Any, schema: Any) -> Any:
    """Begin a Parquet file, without bounds of its columns of floats, and without dictionaries of what hardly repeats.

    Parquet's bounds leave NaN out, and readers skip row groups by them: in such files DuckDB 2.0 finds no row in which
    a reward is NaN. Columns of lists have no use for bounds. Dictionaries of arrays of floats and of times take as long
    as all the rest, and make a file of CartPole half as large again.
    """
    unbounded = (pa.types.is_nested, pa.types.is_floating, is_tensor)
    bounded = [field.name for field in schema if not any(is_such(field.type) for is_such in unbounded)]
    repeating = [path for field in schema for path, kind in _leaves(field.name, field.type) if _repeats(path, kind)]
    return pq.ParquetWriter(
        target, schema, compression="zstd", write_statistics=bounded, use_dictionary=repeating or False
    )


def _leaves(path: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield what Parquet stores of a column: each by its path there, and its type."""
    if is_tensor(kind):
        kind = kind.storage_type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}{_ELEMENT}", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _repeats(path: str, kind: Any) -> bool:
    return not (path.endswith("_ns") or (path.endswith(_ELEMENT) and pa.types.is_floating(kind)))
