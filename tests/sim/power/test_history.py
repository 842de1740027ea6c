"""Contents of a store after a loss of power, for each moment of a short history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.power.disk import Made, Operation, Record, Synced, Wrote
from tests.sim.power.history import History

#: The second transaction and the third were acknowledged at the same operation: the third wrote nothing.
_ACKNOWLEDGED = (4, 7, 7, 10)


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(Record(tmp_path))
    for state, done in zip("abbc", _ACKNOWLEDGED, strict=True):
        history.note(state, done)
    return history


@pytest.mark.parametrize(
    ("before", "synced", "batched"),
    [
        (4, "a", "a"),
        (5, "ab", "ab"),
        (6, "ab", "ab"),
        (7, "b", "ab"),
        (8, "bc", "abc"),
        (9, "bc", "abc"),
        (10, "c", "abc"),
        (11, "c", "abc"),
    ],
)
def test_what_may_be_there(history: History, before: int, synced: str, batched: str) -> None:
    assert "".join(state for state in "abcd" if not history.check(state, before)) == synced
    assert "".join(state for state in "abcd" if not history.check(state, before, first=0)) == batched


def test_what_is_wrong_is_said(history: History) -> None:
    assert history.check("b", 10) == "before operation 10: transaction 2 is the last one, not one of 3 to 3"
    assert history.check("d", 10) == "before operation 10: what is there never was"


def test_a_state_is_acknowledged_now_unless_said_otherwise(tmp_path: Path) -> None:
    history = History(Record(tmp_path))
    history.record.operations.extend([Made("log"), Synced("log")])
    history.note("a")
    assert history.acknowledged == [2]


def test_what_a_log_has_is_there_from_its_sync_on(history: History) -> None:
    operations: list[Operation] = [Wrote("log", 0, b""), Wrote("db", 0, b"")] * 6
    operations[5] = Synced("log")
    operations[8] = Synced("log")
    operations[11] = Synced("db")
    history.record.operations.extend(operations)
    assert [history.synced(before, "log") for before in range(4, 13)] == [0, 0, 0, 0, 0, 2, 2, 2, 2]
