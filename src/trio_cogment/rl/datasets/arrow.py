"""PyArrow, or an error that says how to install it."""

from __future__ import annotations

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

__all__ = ["pa", "pq", "whole_column"]


def whole_column(table: Any, name: str) -> Any:
    """Return a column of a table as one array."""
    found = table.column(name).combine_chunks()
    # Without chunks, and in some versions always, this is a chunked array still.
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks or [pa.array([], found.type)])
