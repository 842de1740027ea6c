"""Text for a terminal, safe for text that comes from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from google.protobuf.message import Message


def printable(text: str) -> str:
    """Return a text as one line without control characters; they are escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def print_json(data: Any) -> None:
    """Print a result for programs, on one line."""
    click.echo(json.dumps(data, ensure_ascii=False))


def fields_of(message: Message) -> dict[str, Any]:
    """Return a message as protobuf's JSON. Zeros and empty lists are there, too: programs need not know defaults."""
    from google.protobuf.json_format import MessageToDict

    return dict(MessageToDict(message, always_print_fields_with_no_presence=True))


def shortened(text: str, characters: int) -> str:
    """Return a text, or its beginning with a note of how long it is."""
    return text if len(text) <= characters else f"{text[:characters]}... ({len(text)} characters)"


def size_text(size: int) -> str:
    """Return a number of bytes for people, with a unit."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{size} B" if unit == "B" else f"{amount:.3g} {unit}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as lines, each column as wide as its widest cell; each row is one line whatever it holds."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
