"""The chunks of a database: adding, merging, and removing them, each within a transaction of the caller.

A commit makes a chunk of the samples that it has of a trial, however few these are. So small chunks pile up, and are
merged: each has a generation, and when a trial that goes on has a number of one generation, one of the next is made of
them, so that a sample is written again a few times only, however long its trial is. When the trial has ended, all are
merged, as far as a chunk may have so many bytes. Samples that are rows (those of older databases, and those of chunks
that were taken apart) become chunks on this occasion, if they are in the order of their ticks.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

from trio_cogment.base.errors import DataLossError
from trio_cogment.servers.datastore._write_rules import NO_TICK
from trio_cogment.servers.datastore.chunks import Chunk, ChunkCodec, ChunkSample, NewSamples, counted_chunk, decode
from trio_cogment.servers.datastore.storage import ROW_BYTES, TrialEnd

_log = logging.getLogger(__name__)

#: What a chunk has at most, unless a single sample has more; and what it has to have to be merged no more.
CHUNK_BYTES = 1024 * 1024
CHUNK_SAMPLES = 16 * 1024
_ENOUGH_PART = 2
#: The generation of what is merged when its trial has ended, and not before.
_SET_ASIDE = -1

#: The columns of a `Chunk`, in its order.
CHUNKS = """
SELECT first_position, position, first_tick, last_tick, samples_count, encoding, size, raw_bytes, checksum, data
FROM chunks
"""
_INSERT = """
INSERT INTO chunks (first_position, position, first_tick, last_tick, samples_count, encoding, size, raw_bytes, checksum,
    data, trial, generation) VALUES
"""
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
#: So many chunks are added by one statement: between two of them, other threads run Python code.
_CHUNKS_AT_ONCE = (8, 4, 2, 1)
_INSERTS = [(number, _INSERT + ", ".join([_VALUES] * number)) for number in _CHUNKS_AT_ONCE]


def in_chunks(samples: NewSamples) -> Iterator[NewSamples]:
    """Yield the samples that make one chunk, of which there is more than one if they have very many bytes."""
    return samples.in_chunks(CHUNK_BYTES, CHUNK_SAMPLES)


def insert_chunks(
    connection: sqlite3.Connection, chunks: Sequence[tuple[int, Chunk]], generation: int | None = 0
) -> None:
    """Add chunks.

    Args:
        connection: in a transaction.
        chunks: which, and the number of the trial of each.
        generation: how often they were merged; None: they are not merged any more.
    """
    rows = [(*chunk, trial, generation if _is_small(chunk) else None) for trial, chunk in chunks]
    done = 0
    for number, statement in _INSERTS:
        while len(rows) - done >= number:
            connection.execute(statement, tuple(chain.from_iterable(rows[done : done + number])))
            done += number


def _is_small(chunk: Chunk) -> bool:
    return chunk.raw_bytes < CHUNK_BYTES // _ENOUGH_PART and chunk.samples_count < CHUNK_SAMPLES // _ENOUGH_PART


def sweep_chunks(connection: sqlite3.Connection, trial: int, most: int, most_bytes: int) -> bool:
    """Remove some chunks of a deleted trial; return whether there were any."""
    found = "SELECT position, length(data) FROM chunks WHERE trial = ? ORDER BY position LIMIT ?"
    size, last = 0, None
    for position, length in connection.execute(found, (trial, most)).fetchall():
        last = position
        size += length
        if size >= most_bytes:
            break
    connection.execute("DELETE FROM chunks WHERE trial = ? AND position <= ?", (trial, last))
    return last is not None


class Merge(NamedTuple):
    """What is merged of a trial.

    Attributes:
        trial: its number.
        generation: chunks of this generation that follow each other; None: the trial has ended, so all of its chunks,
            and its rows.
        after: what comes behind this position: the rest is done.
        samples: how many were written so far.
    """

    trial: int
    generation: int | None
    after: int = 0
    samples: int = 0


_ENDED = f"""
SELECT trial FROM chunks WHERE generation IS NOT NULL
    AND (SELECT ending FROM trials WHERE number = trial) != {TrialEnd.OPEN:d} LIMIT 1
"""
_MANY = """
SELECT trial, generation FROM chunks
WHERE generation IS NOT NULL AND generation >= 0 AND trial IN (SELECT number FROM trials)
GROUP BY trial, generation HAVING count(*) >= ? LIMIT 1
"""


def find_merge(connection: sqlite3.Connection, least: int) -> Merge | None:
    """Return what should be merged next; None: nothing.

    Args:
        connection: reads.
        least: how many chunks of one generation a trial that goes on must have.
    """
    row = connection.execute(_ENDED).fetchone()
    if row is not None:
        return Merge(row[0], None)
    row = connection.execute(_MANY, (least,)).fetchone()
    return None if row is None else Merge(*row)


def find_unmerged(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the trials that have ended and whose samples are not all merged: their numbers, and how many samples."""
    query = f"""
    SELECT number, samples_count FROM trials WHERE ending != {TrialEnd.OPEN:d}
        AND (number IN (SELECT trial FROM samples) OR number IN (SELECT trial FROM chunks WHERE generation IS NOT NULL))
    """
    return connection.execute(query).fetchall()


def find_rows(connection: sqlite3.Connection, after: int) -> int | None:
    """Return the number of the next trial, behind this one, that has ended and has samples which are rows."""
    number = after
    while True:
        (number,) = connection.execute("SELECT min(trial) FROM samples WHERE trial > ?", (number,)).fetchone()
        if number is None:
            return None
        ended = f"SELECT 1 FROM trials WHERE number = ? AND ending != {TrialEnd.OPEN:d}"
        if connection.execute(ended, (number,)).fetchone() is not None:
            return int(number)


class _Part(NamedTuple):
    """A chunk or a row of a trial, without its data."""

    position: int
    first_position: int
    first_tick: int
    last_tick: int
    samples_count: int
    raw_bytes: int
    stored_bytes: int
    is_row: int
    #: Of a chunk; None: it is not merged any more, or the row waits for the sample of its tick.
    generation: int | None


_PARTS = """
SELECT position, first_position, first_tick, last_tick, samples_count, raw_bytes, length(data), 0, generation
FROM chunks WHERE trial = :trial AND position > :after
UNION ALL
SELECT position, position, tick, tick, 1, length(data), length(data), 1, CASE waiting WHEN 0 THEN 0 END
FROM samples WHERE trial = :trial AND position > :after
ORDER BY position
"""


def merge_next(connection: sqlite3.Connection, codec: ChunkCodec, merge: Merge) -> Merge | None:
    """Make one chunk of the next that follow each other; return what there is to do after that, or None if all is done.

    Args:
        connection: in a transaction.
        codec: encodes.
        merge: what is merged.
    """
    trial, generation = merge[:2]
    run = _next_run(connection, merge)
    if not run:
        # Those that are alone among rows would be found again and again: they wait until the trial has ended.
        higher = None if generation is None else _SET_ASIDE
        done = "UPDATE chunks SET generation = ? WHERE trial = ? AND generation IS NOT NULL"
        connection.execute(f"{done} AND generation = coalesce(?, generation)", (higher, trial, generation))
        return None
    row = connection.execute("SELECT trial_id FROM trials WHERE number = ?", (trial,)).fetchone()
    if row is None:
        return None  # it was deleted
    trial_id: str = row[0]
    chunks = _load(connection, codec, trial, run)
    try:
        merged = codec.merge(chunks, trial_id) if len(chunks) > 1 else chunks[0]
    except DataLossError:
        for chunk in chunks:
            try:
                decode(chunk, trial_id, limit=0)
            except DataLossError as error:
                _log.error("%s; they stay as they are", error)
                connection.execute("UPDATE chunks SET generation = NULL WHERE position = ?", (chunk.last_position,))
        return merge
    first, last = run[0].first_position, run[-1].position
    for table in ("chunks", "samples"):
        connection.execute(f"DELETE FROM {table} WHERE trial = ? AND position BETWEEN ? AND ?", (trial, first, last))
    insert_chunks(connection, [(trial, merged)], None if generation is None else generation + 1)
    before = sum(
        ROW_BYTES + part.stored_bytes
        if part.is_row
        else counted_chunk(part.samples_count, part.raw_bytes, part.stored_bytes)
        for part in run
    )
    now = counted_chunk(merged.samples_count, merged.raw_bytes, len(merged.data))
    connection.execute("UPDATE trials SET bytes = bytes + ? WHERE number = ?", (now - before, trial))
    return merge._replace(after=last, samples=merge.samples + merged.samples_count)


def size_of_next(connection: sqlite3.Connection, merge: Merge) -> int:
    """Return how many bytes `merge_next` will write at most."""
    return sum(part.raw_bytes + ROW_BYTES for part in _next_run(connection, merge))


def _next_run(connection: sqlite3.Connection, merge: Merge) -> list[_Part]:
    """Return the next chunks and rows of which one chunk can be made; empty: there are none."""
    trial, generation, after, _ = merge
    run: list[_Part] = []
    raw = count = 0
    top = _tick(connection, "SELECT max(last_tick) FROM chunks WHERE trial = ? AND position <= ?", trial, after)
    for part in map(_Part._make, connection.execute(_PARTS, {"trial": trial, "after": after})):
        wanted = part.generation is not None and (
            generation is None or (not part.is_row and part.generation == generation)
        )
        if run and (
            not wanted
            or part.first_tick <= top
            or raw + part.raw_bytes > CHUNK_BYTES
            or count + part.samples_count > CHUNK_SAMPLES
        ):
            if _can_be_merged(connection, trial, run):
                return run
            run, raw, count = [], 0, 0
        if wanted and (not part.is_row or part.first_tick > top):
            run.append(part)
            raw += part.raw_bytes
            count += part.samples_count
            top = part.last_tick
        elif not part.is_row:
            top = part.last_tick
    return run if _can_be_merged(connection, trial, run) else []


def _can_be_merged(connection: sqlite3.Connection, trial: int, run: Sequence[_Part]) -> bool:
    """Whether these are worth it, and before all chunks behind them, by their ticks too."""
    if not run or (len(run) == 1 and not run[0].is_row):
        return False
    behind = _tick(
        connection, "SELECT min(first_tick) FROM chunks WHERE trial = ? AND position > ?", trial, run[-1].position
    )
    return behind == NO_TICK or run[-1].last_tick < behind


def _tick(connection: sqlite3.Connection, query: str, trial: int, position: int) -> int:
    (tick,) = connection.execute(query, (trial, position)).fetchone()
    return NO_TICK if tick is None else int(tick)


def _load(connection: sqlite3.Connection, codec: ChunkCodec, trial: int, run: Sequence[_Part]) -> list[Chunk]:
    """Return the chunks of a run, with one for the rows between two of them."""
    chunks: list[Chunk] = []
    for is_row, parts in groupby(run, attrgetter("is_row")):
        some = list(parts)
        ends = trial, some[0].first_position, some[-1].position
        if is_row:
            found = "SELECT position, tick, timestamp, data FROM samples WHERE trial = ? AND position BETWEEN ? AND ?"
            rows = connection.execute(f"{found} ORDER BY position", ends).fetchall()
            chunks.append(codec.encode([ChunkSample(*row) for row in rows]))
        else:
            query = f"{CHUNKS} WHERE trial = ? AND position BETWEEN ? AND ? ORDER BY position"
            chunks += map(Chunk._make, connection.execute(query, ends))
    return chunks
