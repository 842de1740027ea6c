"""Group commit: what is to be stored goes through one bounded queue, and to the database in batches, in order.

A commit takes a database about the same time whether it has one item or hundreds, because it waits for the disk. So a
batch is committed when there is enough of it, when its first item has waited long enough, or when somebody waits for
it. One batch is committed at a time; meanwhile the next one grows.

What becomes of a batch that could not be stored is for the user of the queue to say.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from trio_cogment.base.errors import CogmentError, UnavailableError

#: The estimated memory of an item beside its data, so that many small ones are limited, too.
OVERHEAD_BYTES = 256


@dataclass(slots=True)
class CommitBatch:
    """Items that are committed together, in order.

    Attributes:
        count: how many there are.
        size: about this many bytes of memory.
        since: when the first one came.
        expedited: somebody waits for one of them.
    """

    count: int = 0
    size: int = 0
    since: float = 0.0
    expedited: bool = False


B = TypeVar("B", bound=CommitBatch)


class CommitQueue(ABC, Generic[B]):
    """A queue, and the task that empties it.

    Args:
        first: an empty batch.
        max_count: how many items may wait or be under way.
        max_bytes: how many bytes these may have together; one item of any size may be added to an empty queue.
        enough: a batch with this many items does not wait for more; it may still grow until it is committed.
        full: no more are added to a batch with this many items,
        full_bytes: or this many bytes.

    Attributes:
        batch: what is added goes there; who adds an item calls `count` then.
    """

    def __init__(
        self, first: B, *, max_count: int, max_bytes: int, enough: int, full: int, full_bytes: float = math.inf
    ) -> None:
        self._max_count, self._max_bytes = max_count, max_bytes
        self._enough, self._full_count, self._full_bytes = enough, full, full_bytes
        self.batch = first
        self._full: deque[B] = deque()
        #: Of what waits or is under way.
        self._held_count = self._held_bytes = 0
        self._work = trio.lowlevel.ParkingLot()
        #: Of those who wait for room, or for what they have added.
        self._progress = trio.lowlevel.ParkingLot()

    @abstractmethod
    def _following(self, batch: B) -> B:
        """Return an empty batch, for what comes after another one."""

    @abstractmethod
    def _delay_seconds(self) -> float:
        """Return how long the first item of a batch may wait."""

    @abstractmethod
    async def _commit(self, batch: B) -> None:
        """Store a batch, whatever comes of it, and `_release` it. Nothing but `Cancelled` is raised."""

    async def _idle(self) -> None:
        """Wait until there is something to do."""
        await self._work.park()

    # Those who add

    @property
    def has_room(self) -> bool:
        """Whether an item may be added now."""
        return self._held_count < self._max_count and self._held_bytes < self._max_bytes

    async def wait_room(self) -> None:
        """Return when an item may be added."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.has_room:
            self.expedite()
            await self._progress.park()

    def count(self, size: int) -> None:
        """Take note of an item that was added to `batch`. Who adds one asks for room first.

        Args:
            size: of its data.
        """
        batch = self.batch
        size += OVERHEAD_BYTES
        batch.size += size
        batch.count = count = batch.count + 1
        self._held_count += 1
        self._held_bytes += size
        if count == 1:
            batch.since = trio.current_time()
            self._work.unpark()
        if count >= self._full_count or batch.size >= self._full_bytes:
            self._full.append(batch)
            self.batch = self._following(batch)
            self._work.unpark()
        elif count == self._enough:
            self._work.unpark()

    def expedite(self) -> None:
        """Commit what waits without waiting for more."""
        if self.batch.count:
            self.batch.expedited = True
            self._work.unpark()

    async def drain(self) -> None:
        """Return when nothing waits or is under way, whatever has become of it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._held_count:
            self.expedite()
            await self._progress.park()

    # The task

    async def run(self) -> None:
        """Commit indefinitely. After `Cancelled` what was queued may be stored or not; nobody is told."""
        while True:
            while not self._full and not self.batch.count:
                await self._idle()
            if not self._full:
                with trio.move_on_at(self.batch.since + self._delay_seconds()):
                    while not (self._full or self.batch.expedited or self.batch.count >= self._enough):
                        await self._work.park()
            await self._commit(self._take())

    def _take(self) -> B:
        """Remove the first batch from the queue, and return it."""
        if self._full:
            return self._full.popleft()
        batch = self.batch
        self.batch = self._following(batch)
        return batch

    def _take_all(self) -> list[B]:
        """Remove all batches from the queue, and return them."""
        batches = [*self._full]
        self._full.clear()
        if self.batch.count:
            batches.append(self._take())
        return batches

    def _release(self, *batches: B) -> None:
        """Take note that these are not held any more: they are stored, or will not be."""
        for batch in batches:
            self._held_count -= batch.count
            self._held_bytes -= batch.size
        self._progress.unpark_all()


def storage_failure(error: Exception, log: logging.Logger) -> CogmentError:
    """Return the error that those are told whose items could not be stored.

    A bug, or a storage that is foreign code, must not end the service of everybody: it is logged with its traceback.
    """
    if isinstance(error, CogmentError):
        return error
    log.exception("writes failed")
    return UnavailableError("the storage failed; the server's log has the details")
