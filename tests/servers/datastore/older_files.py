"""Databases as older versions have left them, made of those of today."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from trio_cogment.servers.datastore._sqlite_chunks import CHUNKS
from trio_cogment.servers.datastore.chunks import Chunk, decode
from trio_cogment.servers.datastore.storage import ROW_BYTES


def make_older(path: Path, version: int) -> None:
    """Give a closed database the tables of an older version: every sample is a row.

    Args:
        path: of the database.
        version: 1 to 5.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        trials = connection.execute("SELECT trial, position FROM chunks").fetchall()
        for trial, position in trials:
            chunk = Chunk._make(connection.execute(f"{CHUNKS} WHERE position = ?", (position,)).fetchone())
            for one in decode(chunk, "older"):
                values = one.position, trial, one.tick_id, one.timestamp, one.data
                connection.execute("INSERT INTO samples VALUES (?, ?, ?, ?, 0, ?)", values)
        connection.execute("DROP TABLE chunks")
        size = f"SELECT coalesce(sum(length(data) + {ROW_BYTES}), 0) FROM samples WHERE trial = number"
        own = "length(CAST(trial_id AS BLOB)) + length(CAST(user_id AS BLOB)) + length(params) + length(outcome)"
        connection.execute(f"UPDATE trials SET bytes = {ROW_BYTES} + {own} + ({size})")
        columns = {1: "outcome", 2: "owner", 3: "bytes", 4: "endpoint", 5: "raw_bytes", 6: "attempt"}
        if version <= 3:
            connection.execute("DROP INDEX trials_owner")
        for before, column in columns.items():
            if version <= before:
                connection.execute(f"ALTER TABLE trials DROP COLUMN {column}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
