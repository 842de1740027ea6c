"""The SQLite store: trials in a database, with one writer and some readers in worker threads."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.host import Host, Runner
from trio_cogment.base.sqlite_file import SqliteFormat
from trio_cogment.base.sqlite_hold import DatabaseHold
from trio_cogment.rpc import OwnNursery
from trio_cogment.servers.datastore import _sqlite_reader
from trio_cogment.servers.datastore._recent_samples import RecentSamples
from trio_cogment.servers.datastore._recurring_failure import RecurringFailure
from trio_cogment.servers.datastore._sqlite_reader import Readers, StoredPart
from trio_cogment.servers.datastore._sqlite_writer import SqliteWriter
from trio_cogment.servers.datastore._watching import StoreWatch, Watches
from trio_cogment.servers.datastore.chunks import DEFAULT_LEVEL
from trio_cogment.servers.datastore.storage import ROW_BYTES, StoredSample, StoredTrial, Write

# The database file of a datastore: its tables, and their versions.

_CHUNKS = """
CREATE TABLE chunks (
    position INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    first_tick INTEGER NOT NULL,
    last_tick INTEGER NOT NULL,
    samples_count INTEGER NOT NULL,
    encoding INTEGER NOT NULL,
    size INTEGER NOT NULL,
    raw_bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    generation INTEGER,
    data BLOB NOT NULL
);
CREATE INDEX chunks_trial ON chunks (trial);
CREATE INDEX chunks_tick ON chunks (trial, last_tick);
CREATE INDEX chunks_merged ON chunks (trial, generation) WHERE generation IS NOT NULL
"""

#: Samples that come in the order of their ticks are in `chunks`; those of a trial follow each other by position and by
#: tick. What is written out of order, or over another sample, is a row of `samples`, where it can be changed. A
#: position is in one of the two only, and no row has one within a chunk.
#:
#: Rowids go up in the order of arrival, so that new samples are appended, whatever their trial; they are the positions,
#: of a chunk the last one. `samples_trial` and `chunks_trial` end with the rowid (every index does), so they page a
#: trial by position. `generation` tells how often a chunk was merged; NULL: it is not merged any more.
_SCHEMA = f"""
CREATE TABLE trials (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    params BLOB NOT NULL,
    logged INTEGER NOT NULL,
    ending INTEGER NOT NULL DEFAULT 0,
    samples_count INTEGER NOT NULL DEFAULT 0,
    high_tick INTEGER NOT NULL DEFAULT -1,
    state INTEGER NOT NULL DEFAULT 0,
    outcome BLOB NOT NULL DEFAULT x'',
    owner TEXT NOT NULL DEFAULT '',
    bytes INTEGER NOT NULL DEFAULT 0,
    raw_bytes INTEGER NOT NULL DEFAULT 0,
    endpoint TEXT NOT NULL DEFAULT '',
    attempt INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX trials_owner ON trials (owner, bytes) WHERE owner != '';
CREATE INDEX trials_open ON trials (number) WHERE ending = 0 AND logged = 1;
CREATE TABLE properties (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (name, value, number)
) WITHOUT ROWID;
CREATE INDEX properties_of ON properties (number);
CREATE TABLE samples (
    position INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX samples_tick ON samples (trial, tick);
CREATE INDEX samples_trial ON samples (trial);
{_CHUNKS};
CREATE TABLE deleted (number INTEGER PRIMARY KEY);
CREATE TABLE recoveries (count INTEGER NOT NULL);
INSERT INTO recoveries VALUES (0);
"""

#: Version -> what leads from it to the next, within one transaction.
_MIGRATIONS: dict[int, str] = {
    1: "ALTER TABLE trials ADD COLUMN outcome BLOB NOT NULL DEFAULT x''",
    2: "ALTER TABLE trials ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    3: f"""
ALTER TABLE trials ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE trials SET bytes = {ROW_BYTES} + length(CAST(trial_id AS BLOB)) + length(CAST(user_id AS BLOB)) + length(params)
    + length(outcome)
    + (SELECT coalesce(sum(length(data) + {ROW_BYTES}), 0) FROM samples WHERE samples.trial = trials.number);
CREATE INDEX trials_owner ON trials (owner, bytes) WHERE owner != ''
""",
    4: "ALTER TABLE trials ADD COLUMN endpoint TEXT NOT NULL DEFAULT ''",
    # The samples stay rows until they are compacted: reading them all would take a large file minutes.
    5: f"""
{_CHUNKS};
ALTER TABLE trials ADD COLUMN raw_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE trials SET raw_bytes = max(0, bytes - {ROW_BYTES} * (samples_count + 1) - length(CAST(trial_id AS BLOB))
    - length(CAST(user_id AS BLOB)) - length(params) - length(outcome))
""",
    6: "ALTER TABLE trials ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0",
}

#: A later version adds its step to `_MIGRATIONS`.
FORMAT = SqliteFormat(
    user="datastore",
    application_id=0x5443676D,  # "TCgm"
    version=7,
    schema=_SCHEMA,
    migrations=_MIGRATIONS,
)


_logger = logging.getLogger(__name__)

#: This many queries run at a time; more of them wait.
READERS = 4
#: How long to wait after a failure before the samples of deleted trials are swept again.
SWEEP_PAUSE_SECONDS = 10.0
#: How long after a write small chunks are merged, and how many of them a trial that goes on must have for that, while
#: nothing else is written, and while something is.
MERGE_PAUSE_SECONDS = 0.25
MERGED_WHEN_IDLE = 8
MERGED_WHEN_BUSY = 128
_CLOSE_SECONDS = 30.0


class SqliteStore:
    """Implements `storage.TrialStore` on a file; made by `open_sqlite`.

    Each call of `apply` is one transaction. Many writes share a sync because the caller, the datastore's group commit,
    puts them into one call.
    """

    #: No other process has the database meanwhile, so whoever wrote to it before is gone.
    exclusive = True
    takes_parts = True

    def __init__(self, writer: SqliteWriter, readers: Readers, run_writer: Runner, run_reader: Runner) -> None:
        self._writer = writer
        self._readers = readers
        self._run_writer = run_writer
        self._run_reader = run_reader
        self._watches = Watches()
        self._recent = RecentSamples()
        #: Held while the writer's thread works: it does one thing at a time.
        self._turn = trio.Lock()
        self._opened = _sqlite_reader.OpenChunks()
        self._to_sweep = trio.Event()
        self._to_sweep.set()
        self._to_merge = trio.Event()
        self._to_merge.set()
        self._written_at = -math.inf

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        """See `TrialStore.apply`."""
        async with self._turn:
            refused, changes = await self._run_writer(self._writer.write, writes, self._watches.trial_ids())
            self._written_at = trio.current_time()
            self._recent.note(changes)
            self._watches.notify(changes.trial_ids, trials=changes.trials)
        self._to_merge.set()
        return refused

    async def trial(self, trial_id: str) -> StoredTrial | None:
        """See `TrialStore.trial`."""
        known = self._recent.trial(trial_id)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return known
        found, keep = await self._ask(_sqlite_reader.trial, trial_id)
        if found:
            return self._recent.as_noted(found[0], keep=keep)
        if self._recent.has(trial_id):
            async with self._turn:  # its deletion is there for queries, and is about to be noted
                pass
        return None

    async def trials(
        self, *, after: int, limit: int, ids: Collection[str] | None = None, properties: Mapping[str, str] | None = None
    ) -> list[StoredTrial]:
        """See `TrialStore.trials`."""
        found, _ = await self._ask(_sqlite_reader.trials, after, limit, ids, properties)
        return [self._recent.as_noted(trial, keep=False) for trial in found]

    async def _ask(self, query: Callable[..., list[StoredTrial]], *args: object) -> tuple[list[StoredTrial], bool]:
        """Return what a query has found, for `RecentSamples.as_noted`, and whether it may be kept."""
        changes = self._recent.trial_changes
        found = await self._run_reader(self._readers.read, query, *args)
        if self._recent.changed_since(changes, found):
            async with self._turn:  # now nothing changes
                changes = self._recent.trial_changes
                found = await self._run_reader(self._readers.read, query, *args)
        return found, changes == self._recent.trial_changes

    async def open_logged(self) -> list[str]:
        """See `TrialStore.open_logged`."""
        return await self._run_reader(self._readers.read, _sqlite_reader.open_logged)

    async def stored_bytes(self, owner: str) -> int:
        """See `TrialStore.stored_bytes`."""
        return await self._run_reader(self._readers.read, _sqlite_reader.stored_bytes, owner)

    async def samples(self, number: int, *, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
        """See `TrialStore.samples`."""
        recent = self._recent.samples(number, after, limit, max_bytes)
        if recent is not None:
            await trio.lowlevel.checkpoint()
            return recent
        page = number, after, limit, max_bytes, self._opened
        return await self._run_reader(self._readers.read, _sqlite_reader.samples, *page)

    async def parts(self, numbers: Sequence[int], *, after: int, max_bytes: int) -> list[tuple[list[StoredPart], bool]]:
        """Return samples of trials as they are kept, by position; and of each trial whether it may have more.

        Args:
            numbers: of the trials, one at least: there is an answer for each until there are that many bytes.
            after: only those of the first trial with a higher position; 0: from its first.
            max_bytes: no further ones once their data has this many bytes, together.

        Raises:
            NotFoundError: there is no such trial (any more).
        """
        return await self._run_reader(self._readers.read, _sqlite_reader.parts, numbers, after, max_bytes)

    async def delete(
        self, trial_ids: Collection[str], *, numbers: Collection[int] | None = None, ended: bool = False
    ) -> list[str]:
        """See `TrialStore.delete`."""
        async with self._turn:
            deleted = await self._run_writer(self._writer.delete, trial_ids, numbers, ended)
        if deleted:
            self._recent.forget(deleted)
            self._watches.notify(deleted, trials=True)
            self._to_sweep.set()
        return deleted

    @asynccontextmanager
    async def watch(self, trial_id: str | None = None) -> AsyncIterator[StoreWatch]:
        """See `TrialStore.watch`."""
        try:
            with self._watches.open(trial_id) as watch:
                yield watch
        finally:
            if trial_id is not None and trial_id not in self._watches.trial_ids():
                self._recent.forget([trial_id])

    async def sweep_for_ever(self) -> None:
        """Remove the samples of deleted trials, a few at a time, so that writes do not wait long."""
        what = "samples of deleted trials could not be removed, trying again later"
        failure = RecurringFailure(_logger, what, "samples of deleted trials can be removed again")
        while True:
            await failure.idle(self._to_sweep.wait)
            self._to_sweep = trio.Event()
            if not await self._in_steps(failure, what, self._writer.sweep):
                self._to_sweep.set()
                await trio.sleep(SWEEP_PAUSE_SECONDS)

    async def merge_for_ever(self) -> None:
        """Merge small chunks: when nothing was written for a moment, when a trial has ended, or when there are many."""
        what = "samples could not be put together, trying again later"
        failure = RecurringFailure(_logger, what, "samples can be put together again")
        while True:
            await failure.idle(self._to_merge.wait)
            self._to_merge = trio.Event()
            await trio.sleep(MERGE_PAUSE_SECONDS)
            idle = trio.current_time() - self._written_at >= MERGE_PAUSE_SECONDS
            least = MERGED_WHEN_IDLE if idle else MERGED_WHEN_BUSY
            if not await self._in_steps(failure, what, self._writer.merge, least):
                self._to_merge.set()
                await trio.sleep(SWEEP_PAUSE_SECONDS)

    async def _in_steps(self, failure: RecurringFailure, what: str, step: Callable[..., bool], *args: object) -> bool:
        """Do steps in the writer's thread, between writes, until there is nothing more to do; False: one has failed."""
        try:
            while True:
                async with self._turn:
                    more = await self._run_writer(step, *args)
                failure.worked()
                if not more:
                    return True
        except CogmentError as error:
            failure.failed(error)
        except Exception:  # a bug here must not end the service of all trials
            _logger.exception(what)
        return False


@asynccontextmanager
async def open_sqlite(
    path: str,
    *,
    full: bool = True,
    max_bytes: int = 0,
    level: int = DEFAULT_LEVEL,
    host: Host | None = None,
) -> AsyncIterator[SqliteStore]:
    """Open a database for the time of an `async with` block; if the file does not exist it is created.

    Args:
        path: of the file; links are followed.
        full: a commit waits until it would survive a loss of power; else until it survives the end of the process.
        max_bytes: how large the file may become; 0: no limit.
        level: see `ChunkCodec`.
        host: runs what blocks.

    Raises:
        FailedPreconditionError: the file cannot be used, or another datastore uses it; the text says which.
        ResourceExhaustedError: the disk is full.
        UnavailableError: the disk or the database is damaged.
    """
    host = host or Host()
    run_writer, run_reader = host.runner(1), host.runner(READERS)
    parts = _Parts(path, full, max_bytes, time.monotonic, level)
    try:
        await run_writer(parts.open)
        store = SqliteStore(parts.writer, parts.readers, run_writer, run_reader)
        async with OwnNursery() as nursery:
            nursery.start_soon(store.sweep_for_ever)
            nursery.start_soon(store.merge_for_ever)
            try:
                yield store
            finally:
                nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            await run_writer(parts.close)


class _Parts:
    """The parts of an open database; they are closed in the reverse order."""

    def __init__(self, path: str, full: bool, max_bytes: int, clock: Callable[[], float], level: int) -> None:
        path = os.path.realpath(path)
        self._hold = DatabaseHold(FORMAT, path)
        self.writer = SqliteWriter(
            path, full=full, max_bytes=max_bytes, clock=clock, missing=self._hold.missing, level=level
        )
        self.readers = Readers(path)

    def open(self) -> None:
        self._hold.open()

    def close(self) -> None:
        self.readers.close()
        self.writer.close()
        self._hold.close()
