"""News fragments have names that the tool for the change log reads, and each says something."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "newsfragments"


def test_each_fragment_has_a_name_that_is_read() -> None:
    """Where the last part is not a number, two fragments are one to towncrier, which refuses them."""
    names = [path.name for path in FOLDER.iterdir() if path.name not in ("README.md", ".gitignore")]
    assert [name for name in names if not re.fullmatch(r"\d+\.(feature|bugfix|doc|removal)(\.\d+)?\.md", name)] == []


def test_no_fragment_is_empty() -> None:
    assert [path.name for path in FOLDER.glob("*.md") if not path.read_text(encoding="utf-8").strip()] == []
