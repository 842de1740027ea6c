"""The PostgreSQL store: trials in a database that any number of datastores share, and that may be on another machine.

One connection writes, some read, one is this process's presence (`_postgresql_presence`); each is used by one worker
thread at a time. Of two processes that write to one trial the second waits for the first, at the row of the trial:
positions and numbers are given there. Others learn of a commit by a notification, and by looking every second.

When a connection breaks, a new one is made, and the same batch is sent again; it is done once
(`_postgresql_writer`). If the database is away for longer than `RETRY_SECONDS`, the caller is told.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import trio

from trio_cogment.base.backoff import Backoff
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.host import Host
from trio_cogment.base.postgresql import TransientError, check_address
from trio_cogment.rpc import OwnNursery
from trio_cogment.servers.datastore import _postgresql_reader
from trio_cogment.servers.datastore._postgresql_presence import CHANNEL, Presence, PresenceSession, payloads_of
from trio_cogment.servers.datastore._postgresql_reader import Readers
from trio_cogment.servers.datastore._postgresql_statements import WritingSession
from trio_cogment.servers.datastore._postgresql_writer import (
    Batch,
    Deletion,
    PostgresqlWriter,
    WriterGoneError,
    Written,
)
from trio_cogment.servers.datastore._recurring_failure import RecurringFailure
from trio_cogment.servers.datastore._watching import StoreWatch, Watches
from trio_cogment.servers.datastore.storage import StoredSample, StoredTrial, Write

T = TypeVar("T")

_logger = logging.getLogger(__name__)

#: This many queries run at a time; more of them wait.
READERS = 4
#: How long what is asked for is tried again before the caller is told that the database is away.
RETRY_SECONDS = 5.0
_PAUSES = 0.05, 1.0
#: Changes of this time are told to others together: each notification has to wait for all others of the database.
NOTIFY_SECONDS = 0.02
#: How long after a trial has ended its chunks are merged: a late reward may still come.
MERGE_SECONDS = 1.0
_CLOSE_SECONDS = 30.0


class PostgresqlStore:
    """Implements `storage.TrialStore` in a database; made by `open_postgresql`.

    Attributes:
        presence: of this process.
        batches: how many were committed.
        retries: how often something was tried again because its connection broke.
    """

    takes_parts = True

    def __init__(self, parts: _Parts, host: Host) -> None:
        self._parts = parts
        self._run_writer = host.runner(1)
        self._run_reader = host.runner(READERS)
        self._run_telling = host.runner(1)
        self._rng = host.random("postgresql store")
        self._watches = Watches()
        self.presence = Presence(
            parts.session, host.runner(1), self._watches, partial(self._tell, trials=True), self._rng
        )
        #: Held while the writer's thread works: it does one thing at a time.
        self._turn = trio.Lock()
        self._news: dict[str, None] = {}
        self._news_of_trials = False
        self._has_news = trio.Event()
        self._ended: dict[int, None] = {}
        self._has_ended = trio.Event()
        self.batches = 0
        self.retries = 0

    def release_abandoned(self, releases: bool) -> None:
        """Say whether trials of processes that are gone are handed over, for this one goes on with trials, or ended."""
        self.presence.releases = releases

    def adopts(self, adopted: Callable[[Collection[str]], None]) -> None:
        """Say who is told of trials that are this process's from now on, as the one that had them is gone."""
        self.presence.adopts = adopted

    def figures(self) -> Mapping[str, int]:
        """Return what this has counted, for metrics: batches, retries, reconnections, and connections there are."""
        return {
            "batches": self.batches,
            "retries": self.retries,
            "reconnections": self.presence.reconnections,
            "connections": self._parts.connections,
        }

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        """See `TrialStore.apply`."""
        if not writes:
            await trio.lowlevel.checkpoint()
            return {}
        batch = Batch(writes)
        async with self._turn:
            written = await self._patiently(partial(self._write, batch))
        self.batches += 1
        if written.ended:
            self._ended.update(dict.fromkeys(written.ended))
            self._has_ended.set()
        self._watches.notify(written.trial_ids, trials=written.trials)
        self._tell(written.trial_ids, trials=written.trials)
        return written.refused

    async def _write(self, batch: Batch, deadline: float) -> Written:
        while True:
            number = await self.presence.there(deadline)
            try:
                return await self._run_writer(self._parts.writer.write, number, batch)
            except WriterGoneError:
                self.presence.renew(number)

    async def trial(self, trial_id: str) -> StoredTrial | None:
        """See `TrialStore.trial`."""
        found = await self.trials(after=0, limit=1, ids=[trial_id])
        return found[0] if found else None

    async def trials(
        self, *, after: int, limit: int, ids: Collection[str] | None = None, properties: Mapping[str, str] | None = None
    ) -> list[StoredTrial]:
        """See `TrialStore.trials`."""
        return await self._read(_postgresql_reader.trials, after, limit, ids, properties)

    async def open_logged(self) -> list[str]:
        """See `TrialStore.open_logged`: those that no other process has."""
        return await self._read(_postgresql_reader.open_logged, self.presence.number)

    async def stored_bytes(self, owner: str) -> int:
        """See `TrialStore.stored_bytes`."""
        return await self._read(_postgresql_reader.stored_bytes, owner)

    async def samples(self, number: int, *, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
        """See `TrialStore.samples`."""
        return await self._read(_postgresql_reader.samples, number, after, limit, max_bytes)

    async def delete(
        self, trial_ids: Collection[str], *, numbers: Collection[int] | None = None, ended: bool = False
    ) -> list[str]:
        """See `TrialStore.delete`."""
        deletion = Deletion(trial_ids, numbers, ended)
        async with self._turn:
            deleted = await self._patiently(lambda _: self._run_writer(self._parts.writer.delete, deletion))
        if deleted:
            self._watches.notify(deleted, trials=True)
            self._tell(deleted, trials=True)
        return deleted

    @asynccontextmanager
    async def watch(self, trial_id: str | None = None) -> AsyncIterator[StoreWatch]:
        """See `TrialStore.watch`."""
        with self._watches.open(trial_id) as watch:
            yield watch

    async def _read(self, query: Callable[..., T], *args: object) -> T:
        return await self._patiently(lambda _: self._run_reader(self._parts.readers.read, query, *args))

    async def _patiently(self, attempt: Callable[[float], Awaitable[T]]) -> T:
        """Try something until its connection holds, or the time is over."""
        deadline = trio.current_time() + RETRY_SECONDS
        backoff = Backoff(*_PAUSES, self._rng)
        while True:
            try:
                return await attempt(deadline)
            except TransientError:
                pause = backoff.failed()
                if trio.current_time() + pause >= deadline:
                    raise
                self.retries += 1
                await trio.sleep(pause)

    # Telling others

    def _tell(self, trial_ids: Collection[str], *, trials: bool) -> None:
        self._news.update(dict.fromkeys(trial_ids))
        self._news_of_trials |= trials
        self._has_news.set()

    async def tell_for_ever(self) -> None:
        """Tell other processes what this one has written, some of it at a time."""
        what = "other datastores are not told of new samples, which they see later"
        failure = RecurringFailure(_logger, what, "other datastores are told of new samples again")
        while True:
            await failure.idle(self._has_news.wait)
            self._has_news = trio.Event()
            news, self._news = self._news, {}
            trials, self._news_of_trials = self._news_of_trials, False
            payloads = payloads_of(self.presence.number, news, trials=trials)
            try:
                # A new connection after a failure is `Readers`' matter; what is lost is seen by looking.
                await self._run_telling(self._parts.readers.read, _postgresql_reader.notify, CHANNEL, payloads)
                failure.worked()
            except CogmentError as error:
                failure.failed(error)
            except Exception:  # a bug here must not end the service of all trials
                _logger.exception(what)
            await trio.sleep(NOTIFY_SECONDS)

    async def merge_for_ever(self) -> None:
        """Make larger chunks of the small ones of trials that have ended, a few at a time: writes do not wait long."""
        what = "small chunks could not be merged"
        while True:
            await self._has_ended.wait()
            self._has_ended = trio.Event()
            await trio.sleep(MERGE_SECONDS)
            ended, self._ended = self._ended, {}
            for number in ended:
                try:
                    await self._merge(number)
                except CogmentError as error:
                    # They can be read as they are.
                    _logger.info("%s: %s", what, error)
                except Exception:  # a bug here must not end the service of all trials
                    _logger.exception(what)

    async def _merge(self, number: int) -> None:
        after: int | None = 0
        while after is not None:
            async with self._turn:
                after = await self._run_writer(self._parts.writer.merge, number, after)


@asynccontextmanager
async def open_postgresql(
    address: str, *, full: bool = True, host: Host | None = None
) -> AsyncIterator[PostgresqlStore]:
    """Open a database for the time of an `async with` block; its tables are made if they are not there.

    Args:
        address: `postgresql://user@host:port/database?...`, as libpq takes it.
        full: a commit waits until it would survive a crash of the server; else what is confirmed may be lost then.
        host: runs what blocks.

    Raises:
        InvalidArgumentError: it is no such address.
        MissingExtraError: psycopg is not installed.
        FailedPreconditionError: the database cannot be used; the text says why.
        UnavailableError: it cannot be reached.
    """
    host = host or Host()
    check_address(address)
    parts = _Parts(address, full)
    store = PostgresqlStore(parts, host)
    try:
        await store.presence.open()
        async with OwnNursery() as nursery:
            nursery.start_soon(store.presence.run)
            nursery.start_soon(store.tell_for_ever)
            nursery.start_soon(store.merge_for_ever)
            try:
                yield store
            finally:
                nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            await host.runner(1)(parts.close)


class _Parts:
    """The connections of an open database."""

    def __init__(self, address: str, full: bool) -> None:
        self.session = PresenceSession(address)
        self.writing = WritingSession(address, durable=full)
        self.writer = PostgresqlWriter(self.writing)
        self.readers = Readers(address)

    @property
    def connections(self) -> int:
        return self.session.is_open + self.writing.is_open + self.readers.connections

    def close(self) -> None:
        self.readers.close()
        self.writer.close()
        # Last: while something is written, this process lives.
        self.session.close()
