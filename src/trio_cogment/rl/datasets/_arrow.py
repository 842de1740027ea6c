"""PyArrow, or an error that says how to install it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio_cogment.errors import MissingExtraError

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

__all__ = ["pa", "pq"]
