"""The guide's table of events is what is recorded and what the checkers look for, neither more nor less."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.suite import Unit, plan_of, scenario_of
from trio_cogment.testing import simulate

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
#: What scenarios of the project note for reports, and no checker looks for.
OWN_WORDS = {"fault", "refused", "taken"}


def rows() -> dict[str, set[str]]:
    """Return the details of each event in the table."""
    table = GUIDE.partition("| event | who | details |\n")[2].partition("\n\n")[0]
    found = {
        event: set(re.findall(r"`(\w+)`", details))
        for event, details in re.findall(r"^\| `([\w ]+)` \| .+ \| (.+) \|$", table, re.MULTILINE)
    }
    assert len(found) == len(table.splitlines()) - 1  # but for the rule
    found["late sample"] = found["sample"]
    return found


def words_of(tree: ast.Module) -> Iterator[str]:
    """Yield the events that a module notes, and those that it compares an event with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "record":
            # A part of a trial notes what; a history, who and what.
            yield from texts_in(node.args[min(len(node.args), 2) - 1])
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(".what"):
            yield from texts_in(*node.comparators)


def texts_in(*nodes: ast.expr) -> Iterator[str]:
    for node in nodes:
        values = node.elts if isinstance(node, ast.Tuple | ast.Set) else [node]
        yield from (one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str))


def test_the_table_has_what_is_noted_and_looked_for() -> None:
    words: set[str] = set()
    for path in (ROOT / "src" / "trio_cogment" / "testing").rglob("*.py"):
        words.update(words_of(ast.parse(path.read_text(encoding="utf-8"))))
    assert words == rows().keys()


@pytest.mark.usefixtures("quiet")
def test_the_details_are_those_of_real_runs() -> None:
    table = rows()
    seen = set()
    for unit in (Unit(1, "liveness"), Unit(4, "safety"), Unit(8, "safety")):
        for event in simulate(unit.seed, scenario_of(unit.suite), plan=plan_of(unit)).history:
            seen.add(event.what)
            if event.what not in OWN_WORDS:
                assert set(event.details) == table[event.what], event
    assert len(seen & table.keys()) > 25
