"""Reports of the benchmarks: a table on the terminal, and one flat JSON object on the last line."""

from __future__ import annotations

import json
from collections.abc import Sequence


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def number(value: float | None) -> str:
    """Three significant digits, without an exponent; a dash for what was not measured."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_json(values: dict[str, float | None]) -> None:
    print(json.dumps({name: None if value is None else round(value, 4) for name, value in values.items()}))
