"""The tables of trials in PostgreSQL, and the statements that write to them; each method is one step of a transaction.

A trial's samples are in chunks (`chunks`): those that were committed together are one row, which its first position
names. The positions of one chunk are all below those of the next. Ticks ascend within a chunk; out-of-sync samples that
wait for the one of their tick are the ticks in `waiting`.

`trials.toast_tuple_target` moves parameters out of the row, because the rest of the row is written with every batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.postgresql import SCHEMA, connect, database_errors, shown
from trio_cogment.base.records import record
from trio_cogment.servers.datastore.chunks import Chunk

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

VERSION = 2

_SCHEMA = """
CREATE TABLE datastore_format (version integer NOT NULL);
INSERT INTO datastore_format VALUES (2);
CREATE TABLE trial_numbers (last bigint NOT NULL);
INSERT INTO trial_numbers VALUES (0);
CREATE TABLE writers (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch bigint NOT NULL DEFAULT 0,
    gone boolean NOT NULL DEFAULT false,
    began timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE TABLE trials (
    number bigint PRIMARY KEY,
    trial_id text COLLATE "C" NOT NULL UNIQUE,
    long_id text,
    user_id text NOT NULL,
    params bytea NOT NULL,
    properties jsonb NOT NULL,
    logged boolean NOT NULL,
    owner text NOT NULL,
    endpoint text NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    writer integer NOT NULL,
    ending smallint NOT NULL,
    samples_count bigint NOT NULL,
    high_tick bigint NOT NULL,
    top_tick bigint NOT NULL,
    state integer NOT NULL,
    next_position bigint NOT NULL,
    bytes bigint NOT NULL,
    info_bytes bigint NOT NULL,
    raw_bytes bigint NOT NULL,
    changes bigint NOT NULL DEFAULT 0,
    outcome bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 70, toast_tuple_target = 128);
ALTER TABLE trials ALTER params SET STORAGE EXTERNAL, ALTER outcome SET STORAGE EXTERNAL;
CREATE INDEX trials_owner ON trials (owner) WHERE owner <> '';
CREATE INDEX trials_open ON trials (writer) WHERE ending = 0 AND logged;
CREATE INDEX trials_properties ON trials USING gin (properties jsonb_path_ops);
CREATE TABLE chunks (
    trial bigint NOT NULL,
    waiting bigint[] NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    first_tick bigint NOT NULL,
    last_tick bigint NOT NULL,
    samples_count integer NOT NULL,
    encoding smallint NOT NULL,
    size bigint NOT NULL,
    raw_bytes bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (trial, first_position)
);
ALTER TABLE chunks ALTER data SET STORAGE EXTERNAL;
CREATE INDEX chunks_tick ON chunks (trial, last_tick);
"""

#: Version -> what leads from it to the next, within one transaction.
MIGRATIONS: Mapping[int, str] = {
    1: "ALTER TABLE trials ADD COLUMN attempt integer NOT NULL DEFAULT 0",
}

# Advisory locks have two numbers: one for what it is, one for whose it is.

#: Shared by all datastores that run; alone it is had by the one that makes or changes the tables.
LOCK_TABLES = 0x5443676D
#: Of a writer, for as long as its process has a session.
LOCK_WRITER = 0x5443676E

#: Ids up to this many bytes are kept as they are: an entry of an index has a limit of 2704.
_LONG_ID_BYTES = 1000


def as_text(text: str) -> str:
    r"""Return a text as it is kept: PostgreSQL has no character NUL, which becomes `\0`."""
    return text.replace("\\", "\\\\").replace("\0", "\\0") if "\\" in text or "\0" in text else text


def from_text(kept: str) -> str:
    """Return a text as it was."""
    if "\\" not in kept:
        return kept
    return "\\".join(part.replace("\\0", "\0") for part in kept.split("\\\\"))


def key_of(trial_id: str) -> str:
    r"""Return the id of a trial as it is looked for: as it is kept, or a digest of a long one behind `\h`."""
    kept = as_text(trial_id)
    encoded = kept.encode()
    return kept if len(encoded) <= _LONG_ID_BYTES else "\\h" + hashlib.sha256(encoded).hexdigest()


def properties_text(properties: Mapping[str, str]) -> str:
    """Return properties as JSON, as they are kept and looked for."""
    return json.dumps({as_text(name): as_text(value) for name, value in properties.items()})


# Preparation


def prepare(connection: Connection[Any], address: str) -> None:
    """Make the tables, or bring them to this version; then the connection's session has a share in them.

    Raises:
        FailedPreconditionError: a newer version made them; or they have to be changed, and other datastores run.
        CogmentError: see `database_errors`.
    """
    where = shown(address)
    with database_errors(f"cannot prepare {where}"):
        version = _version(connection)
        if version is None or version < VERSION:
            with connection.transaction():
                _change(connection, where)
        elif version > VERSION:
            raise _newer(where, version)
        connection.execute("SELECT pg_advisory_lock_shared(%s, 0)", (LOCK_TABLES,))
        # Somebody may have changed them before the lock was had.
        version = _version(connection)
        if version != VERSION:
            raise _newer(where, version or 0)


def _change(connection: Connection[Any], where: str) -> None:
    # One of them makes the tables; the others wait, and find them.
    connection.execute("SELECT pg_advisory_xact_lock(%s, 1)", (LOCK_TABLES,))
    version = _version(connection)
    if version is None:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
        connection.execute(_SCHEMA.encode())
        return
    if version > VERSION:
        raise _newer(where, version)
    if version == VERSION:
        return
    row = connection.execute("SELECT pg_try_advisory_xact_lock(%s, 0)", (LOCK_TABLES,)).fetchone()
    if row != (True,):
        raise FailedPreconditionError(
            f"storage: the tables in {where} have to be changed for this version of trio-cogment, while other "
            "datastores use them; stop those first"
        )
    for step in range(version, VERSION):
        connection.execute(MIGRATIONS[step].encode())
        connection.execute("UPDATE datastore_format SET version = %s", (step + 1,))


def _version(connection: Connection[Any]) -> int | None:
    # `to_regclass` says within a transaction that has waited for a lock what it remembers from before.
    found = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'datastore_format')"
    if connection.execute(found, (SCHEMA,)).fetchone() != (True,):
        return None
    row = connection.execute("SELECT version FROM datastore_format").fetchone()
    assert row is not None
    return int(row[0])


def _newer(where: str, version: int) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"storage: the tables in {where} were made by another version of trio-cogment (their version is {version}, "
        f"this one knows 1 to {VERSION}); nothing was touched"
    )


# A transaction that writes


class StaleError(Exception):
    """The writer or a trial is not what it was when this process has last written to it. Nothing was written."""


class TrialRow(NamedTuple):
    """What is known of a trial when its row is locked. Every change of the row counts in `changes`."""

    key: str
    number: int
    ending: int
    samples_count: int
    high_tick: int
    top_tick: int
    state: int
    next_position: int
    bytes: int
    info_bytes: int
    raw_bytes: int
    writer: int
    endpoint: str
    attempt: int
    outcome_bytes: int
    owner: str
    changes: int


class Begun(NamedTuple):
    """The beginning of a transaction.

    Attributes:
        batch: the number of the batch that is written now: one more than the last that was committed; None: nothing
            is known of this writer.
        is_gone: others count it as gone: it must not write.
        last_number: the highest number of a trial; None: it was not asked for.
        rows: the trials that are there, locked, by their keys.
    """

    batch: int | None
    is_gone: bool
    last_number: int | None
    rows: dict[str, TrialRow]


class ChunkRow(NamedTuple):
    """A chunk as it is kept.

    Attributes:
        trial: the number of its trial.
        waiting: the ticks whose samples wait.
        chunk: the chunk.
    """

    trial: int
    waiting: Sequence[int]
    chunk: Chunk


class Part(NamedTuple):
    """A chunk without its data."""

    first_position: int
    last_position: int
    first_tick: int
    last_tick: int
    samples_count: int
    raw_bytes: int
    stored_bytes: int
    is_waiting: bool


@record(kw_only=True)
class NewTrial:
    """A trial as it is kept when it is created, beside its head."""

    row: TrialRow
    long_id: str | None
    user_id: str
    params: bytes
    properties: str
    logged: bool
    owner: str
    outcome: bytes


@record(kw_only=True)
class Changes:
    """What a transaction writes, beside new chunks.

    Attributes:
        new: trials that are created.
        rows: trials that are there, as they are now.
        told: of these, their numbers with user, parameters, properties, and whether they are logged.
        outcomes: numbers of trials that are there, and how they ended.
        changed: the first positions of chunks that are there, and what they are now.
        removed: trial and position of chunks that are there.
        last_number: the highest number of a trial now, if one was created.
    """

    new: Sequence[NewTrial]
    rows: Sequence[TrialRow]
    told: Sequence[tuple[int, str, bytes, str, bool]]
    outcomes: Sequence[tuple[int, bytes]]
    changed: Sequence[tuple[int, ChunkRow]]
    removed: Sequence[tuple[int, int]]
    last_number: int | None


_ROW_COLUMNS = (
    "trial_id, number, ending, samples_count, high_tick, top_tick, state, next_position, bytes, info_bytes, "
    "raw_bytes, writer, endpoint, attempt, octet_length(outcome), owner, changes"
)
_LOCK_TRIALS = (
    f"SELECT {_ROW_COLUMNS} FROM trials WHERE trial_id = ANY(%s::text[]) ORDER BY trial_id FOR UPDATE".encode()
)
_LOCK_WRITER = b"UPDATE writers SET batch = batch + 1 WHERE number = %s RETURNING batch, gone"
# A transaction that nobody waits for before it is committed fails where it finds something else than was expected: a
# division by zero is the only error that a query can raise by itself.
_EXPECT_WRITER = b"""
WITH mine AS (UPDATE writers SET batch = batch + 1 WHERE number = %s AND batch = %s AND NOT gone RETURNING 1)
SELECT 1 / count(*) FROM mine
"""
_EXPECT_TRIALS = b"""
SELECT 1 / (count(*) = %s)::integer FROM (
    SELECT FROM trials, unnest(%s::bigint[], %s::bigint[]) AS v (number, changes)
    WHERE trials.number = v.number AND trials.changes = v.changes ORDER BY trial_id FOR UPDATE OF trials
) AS found
"""
_LOCK_NUMBERS = b"SELECT last FROM trial_numbers FOR UPDATE"
_LOCK_DOOMED = b"""
SELECT number, trial_id, ending FROM trials WHERE trial_id = ANY(%s::text[]) ORDER BY trial_id FOR UPDATE
"""
_INSERT_TRIAL = b"""
INSERT INTO trials (trial_id, number, ending, samples_count, high_tick, top_tick, state, next_position, bytes,
    info_bytes, raw_bytes, writer, endpoint, attempt, long_id, user_id, params, properties, logged, owner, outcome)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %s::jsonb, %s, %s, %b)
"""
_UPDATE_TRIALS = b"""
UPDATE trials SET ending = v.ending, samples_count = v.samples_count, high_tick = v.high_tick, top_tick = v.top_tick,
    state = v.state, next_position = v.next_position, bytes = v.bytes, info_bytes = v.info_bytes,
    raw_bytes = v.raw_bytes, writer = v.writer, endpoint = v.endpoint, attempt = v.attempt, changes = changes + 1
FROM unnest(%s::bigint[], %s::smallint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::integer[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::integer[])
    AS v (number, ending, samples_count, high_tick, top_tick, state, next_position, bytes, info_bytes, raw_bytes,
        writer, endpoint, attempt)
WHERE trials.number = v.number
"""
_TELL_TRIAL = b"""
UPDATE trials SET user_id = %s, params = %b, properties = %s::jsonb, logged = %s WHERE number = %s
"""
_INSERT_CHUNK = b"""
INSERT INTO chunks (trial, waiting, first_position, last_position, first_tick, last_tick, samples_count, encoding, size,
    raw_bytes, checksum, data) VALUES (%s, %s::bigint[], %s, %s, %s, %s, %s, %s, %s, %s, %s, %b)
"""
_COPY_CHUNKS = (
    b"COPY chunks (trial, waiting, first_position, last_position, first_tick, last_tick, samples_count, encoding, "
    b"size, raw_bytes, checksum, data) FROM STDIN (FORMAT BINARY)"
)
_CHUNK_TYPES = ["int8", "int8[]", *["int8"] * 4, "int4", "int2", *["int8"] * 3, "bytea"]
_CHANGE_CHUNK = b"""
UPDATE chunks SET waiting = %s::bigint[], first_position = %s, last_position = %s, first_tick = %s, last_tick = %s,
    samples_count = %s, encoding = %s, size = %s, raw_bytes = %s, checksum = %s, data = %b
WHERE trial = %s AND first_position = %s
"""
_READ_CHUNKS = b"""
SELECT waiting, first_position, last_position, first_tick, last_tick, samples_count, encoding, size, raw_bytes,
    checksum, data
FROM chunks WHERE trial = %s AND last_tick >= %s AND first_tick <= %s
"""
_ENDED_TRIAL = b"""
SELECT coalesce(long_id, trial_id) FROM trials WHERE number = %s AND ending <> 0 FOR UPDATE
"""
_PARTS = b"""
SELECT first_position, last_position, first_tick, last_tick, samples_count, raw_bytes, octet_length(data),
    cardinality(waiting) > 0
FROM chunks WHERE trial = %s AND first_position > %s ORDER BY first_position LIMIT 1000
"""
_RUN = b"""
SELECT first_position, last_position, first_tick, last_tick, samples_count, encoding, size, raw_bytes, checksum, data
FROM chunks WHERE trial = %s AND first_position BETWEEN %s AND %s ORDER BY first_position
"""
_SESSIONS = b"""
SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = %s
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def _array(numbers: Iterable[int]) -> str:
    """Return numbers as PostgreSQL reads an array: psycopg looks at each of a list several times."""
    return f"{{{','.join(map('{:d}'.format, numbers))}}}"


class WritingSession:
    """A connection for transactions that write, made when it is needed, and made anew after a failure.

    Args:
        address: of the database.
        durable: what is committed survives a crash of the server.
    """

    def __init__(self, address: str, *, durable: bool) -> None:
        self._address = address
        self._durable = durable
        self._connection: Connection[Any] | None = None
        self._what = f"cannot write to {shown(address)}"

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def close(self) -> None:
        """Close the connection; the next call makes another one. What was begun and not committed is undone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def unknown(self, keys: Collection[str]) -> set[str]:
        """Return which of these trials are not there; nothing is locked."""
        with database_errors(self._what):
            query = b"SELECT trial_id FROM trials WHERE trial_id = ANY(%s::text[])"
            return set(keys) - {key for (key,) in self._open().execute(query, (list(keys),)).fetchall()}

    def begin(self, writer: int, keys: Collection[str], *, creates: bool) -> Begun:
        """Begin a transaction, and lock trials.

        The order of the locks is the same for everybody, so that nobody waits for who waits for them: the writer, the
        numbers, the trials by their ids.

        Args:
            writer: whose batch it is.
            keys: of the trials.
            creates: numbers of trials are given.
        """
        with database_errors(self._what):
            connection = self._open()
            with connection.pipeline():
                connection.execute(b"BEGIN")
                mine = connection.execute(_LOCK_WRITER, (writer,))
                numbers = connection.execute(_LOCK_NUMBERS) if creates else None
                found = connection.execute(_LOCK_TRIALS, (list(keys),))
            batch = mine.fetchone()
            last = None if numbers is None else numbers.fetchone()
            rows = {row[0]: TrialRow._make(row) for row in found.fetchall()}
        number, is_gone = batch or (None, True)
        return Begun(number, is_gone, None if last is None else last[0], rows)

    def chunks(self, trial: int, first_tick: int, last_tick: int) -> list[ChunkRow]:
        """Return the chunks of a trial that may have one of these ticks."""
        with database_errors(self._what):
            rows = self._open().execute(_READ_CHUNKS, (trial, first_tick, last_tick), binary=True).fetchall()
        return [ChunkRow(trial, waiting, Chunk._make(chunk)) for waiting, *chunk in rows]

    def sessions(self) -> set[int]:
        """Return which writers have a session now."""
        with database_errors(self._what):
            return {number for (number,) in self._open().execute(_SESSIONS, (LOCK_WRITER,)).fetchall()}

    def lock_ended(self, keys: Collection[str]) -> list[tuple[int, str, int]]:
        """Begin a transaction, and lock trials that may be deleted; return number, key and ending of each."""
        with database_errors(self._what):
            connection = self._open()
            connection.execute(b"BEGIN")
            return connection.execute(_LOCK_DOOMED, (list(keys),)).fetchall()

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete trials that are locked, and commit."""
        with database_errors(self._what):
            connection = self._open()
            with connection.pipeline():
                connection.execute(b"DELETE FROM chunks WHERE trial = ANY(%s::bigint[])", (list(numbers),))
                connection.execute(b"DELETE FROM trials WHERE number = ANY(%s::bigint[])", (list(numbers),))
            connection.execute(b"COMMIT")

    def write(
        self,
        writer: int,
        begun: Begun,
        added: Iterable[ChunkRow],
        rest: Callable[[], Changes],
    ) -> None:
        """Do a whole transaction, and wait for its end only: as `begin` and `commit`, of what is known without asking.

        Args:
            writer: whose batch it is.
            begun: what `begin` is expected to return.
            added: see `commit`.
            rest: see `commit`.

        Raises:
            StaleError: it is not so.
        """
        from psycopg.errors import DivisionByZero

        with database_errors(self._what):
            connection = self._open()
            assert begun.batch is not None
            numbers = _array(row.number for row in begun.rows.values())
            changes = _array(row.changes for row in begun.rows.values())
            try:
                with connection.pipeline(), connection.cursor() as cursor:
                    cursor.execute(b"BEGIN")
                    cursor.execute(_EXPECT_WRITER, (writer, begun.batch - 1))
                    cursor.execute(_EXPECT_TRIALS, (len(begun.rows), numbers, changes))
                    self._write(cursor, added, rest)
            except DivisionByZero:
                connection.rollback()
                raise StaleError from None

    def commit(self, added: Iterable[ChunkRow], rest: Callable[[], Changes], *, copies: bool) -> None:
        """Write everything, and commit. After `TransientError` it may have been done: the next batch's number tells.

        What is sent is sent together: each answer that is waited for takes as long as the work.

        Args:
            added: new chunks. Each is sent when it is made, and stored while the next one is made.
            rest: returns all other changes; it is called when all new chunks are made.
            copies: there are many new chunks: they are copied, which takes three answers more, and less for each.
        """
        with database_errors(self._what):
            connection = self._open()
            if copies:
                with connection.cursor() as cursor, cursor.copy(_COPY_CHUNKS) as copy:
                    copy.set_types(_CHUNK_TYPES)
                    for chunk in added:
                        copy.write_row((chunk.trial, chunk.waiting, *chunk.chunk))
            with connection.pipeline(), connection.cursor() as cursor:
                self._write(cursor, () if copies else added, rest)

    def _write(self, cursor: Cursor[Any], added: Iterable[ChunkRow], rest: Callable[[], Changes]) -> None:
        for row in added:
            cursor.execute(_INSERT_CHUNK, (row.trial, _array(row.waiting), *row.chunk))
        changes = rest()
        if changes.last_number is not None:
            cursor.execute(b"UPDATE trial_numbers SET last = %s", (changes.last_number,))
        for new in changes.new:
            beside = new.long_id, new.user_id, new.params, new.properties, new.logged, new.owner, new.outcome
            cursor.execute(_INSERT_TRIAL, (*new.row[:14], *beside))
        if changes.rows:
            columns = zip(*(row[1:14] for row in changes.rows), strict=True)
            values = [list(column) if type(column[0]) is str else _array(column) for column in columns]
            cursor.execute(_UPDATE_TRIALS, values)
        for number, *told in changes.told:
            cursor.execute(_TELL_TRIAL, (*told, number))
        for number, outcome in changes.outcomes:
            cursor.execute(b"UPDATE trials SET outcome = %b WHERE number = %s", (outcome, number))
        for first_position, changed in changes.changed:
            cursor.execute(_CHANGE_CHUNK, (_array(changed.waiting), *changed.chunk, changed.trial, first_position))
        for key in changes.removed:
            cursor.execute(b"DELETE FROM chunks WHERE trial = %s AND first_position = %s", key)
        cursor.execute(b"COMMIT")

    def begin_merge(self, trial: int, after: int) -> tuple[str, list[Part]] | None:
        """Begin a transaction, and lock a trial that has ended; return its id and its next chunks. None: there is none.

        Args:
            trial: its number.
            after: only chunks that begin behind this position.
        """
        with database_errors(self._what):
            connection = self._open()
            connection.execute(b"BEGIN")
            row = connection.execute(_ENDED_TRIAL, (trial,)).fetchone()
            if row is None:
                return None
            parts = connection.execute(_PARTS, (trial, after)).fetchall()
        return from_text(row[0]), [Part._make(part) for part in parts]

    def run(self, trial: int, first: int, last: int) -> list[Chunk]:
        """Return the chunks that begin from the first to the last of these positions."""
        with database_errors(self._what):
            rows = self._open().execute(_RUN, (trial, first, last), binary=True).fetchall()
        return [Chunk._make(row) for row in rows]

    def commit_merge(self, trial: int, merged: Chunk, last: int, growth: int) -> None:
        """Put one chunk in the place of those that begin from its first position to the last one, and commit.

        Args:
            trial: its number.
            merged: the chunk.
            last: the first position of the last chunk that it takes the place of.
            growth: how much more the trial takes then.
        """
        with database_errors(self._what):
            connection = self._open()
            with connection.pipeline():
                gone = b"DELETE FROM chunks WHERE trial = %s AND first_position BETWEEN %s AND %s"
                connection.execute(gone, (trial, merged.first_position, last))
                connection.execute(_INSERT_CHUNK, (trial, _array(()), *merged))
                grown = b"UPDATE trials SET bytes = bytes + %s, changes = changes + 1 WHERE number = %s"
                connection.execute(grown, (growth, trial))
                connection.execute(b"COMMIT")

    def roll_back(self) -> None:
        """End the transaction without effect. Never raises."""
        if self._connection is not None:
            with suppress(Exception):
                self._connection.rollback()
                return
            self.close()

    def _open(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._address, purpose="datastore writer", durable=self._durable)
            # The same few statements come with every batch: to plan them costs the server a fifth of the first batches.
            self._connection.prepare_threshold = 0
        return self._connection
