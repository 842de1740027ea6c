"""The one writer of a database: each batch in a transaction. Nothing here knows of Trio."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from trio_cogment.base.errors import DataLossError, InvalidArgumentError
from trio_cogment.base.sqlite_file import PAGE_BYTES, WritingConnection, empty_log
from trio_cogment.servers.datastore._chunk_layouts import SampleData, all_joined, joined, sizes_of
from trio_cogment.servers.datastore._merging import begin_waiting, merge_late
from trio_cogment.servers.datastore._recent_samples import ChangeSet, TrialChanges
from trio_cogment.servers.datastore._sqlite_chunks import (
    CHUNKS,
    Merge,
    find_merge,
    find_rows,
    find_unmerged,
    in_chunks,
    insert_chunks,
    merge_next,
    size_of_next,
    sweep_chunks,
)
from trio_cogment.servers.datastore._sqlite_disk_reserve import DiskReserve, only_ends
from trio_cogment.servers.datastore._sqlite_size_limit import SizeLimit
from trio_cogment.servers.datastore._trial_edit import following
from trio_cogment.servers.datastore._write_rules import (
    MAX_NUMBER,
    NO_SUCH_TRIAL,
    NO_TICK,
    RULES,
    Action,
    Found,
    Head,
    absent,
    is_deleted,
    refusal,
    replaced,
    taken,
)
from trio_cogment.servers.datastore.chunks import (
    DEFAULT_LEVEL,
    Chunk,
    ChunkCodec,
    ChunkSample,
    NewSample,
    NewSamples,
    counted_chunk,
    decode,
)
from trio_cogment.servers.datastore.storage import (
    ROW_BYTES,
    OutcomeWrite,
    SampleWrite,
    StoredSample,
    TrialEnd,
    TrialWrite,
    Write,
    WriteKind,
    trial_bytes,
)

# The statements that insert samples: as few as possible, because other threads run Python code between two of them.
#
# Beside a busy thread a statement may wait 5 ms for Python's interpreter lock. Statements for many rows also take
# SQLite a quarter less time.

#: This many samples are added by one statement, if there are as many, and SQLite takes as many values: before its
#: version 3.32 those of 166.
_ROWS_AT_ONCE = (500, 256, 128, 64, 32, 16, 8, 4, 2, 1)
_COLUMNS = 6
_INSERT = "INSERT INTO samples (position, trial, tick, timestamp, waiting, data) VALUES (?, ?, ?, ?, ?, ?)"
_INSERTS = [(_INSERT + ", (?, ?, ?, ?, ?, ?)" * (rows - 1), rows * _COLUMNS) for rows in _ROWS_AT_ONCE]

#: The heads of this many trials are changed by one statement.
_TRIALS_AT_ONCE = (8, 4, 2, 1)
_HEAD_COLUMNS = ("number", "ending", "samples_count", "high_tick", "state", "bytes", "raw_bytes")


def _follow(trials: int) -> tuple[str, list[int]]:
    """Return the statement that changes this many heads, and which of their values its parameters have."""
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
        values += head.number, head.end, head.count, head.high_tick, head.state, head.bytes, head.raw_bytes
    done = 0
    for statement, size, parameters in _FOLLOWS:
        while len(values) - done >= size:
            connection.execute(statement, parameters(values[done : done + size]))
            done += size


_make_sample = partial(tuple.__new__, StoredSample)

#: Trials whose state is cached between batches; that of others is read again.
_MAX_KNOWN = 4096
#: A batch from this size on leaves nothing in the database's cache, which is for what is written to again.
_LARGE_BYTES = 1024 * 1024
#: What one step of cleaning up after deleted trials removes at most.
_SWEEP_ROWS = 500
_SWEEP_CHUNKS = 50
#: A database with this part unused is made smaller when it is compacted.
_VACUUM_PART = 10
_SWEEP_BYTES = 4 * 1024 * 1024

_KNOW = """
SELECT number, ending, samples_count, high_tick, state, bytes, raw_bytes, attempt,
    (SELECT max(tick) FROM samples WHERE samples.trial = trials.number),
    (SELECT max(last_tick) FROM chunks WHERE chunks.trial = trials.number)
FROM trials WHERE trial_id = ?
"""


@dataclass(slots=True)
class _Known:
    """The cached state of a trial.

    Attributes:
        head: of the trial.
        top_tick: the highest tick with any sample.
        chunk_tick: no chunk has a higher tick.
    """

    head: Head
    top_tick: int
    chunk_tick: int


class SqliteWriter:
    """Writes to a database; see `WritingConnection`. One thread at a time may use it.

    Args:
        path: of the file, which must exist.
        full: see `connect`.
        max_bytes: see `SizeLimit`.
        clock: see `DiskReserve`.
        missing: see `WritingConnection`.
        level: see `ChunkCodec`.
    """

    def __init__(
        self,
        path: str,
        *,
        full: bool,
        max_bytes: int,
        clock: Callable[[], float],
        missing: Callable[[], str] = lambda: "",
        level: int = DEFAULT_LEVEL,
    ) -> None:
        self._path = path
        self._codec = ChunkCodec(level)
        self._writing = WritingConnection(path, full=full, missing=missing)
        self._reserve = DiskReserve(path, clock)
        self._limit = SizeLimit(path, max_bytes)
        self._known: dict[str, _Known] = {}
        self._data_version = -1
        self._next_position = 1
        self._others_wrote = True
        #: What is being merged, step by step, and the last trial whose rows were looked at; None: there are no more.
        self._merging: Merge | None = None
        self._rows_after: int | None = 0

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._forget()
        self._writing.close()

    def _forget(self) -> None:
        self._known.clear()
        self._data_version = -1
        self._merging = None

    def write(self, writes: Sequence[Write], watched: Collection[str] = ()) -> tuple[dict[int, str], ChangeSet]:
        """Write a batch in one transaction; return which writes were refused and why, and what has changed.

        Args:
            writes: the batch.
            watched: the trials whose added samples are returned.

        Raises:
            CogmentError: see `file_errors`; nothing was written.
        """
        changes = ChangeSet()
        with self._transaction(_size(writes), writes) as connection:
            changes.base, changes.others_wrote = self._next_position - 1, self._others_wrote
            step = _Transaction(connection, self._codec, self._known, self._next_position, changes, watched)
            refused = step.apply(writes)
            step.finish()
        self._next_position = step.next_position
        self._others_wrote = False
        return refused, changes

    def delete(
        self, trial_ids: Collection[str], numbers: Collection[int] | None = None, ended: bool = False
    ) -> list[str]:
        """Delete trials in one step, whatever their size; `sweep` removes their samples later.

        Args:
            trial_ids: see `TrialStore.delete`, as the others.
            numbers: see above.
            ended: see above.
        """
        deleted: list[str] = []
        with self._transaction() as connection:
            for trial_id in dict.fromkeys(trial_ids):
                found = "SELECT number, ending FROM trials WHERE trial_id = ?"
                row = connection.execute(found, (trial_id,)).fetchone()
                if row is not None and is_deleted(row[0], TrialEnd(row[1]), numbers, ended=ended):
                    connection.execute("DELETE FROM trials WHERE number = ?", row[:1])
                    connection.execute("DELETE FROM properties WHERE number = ?", row[:1])
                    connection.execute("INSERT INTO deleted VALUES (?)", row[:1])
                    self._known.pop(trial_id, None)
                    deleted.append(trial_id)
        return deleted

    def sweep(self) -> bool:
        """Remove some samples of deleted trials; return whether there may be more."""
        with self._transaction() as connection:
            row = connection.execute("SELECT number FROM deleted LIMIT 1").fetchone()
            if row is None:
                return False
            found = "SELECT position, length(data) FROM samples WHERE trial = ? ORDER BY position LIMIT ?"
            size, last = 0, None
            for position, length in connection.execute(found, (*row, self._limit.swept(_SWEEP_ROWS))).fetchall():
                last = position
                size += length
                if size >= _SWEEP_BYTES:
                    break
            if last is not None:
                connection.execute("DELETE FROM samples WHERE trial = ? AND position <= ?", (*row, last))
            elif not sweep_chunks(connection, row[0], self._limit.swept(_SWEEP_CHUNKS), _SWEEP_BYTES):
                connection.execute("DELETE FROM deleted WHERE number = ?", row)
        return True

    def merge(self, least: int) -> bool:
        """Make one chunk of some small ones, or of rows; return whether there may be more to do.

        Args:
            least: how many small chunks a trial that goes on must have.

        Raises:
            ResourceExhaustedError: there is no room for the new chunk beside the old ones.
            CogmentError: see `file_errors`; nothing was changed.
        """
        with self._transaction() as connection:
            merge = self._merging or self._find_merge(connection, least)
        if merge is None:
            return False
        self._merging = self.merge_next(merge)
        return True

    def merge_next(self, merge: Merge) -> Merge | None:
        """Do one step of merging a trial's chunks and rows; return what there is to do after that, None: nothing.

        Raises:
            CogmentError: see `merge`.
        """
        with self._transaction() as connection:
            size = size_of_next(connection, merge)
        with self._transaction(size) as connection:
            following = merge_next(connection, self._codec, merge)
            # What the trial counts has changed.
            for trial_id, known in self._known.items():
                if known.head.number == merge.trial:
                    del self._known[trial_id]
                    break
        return following

    def unmerged(self) -> list[tuple[int, int]]:
        """Return which trials have ended and are not merged: their numbers, and how many samples they have.

        Raises:
            CogmentError: see `file_errors`.
        """
        with self._transaction() as connection:
            return find_unmerged(connection)

    def give_back(self, *, always: bool = False) -> bool:
        """Give the system what the database does not use; return False if there is no room for that.

        Args:
            always: do so also if that is less than a tenth of it. Nothing of what was deleted is in the file then.

        Raises:
            FailedPreconditionError: `always`, and another program is reading the file: it is there still.
            CogmentError: see `file_errors`; nothing was changed.
        """
        done = True

        def before(connection: sqlite3.Connection) -> None:
            nonlocal done
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
            if unused * _VACUUM_PART < pages and not always:
                return
            disk = os.statvfs(self._path)
            # All that is left is written to the log first, and to a file of its own before.
            done = disk.f_bavail * disk.f_frsize > 3 * (pages - unused) * PAGE_BYTES
            if done:
                # Whoever interrupts the program does not wait until it is over.
                connection.set_progress_handler(lambda: 0, 100_000)
                connection.execute("VACUUM")
                if always:
                    empty_log(connection, self._path)

        with self._writing.transaction(before):
            pass
        return done

    def _find_merge(self, connection: sqlite3.Connection, least: int) -> Merge | None:
        merge = find_merge(connection, least)
        if merge is None and self._rows_after is not None:
            self._rows_after = find_rows(connection, self._rows_after)
            merge = None if self._rows_after is None else Merge(self._rows_after, None)
        return merge

    @contextmanager
    def _transaction(self, size: int | None = None, writes: Sequence[Write] = ()) -> Iterator[sqlite3.Connection]:
        """Do what the block does in one transaction.

        Args:
            size: of the data it writes; None: it frees space.
            writes: what it writes.
        """

        def before(connection: sqlite3.Connection) -> None:
            if size is None:
                self._reserve.prepare_to_free(connection)
                self._limit.prepare_to_free(connection)
            else:
                ends = only_ends(connection, writes, size)
                self._reserve.check(connection, size, ends=ends)
                self._limit.check(connection, size, len({write.trial_id for write in writes}), ends=ends)

        try:
            large = size is not None and size >= _LARGE_BYTES
            with self._writing.transaction(before, large=large) as connection:
                self._notice_other_writers(connection)
                yield connection
        except BaseException:
            self._reserve.recheck()
            self._forget()
            raise

    def _notice_other_writers(self, connection: sqlite3.Connection) -> None:
        """Clear the cache if another process has written, for example an SQLite shell."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._data_version:
            self._data_version = version
            self._known.clear()
            last = max(
                connection.execute(f"SELECT coalesce(max(position), 0) FROM {table}").fetchone()[0]
                for table in ("samples", "chunks")
            )
            # Never lower than before, because readers have read up to there.
            self._next_position = max(self._next_position, last + 1)
            self._others_wrote = True
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]


def _size(writes: Sequence[Write]) -> int:
    size = sum(sizes_of([write.data for write in writes if type(write) is SampleWrite]))
    for write in writes:
        if type(write) is SampleWrite:
            continue
        if isinstance(write, TrialWrite):
            size += write.params.ByteSize()
        elif isinstance(write, OutcomeWrite):
            size += len(write.outcome)
    return size


class _Transaction:
    """The writes of one transaction. If it fails, the cache must be cleared, which `SqliteWriter.close` does."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        codec: ChunkCodec,
        known: dict[str, _Known],
        next_position: int,
        changes: ChangeSet,
        watched: Collection[str],
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._known = known
        self._changes = changes
        self._watched = watched
        #: The trials that were written to, and whether they had ended before.
        self._touched: dict[str, tuple[_Known, TrialEnd]] = {}
        #: Samples that are not inserted yet: those that come into chunks, of trials of which there is nothing else and
        #: by trial, and the column values of the others, one sample after the other. Of a trial, the others come first.
        self._following: list[tuple[_Known, NewSamples]] = []
        self._chunked: dict[int, tuple[_Known, list[NewSample]]] = {}
        self._values: list[Any] = []
        #: Chunks that samples were looked for in, by their positions: their samples by tick.
        self._opened: dict[int, dict[int, ChunkSample]] = {}
        self.next_position = next_position

    def apply(self, writes: Sequence[Write]) -> dict[int, str]:
        """Apply the writes of a batch; return which were refused and why."""
        by_trial = defaultdict[str, list[SampleWrite]](list)
        others: set[str] = set()
        for write in writes:
            if type(write) is SampleWrite:
                by_trial[write[0]].append(write)
            else:
                others.add(write.trial_id)
        others.update([trial_id for trial_id, some in by_trial.items() if trial_id in others or not self._extend(some)])
        return self._apply(writes, others) if others else {}

    def _extend(self, writes: Sequence[SampleWrite]) -> bool:
        """Add samples of a trial at once; False: they do not each follow the one before, nothing was done."""
        known = self._look_up_trial(writes[0].trial_id)
        found = known and following(writes, known.head.attempt, known.top_tick, self.next_position)
        if not known or not found:
            return False
        samples, state = found
        self._following.append((known, samples))
        self.next_position += len(writes)
        known.top_tick = known.chunk_tick = samples.ticks[-1]
        known.head.grow(known.top_tick, state, len(writes))
        return True

    def _apply(self, writes: Sequence[Write], trial_ids: Collection[str]) -> dict[int, str]:
        """Apply the writes of some trials, one by one; return which were refused and why."""
        refused: dict[int, str] = {}
        current, known = None, None
        chunked: list[NewSample] = []
        for index, write in enumerate(writes):
            if write.trial_id not in trial_ids:
                continue
            if isinstance(write, SampleWrite):
                # The usual case, a tick above all others, is inline: there may be many beside one of another kind.
                trial_id, tick_id, timestamp, state, data, kind, attempt = write
                if trial_id != current:
                    current, known = trial_id, self._look_up_trial(trial_id)
                    if known is not None:
                        chunked = self._chunked_of(known)
                if (
                    known is not None
                    and known.top_tick < tick_id <= MAX_NUMBER
                    and 0 <= timestamp <= MAX_NUMBER
                    and kind is not WriteKind.LATE
                    and (not attempt or attempt == known.head.attempt)
                ):
                    chunked.append((self.next_position, tick_id, timestamp, data))
                    self.next_position += 1
                    known.top_tick = known.chunk_tick = tick_id
                    known.head.grow(tick_id, state)
                elif (reason := self._sample(write, known)) is not None:
                    refused[index] = reason
            else:
                current = None
                if isinstance(write, TrialWrite):
                    reason = self._create(write)
                elif (known := self._look_up_trial(write.trial_id)) is None:
                    reason = NO_SUCH_TRIAL.format(write.trial_id)
                elif (reason := replaced(write, known.head.attempt)) is not None:
                    pass
                elif isinstance(write, OutcomeWrite):
                    self._say_outcome(write, known)
                    self._changes.trials = True
                else:
                    known.head.finish(write)
                if reason is not None:
                    refused[index] = reason
        return refused

    def finish(self) -> None:
        """Write the samples that are left and the heads of all trials."""
        self._flush()
        change_heads(self._connection, [known.head for known, _ in self._touched.values()])
        self._changes.trial_ids.update(self._touched)
        self._changes.numbers.update(known.head.number for known, _ in self._touched.values())
        self._changes.trials |= any(known.head.end != end for known, end in self._touched.values())

    def _look_up_trial(self, trial_id: str) -> _Known | None:
        known = self._known.get(trial_id)
        if known is None:
            row = self._connection.execute(_KNOW, (trial_id,)).fetchone()
            if row is None:
                return None
            number, end, count, high_tick, state, size, raw, attempt, row_tick, chunk_tick = row
            head = Head(number, TrialEnd(end), count, high_tick, state, size, raw, attempt)
            chunk_tick = NO_TICK if chunk_tick is None else chunk_tick
            top_tick = chunk_tick if row_tick is None else max(row_tick, chunk_tick)
            known = self._known[trial_id] = _Known(head, top_tick, chunk_tick)
        if trial_id not in self._touched:
            self._touch(trial_id, known)
        return known

    def _touch(self, trial_id: str, known: _Known) -> None:
        self._touched[trial_id] = known, known.head.end
        if trial_id in self._watched:
            self._changes.watched_trials[known.head.number] = TrialChanges(trial_id, known.head)

    def _say_outcome(self, write: OutcomeWrite, known: _Known) -> None:
        number = known.head.number
        found = "SELECT length(outcome) FROM trials WHERE number = ?"
        (before,) = self._connection.execute(found, (number,)).fetchone()
        known.head.bytes += len(write.outcome) - before
        self._connection.execute("UPDATE trials SET outcome = ? WHERE number = ?", (write.outcome, number))

    def _create(self, write: TrialWrite) -> str | None:
        """Create a trial, or change it; return why not, if its id is taken."""
        known = self._look_up_trial(write.trial_id)
        params = write.params.SerializeToString(deterministic=True)
        if known is None:
            if (reason := absent(write)) is not None:
                return reason
            added = self._connection.execute(
                "INSERT INTO trials (trial_id, user_id, params, logged, owner, endpoint, attempt) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (write.trial_id, write.user_id, params, write.logged, write.owner, write.endpoint, write.attempt),
            )
            assert added.lastrowid is not None
            size = trial_bytes(write.trial_id, write.user_id, len(params), 0)
            head = Head(added.lastrowid, bytes=size, attempt=write.attempt)
            known = self._known[write.trial_id] = _Known(head, NO_TICK, NO_TICK)
            self._touch(write.trial_id, known)
        else:
            found = "SELECT length(CAST(user_id AS BLOB)) + length(params), endpoint FROM trials WHERE number = ?"
            before, endpoint = self._connection.execute(found, (known.head.number,)).fetchone()
            if (reason := taken(write, known.head.end, endpoint, known.head.attempt)) is not None:
                return reason
            known.head.describe(write)
            known.head.bytes += len(write.user_id.encode()) + len(params) - before
            self._connection.execute(
                "UPDATE trials SET user_id = ?, params = ?, logged = ?, endpoint = ?, attempt = ? WHERE number = ?",
                (write.user_id, params, write.logged, write.endpoint, known.head.attempt, known.head.number),
            )
            self._connection.execute("DELETE FROM properties WHERE number = ?", (known.head.number,))
        self._connection.executemany(
            "INSERT INTO properties (name, value, number) VALUES (?, ?, ?)",
            [(name, value, known.head.number) for name, value in write.params.properties.items()],
        )
        self._changes.trials = True
        return None

    def _sample(self, write: SampleWrite, known: _Known | None) -> str | None:
        """Write a sample of an unusual kind; return why it was refused."""
        if known is None:
            return NO_SUCH_TRIAL.format(write.trial_id)
        reason = replaced(write, known.head.attempt) or refusal(write)
        if reason is None:
            try:
                self._write_by_rules(write, known)
            except (InvalidArgumentError, DataLossError) as error:
                return str(error)
        return reason

    def _write_by_rules(self, write: SampleWrite, known: _Known) -> None:
        self._flush()
        row = self._connection.execute(
            "SELECT position, timestamp, waiting, data FROM samples WHERE trial = ? AND tick = ?",
            (known.head.number, write.tick_id),
        ).fetchone()
        place, held = (0, None) if row is not None else self._find_in_chunks(known, write.tick_id)
        if held is not None:
            row = (held.position, held.timestamp, False, held.data)
        position, timestamp, waiting, data = row or (0, 0, False, b"")
        found = Found.NOTHING if row is None else Found.of(waiting, timestamp == write.timestamp)
        action = RULES[write.kind, found]
        if held is not None and action in (Action.MERGE, Action.REPLACE):
            self._take_apart(place, known)
        if action is Action.MERGE:
            merged = merge_late(data, joined(write.data))
            self._connection.execute("UPDATE samples SET data = ? WHERE position = ?", (merged, position))
            known.head.bytes += len(merged) - len(data)
            known.head.raw_bytes += len(merged) - len(data)
        elif action is Action.WAIT:
            self._add(write, known, begin_waiting(joined(write.data)), waiting=True)
        elif action is Action.COMPLETE:
            merged = merge_late(joined(write.data), data)
            self._remove("position = ?", position, known)
            self._add(write, known, merged, waiting=False)
        elif action is not Action.KEEP:
            if action is Action.REPLACE:
                self._remove("position = ?", position, known)
            elif action is Action.RERUN:
                self._shorten_chunks(write.tick_id, known)
                self._remove(f"trial = {known.head.number} AND tick >= ?", write.tick_id, known)
                known.top_tick = write.tick_id
            self._add(write, known, write.data, waiting=False)
        known.head.follow(write, action)
        if action is not Action.KEEP and known.head.number in self._changes.watched_trials:
            self._changes.watched_trials[known.head.number].only_added = False

    def _remove(self, condition: str, value: int, known: _Known) -> None:
        found = f"SELECT count(*), coalesce(sum(length(data)), 0) FROM samples WHERE {condition}"
        count, size = self._connection.execute(found, (value,)).fetchone()
        self._connection.execute(f"DELETE FROM samples WHERE {condition}", (value,))
        _lose(known.head, count, ROW_BYTES * count + size, size)

    def _add(self, write: SampleWrite, known: _Known, data: SampleData, *, waiting: bool) -> None:
        if not waiting and write.tick_id > known.chunk_tick:
            self._chunked_of(known).append((self.next_position, write.tick_id, write.timestamp, data))
            known.chunk_tick = write.tick_id
        else:
            data = joined(data)
            self._values += self.next_position, known.head.number, write.tick_id, write.timestamp, waiting, data
            known.head.bytes += ROW_BYTES + len(data)
            known.head.raw_bytes += len(data)
        self.next_position += 1
        known.top_tick = max(known.top_tick, write.tick_id)

    def _chunked_of(self, known: _Known) -> list[NewSample]:
        return self._chunked.setdefault(known.head.number, (known, []))[1]

    # What is written into a chunk takes it apart; it is made again when chunks are merged.

    def _find_in_chunks(self, known: _Known, tick_id: int) -> tuple[int, ChunkSample | None]:
        """Return the sample of a tick if it is in a chunk, and that one's position.

        Raises:
            DataLossError: the chunk that would have it is damaged.
        """
        if tick_id > known.chunk_tick:
            return 0, None
        found = "SELECT position, first_tick FROM chunks WHERE trial = ? AND last_tick >= ? ORDER BY last_tick LIMIT 1"
        row = self._connection.execute(found, (known.head.number, tick_id)).fetchone()
        if row is None or row[1] > tick_id:
            return 0, None
        return row[0], self._open(row[0], known).get(tick_id)

    def _open(self, position: int, known: _Known) -> dict[int, ChunkSample]:
        opened = self._opened.get(position)
        if opened is None:
            self._opened.clear()  # a batch seldom needs another one
            chunk = Chunk._make(self._connection.execute(f"{CHUNKS} WHERE position = ?", (position,)).fetchone())
            samples = decode(chunk, self._touched_id(known))
            opened = self._opened[position] = {sample.tick_id: sample for sample in samples}
        return opened

    def _touched_id(self, known: _Known) -> str:
        return next(trial_id for trial_id, (touched, _) in self._touched.items() if touched is known)

    def _take_apart(self, position: int, known: _Known) -> None:
        """Make rows of the samples of a chunk."""
        samples = self._open(position, known).values()
        self._remove_chunks("position = ?", position, known)
        for sample in samples:
            self._values += sample.position, known.head.number, sample.tick_id, sample.timestamp, 0, sample.data
        insert_samples(self._connection, self._values)
        self._values = []
        raw = sum(len(sample.data) for sample in samples)
        _lose(known.head, -len(samples), -ROW_BYTES * len(samples) - raw, -raw)

    def _shorten_chunks(self, tick_id: int, known: _Known) -> None:
        """Remove the samples of this and all later ticks from the chunks of a trial.

        Raises:
            DataLossError: a chunk that has some of them is damaged; nothing was removed.
        """
        number = known.head.number
        found = "SELECT position FROM chunks WHERE trial = ? AND first_tick < ? AND last_tick >= ?"
        row = self._connection.execute(found, (number, tick_id, tick_id)).fetchone()
        left = [] if row is None else [one for one in self._open(row[0], known).values() if one.tick_id < tick_id]
        self._remove_chunks(f"trial = {number} AND last_tick >= ?", tick_id, known)
        known.chunk_tick = min(known.chunk_tick, tick_id - 1)
        if left:
            insert_chunks(self._connection, self._encode(NewSamples.of(left), known))
            known.head.count += len(left)

    def _remove_chunks(self, condition: str, value: int, known: _Known) -> None:
        found = f"SELECT samples_count, raw_bytes, length(data) FROM chunks WHERE {condition}"
        for count, raw, size in self._connection.execute(found, (value,)).fetchall():
            _lose(known.head, count, counted_chunk(count, raw, size), raw)
        self._connection.execute(f"DELETE FROM chunks WHERE {condition}", (value,))
        self._opened.clear()

    def _encode(self, samples: NewSamples, known: _Known) -> list[tuple[int, Chunk]]:
        """Return the chunks of samples of a trial, and its number, after they were counted."""
        chunks = [self._codec.encode(some) for some in in_chunks(samples)]
        for chunk in chunks:
            known.head.bytes += counted_chunk(chunk.samples_count, chunk.raw_bytes, len(chunk.data))
            known.head.raw_bytes += chunk.raw_bytes
        return [(known.head.number, chunk) for chunk in chunks]

    def _flush(self) -> None:
        values, watched_trials = self._values, self._changes.watched_trials
        if watched_trials:
            for position, number, tick_id, data in zip(
                values[::6], values[1::6], values[2::6], values[5::6], strict=True
            ):
                if number in watched_trials:
                    watched_trials[number].samples.append(StoredSample(position, tick_id, data))
        if values:
            insert_samples(self._connection, values)
            self._values = []
        for known, samples in self._chunked.values():
            if samples:
                self._following.append((known, NewSamples.of(samples)))
                # The list is in use by who adds to it.
                samples.clear()
        chunks: list[tuple[int, Chunk]] = []
        for known, added in self._following:
            chunks += self._encode(added, known)
            if known.head.number in watched_trials:
                some = zip(added.positions, added.ticks, all_joined(added.data), strict=True)
                watched_trials[known.head.number].samples += map(_make_sample, some)
        insert_chunks(self._connection, chunks)
        self._following.clear()


def _lose(head: Head, count: int, size: int, raw_bytes: int) -> None:
    """Take note that samples of a trial are gone."""
    head.count -= count
    head.bytes -= size
    head.raw_bytes -= raw_bytes
