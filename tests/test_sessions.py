"""The sessions of nox find all tests that are theirs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def folders() -> dict[str, str]:
    """Return where each mark's tests are, as `noxfile.py` says."""
    for node in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FOLDERS":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise AssertionError("noxfile.py has no FOLDERS")


@pytest.mark.parametrize(("mark", "folder"), folders().items())
def test_tests_with_a_mark_are_where_its_session_looks(mark: str, folder: str) -> None:
    used = re.compile(rf"^(pytestmark|\s*@pytest|.*\bmarks=).*\bmark\.{mark}\b", re.MULTILINE)
    marked = {path for path in (ROOT / "tests").rglob("*.py") if used.search(path.read_text(encoding="utf-8"))}
    assert marked
    assert {path for path in marked if not path.is_relative_to(ROOT / folder)} == set()
