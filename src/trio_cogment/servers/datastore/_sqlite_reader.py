"""Reading from a database. Nothing here knows of Trio."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import TypeVar

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import NotFoundError
from trio_cogment.base.sqlite_file import connect, file_errors
from trio_cogment.servers.datastore._write_rules import Head
from trio_cogment.servers.datastore.storage import StoredSample, StoredTrial, TrialEnd

T = TypeVar("T")

#: Ids asked for in one statement; SQLite limits how many values one may have.
_MAX_IDS = 500
#: Rows taken at a time.
_MAX_FETCHED = 1000

#: `StoredSample._make`, without a check that costs as much as the rest.
_make_sample = partial(tuple.__new__, StoredSample)
_data_of = itemgetter(2)

_Row = tuple[int, str, str, bytes, int, int, int, int, bytes, str, str]
_TRIALS = """
SELECT number, trial_id, user_id, params, samples_count, state, ending, logged, outcome, owner, endpoint FROM trials
"""
_SAMPLES = "SELECT position, tick, data FROM samples WHERE trial = ? AND position > ? ORDER BY position LIMIT ?"


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
            except NotFoundError:
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
    return [_stored(row) for row in connection.execute(f"{_TRIALS} WHERE trial_id = ?", (trial_id,))]


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
    return [_stored(row) for row in rows[:limit]]


def open_logged(connection: sqlite3.Connection) -> list[str]:
    """See `TrialStore.open_logged`."""
    query = f"SELECT trial_id FROM trials WHERE ending = {TrialEnd.OPEN:d} AND logged = 1 ORDER BY number"
    return [trial_id for (trial_id,) in connection.execute(query)]


def stored_bytes(connection: sqlite3.Connection, owner: str) -> int:
    """See `TrialStore.stored_bytes`."""
    query = "SELECT coalesce(sum(bytes), 0) FROM trials WHERE owner = ? AND owner != ''"
    (found,) = connection.execute(query, (owner,)).fetchone()
    return int(found)


def samples(connection: sqlite3.Connection, number: int, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
    """See `TrialStore.samples`."""
    rows: list[tuple[int, int, bytes]] = []
    size = largest = 0
    with closing(connection.execute(_SAMPLES, (number, after, limit))) as cursor:
        # As many at a time as there is room for if they are like those before; that is twice as fast as one by one.
        while size < max_bytes and (more := cursor.fetchmany(_room_for(max_bytes - size, largest))):
            lengths = list(map(len, map(_data_of, more)))
            sizes = list(accumulate(lengths, initial=size))
            del more[bisect_left(sizes, max_bytes) :]
            rows += more
            size = sizes[-1]
            largest = max(largest, *lengths)
    # Asked afterwards: if the trial is there now it was there before, so nothing was swept from under the query.
    if connection.execute("SELECT 1 FROM trials WHERE number = ?", (number,)).fetchone() is None:
        raise NotFoundError(f"the trial with number {number} is not stored any more")
    return list(map(_make_sample, rows))


def _room_for(room: int, largest: int) -> int:
    return min(max(1, room // largest), _MAX_FETCHED) if largest else 1


def _in_pieces(ids: Collection[str] | None) -> Iterable[tuple[list[str], list[str]]]:
    """Yield conditions and their values, such that each of the ids is in one of them."""
    if ids is None:
        yield [], []
        return
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _MAX_IDS):
        some = ordered[start : start + _MAX_IDS]
        yield [f"trial_id IN ({', '.join('?' * len(some))})"], some


def _stored(row: _Row) -> StoredTrial:
    number, trial_id, user_id, params, count, state, ending, logged, outcome, owner, endpoint = row
    head = Head(number, TrialEnd(ending), count, state=state)
    return StoredTrial(
        number=number,
        trial_id=trial_id,
        user_id=user_id,
        params=TrialParams.FromString(params),
        samples_count=count,
        last_state=head.last_state,
        end=head.end,
        logged=bool(logged),
        outcome=outcome,
        owner=owner,
        endpoint=endpoint,
    )
