"""Statements that add many samples at once."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from trio_cogment.servers.datastore._sqlite import _SCHEMA
from trio_cogment.servers.datastore._sqlite_writer import _FOLLOWS, change_heads, insert_samples
from trio_cogment.servers.datastore._write_rules import Head
from trio_cogment.servers.datastore.storage import TrialEnd

_TRIAL = "INSERT INTO trials (number, trial_id, user_id, params, logged) VALUES (?, ?, '', x'', 0)"


@pytest.mark.parametrize("most", [32766, 999])
@pytest.mark.parametrize("count", [0, 1, 3, 166, 167, 256, 1301])
def test_all_are_written(most: int, count: int) -> None:
    """Also by an SQLite that takes fewer values, as those before 3.32 do."""
    rows = [(position, 1 + position % 2, position * 10, 5, 0, b"%d" % position) for position in range(1, count + 1)]
    heads = [Head(number, TrialEnd.ENDED, number * 2, number * 3, 2) for number in range(1, 24)]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(_SCHEMA)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, most)
        for number in range(1, 30):
            connection.execute(_TRIAL, (number, f"t{number}"))
        insert_samples(connection, [value for row in rows for value in row])
        change_heads(connection, heads)
        assert connection.execute("SELECT * FROM samples ORDER BY position").fetchall() == rows
        found = connection.execute("SELECT number, ending, samples_count, high_tick, state FROM trials ORDER BY number")
        wanted = [(head.number, head.end, head.count, head.high_tick, head.state) for head in heads]
        assert found.fetchall() == wanted + [(number, 0, 0, -1, 0) for number in range(24, 30)]


@pytest.mark.parametrize(
    ("count", "statements"),
    [(1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (500, 1), (1000, 2), (7, 3)],
)
def test_as_few_statements_as_possible(count: int, statements: int) -> None:
    """Beside a busy thread each of them may wait. Heads are changed by eight at a time at most."""
    executed: list[str] = []
    heads = [Head(number) for number in range(1, count + 1)]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(_SCHEMA)
        connection.set_trace_callback(executed.append)
        insert_samples(connection, [value for number in range(count) for value in (number, 1, number, 5, 0, b"")])
        assert len(executed) == statements
        executed.clear()
        change_heads(connection, heads)
        assert len(executed) == (statements if count < 8 else count // 8 + (count % 8) // 4)


def test_parameters_have_no_numbers() -> None:
    """Python 3.12 warns of a sequence for numbered ones, and 3.14 takes none."""
    assert not [statement for statement, *_ in _FOLLOWS if re.search(r"\?\d", statement)]
