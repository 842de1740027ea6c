"""The table of `docs/sdk.md` that sets the published SDK beside this one: each row has a test, and each error too.

`tests/interop/test_published_surface.py` holds the table against the installed package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.sdk import ActorStatus, EventType
from trio_cogment.sdk._datastore import FIELDS

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS.parent / "docs" / "sdk.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
SPAN = re.compile(r"`([^`]+)`")


def rows(heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables below a heading, up to the next one of its level."""
    section = TEXT.partition(f"\n{heading}\n")[2]
    section = section.split(f"\n{heading.partition(' ')[0]} ")[0]
    for line in section.splitlines():
        if line.startswith("| ") and not line.endswith("| test |"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def surface() -> list[tuple[list[str], str, str]]:
    """Return the items of the published SDK, their counterpart and the tests of each row."""
    return [(SPAN.findall(items), ours, tests) for items, ours, tests in rows("## The published SDK and this one")]


@cache
def defined_in(file: str) -> dict[str, list[str]]:
    """Return the tests that a file defines, and the decorators of each."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {
        node.name: [ast.unparse(decorator) for decorator in node.decorator_list]
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def check_tests(cell: str, what: str) -> None:
    named = NAMED.findall(cell)
    assert named, f"no test shows: {what}"
    assert not NAMED.sub("", cell).strip(", "), f"what is this: {cell}"
    for file, name in named:
        assert Path(file).name.startswith("test_")  # else pytest does not collect it
        decorators = defined_in(file).get(name)
        assert decorators is not None, f"there is no {file}::{name}"
        assert not any("skip" in decorator or "interop" in decorator or "soak" in decorator for decorator in decorators)


def test_every_row_has_tests_that_run() -> None:
    found = surface()
    assert len(found) > 80
    for items, ours, tests in found:
        assert items
        assert ours
        check_tests(tests, str(items))


def test_no_item_stands_twice() -> None:
    items = [item for row, _, _ in surface() for item in row]
    assert len(items) > 350
    assert sorted(set(items)) == sorted(items)


def test_every_error_has_a_test_with_its_text() -> None:
    found = list(rows("## Errors"))
    assert len(found) > 12
    for mistake, error, tests in found:
        assert "Error`" in error or "warning in the log" in error
        check_tests(tests, mistake)


def test_enumerations_have_the_numbers_of_the_published_sdk() -> None:
    assert {kind.name: kind.value for kind in EventType} == {"ACTIVE": 1, "ENDING": 2, "FINAL": 3}
    statuses = {status.name: status.value for status in ActorStatus}
    assert statuses.pop("HELD") == 1001, "ours"
    assert statuses == {"ACTIVE": 1, "UNAVAILABLE": 2, "DEFAULT": 3}
    states = {"UNKNOWN": 0, "INITIALIZING": 1, "PENDING": 2, "RUNNING": 3, "TERMINATING": 4, "ENDED": 5}
    assert dict(TrialState.items()) == states
    assert {name.upper(): number for name, number in FIELDS.items()} == {
        "OBSERVATION": 1,
        "ACTION": 2,
        "REWARD": 3,
        "RECEIVED_REWARDS": 4,
        "SENT_REWARDS": 5,
        "RECEIVED_MESSAGES": 6,
        "SENT_MESSAGES": 7,
    }
    assert {kind: info.directory_type for kind, info in SERVICES.items()} == {
        ServiceKind.LIFECYCLE: 1,
        ServiceKind.CLIENT_ACTOR: 2,
        ServiceKind.ACTOR: 3,
        ServiceKind.ENVIRONMENT: 4,
        ServiceKind.PRE_TRIAL_HOOK: 5,
        ServiceKind.DATALOG: 6,
        ServiceKind.DATASTORE: 7,
        ServiceKind.MODEL_REGISTRY: 8,
        ServiceKind.DIRECTORY: 9,
        ServiceKind.OTHER: 100,
    }
