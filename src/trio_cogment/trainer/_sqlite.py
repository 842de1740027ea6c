"""The SQLite database of a trainer. Nothing here knows of Trio."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from trio_cogment.access import sources_of
from trio_cogment.base.sqlite_file import SqliteFormat, WritingConnection, file_errors
from trio_cogment.base.sqlite_hold import DatabaseHold
from trio_cogment.trainer.runs import Run, RunOutcome, RunState
from trio_cogment.trainer.storage import Batch, Kind, Row, RunWrite, StoredRun, TelemetryRows

_SCHEMA = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    external INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    updated_ns INTEGER NOT NULL,
    heartbeat_ns INTEGER NOT NULL,
    state INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    failure_reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    gpu_slots TEXT NOT NULL,
    published INTEGER NOT NULL,
    checkpoints TEXT NOT NULL DEFAULT '[]',
    max_rate_hz INTEGER NOT NULL DEFAULT 0,
    run_name TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL DEFAULT '',
    sources TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE configs (number INTEGER PRIMARY KEY, config TEXT NOT NULL);
CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB NOT NULL);
CREATE TABLE steps (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE episodes (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE marks (
    run INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (run, kind, worker_id)
) WITHOUT ROWID;
CREATE TABLE recoveries (count INTEGER NOT NULL);
INSERT INTO recoveries VALUES (0);
"""

FORMAT = SqliteFormat(
    user="trainer",
    application_id=0x54435472,  # "TCTr"
    version=6,
    schema=_SCHEMA,
    migrations={
        1: "ALTER TABLE runs ADD COLUMN checkpoints TEXT NOT NULL DEFAULT '[]'",
        2: "ALTER TABLE runs ADD COLUMN max_rate_hz INTEGER NOT NULL DEFAULT 0",
        3: "ALTER TABLE runs ADD COLUMN run_name TEXT NOT NULL DEFAULT '';"
        "UPDATE runs SET run_name = coalesce("
        "(SELECT json_extract(config, '$.run_name') FROM configs WHERE configs.number = runs.number), '')",
        4: "ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        5: "ALTER TABLE runs ADD COLUMN sources TEXT NOT NULL DEFAULT '[]'",
    },
)

_TABLES = {Kind.STEPS: "steps", Kind.EPISODES: "episodes"}
#: This many steps or episodes of a run are forgotten in one transaction.
_FORGOTTEN_AT_ONCE = 20_000
#: This many steps or episodes are written by one statement.
_ROWS = 1000
_COLUMNS = (
    "number, run_id, digest, external, created_ns, updated_ns, heartbeat_ns, state, outcome, failure_reason, detail, "
    "gpu_slots, published, checkpoints, max_rate_hz, run_name, owner, sources"
)
_PUT_RUN = f"INSERT OR REPLACE INTO runs ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})"
#: SQLite's integers end here; numbers of workers may be larger.
_MOST = 2**63


class SqliteDatabase:
    """A `storage.Database` in a file, which is made if it is not there.

    Args:
        path: of the file; links are followed.
        full: a commit waits until it would survive a loss of power; else until it survives the end of the process.
    """

    def __init__(self, path: str, *, full: bool = True) -> None:
        self._path = os.path.realpath(path)
        self._hold = DatabaseHold(FORMAT, self._path)
        self._writing = WritingConnection(self._path, full=full, missing=self._hold.missing)

    def open(self) -> None:
        """Open the file.

        Raises:
            FailedPreconditionError: it cannot be used, or another trainer uses it; the text says which.
            ResourceExhaustedError: the disk is full.
            UnavailableError: the disk or the database is damaged.
        """
        self._hold.open()

    def close(self) -> None:
        """See `Database.close`."""
        self._writing.close()
        self._hold.close()

    def write(self, batch: Batch) -> None:
        """See `Database.write`."""
        with self._writing.transaction() as connection:
            _write_runs(connection, batch.runs)
            for kind in Kind:
                _write_telemetry(connection, kind, [rows for rows in batch.telemetry if rows.kind is kind])
            _write_marks(connection, batch.telemetry)

    def runs(self) -> list[StoredRun]:
        """See `Database.runs`."""
        found = {
            row[0]: StoredRun(row[0], _run_of(row), dict.fromkeys(Kind, 0), {kind: {} for kind in Kind})
            for row in self._query(f"SELECT {_COLUMNS} FROM runs ORDER BY number")
        }
        for kind, table in _TABLES.items():
            # One look into the index for each run: `GROUP BY` would read all of it.
            last = f"SELECT number, (SELECT max(seq) FROM {table} WHERE run = number) FROM runs"
            for number, seq in self._query(last):
                found[number].last[kind] = seq or 0
        for number, kind, worker_id, seq in self._query("SELECT run, kind, worker_id, seq FROM marks"):
            found[number].marks[Kind(kind)][worker_id] = seq + _MOST
        return list(found.values())

    def config(self, number: int) -> str:
        """See `Database.config`."""
        ((config,),) = self._query("SELECT config FROM configs WHERE number = ?", number)
        return str(config)

    def rows(self, kind: Kind, number: int, *, after: int, limit: int, max_bytes: int) -> list[Row]:
        """See `Database.rows`."""
        statement = f"SELECT seq, data FROM {_TABLES[kind]} WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
        found: list[Row] = []
        size = 0
        with (
            file_errors(f"cannot read from {self._path}"),
            closing(self._hold.reader.execute(statement, (number, min(after, _MOST - 1), limit))) as cursor,
        ):
            for row in cursor:
                found.append(Row(*row))
                size += len(row[1])
                if size >= max_bytes:
                    break
        return found

    def events(self, *, after: int, limit: int) -> list[Row]:
        """See `Database.events`."""
        rows = self._query(
            "SELECT seq, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?", min(after, _MOST - 1), limit
        )
        return [Row(*row) for row in rows]

    def event_range(self) -> tuple[int, int]:
        """See `Database.event_range`."""
        # SQLite remembers the last number of such a table, also when it is empty.
        last = self._query("SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'")[0][0] or 0
        return self._query("SELECT min(seq) FROM events")[0][0] or last + 1, last

    def forget_events(self, before: int) -> None:
        """See `Database.forget_events`."""
        with self._writing.transaction() as connection:
            connection.execute("DELETE FROM events WHERE seq < ?", (before,))

    def forget_run(self, number: int) -> bool:
        """See `Database.forget_run`."""
        with self._writing.transaction() as connection:
            for table in _TABLES.values():
                # Not all of it at once: others wait meanwhile.
                (first,) = connection.execute(f"SELECT min(seq) FROM {table} WHERE run = ?", (number,)).fetchone()
                if first is not None:
                    connection.execute(
                        f"DELETE FROM {table} WHERE run = ? AND seq < ?", (number, first + _FORGOTTEN_AT_ONCE)
                    )
                    return False
            connection.execute("DELETE FROM marks WHERE run = ?", (number,))
            for table in ("configs", "runs"):
                connection.execute(f"DELETE FROM {table} WHERE number = ?", (number,))
        return True

    def _query(self, statement: str, *values: object) -> list[Any]:
        with file_errors(f"cannot read from {self._path}"):
            return self._hold.reader.execute(statement, values).fetchall()


def _write_runs(connection: sqlite3.Connection, writes: Sequence[RunWrite]) -> None:
    connection.executemany(_PUT_RUN, [_values_of(write.number, write.run) for write in writes])
    configs = [(write.number, write.config) for write in writes if write.config is not None]
    connection.executemany("INSERT OR REPLACE INTO configs (number, config) VALUES (?, ?)", configs)
    events = [write.event for write in writes if write.event is not None]
    connection.executemany("INSERT INTO events (seq, data) VALUES (?, ?)", events)


def _write_telemetry(connection: sqlite3.Connection, kind: Kind, telemetry: Sequence[TelemetryRows]) -> None:
    values: list[int | bytes] = []
    for rows in telemetry:
        for seq, data in enumerate(rows.data, rows.first):
            values += (rows.number, seq, data)
    # Every statement gives way to the other threads, and has to wait for its turn then: one for many rows does so less
    # often.
    for start in range(0, len(values), 3 * _ROWS):
        some = values[start : start + 3 * _ROWS]
        places = ", ".join(["(?, ?, ?)"] * (len(some) // 3))
        connection.execute(f"INSERT INTO {_TABLES[kind]} (run, seq, data) VALUES {places}", some)


def _write_marks(connection: sqlite3.Connection, telemetry: Sequence[TelemetryRows]) -> None:
    # SQLite's integers have a sign, and those of workers have none.
    marks = [
        (rows.number, rows.kind, worker_id, seq - _MOST) for rows in telemetry for worker_id, seq in rows.marks.items()
    ]
    connection.executemany("INSERT OR REPLACE INTO marks (run, kind, worker_id, seq) VALUES (?, ?, ?, ?)", marks)


def _values_of(number: int, run: Run) -> tuple[object, ...]:
    return (
        number,
        run.run_id,
        run.digest,
        run.external,
        run.created_ns,
        run.updated_ns,
        run.heartbeat_ns,
        run.state,
        run.outcome.value if run.outcome is not None else "",
        run.failure_reason,
        run.detail,
        json.dumps(run.gpu_slots),
        run.published,
        json.dumps(run.checkpoints),
        run.max_rate_hz,
        run.run_name,
        run.owner,
        json.dumps(run.sources),
    )


def _run_of(row: tuple[Any, ...]) -> Run:
    return Run(
        run_id=row[1],
        digest=row[2],
        external=bool(row[3]),
        created_ns=row[4],
        updated_ns=row[5],
        heartbeat_ns=row[6],
        state=RunState(row[7]),
        outcome=RunOutcome(row[8]) if row[8] else None,
        failure_reason=row[9],
        detail=row[10],
        gpu_slots=tuple(json.loads(row[11])),
        published=bool(row[12]),
        checkpoints=tuple(json.loads(row[13])),
        max_rate_hz=row[14],
        run_name=row[15],
        owner=row[16],
        sources=sources_of(json.loads(row[17])),
    )
