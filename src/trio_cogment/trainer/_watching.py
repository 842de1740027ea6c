"""The changes of all runs, for those who watch them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from trio_cogment.api.trainer.trainer_pb2 import RunRecord
from trio_cogment.base.host import Runner
from trio_cogment.rpc import ServerCall
from trio_cogment.trainer.storage import Database, Row, page

#: This many of the latest changes are kept in memory.
_RECENT = 2048
#: Old ones are forgotten in steps of this many.
_FORGOTTEN_AT_ONCE = 1024


class Events:
    """The changes that are stored.

    Args:
        first: the number of the first one that is kept.
        stored: the number of the last one; one less than `first` if there is none.
        database: where they are.
        run_reader: runs what reads from it.
        kept: how many are kept.
    """

    def __init__(self, first: int, stored: int, database: Database, run_reader: Runner, kept: int) -> None:
        self._first = first
        self._stored = stored
        self._next = stored + 1
        self._database = database
        self._run_reader = run_reader
        self._kept = kept
        self._recent: list[bytes] = []
        self._changed = trio.lowlevel.ParkingLot()

    def take_number(self) -> int:
        """Return the number of a change that is about to be stored."""
        self._next += 1
        return self._next - 1

    def on_stored(self, row: Row) -> None:
        """Take note that one is stored."""
        self._stored = row.seq
        self._recent.append(row.data)
        if len(self._recent) >= 2 * _RECENT:
            del self._recent[:-_RECENT]
        self._changed.unpark_all()

    def on_failed(self) -> None:
        """Take note that what is not stored yet will not be."""
        self._next = self._stored + 1

    def outdated(self) -> int:
        """Return the number before which changes should be forgotten now; 0: none."""
        before = self._stored - self._kept + 1
        if before - self._first < _FORGOTTEN_AT_ONCE:
            return 0
        self._first = before
        return before

    async def follow(
        self, call: ServerCall, since: int, statuses: frozenset[int], snapshot: Callable[[], Sequence[RunRecord]]
    ) -> None:
        """Send the runs as they are, unless all changes since a known one are there; then every change."""
        position, fresh = since, not since
        while True:
            # A watcher that is very slow may find that changes were forgotten.
            if fresh or not self._first - 1 <= position <= self._stored:
                position, fresh = self._stored, False
                for record in snapshot():
                    if record.status in statuses:
                        await call.send(record)
                continue  # while they were sent, what follows them may have been forgotten
            rows = await self._read(position)
            if rows and rows[0].seq != position + 1:
                fresh = True  # it was forgotten while it was read
                continue
            for row in rows:
                record = RunRecord.FromString(row.data)
                if record.status in statuses:
                    await call.send(record)
                position = row.seq
            while position >= self._stored:
                await self._changed.park()

    async def _read(self, after: int) -> Sequence[Row]:
        if after >= self._stored:
            return ()
        first = self._stored - len(self._recent) + 1
        if after + 1 >= first:
            return page(first, self._recent, after, _RECENT, 1 << 20)
        return await self._run_reader(_read_events, self._database, after)


def _read_events(database: Database, after: int) -> list[Row]:
    return database.events(after=after, limit=_RECENT)
