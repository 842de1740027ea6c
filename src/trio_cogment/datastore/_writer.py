"""Group commit: what all streams write goes through one bounded queue, and to the storage in batches.

A commit costs the storage about the same whether it is for one sample or for hundreds. So it waits until there is
enough, or the first has waited long enough, or somebody cannot go on without it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping

import trio

from trio_cogment.config import DatastoreConfig
from trio_cogment.datastore.storage import SampleWrite, TrialStore, TrialWrite, Write
from trio_cogment.errors import CogmentError, NotFoundError, UnavailableError

_log = logging.getLogger(__name__)

#: What a write occupies beside its data, so that many small ones are counted too.
_OVERHEAD_BYTES = 256


class Lane:
    """The writes of one writer, in their order: `put` them, then wait until they are durable.

    Once one has failed, none of those behind it that had not been tried are, and no more are taken: what is durable is
    always the beginning of what was put.

    Attributes:
        taken: how many were put.
        durable: how many of them are durable: the first so many.
        failure: why it takes no more.
        on_failure: called once, when there is one; must not raise or wait.
    """

    __slots__ = ("_max_writes", "_news", "_writer", "durable", "failure", "on_failure", "taken")

    def __init__(self, writer: Writer, max_writes: int) -> None:
        self._writer = writer
        self._max_writes = max_writes
        self._news = trio.lowlevel.ParkingLot()
        self.taken = 0
        self.durable = 0
        self.failure: CogmentError | None = None
        self.on_failure: Callable[[], None] | None = None

    @property
    def full(self) -> bool:
        """Whether it has as many writes under way as it may."""
        return self.taken - self.durable >= self._max_writes

    async def put(self, write: Write) -> None:
        """Queue a write; wait while the queue is full. After `Cancelled` it has not been taken.

        Raises:
            CogmentError: `failure`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.failure is None and not self._writer.has_room(self):
            await self._writer.wait_room(self)
        if self.failure is not None:
            raise self.failure
        self.taken += 1
        self._writer.add(self, write)

    async def flush(self) -> None:
        """Return when all that was put is durable, without waiting for company.

        Raises:
            CogmentError: `failure`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        wanted = self.taken
        while self.durable < wanted and self.failure is None:
            self._writer.hurry()
            await self._news.park()
        if self.failure is not None:
            raise self.failure

    async def progress(self, known: int) -> int:
        """Wait until more than `known` writes are durable; return how many are.

        Raises:
            CogmentError: `failure`, when nothing but that is new.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self.durable <= known:
            if self.failure is not None:
                raise self.failure
            await self._news.park()
        return self.durable

    def settle(self, count: int) -> None:
        """Learn that `count` more are durable; called by the writer."""
        self.durable += count
        self._news.unpark_all()

    def fail(self, error: CogmentError) -> None:
        """Learn that the next one is not, and why; called by the writer."""
        if self.failure is None:
            self.failure = error
            self._news.unpark_all()
            if self.on_failure is not None:
                self.on_failure()


class Writer:
    """The queue, and the one task that empties it.

    Args:
        store: where it all goes.
        config: when it goes, and how much may wait.
    """

    def __init__(self, store: TrialStore, config: DatastoreConfig) -> None:
        self._store = store
        self._config = config
        self._queue: deque[tuple[Lane, Write, int]] = deque()
        #: Of what is in the queue; `_held_` counts what is being committed, too.
        self._queued_bytes = 0
        self._held_bytes = 0
        self._held_writes = 0
        self._first_at = 0.0
        #: How many of those in the queue are waited for.
        self._hurried = 0
        self._work = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    def lane(self, max_writes: int | None = None) -> Lane:
        """Return a new lane.

        Args:
            max_writes: how many of its writes may be under way; None: `max_stream_writes`.
        """
        return Lane(self, self._config.max_stream_writes if max_writes is None else max_writes)

    async def write(self, *writes: Write) -> None:
        """Return when these are durable.

        Raises:
            CogmentError: why one of them, and those behind it, may not be.
        """
        lane = self.lane()
        for write in writes:
            await lane.put(write)
        await lane.flush()

    async def run(self) -> None:
        """Commit for ever. After `Cancelled` what was in the queue is not written, and nobody was told that it was."""
        while True:
            while not self._queue:
                await self._work.park()
            await self._wait_due()
            batch, size = self._take()
            if batch:
                await self._commit(batch)
            self._held_bytes -= size
            self._held_writes -= len(batch)
            self._room.unpark_all()

    async def drain(self) -> None:
        """Return when nothing is queued or being committed."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._held_writes:
            self.hurry()
            await self._room.park()

    # For lanes

    def has_room(self, lane: Lane) -> bool:
        """Whether a write may be added now: one of any size, if there is no other."""
        config = self._config
        return (
            self._held_writes < config.max_pending_writes
            and self._held_bytes < config.max_pending_bytes
            and not lane.full
        )

    async def wait_room(self, lane: Lane) -> None:
        """Return when there is room, or the lane has failed."""
        while lane.failure is None and not self.has_room(lane):
            self.hurry()
            await self._room.park()

    def add(self, lane: Lane, write: Write) -> None:
        """Queue a write."""
        size = _OVERHEAD_BYTES
        if type(write) is SampleWrite:
            size += len(write.data)
        elif type(write) is TrialWrite:
            size += write.params.ByteSize()
        queue = self._queue
        queue.append((lane, write, size))
        self._held_writes += 1
        self._held_bytes += size
        self._queued_bytes += size
        if len(queue) == 1:
            self._first_at = trio.current_time()
            self._work.unpark()
        elif self._enough:
            self._work.unpark()

    def hurry(self) -> None:
        """Have what is queued committed without waiting for more."""
        self._hurried = len(self._queue)
        if self._hurried:
            self._work.unpark()

    # The task

    @property
    def _enough(self) -> bool:
        config = self._config
        return len(self._queue) >= config.commit_samples or self._queued_bytes >= config.commit_bytes

    async def _wait_due(self) -> None:
        with trio.move_on_at(self._first_at + self._config.commit_delay_seconds):
            while not (self._hurried or self._enough):
                await self._work.park()

    def _take(self) -> tuple[list[tuple[Lane, Write]], int]:
        """Take what is committed together off the queue, and its size; what stands behind a failure is dropped."""
        config, queue = self._config, self._queue
        batch: list[tuple[Lane, Write]] = []
        total = 0
        while queue and len(batch) < config.commit_samples and total < config.commit_bytes:
            lane, write, size = queue.popleft()
            self._queued_bytes -= size
            self._hurried = max(0, self._hurried - 1)
            if lane.failure is not None:
                self._held_bytes -= size
                self._held_writes -= 1
                continue
            batch.append((lane, write))
            total += size
        if queue:
            # What is left came while others were waited for; how long ago is not known so exactly.
            self._first_at = trio.current_time()
        return batch, total

    async def _commit(self, batch: list[tuple[Lane, Write]]) -> None:
        try:
            refused = await self._store.apply([write for _, write in batch])
        except CogmentError as error:
            _log.warning("%d writes failed: %s", len(batch), error)
            failure = error
        except Exception:  # noqa: BLE001  a storage may be anybody's code, and there will be other writes
            _log.exception("%d writes failed", len(batch))
            failure = UnavailableError("the storage failed; the server's log has the details")
        else:
            self._settle(batch, refused)
            return
        for lane in dict.fromkeys(lane for lane, _ in batch):
            lane.fail(failure)

    def _settle(self, batch: list[tuple[Lane, Write]], refused: Mapping[int, str]) -> None:
        counts: dict[Lane, int] = {}
        failed: dict[Lane, str] = {}
        for index, (lane, _) in enumerate(batch):
            if index in refused:
                failed.setdefault(lane, refused[index])
            if lane not in failed:
                counts[lane] = counts.get(lane, 0) + 1
        for lane, count in counts.items():
            lane.settle(count)
        for lane, reason in failed.items():
            lane.fail(NotFoundError(reason))
