"""The account is independent of what it judges."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
#: What says what is right; the others compare.
MODEL = ("account", "people", "ticks")


@pytest.mark.parametrize("name", MODEL)
def test_it_imports_nothing_of_what_it_judges(name: str) -> None:
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for imported in names:
            allowed = imported.startswith(tuple(f"tests.account.{one}." for one in MODEL))
            assert allowed or not imported.startswith("tests"), imported
            assert not imported.startswith("trio_cogment") or imported.startswith("trio_cogment.api"), imported
