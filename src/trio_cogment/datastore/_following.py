"""Samples on their way to a reader: those that are there, then those that come, until their trials have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import trio

from trio_cogment.api.trial_datastore_pb2 import RetrieveSampleReply
from trio_cogment.config import DatastoreConfig
from trio_cogment.datastore.selection import Selection
from trio_cogment.datastore.storage import StoredTrial, TrialEnd, TrialStore
from trio_cogment.errors import DataLossError, NotFoundError
from trio_cogment.rpc import ServerCall


class _Cursor:
    """How far one trial has been read."""

    __slots__ = ("actors", "ending", "number", "position", "queued", "scope", "trial_id")

    def __init__(self, trial: StoredTrial, selection: Selection) -> None:
        self.trial_id = trial.trial_id
        self.number = trial.number
        self.actors = selection.actors(trial.params)
        self.position = 0
        #: No more samples are expected: once nothing is left, that is all.
        self.ending = trial.end != TrialEnd.OPEN
        self.queued = False
        #: Of the task that watches it.
        self.scope = trio.CancelScope()


class Follower:
    """Sends the samples of some trials to one reader, those of each trial in order, in turns of a page.

    No more than a page is in memory, beside what the call holds for a reader that takes its time.

    Args:
        call: the reader's.
        store: where the samples are.
        selection: what of them is wanted.
        config: the size of a page.
    """

    def __init__(self, call: ServerCall, store: TrialStore, selection: Selection, config: DatastoreConfig) -> None:
        self._call = call
        self._store = store
        self._selection = selection
        self._config = config
        self._ready: deque[_Cursor] = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._left = 0

    async def run(self, trials: Iterable[StoredTrial]) -> None:
        """Return when every trial has ended and all of it is sent.

        Raises:
            NotFoundError: a trial was deleted meanwhile.
            DataLossError: its samples were evicted.
        """
        cursors = [_Cursor(trial, self._selection) for trial in trials]
        self._left = len(cursors)
        async with trio.open_nursery() as nursery:
            for cursor in cursors:
                if cursor.ending:
                    self._queue(cursor)
                else:
                    nursery.start_soon(self._watch, cursor)
            while self._left:
                while not self._ready:
                    await self._news.park()
                cursor = self._ready.popleft()
                cursor.queued = False
                if await self._advance(cursor):
                    self._left -= 1
                    cursor.scope.cancel()

    def _queue(self, cursor: _Cursor) -> None:
        if not cursor.queued:
            cursor.queued = True
            self._ready.append(cursor)
            self._news.unpark()

    async def _watch(self, cursor: _Cursor) -> None:
        with cursor.scope:
            async with self._store.watch(cursor.trial_id) as watch:
                while True:
                    # The first time for what came before the watch.
                    self._queue(cursor)
                    await watch.changed()

    async def _advance(self, cursor: _Cursor) -> bool:
        """Send a page of a trial; tell whether it was the last."""
        config = self._config
        try:
            page = await self._store.samples(
                cursor.number, after=cursor.position, limit=config.page_samples, max_bytes=config.page_bytes
            )
        except NotFoundError as error:
            raise NotFoundError(f"trial {cursor.trial_id!r} was deleted") from error
        except DataLossError as error:
            raise DataLossError(f"trial {cursor.trial_id!r}: its samples were evicted, to make room") from error
        selection, send = self._selection, self._call.send
        for stored in page:
            reply = RetrieveSampleReply()
            reply.trial_sample.MergeFromString(stored.data)
            if not selection.everything:
                selection.apply(reply.trial_sample, cursor.actors)
            await send(reply)
            cursor.position = stored.position
        if page:
            self._queue(cursor)
            return False
        if cursor.ending:
            return True
        # Looked at after what may have been its last sample; that one is looked for once more.
        trial = await self._store.trial(cursor.trial_id)
        if trial is None or trial.number != cursor.number or trial.end != TrialEnd.OPEN:
            cursor.ending = True
            self._queue(cursor)
        return False
