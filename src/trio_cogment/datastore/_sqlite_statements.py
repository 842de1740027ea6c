"""The statements that insert samples: as few as possible, because other threads run Python code between two of them.

Beside a busy thread a statement may wait 5 ms for Python's interpreter lock. Statements for many rows also take SQLite
a quarter less time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from trio_cogment.datastore._write_rules import Head

#: So many samples are added by one statement, if there are as many, and SQLite takes as many values: before its version
#: 3.32 those of 166.
_ROWS_AT_ONCE = (500, 256, 128, 64, 32, 16, 8, 4, 2, 1)
_COLUMNS = 6
_INSERT = "INSERT INTO samples (position, trial, tick, timestamp, waiting, data) VALUES (?, ?, ?, ?, ?, ?)"
_INSERTS = [(_INSERT + ", (?, ?, ?, ?, ?, ?)" * (rows - 1), rows * _COLUMNS) for rows in _ROWS_AT_ONCE]

#: The heads of so many trials are changed by one statement.
_TRIALS_AT_ONCE = (8, 4, 2, 1)
_HEAD_COLUMNS = ("number", "ending", "samples_count", "high_tick", "state")


def _follow(trials: int) -> str:
    """Return the statement that changes so many heads."""
    width = len(_HEAD_COLUMNS)
    numbers = [1 + trial * width for trial in range(trials)]
    changes = [
        f"{name} = CASE number {' '.join(f'WHEN ?{number} THEN ?{number + column}' for number in numbers)} END"
        for column, name in enumerate(_HEAD_COLUMNS[1:], 1)
    ]
    return f"UPDATE trials SET {', '.join(changes)} WHERE number IN ({', '.join(f'?{number}' for number in numbers)})"


_FOLLOWS = [(_follow(trials), trials * len(_HEAD_COLUMNS)) for trials in _TRIALS_AT_ONCE]


def insert_samples(connection: sqlite3.Connection, values: list[int | bytes]) -> None:
    """Add samples.

    Args:
        connection: in a transaction.
        values: position, trial, tick, timestamp, whether it waits, and data of one sample after the other.
    """
    _execute(connection, _INSERTS, values)


def change_heads(connection: sqlite3.Connection, heads: Iterable[Head]) -> None:
    """Write what is new about trials.

    Args:
        connection: in a transaction.
        heads: each of another trial.
    """
    values: list[int | bytes] = []
    for head in heads:
        values += head.number, head.end, head.count, head.high_tick, head.state
    _execute(connection, _FOLLOWS, values)


def _execute(connection: sqlite3.Connection, statements: Sequence[tuple[str, int]], values: list[int | bytes]) -> None:
    """Execute statements, of which the longest comes first, with all the values."""
    done = 0
    most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    for statement, size in statements:
        while size <= most and len(values) - done >= size:
            connection.execute(statement, values[done : done + size])
            done += size
