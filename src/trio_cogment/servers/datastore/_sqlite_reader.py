"""Reading from a database. Nothing here knows of Trio."""

from __future__ import annotations

import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import TypeAlias, TypeVar

from trio_cogment.base.errors import DataLossError, NotFoundError
from trio_cogment.base.sqlite_file import connect, file_errors
from trio_cogment.servers.datastore._sqlite_chunks import CHUNKS
from trio_cogment.servers.datastore._write_rules import stored_trial
from trio_cogment.servers.datastore.chunks import Chunk, OpenChunk
from trio_cogment.servers.datastore.storage import DamagedSamplesError, StoredSample, StoredTrial, TrialEnd

T = TypeVar("T")

#: Ids asked for in one statement; SQLite limits how many values one may have.
_MAX_IDS = 500
#: Rows taken at a time.
_MAX_FETCHED = 1000

#: `StoredSample._make`, without a check that costs as much as the rest.
_make_sample = partial(tuple.__new__, StoredSample)
_data_of = itemgetter(2)

#: Samples of a trial as they are kept: some that are alone; or a chunk, and the position up to which it is not wanted.
StoredPart: TypeAlias = list[StoredSample] | tuple[Chunk, int]

_Row = tuple[int, str, str, bytes, int, int, int, int, bytes, str, str, int, int, int]
_TRIALS = """
SELECT number, trial_id, user_id, params, samples_count, state, ending, logged, outcome, owner, endpoint, bytes,
    raw_bytes, attempt FROM trials
"""
_SAMPLES = """
SELECT position, tick, data FROM samples WHERE trial = ? AND position > ? AND position < ? ORDER BY position LIMIT ?
"""
_HAS_ROWS = "SELECT 1 FROM samples WHERE trial = ? AND position > ? LIMIT 1"
_CHUNKS = f"{CHUNKS} WHERE trial = ? AND position > ? ORDER BY position"
#: No position is as high.
_NO_END = 1 << 62
#: Decoded chunks that are kept, and how large one may be for that.
_MAX_OPEN = 8
_MAX_OPEN_BYTES = 2 * 1024 * 1024
_KEY_BYTES = 16


class Readers:
    """Connections that read from a database, one for each thread that reads at a time.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    def read(self, query: Callable[..., T], *args: object) -> T:
        """Return what `query(connection, *args)` returns, for example one of the functions below.

        Raises:
            CogmentError: see `file_errors`; that connection is not used again.
        """
        with file_errors(f"cannot read from {self._path}"):
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self._path, query_only=True)
            try:
                result = query(connection, *args)
            except sqlite3.Error:
                connection.close()
                raise
            except (NotFoundError, DataLossError):
                self._put_back(connection)
                raise
        self._put_back(connection)
        return result

    def close(self) -> None:
        """Close what is idle now, and the others when they are."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _put_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)


def trial(connection: sqlite3.Connection, trial_id: str) -> list[StoredTrial]:
    """Return a trial, alone; nothing: it is not there."""
    return [stored_trial(row) for row in connection.execute(f"{_TRIALS} WHERE trial_id = ?", (trial_id,))]


def trials(
    connection: sqlite3.Connection,
    after: int,
    limit: int,
    ids: Collection[str] | None,
    properties: Mapping[str, str] | None,
) -> list[StoredTrial]:
    """See `TrialStore.trials`."""
    conditions = ["number > ?"]
    values: list[int | str] = [after]
    for name, value in (properties or {}).items():
        conditions.append("number IN (SELECT number FROM properties WHERE name = ? AND value = ?)")
        values += [name, value]
    rows: list[_Row] = []
    for more, some in _in_pieces(ids):
        where = " AND ".join([*conditions, *more])
        rows += connection.execute(f"{_TRIALS} WHERE {where} ORDER BY number LIMIT ?", (*values, *some, limit))
    rows.sort(key=lambda row: row[0])
    return [stored_trial(row) for row in rows[:limit]]


def open_logged(connection: sqlite3.Connection) -> list[str]:
    """See `TrialStore.open_logged`."""
    query = f"SELECT trial_id FROM trials WHERE ending = {TrialEnd.OPEN:d} AND logged = 1 ORDER BY number"
    return [trial_id for (trial_id,) in connection.execute(query)]


def stored_bytes(connection: sqlite3.Connection, owner: str) -> int:
    """See `TrialStore.stored_bytes`."""
    query = "SELECT coalesce(sum(bytes), 0) FROM trials WHERE owner = ? AND owner != ''"
    (found,) = connection.execute(query, (owner,)).fetchone()
    return int(found)


class OpenChunks:
    """The chunks that were read last, decoded: a page seldom ends where a chunk does. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: dict[tuple[int, Chunk], OpenChunk] = {}

    def open(self, connection: sqlite3.Connection, number: int, chunk: Chunk) -> OpenChunk:
        """Return a chunk, decoded.

        Raises:
            DataLossError: it is damaged.
        """
        # What is said of it and the end of its bytes, which has a checksum of zstd's own.
        key = number, chunk._replace(data=chunk.data[-_KEY_BYTES:])
        with self._lock:
            found = self._chunks.pop(key, None)
            if found is not None:
                self._chunks[key] = found
                return found
        row = connection.execute("SELECT trial_id FROM trials WHERE number = ?", (number,)).fetchone()
        opened = OpenChunk(chunk, row[0] if row else "")
        if chunk.size <= _MAX_OPEN_BYTES:
            with self._lock:
                self._chunks[key] = opened
                if len(self._chunks) > _MAX_OPEN:
                    del self._chunks[next(iter(self._chunks))]
        return opened


def samples(
    connection: sqlite3.Connection,
    number: int,
    after: int,
    limit: int,
    max_bytes: int,
    opened: OpenChunks | None = None,
) -> list[StoredSample]:
    """See `TrialStore.samples`.

    Args:
        connection: not in a transaction.
        number: see `TrialStore.samples`, as the others.
        after: see above.
        limit: see above.
        max_bytes: see above.
        opened: has chunks that were read before.
    """
    page = _Page(limit, max_bytes)
    # As of one moment: chunks may be merged meanwhile.
    connection.execute("BEGIN")
    try:
        _read(connection, number, after, page, opened or OpenChunks())
        found = connection.execute("SELECT 1 FROM trials WHERE number = ?", (number,)).fetchone()
    finally:
        connection.execute("ROLLBACK")
    if found is None:
        raise NotFoundError(f"the trial with number {number} is not stored any more")
    return page.samples


def _walk(
    connection: sqlite3.Connection, number: int, after: int, page: _Page
) -> Generator[tuple[Chunk, int], None, None]:
    """Read the rows of a trial into a page until that is full, and yield each chunk between them, and its `after`."""
    has_rows = connection.execute(_HAS_ROWS, (number, after)).fetchone() is not None
    with closing(connection.execute(_CHUNKS, (number, after))) as cursor:
        for row in cursor:
            chunk = Chunk._make(row)
            if has_rows:
                _read_rows(connection, number, after, chunk.first_position, page)
            if page.full:
                return
            yield chunk, after
            after = chunk.last_position
    if has_rows and not page.full:
        _read_rows(connection, number, after, _NO_END, page)


def _read(connection: sqlite3.Connection, number: int, after: int, page: _Page, opened: OpenChunks) -> None:
    with closing(_walk(connection, number, after, page)) as chunks:
        for chunk, begin in chunks:
            try:
                _read_chunk(opened.open(connection, number, chunk), chunk, begin, page)
            except DataLossError as error:
                raise DamagedSamplesError(str(error), page.samples, chunk.last_position) from error


def parts(
    connection: sqlite3.Connection, numbers: Sequence[int], after: int, max_bytes: int
) -> list[tuple[list[StoredPart], bool]]:
    """See `SqliteStore.parts`."""
    page, found = _Page(_MAX_FETCHED, max_bytes), list[tuple[list[StoredPart], bool]]()
    connection.execute("BEGIN")
    try:
        for number in numbers:
            found.append((_parts_of(connection, number, 0 if found else after, page), page.full))
            if page.full:
                break
    finally:
        connection.execute("ROLLBACK")
    return found


def _parts_of(connection: sqlite3.Connection, number: int, after: int, page: _Page) -> list[StoredPart]:
    found: list[StoredPart] = []
    for chunk, begin in _walk(connection, number, after, page):
        found += *page.taken(), (chunk, begin)
        page.count(chunk)
    found += page.taken()
    if connection.execute("SELECT 1 FROM trials WHERE number = ?", (number,)).fetchone() is None:
        raise NotFoundError(f"the trial with number {number} is not stored any more")
    return found


def _read_chunk(opened: OpenChunk, chunk: Chunk, after: int, page: _Page) -> None:
    while not page.full and after < chunk.last_position:
        more = list(opened.stored(after=after, limit=page.room(chunk.raw_bytes / chunk.samples_count)))
        after = more[-1][0]
        page.add(more)


def _read_rows(connection: sqlite3.Connection, number: int, after: int, end: int, page: _Page) -> None:
    if page.full:
        return
    with closing(connection.execute(_SAMPLES, (number, after, end, page.left))) as cursor:
        # As many at a time as there is room for if they are like those before; that is twice as fast as one by one.
        largest = 0
        while not page.full and (more := cursor.fetchmany(page.room(largest) if largest else 1)):
            largest = max(largest, *map(len, map(_data_of, more)))
            page.add(more)


class _Page:
    """The samples of a page, up to a number of them and of bytes: the one that passes this is the last.

    Attributes:
        samples: those that are there.
    """

    def __init__(self, limit: int, max_bytes: int) -> None:
        self.samples: list[StoredSample] = []
        self._limit = limit
        self._bytes = max_bytes

    @property
    def full(self) -> bool:
        """Whether there can be no more."""
        return self._bytes <= 0 or self.left <= 0

    @property
    def left(self) -> int:
        """How many more samples there may be."""
        return self._limit - len(self.samples)

    def room(self, size: float) -> int:
        """Return how many more samples of this size there is room for; one at least."""
        most = min(self.left, _MAX_FETCHED)
        return max(1, min(most, int(self._bytes / size))) if size else most

    def taken(self) -> list[list[StoredSample]]:
        """Return the samples that are there, if any, and forget them; there is no more room than before."""
        found, self.samples = self.samples, []
        self._limit -= len(found)
        return [found] if found else []

    def count(self, chunk: Chunk) -> None:
        """Take note that a whole chunk is read with the page; only its bytes count."""
        self._bytes -= chunk.raw_bytes

    def add(self, rows: list[tuple[int, int, bytes]]) -> None:
        """Add samples, as far as there is room."""
        size = sum(map(len, map(_data_of, rows)))
        if size <= self._bytes:
            self.samples += map(_make_sample, rows)
            self._bytes -= size
            return
        sizes = list(accumulate(map(len, map(_data_of, rows)), initial=0))
        # Those before which there is room.
        fit = bisect_left(sizes, self._bytes)
        self.samples += map(_make_sample, rows[:fit])
        self._bytes -= sizes[min(fit, len(rows))]


def _in_pieces(ids: Collection[str] | None) -> Iterable[tuple[list[str], list[str]]]:
    """Yield conditions and their values, such that each of the ids is in one of them."""
    if ids is None:
        yield [], []
        return
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _MAX_IDS):
        some = ordered[start : start + _MAX_IDS]
        yield [f"trial_id IN ({', '.join('?' * len(some))})"], some
