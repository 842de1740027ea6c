"""Tables of documents that a test fills by what it sees: compared, or written anew.

Such a table stands between `<!-- NAME: written by tests -->` and `<!-- end of NAME -->`. With
`TRIO_COGMENT_WRITE_TABLES` set, the test writes what it has seen instead of comparing it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def cells(*values: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(values)} |"


def require_table(page: str, name: str, lines: Iterable[str]) -> None:
    """Compare what was seen with a page's table, or write it there.

    Args:
        page: its file in `docs/`.
        name: of the table in that page.
        lines: of the table, its head included.
    """
    file, seen = DOCS / page, "\n".join(lines)
    text = file.read_text(encoding="utf-8")
    start, end = f"<!-- {name}: written by tests -->\n\n", f"\n\n<!-- end of {name} -->"
    before, found, rest = text.partition(start)
    written, ended, after = rest.partition(end)
    assert found, f"{page} has no table {name}"
    assert ended, f"the table {name} of {page} has no end"
    if os.environ.get("TRIO_COGMENT_WRITE_TABLES"):
        file.write_text(f"{before}{start}{seen}{end}{after}", encoding="utf-8")
    else:
        assert written == seen
