"""Group commit: what all streams write goes through one bounded queue, and to the storage in batches.

A commit costs the storage about the same whether it is for one sample or for hundreds. So it waits until there is
enough, or the first has waited long enough, or somebody cannot go on without it. How long is enough depends on how long
a commit takes: where that is quick, those who follow need not wait for it long.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping

import trio

from trio_cogment.config import DatastoreConfig
from trio_cogment.datastore.storage import SampleWrite, TrialStore, TrialWrite, Write
from trio_cogment.errors import CogmentError, NotFoundError, UnavailableError

_log = logging.getLogger(__name__)

#: What a write occupies beside its data, so that many small ones are counted too.
_OVERHEAD_BYTES = 256
#: The first of a batch waits for so many times as long as the last commit took, so that the storage is left alone for
#: most of the time, as long as no batch is full.
_WAIT_FACTOR = 2


class Lane:
    """The writes of one writer, in their order: `put` them, then wait until they are durable.

    Once one has failed, none of those behind it that had not been tried are, and no more are taken: what is durable is
    always the beginning of what was put.

    Attributes:
        max_writes: how many may be under way.
        taken: how many were put.
        durable: how many of them are durable: the first so many.
        failure: why it takes no more.
        on_failure: called once, when there is one; must not raise or wait.
    """

    __slots__ = ("_news", "_writer", "durable", "failure", "max_writes", "on_failure", "taken")

    def __init__(self, writer: Writer, max_writes: int) -> None:
        self._writer = writer
        self.max_writes = max_writes
        self._news = trio.lowlevel.ParkingLot()
        self.taken = 0
        self.durable = 0
        self.failure: CogmentError | None = None
        self.on_failure: Callable[[], None] | None = None

    async def put(self, write: Write) -> None:
        """Queue a write; wait while the queue is full. After `Cancelled` it has not been taken.

        Raises:
            CogmentError: `failure`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.put_nowait(write):
            await self._writer.wait_room(self)
            if self.failure is not None:
                raise self.failure
            self._writer.add(self, write)

    def put_nowait(self, write: Write) -> bool:
        """Queue a write if there is room for it; False: there is none, or there was a failure."""
        if self.failure is not None or not self._writer.has_room(self):
            return False
        self._writer.add(self, write)
        return True

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


class _Batch:
    """What is committed together, in its order.

    Attributes:
        writes: what is given to the storage.
        lanes: whose they are, one for one.
        bytes: their size.
        full: nothing is added any more.
        hurried: somebody waits for one of them.
        since: when the first came.
    """

    __slots__ = ("bytes", "full", "hurried", "lanes", "since", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.lanes: list[Lane] = []
        self.bytes = 0
        self.full = False
        self.hurried = False
        self.since = trio.current_time()


class Writer:
    """The queue, and the one task that empties it.

    Args:
        store: where it all goes.
        config: when it goes, and how much may wait.
    """

    def __init__(self, store: TrialStore, config: DatastoreConfig) -> None:
        self._store = store
        self._config = config
        # Names of their own, for they are read for every sample.
        self._max_writes, self._max_bytes = config.max_pending_writes, config.max_pending_bytes
        self._batch_writes, self._batch_bytes = config.commit_samples, config.commit_bytes
        #: All but the last are full.
        self._queue: deque[_Batch] = deque()
        #: What is in the queue or being committed.
        self._held_bytes = 0
        self._held_writes = 0
        #: How long the last commit took.
        self._commit_seconds = math.inf
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
            await self._wait_due(self._queue[0])
            batch = self._queue.popleft()
            held_bytes, held_writes = batch.bytes, len(batch.writes)
            counts = Counter(batch.lanes)
            if any(lane.failure is not None for lane in counts):
                counts = _drop_failed(batch)
            if batch.writes:
                await self._commit(batch, counts)
            self._held_bytes -= held_bytes
            self._held_writes -= held_writes
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
        return (
            self._held_writes < self._max_writes
            and self._held_bytes < self._max_bytes
            and lane.taken - lane.durable < lane.max_writes
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
        lane.taken += 1
        self._held_writes += 1
        self._held_bytes += size
        queue = self._queue
        if queue and not queue[-1].full:
            batch = queue[-1]
        else:
            batch = _Batch()
            queue.append(batch)
            self._work.unpark()
        batch.writes.append(write)
        batch.lanes.append(lane)
        batch.bytes += size
        if len(batch.writes) >= self._batch_writes or batch.bytes >= self._batch_bytes:
            batch.full = True
            self._work.unpark()

    def hurry(self) -> None:
        """Have what is queued committed without waiting for more."""
        if self._queue:
            self._queue[-1].hurried = True
            self._work.unpark()

    # The task

    async def _wait_due(self, batch: _Batch) -> None:
        delay = min(self._config.commit_delay_seconds, _WAIT_FACTOR * self._commit_seconds)
        with trio.move_on_at(batch.since + delay):
            while not (batch.hurried or batch.full):
                await self._work.park()

    async def _commit(self, batch: _Batch, counts: Mapping[Lane, int]) -> None:
        began = trio.current_time()
        try:
            refused = await self._store.apply(batch.writes)
            self._commit_seconds = trio.current_time() - began
        except CogmentError as error:
            _log.warning("%d writes failed: %s", len(batch.writes), error)
            failure = error
        except Exception:  # noqa: BLE001  a storage may be anybody's code, and there will be other writes
            _log.exception("%d writes failed", len(batch.writes))
            failure = UnavailableError("the storage failed; the server's log has the details")
        else:
            _settle(batch, counts, refused)
            return
        for lane in counts:
            lane.fail(failure)


def _drop_failed(batch: _Batch) -> Counter[Lane]:
    """Drop what stands behind a failure; return how many are left of each lane."""
    left = [(write, lane) for write, lane in zip(batch.writes, batch.lanes, strict=True) if lane.failure is None]
    batch.writes = [write for write, _ in left]
    batch.lanes = [lane for _, lane in left]
    return Counter(batch.lanes)


def _settle(batch: _Batch, counts: Mapping[Lane, int], refused: Mapping[int, str]) -> None:
    """Tell lanes what has become of their writes: those before the first that was refused are durable."""
    failed: dict[Lane, str] = {}
    if refused:
        done = Counter[Lane]()
        for index, lane in enumerate(batch.lanes):
            if index in refused:
                failed.setdefault(lane, refused[index])
            if lane not in failed:
                done[lane] += 1
        counts = done
    for lane, count in counts.items():
        lane.settle(count)
    for lane, reason in failed.items():
        lane.fail(NotFoundError(reason))
