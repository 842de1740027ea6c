"""Reading trials from PostgreSQL. Nothing here knows of Trio."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trio_cogment.base.errors import CogmentError, DataLossError, NotFoundError
from trio_cogment.base.postgresql import TransientError, connect, database_errors, shown
from trio_cogment.servers.datastore._postgresql_statements import (
    LOCK_WRITER,
    as_text,
    from_text,
    key_of,
    properties_text,
)
from trio_cogment.servers.datastore._write_rules import stored_trial
from trio_cogment.servers.datastore.chunks import Chunk, decode
from trio_cogment.servers.datastore.storage import DamagedSamplesError, StoredSample, StoredTrial

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")

#: Chunks that are looked at in one query.
_CHUNKS_AT_ONCE = 200

_TRIALS = """
SELECT number, coalesce(long_id, trial_id), user_id, params, samples_count, state, ending, logged, outcome, owner,
    endpoint, bytes, raw_bytes, attempt
FROM trials WHERE
"""
#: A chunk begins where the reader is, or has that position in its middle. One row without a chunk: there is none.
_SAMPLES = b"""
SELECT trials.trial_id, found.first_position, found.last_position, found.first_tick, found.last_tick,
    found.samples_count, found.encoding, found.size, found.raw_bytes, found.checksum, found.data
FROM trials LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT *, sum(samples_count) OVER pages - samples_count AS samples_before,
            sum(raw_bytes) OVER pages - raw_bytes AS bytes_before
        FROM chunks WHERE trial = trials.number AND last_position > %s AND first_position >= coalesce(
            (SELECT max(first_position) FROM chunks WHERE trial = trials.number AND first_position <= %s), 0)
        WINDOW pages AS (ORDER BY first_position) ORDER BY first_position LIMIT %s
    ) AS near WHERE samples_before < %s AND bytes_before < %s
) AS found ON true WHERE number = %s ORDER BY found.first_position
"""
#: Whose trials are open: those of this process, and of writers without a session.
_OPEN = b"""
SELECT coalesce(long_id, trial_id) FROM trials
WHERE ending = 0 AND logged AND (writer = %s OR writer NOT IN (
    SELECT objid::integer FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = %s
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))
ORDER BY number
"""


class Readers:
    """Connections that read from a database, one for each thread that reads at a time.

    Args:
        address: of the database.

    Attributes:
        connections: how many there are.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._idle: list[Connection[Any]] = []
        self._closed = False
        self.connections = 0

    def read(self, query: Callable[..., T], *args: object) -> T:
        """Return what `query(connection, *args)` returns, for example one of the functions below.

        Raises:
            CogmentError: see `database_errors`.
        """
        while True:
            connection, is_new = self._take()
            try:
                with database_errors(f"cannot read from {shown(self._address)}"):
                    result = query(connection, *args)
            except TransientError:
                # Those that are idle notice only now that the server was away.
                self._drop(connection)
                if is_new:
                    raise
                continue
            except CogmentError:
                self._put_back(connection)
                raise
            except BaseException:
                self._drop(connection)
                raise
            self._put_back(connection)
            return result

    def close(self) -> None:
        """Close what is idle now, and the others when they are."""
        self._closed = True
        while self._idle:
            self._drop(self._idle.pop())

    def _take(self) -> tuple[Connection[Any], bool]:
        try:
            return self._idle.pop(), False
        except IndexError:
            # All that it ever commits are notifications, which need not wait for the disk.
            connection = connect(self._address, purpose="datastore reader", durable=False)
            self.connections += 1
            return connection, True

    def _put_back(self, connection: Connection[Any]) -> None:
        if self._closed or connection.broken:
            self._drop(connection)
        else:
            self._idle.append(connection)

    def _drop(self, connection: Connection[Any]) -> None:
        self.connections -= 1
        connection.close()


def trials(
    connection: Connection[Any],
    after: int,
    limit: int,
    ids: Collection[str] | None,
    properties: Mapping[str, str] | None,
) -> list[StoredTrial]:
    """See `TrialStore.trials`."""
    conditions = ["number > %s"]
    values: list[Any] = [after]
    if properties:
        conditions.append("properties @> %s::jsonb")
        values.append(properties_text(properties))
    if ids is not None:
        conditions.append("trial_id = ANY(%s::text[])")
        values.append([key_of(trial_id) for trial_id in ids])
    query = f"{_TRIALS} {' AND '.join(conditions)} ORDER BY number LIMIT %s".encode()
    return [stored_trial(row, from_text) for row in connection.execute(query, (*values, limit), binary=True)]


def open_logged(connection: Connection[Any], writer: int) -> list[str]:
    """See `TrialStore.open_logged`: those that no other process has.

    Args:
        connection: to the database.
        writer: of this process.
    """
    return [from_text(trial_id) for (trial_id,) in connection.execute(_OPEN, (writer, LOCK_WRITER))]


def stored_bytes(connection: Connection[Any], owner: str) -> int:
    """See `TrialStore.stored_bytes`."""
    query = b"SELECT coalesce(sum(bytes), 0)::bigint FROM trials WHERE owner = %s AND owner <> ''"
    row = connection.execute(query, (as_text(owner),)).fetchone()
    assert row is not None
    return int(row[0])


def samples(connection: Connection[Any], number: int, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
    """See `TrialStore.samples`."""
    found: list[StoredSample] = []
    size = 0
    while True:
        room = limit - len(found), max_bytes - size
        query = _SAMPLES, (after, after + 1, _CHUNKS_AT_ONCE, *room, number)
        rows = connection.execute(*query, binary=True).fetchall()
        if not rows:
            raise NotFoundError(f"the trial with number {number} is not stored any more")
        if rows[0][1] is None:
            return found
        chunks = [Chunk._make(row[1:]) for row in rows]
        for chunk in chunks:
            # By their average, as many as there is room for; a few more at a time where that is too few.
            while after < chunk.last_position:
                some = limit - len(found), (max_bytes - size) * chunk.samples_count // max(1, chunk.raw_bytes) + 1
                try:
                    more = decode(chunk, from_text(rows[0][0]), after=after, limit=min(some))
                except DataLossError as error:
                    raise DamagedSamplesError(str(error), found, chunk.last_position) from error
                for sample in more:
                    found.append(StoredSample(sample.position, sample.tick_id, sample.data))
                    size += len(sample.data)
                    after = sample.position
                    if len(found) >= limit or size >= max_bytes:
                        return found
        # Fewer than were asked for are all there are. Of the first one some may have been read before.
        total = sum(chunk.samples_count for chunk in chunks), sum(chunk.raw_bytes for chunk in chunks)
        if len(chunks) < _CHUNKS_AT_ONCE and total[0] < room[0] and total[1] < room[1]:
            return found


def notify(connection: Connection[Any], channel: str, payloads: Sequence[str]) -> None:
    """Tell other processes what has changed."""
    connection.execute(b"SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload", (channel, list(payloads)))
