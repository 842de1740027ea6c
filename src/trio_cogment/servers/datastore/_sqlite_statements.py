"""The statements that insert samples: as few as possible, because other threads run Python code between two of them.

Beside a busy thread a statement may wait 5 ms for Python's interpreter lock. Statements for many rows also take SQLite
a quarter less time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from operator import itemgetter

from trio_cogment.servers.datastore._write_rules import Head

#: So many samples are added by one statement, if there are as many, and SQLite takes as many values: before its version
#: 3.32 those of 166.
_ROWS_AT_ONCE = (500, 256, 128, 64, 32, 16, 8, 4, 2, 1)
_COLUMNS = 6
_INSERT = "INSERT INTO samples (position, trial, tick, timestamp, waiting, data) VALUES (?, ?, ?, ?, ?, ?)"
_INSERTS = [(_INSERT + ", (?, ?, ?, ?, ?, ?)" * (rows - 1), rows * _COLUMNS) for rows in _ROWS_AT_ONCE]

#: The heads of so many trials are changed by one statement.
_TRIALS_AT_ONCE = (8, 4, 2, 1)
_HEAD_COLUMNS = ("number", "ending", "samples_count", "high_tick", "state", "bytes")


def _follow(trials: int) -> tuple[str, list[int]]:
    """Return the statement that changes so many heads, and which of their values its parameters have."""
    width = len(_HEAD_COLUMNS)
    numbers = [trial * width for trial in range(trials)]
    cases = f"CASE number {'WHEN ? THEN ? ' * trials}END"
    changes = ", ".join(f"{name} = {cases}" for name in _HEAD_COLUMNS[1:])
    order = [of for column in range(1, width) for number in numbers for of in (number, number + column)]
    return f"UPDATE trials SET {changes} WHERE number IN ({', '.join('?' * trials)})", order + numbers


#: Statements, how many values they take, and these as parameters: Python takes no numbered ones (`?1`) from a sequence.
_FOLLOWS = [
    (statement, trials * len(_HEAD_COLUMNS), itemgetter(*order))
    for trials in _TRIALS_AT_ONCE
    for statement, order in [_follow(trials)]
]


def insert_samples(connection: sqlite3.Connection, values: list[int | bytes]) -> None:
    """Add samples.

    Args:
        connection: in a transaction.
        values: position, trial, tick, timestamp, whether it waits, and data of one sample after the other.
    """
    done = 0
    most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    for statement, size in _INSERTS:
        while size <= most and len(values) - done >= size:
            connection.execute(statement, values[done : done + size])
            done += size


def change_heads(connection: sqlite3.Connection, heads: Iterable[Head]) -> None:
    """Write what is new about trials.

    Args:
        connection: in a transaction.
        heads: each of another trial.
    """
    values: list[int | bytes] = []
    for head in heads:
        values += head.number, head.end, head.count, head.high_tick, head.state, head.bytes
    done = 0
    for statement, size, parameters in _FOLLOWS:
        while len(values) - done >= size:
            connection.execute(statement, parameters(values[done : done + size]))
            done += size
