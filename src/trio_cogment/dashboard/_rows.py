"""Incremental updates: a page is sent only what changed.

A view is rows by their keys, each of which JSON can have. A page that has got all deltas in order has the same rows as
the server. However late the next delta is, it is the difference to the last one, so nothing waits for a page that does
not read: that is the conflation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Mapping[str, Row]
Delta: TypeAlias = dict[str, Any]


class Differ:
    """What one page has been told of one view."""

    def __init__(self) -> None:
        self._told: dict[str, Row] = {}
        self._order: list[str] = []

    def delta(self, rows: Rows) -> Delta | None:
        """Return what changes the rows that the page has into these; None: nothing does.

        `set` has, for each row that is new or different, the fields that are so, `gone` the keys of rows that are not
        there any more, and `order` all keys, if their order is another one. A field that is not there any more is None.
        """
        changed = {}
        for key, row in rows.items():
            old = self._told.get(key)
            if old is None:
                changed[key] = dict(row)
            elif old != row:
                fields = {name: value for name, value in row.items() if name not in old or old[name] != value}
                changed[key] = fields | {name: None for name in old if name not in row}
        gone = [key for key in self._told if key not in rows]
        order = list(rows)
        moved = order != [key for key in self._order if key in rows] + [key for key in order if key not in self._told]
        self._told, self._order = dict(rows), order
        if not changed and not gone and not moved:
            return None
        delta: Delta = {}
        if changed:
            delta["set"] = changed
        if gone:
            delta["gone"] = gone
        if moved:
            delta["order"] = order
        return delta


def applied(rows: Rows, delta: Delta | None) -> dict[str, Row]:
    """Return the rows that a page has after a delta; what `rows.js` does in the browser."""
    found: dict[str, Row] = {key: dict(row) for key, row in rows.items()}
    if delta is None:
        return found
    for key in delta.get("gone", ()):
        del found[key]
    for key, fields in delta.get("set", {}).items():
        merged = {**found.get(key, {}), **fields}
        found[key] = {name: value for name, value in merged.items() if value is not None or name not in fields}
    if "order" in delta:
        found = {key: found[key] for key in delta["order"]}
    return found
