"""Following trials: a reader gets the stored samples, then new ones, until the trials have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from types import TracebackType
from typing import Protocol

import trio

from trio_cogment.api.trial_datastore_pb2 import RetrieveSampleReply, RetrieveSamplesRequest, StoredTrialSample
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import DataLossError, NotFoundError
from trio_cogment.base.shared_message import varint
from trio_cogment.rpc import OwnNursery
from trio_cogment.servers.datastore._selection import Selection
from trio_cogment.servers.datastore.storage import (
    DamagedSamplesError,
    StoredSample,
    StoredTrial,
    TrialEnd,
    TrialStore,
)

_data_of = attrgetter("data")


class Cursor:
    """How far one trial has been read."""

    __slots__ = ("actors", "at_end", "ending", "notified", "number", "position", "queued", "scope", "trial_id")

    def __init__(self, trial: StoredTrial, selection: Selection) -> None:
        self.trial_id = trial.trial_id
        self.number = trial.number
        self.actors = selection.actors(trial.params)
        self.position = 0
        #: The trial has ended: no more samples are expected.
        self.ending = trial.end != TrialEnd.OPEN
        self.queued = False
        #: There may be something new since it was read last.
        self.notified = True
        #: The last read reached the end of what was stored.
        self.at_end = False
        #: Of the task that watches the trial.
        self.scope = trio.CancelScope()


class Turn(Protocol):
    """What a page may have to wait for."""

    async def begin(self) -> None:
        """Wait until a page may be read; there may have been no `end` since the last time."""

    async def end(self) -> None:
        """The page was empty."""


class NoTurn:
    """The turn of who need not wait."""

    async def begin(self) -> None:
        """See `Turn.begin`."""

    async def end(self) -> None:
        """See `Turn.end`."""


class Follower:
    """Reads the samples of trials, each in order, taking turns by pages; an asynchronous context manager.

    Nothing is read ahead.

    Args:
        store: where the samples are.
        selection: which fields and actors are wanted.
        config: the size of a page.
        trials: which trials.
        turn: what is waited for before a page is read; None: nothing.
    """

    def __init__(
        self,
        store: TrialStore,
        selection: Selection,
        config: DatastoreConfig,
        trials: Iterable[StoredTrial],
        turn: Turn | None = None,
    ) -> None:
        self._turn = turn or NoTurn()
        self._store = store
        self._config = config
        self._cursors = [Cursor(trial, selection) for trial in trials]
        self._left = len(self._cursors)
        self._damage: DamagedSamplesError | None = None
        self._ready: deque[Cursor] = deque()
        self._changed = trio.lowlevel.ParkingLot()
        self._tasks = OwnNursery()

    async def __aenter__(self) -> Follower:
        """Begin to watch the trials that are still open."""
        self._nursery = await self._tasks.__aenter__()
        for cursor in self._cursors:
            if cursor.ending:
                self._queue(cursor)
            else:
                self._nursery.start_soon(self._watch, cursor)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Stop watching."""
        self._nursery.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, value, traceback)

    async def page(self) -> tuple[Cursor, Sequence[StoredSample]] | None:
        """Wait for the next page; None: all trials have ended and all samples were returned.

        Raises:
            NotFoundError: a trial was deleted meanwhile.
            DataLossError: its samples were evicted, or, after all that can be read, some of them are damaged.
        """
        while self._left:
            while not self._ready:
                await self._changed.park()
            cursor = self._ready.popleft()
            cursor.queued = False
            if cursor.ending and cursor.at_end and not cursor.notified:
                self._left -= 1
                cursor.scope.cancel()
            elif page := await self._advance(cursor):
                return cursor, page
        if self._damage is not None:
            raise DataLossError(str(self._damage)) from self._damage
        return None

    async def _advance(self, cursor: Cursor) -> Sequence[StoredSample]:
        """Read on, or look for the end. After a failure or `Cancelled` the next turn begins where this one did."""
        advanced = False
        try:
            page: Sequence[StoredSample] = ()
            if cursor.notified or not cursor.at_end:
                cursor.notified = False
                page = await self._read(cursor)
                self._queue(cursor)
            else:
                await self._look_for_end(cursor)
            advanced = True
        finally:
            if not advanced:
                cursor.notified = True
                self._queue(cursor)
        return page

    def _queue(self, cursor: Cursor) -> None:
        if not cursor.queued:
            cursor.queued = True
            self._ready.append(cursor)
            self._changed.unpark()

    async def _watch(self, cursor: Cursor) -> None:
        with cursor.scope:
            async with self._store.watch(cursor.trial_id) as watch:
                while True:
                    # The first turn is for what was written before the watch was opened.
                    cursor.notified = True
                    self._queue(cursor)
                    await watch.changed()

    async def _read(self, cursor: Cursor) -> Sequence[StoredSample]:
        limit, max_bytes = self._config.page_samples, self._config.page_bytes
        await self._turn.begin()
        try:
            page = await self._store.samples(cursor.number, after=cursor.position, limit=limit, max_bytes=max_bytes)
        except NotFoundError as error:
            raise NotFoundError(f"trial {cursor.trial_id!r} was deleted") from error
        except DamagedSamplesError as error:
            # What is behind them can be read; the end tells that they are missing.
            self._damage = self._damage or error
            cursor.at_end, cursor.position = False, error.last_position
            if not error.before:
                await self._turn.end()
            return error.before
        except DataLossError as error:
            raise DataLossError(f"trial {cursor.trial_id!r}: its samples were evicted, to make room") from error
        cursor.at_end = len(page) < limit and sum([len(stored.data) for stored in page]) < max_bytes
        if page:
            cursor.position = page[-1].position
        else:
            await self._turn.end()
        return page

    async def _look_for_end(self, cursor: Cursor) -> None:
        """See whether the trial has ended, after what may have been its last sample: that is looked for once more."""
        trial = await self._store.trial(cursor.trial_id)
        if trial is None or trial.number != cursor.number or trial.end != TrialEnd.OPEN:
            cursor.ending = cursor.notified = True
            self._queue(cursor)


#: Further samples are put into a reply while it has fewer bytes.
REPLY_BYTES = 64 * 1024
_LENGTH_DELIMITED = 2
_FIRST, _FURTHER = (
    varint(RetrieveSampleReply.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED)
    for name in ("trial_sample", "further_samples")
)


@lru_cache(4096)
def _further(length: int) -> bytes:
    return _FURTHER + varint(length)


def replies(samples: Iterable[bytes], most: int) -> Iterator[tuple[bytes, int]]:
    """Yield serialized `RetrieveSampleReply` messages with serialized samples, and how many bytes these have alone.

    Args:
        samples: in order.
        most: how many a reply may have, 1 or more.
    """
    parts: list[bytes] = []
    size = 0
    for data in samples:
        length = len(data)
        if parts and (size >= REPLY_BYTES or len(parts) >= 2 * most):
            yield b"".join(parts), size
            parts, size = [], 0
        parts += _further(length) if parts else _FIRST + varint(length), data
        size += length
    if parts:
        yield b"".join(parts), size


class SampleReader:
    """Reads samples in this process, without a call: ``async for samples in reader``.

    Each turn gives some samples of one trial, one at least; those of a trial come in order, those of several in turns.
    It ends when every trial has ended. Each turn waits, and may raise what `TrialStore.samples` does; after that, or
    after `Cancelled`, the next turn goes on where this one was.
    """

    def __init__(self, follower: Follower, selection: Selection) -> None:
        self._follower = follower
        self._selection = selection

    def __aiter__(self) -> SampleReader:
        return self

    async def __anext__(self) -> list[StoredTrialSample]:
        found = await self._follower.page()
        if found is None:
            raise StopAsyncIteration
        cursor, page = found
        samples: list[StoredTrialSample] = []
        # Many samples that are one message are parsed in half the time.
        for payload, _ in replies(map(_data_of, page), len(page)):
            reply = RetrieveSampleReply.FromString(payload)
            samples.append(reply.trial_sample)
            samples += reply.further_samples
        if not self._selection.everything:
            for sample in samples:
                self._selection.apply(sample, cursor.actors)
        return samples


async def find_trials(store: TrialStore, request: RetrieveSamplesRequest) -> list[StoredTrial]:
    """Return the trials whose samples are asked for.

    Raises:
        NotFoundError: one is not there.
    """
    ids = list(dict.fromkeys(request.trial_ids))
    if not ids:
        return []
    trials = await store.trials(after=0, limit=len(ids), ids=ids)
    known = {trial.trial_id for trial in trials}
    for trial_id in ids:
        if trial_id not in known:
            raise NotFoundError(f"trial_ids: there is no trial {trial_id!r}")
    return trials
