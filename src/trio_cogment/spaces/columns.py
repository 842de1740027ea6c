"""A space's leaves as columns of a table: a name for each, and values split into columns and put together again."""

from __future__ import annotations

from typing import Any

from trio_cogment.spaces.base import Space
from trio_cogment.spaces.errors import SpaceError


def column_names(space: Space, prefix: str) -> dict[str, Space]:
    """Return the leaves of a space by the names of their columns: `observation.arm.0`, or the prefix alone.

    The columns are in the order of `Space.leaf_values`.

    Raises:
        SpaceError: two leaves would have one name, because a key contains a dot.
    """
    found: dict[str, Space] = {}
    for path, leaf in space.leaves():
        name = ".".join([prefix, *map(str, path)])
        if name in found:
            raise SpaceError(f"expected one name for each column, got {name!r} twice", path, "space")
        found[name] = leaf
    return found


def values_of_columns(space: Space, prefix: str, row: dict[str, Any]) -> Any:
    """Return the value whose leaves are in the columns of a row; other columns do not matter.

    Raises:
        SpaceError: a column is missing.
    """
    names = column_names(space, prefix)
    for name in names:
        if name not in row:
            raise SpaceError(f"expected the column {name!r}, but there is none", root="row")
    return space.from_leaf_values(iter([row[name] for name in names]))
