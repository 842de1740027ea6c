"""Group commit of a datastore: the writes of all streams, with quotas, through a `CommitQueue`.

How long a write waits for others depends on how long a commit takes: on a fast disk, samples reach their readers
sooner. A stream whose write has failed takes no more; the others go on.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
)
from trio_cogment.base.group_commit import CommitBatch, CommitQueue, storage_failure
from trio_cogment.base.recount import Count
from trio_cogment.base.shared_message import SharedSample
from trio_cogment.servers.datastore._chunk_layouts import all_joined, size_of
from trio_cogment.servers.datastore._recurring_failure import RecurringFailure
from trio_cogment.servers.datastore._stored_bytes import Account, Accounts, Purse
from trio_cogment.servers.datastore.storage import (
    OutcomeWrite,
    ReplacedAttempt,
    SampleWrite,
    StoredTrial,
    TrialEnd,
    TrialStore,
    TrialWrite,
    Write,
    counted_bytes,
)

if TYPE_CHECKING:
    from trio_cogment.servers.datastore._conversion import TrialConverter

_log = logging.getLogger(__name__)

#: The first write of a batch waits for this many times the duration of the last commit: the storage is idle for most of
#: the time, as long as batches are not full. While somebody reads what comes, it is idle for half of the time.
_WAIT_FACTOR, _FOLLOWED_FACTOR = 2, 1
#: And at least so long: where commits take microseconds, one for each sample would cost more than the sample.
_LEAST_WAIT_SECONDS = 0.002
#: What comes while a commit is under way is in the next one, up to this many times `commit_samples`: the more there
#: are, the less each costs, and none waits for the others.
_MOST_TIMES = 4


class WriteStream:
    """The writes of one stream, in order: `put` them, then wait until they are durable.

    After a failure the writes behind the failed one are dropped, and no more are taken: the durable writes are always
    the first ones that were put.

    Attributes:
        max_writes: how many may be queued or being committed.
        purse: counts what is put against a quota; None: nobody does.
        taken: how many were put.
        durable: how many of these are durable.
        failure: why no more are taken.
        on_durable: called whenever more are durable; must not raise or wait.
        on_failure: called once, when there is a failure; must not raise or wait.
        converter: makes writes of the samples that are put as they came.
    """

    __slots__ = (
        "_settled", "_writer", "converter", "durable", "failure", "max_writes", "on_durable", "on_failure", "purse",
        "taken",
    )  # fmt: skip

    def __init__(self, writer: GroupCommit, max_writes: int, purse: Purse | None = None) -> None:
        self._writer = writer
        self.max_writes = max_writes
        self.purse = purse
        self._settled = trio.lowlevel.ParkingLot()
        self.taken = 0
        self.durable = 0
        self.failure: CogmentError | None = None
        self.on_durable: Callable[[], None] | None = None
        self.on_failure: Callable[[], None] | None = None
        self.converter: TrialConverter | None = None

    async def put(self, write: Write) -> None:
        """Queue a write; wait while the queue is full. After `Cancelled` it has not been taken.

        Raises:
            QuotaError: a quota is used up. The writes before are not affected.
            CogmentError: `failure`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.put_nowait(write):
            return
        size, added = 0 if self.purse is None else counted_bytes(write), False
        if self.purse is not None:
            await self.purse.take(size)
        try:
            await self._writer.wait_capacity(self)
            if self.failure is not None:
                raise self.failure
            self._writer.add(self, write)
            added = True
        finally:
            if self.purse is not None and not added:
                self.purse.give_back(size)

    @property
    def has_room(self) -> bool:
        """Whether `put_nowait` takes a write now: the queue is not full, and the stream has not failed."""
        return self.failure is None and self._writer.has_capacity(self)

    def put_nowait(self, write: Write | SharedSample) -> bool:
        """Queue a write if the queue is not full; False: it is full, a quota is used up, or the stream has failed.

        Args:
            write: which; or a sample of which `converter` is to make one, where nobody counts against a quota. If there
                can be none, the stream fails.
        """
        if self.failure is not None or not self._writer.has_capacity(self):
            return False
        if self.purse is not None and (
            isinstance(write, SharedSample) or not self.purse.take_nowait(counted_bytes(write))
        ):
            return False
        self._writer.add(self, write)
        return True

    async def flush(self) -> None:
        """Commit what was put without waiting for a batch to fill, and return when all of it is durable.

        Raises:
            CogmentError: `failure`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        wanted = self.taken
        while self.durable < wanted and self.failure is None:
            self._writer.expedite()
            await self._settled.park()
        if self.failure is not None:
            raise self.failure

    async def progress(self, known: int) -> int:
        """Wait until more than `known` writes are durable; return how many are.

        Raises:
            CogmentError: `failure`, if there are no more durable writes.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self.durable <= known:
            if self.failure is not None:
                raise self.failure
            await self._settled.park()
        return self.durable

    def settle(self, count: int) -> None:
        """Take note that `count` more are durable; called by the group commit."""
        self.durable += count
        self._settled.unpark_all()
        if self.on_durable is not None:
            self.on_durable()

    def fail(self, error: CogmentError) -> None:
        """Take note that the next write has failed, and why; called by the group commit."""
        if self.failure is None:
            self.failure = error
            self._settled.unpark_all()
            if self.on_failure is not None:
                self.on_failure()


@dataclass(slots=True)
class _Batch(CommitBatch):
    """Writes that are committed together, in order.

    Attributes:
        writes: what is given to the storage, once those are converted that are samples as they came.
        streams: the stream of each write.
        reserved: what of their size was reserved for which account.
    """

    writes: list[Any] = field(default_factory=list)
    streams: list[WriteStream] = field(default_factory=list)
    reserved: Counter[Account] = field(default_factory=Counter)


class GroupCommit(CommitQueue[_Batch]):
    """The queue of all write streams.

    Args:
        store: where batches are written.
        config: when a batch is committed, and how much may be queued.

    Attributes:
        accounts: what counts against quotas.
        stored_samples: how many samples were committed.
        refused_writes: how many writes there was no room for; those that are tried again count again.
    """

    def __init__(self, store: TrialStore, config: DatastoreConfig) -> None:
        super().__init__(
            _Batch(),
            max_count=config.max_pending_writes,
            max_bytes=config.max_pending_bytes,
            enough=config.commit_samples,
            full=_MOST_TIMES * config.commit_samples,
            full_bytes=config.commit_bytes,
        )
        self._store = store
        self._takes_parts = bool(getattr(store, "takes_parts", False))
        self.accounts = Accounts(store)
        self._config = config
        #: The duration of the last commit.
        self._commit_seconds = math.inf
        self._followers = 0
        self._failure = RecurringFailure(_log, "writes failed", "writes do not fail any more")
        self.stored_samples = 0
        self.refused_writes = 0

    def stream(self, max_writes: int | None = None, purse: Purse | None = None) -> WriteStream:
        """Return a new write stream.

        Args:
            max_writes: how many of its writes may be queued or being committed; None: `max_stream_writes`.
            purse: counts them against a quota; None: nobody does.
        """
        return WriteStream(self, self._config.max_stream_writes if max_writes is None else max_writes, purse)

    async def write(self, *writes: Write, purse: Purse | None = None) -> None:
        """Return when these are durable.

        Raises:
            CogmentError: one of them could not be stored; those behind it are not stored either.
        """
        stream = self.stream(purse=purse)
        for write in writes:
            await stream.put(write)
        await stream.flush()

    @contextmanager
    def followed(self, trials: Iterable[StoredTrial]) -> Iterator[None]:
        """Let writes wait less for others, for the time of the block, if somebody reads what is to come of trials."""
        following = any(trial.end == TrialEnd.OPEN for trial in trials)
        self._followers += following
        try:
            yield
        finally:
            self._followers -= following

    @property
    def queued(self) -> tuple[int, int]:
        """How many writes wait or are being committed, and their size."""
        return self._held_count, self._held_bytes

    # Called by streams

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        # Those that are being committed are in no batch of the queue, and are counted until they are durable.
        batches = [*self._full, self.batch]
        waiting = sum(batch.size for batch in batches), sum(len(batch.writes) for batch in batches)
        yield Count("bytes of writes", self._held_bytes, max(self._held_bytes, waiting[0]))
        yield Count("writes", self._held_count, max(self._held_count, waiting[1]))

    def has_capacity(self, stream: WriteStream) -> bool:
        """Whether a write of a stream may be added now."""
        return (  # as `has_room`, without its call: this is once per sample
            self._held_count < self._max_count
            and self._held_bytes < self._max_bytes
            and stream.taken - stream.durable < stream.max_writes
        )

    async def wait_capacity(self, stream: WriteStream) -> None:
        """Return when a write may be added, or the stream has failed."""
        while stream.failure is None and not self.has_capacity(stream):
            self.expedite()
            await self._progress.park()

    def add(self, stream: WriteStream, write: Write | SharedSample) -> None:
        """Queue a write, or a sample that is to become one."""
        size = 0
        if type(write) is SharedSample:
            size = write.size
        elif type(write) is SampleWrite:
            size = size_of(write[4])
        elif type(write) is TrialWrite:
            size = write.params.ByteSize()
        elif type(write) is OutcomeWrite:
            size = len(write.outcome)
        stream.taken += 1
        batch = self.batch
        batch.writes.append(write)
        batch.streams.append(stream)
        if stream.purse is not None and not isinstance(write, SharedSample):
            batch.reserved[stream.purse.account] += counted_bytes(write)
        self.count(size)

    # The task

    def _following(self, batch: _Batch) -> _Batch:
        return _Batch()

    def _delay_seconds(self) -> float:
        factor = _FOLLOWED_FACTOR if self._followers else _WAIT_FACTOR
        delay = max(_LEAST_WAIT_SECONDS, factor * self._commit_seconds)
        return min(delay, self._config.commit_delay_seconds)

    async def _idle(self) -> None:
        await self._failure.idle(self._work.park)

    async def _commit(self, batch: _Batch) -> None:
        await _convert(batch)
        counts = Counter(batch.streams)
        if any(stream.failure is not None for stream in counts):
            counts = _drop_failed(batch)
        if batch.writes:
            await self._store_batch(batch, counts)
        for account, size in batch.reserved.items():
            self.accounts.release(account, size)
        self._release(batch)

    async def _store_batch(self, batch: _Batch, counts: Mapping[WriteStream, int]) -> None:
        began = trio.current_time()
        try:
            refused = await self._apply(batch)
            self._commit_seconds = trio.current_time() - began
        except Exception as error:  # noqa: BLE001  a storage may be foreign code, and other writes follow
            if isinstance(error, ResourceExhaustedError) and len(batch.writes) > 1:
                await self._store_halves(batch)
                return
            self.refused_writes += isinstance(error, ResourceExhaustedError)
            failure = storage_failure(error, _log)
            if failure is error:
                self._failure.failed(error)
        else:
            self._failure.worked()
            done = list(map(type, batch.writes))
            self.stored_samples += done.count(SampleWrite) - sum(done[number] is SampleWrite for number in refused)
            _settle(batch, counts, refused)
            return
        for stream in counts:
            stream.fail(failure)

    async def _store_halves(self, batch: _Batch) -> None:
        """Commit in two steps what there is no room for in one: what fits is stored, whoever it is from."""
        half = len(batch.writes) // 2
        for part in (slice(half), slice(half, None)):
            less = _Batch(writes=batch.writes[part], streams=batch.streams[part], reserved=batch.reserved)
            counts = _drop_failed(less)
            if less.writes:
                await self._store_batch(less, counts)

    async def _apply(self, batch: _Batch) -> Mapping[int, str]:
        writes = batch.writes if self._takes_parts else _joined(batch.writes)
        if not batch.reserved:
            return await self._store.apply(writes)
        async with self.accounts.settling(batch.reserved):
            return await self._store.apply(writes)


async def _convert(batch: _Batch) -> None:
    """Make writes of the samples of a batch that are none yet; streams fail that have one of which there is none."""
    writes = batch.writes
    waiting = defaultdict[WriteStream, list[int]](list)
    for number, write in enumerate(writes):
        if type(write) is SharedSample:
            waiting[batch.streams[number]].append(number)
    for stream, numbers in waiting.items():
        samples = [writes[number] for number in numbers]
        converted: list[Write] = []
        try:
            while stream.failure is None and len(converted) < len(samples):
                assert stream.converter is not None
                converted += stream.converter.writes_of(samples, len(converted))
                if len(converted) < len(samples):
                    for made in stream.converter.writing_shared(samples[len(converted)]):
                        if made is None:  # a large sample: other tasks get a turn between its steps
                            await trio.lowlevel.checkpoint()
                        else:
                            converted.append(made)
        except Exception as error:  # noqa: BLE001  payloads are encoded here, by whoever has made them
            stream.fail(storage_failure(error, _log))  # its data log sends it again, and is told in its turn
        for number, done in zip(numbers, converted, strict=False):
            writes[number] = done


def _joined(writes: Sequence[Write]) -> list[Write]:
    data = iter(all_joined([write.data for write in writes if type(write) is SampleWrite]))
    return [write._replace(data=next(data)) if type(write) is SampleWrite else write for write in writes]


def _drop_failed(batch: _Batch) -> Counter[WriteStream]:
    """Drop the writes of failed streams; return how many are left of each stream."""
    left = [
        (write, stream) for write, stream in zip(batch.writes, batch.streams, strict=True) if stream.failure is None
    ]
    batch.writes = [write for write, _ in left]
    batch.streams = [stream for _, stream in left]
    return Counter(batch.streams)


def _settle(batch: _Batch, counts: Mapping[WriteStream, int], refused: Mapping[int, str]) -> None:
    """Tell each stream how many of its writes are durable: those before the first one that was refused."""
    failed: dict[WriteStream, CogmentError] = {}
    if refused:
        done = Counter[WriteStream]()
        for index, stream in enumerate(batch.streams):
            if index in refused:
                failed.setdefault(stream, _refusal_of(batch.writes[index], refused[index]))
            if stream not in failed:
                done[stream] += 1
        counts = done
    for stream, count in counts.items():
        stream.settle(count)
    for stream, error in failed.items():
        stream.fail(error)


def _refusal_of(write: Write, reason: str) -> CogmentError:
    if isinstance(reason, ReplacedAttempt):
        return FailedPreconditionError(reason)
    # Else nothing of a trial is refused but an id that is taken.
    return (AlreadyExistsError if type(write) is TrialWrite else NotFoundError)(reason)
