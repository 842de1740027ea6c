"""Trials in memory, up to a number of bytes. When they are too many, ended trials lose their samples."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from trio_cogment.base.errors import DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from trio_cogment.base.recount import Count
from trio_cogment.servers.datastore._memory_trial import MemoryTrial, Undo
from trio_cogment.servers.datastore._watching import StoreWatch, Watches
from trio_cogment.servers.datastore._write_rules import NO_SUCH_TRIAL, is_deleted, refusal
from trio_cogment.servers.datastore.storage import (
    EndWrite,
    OutcomeWrite,
    SampleWrite,
    StoredSample,
    StoredTrial,
    TrialWrite,
    Write,
)


class MemoryStore:
    """Implements `storage.TrialStore` for the time of the process.

    Samples of whole ended trials are evicted when there is no room, those of the trial first that was written, asked
    for or read longest ago; what is known of the trial beside them stays. Should that not be enough, ended trials are
    forgotten whole. A batch for which even then there is no room is refused. What a batch writes to is not evicted for
    its sake.

    Args:
        max_bytes: what trials and samples may take, with an estimate for what Python needs around them.

    Raises:
        InvalidArgumentError: `max_bytes` is below 1.
    """

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 1:
            raise InvalidArgumentError(f"max_bytes: expected 1 or more, got {max_bytes}")
        self._max_bytes = max_bytes
        self._bytes = 0
        self._last_number = 0
        self._by_id: dict[str, MemoryTrial] = {}
        #: Ascending; those of deleted trials may still be in it.
        self._numbers: list[int] = []
        #: By number, in the order of the last use.
        self._recent: dict[int, MemoryTrial] = {}
        #: Those that have one.
        self._by_owner: defaultdict[str, set[MemoryTrial]] = defaultdict(set)
        self._watches = Watches()

    @property
    def bytes(self) -> int:
        """What trials and samples take now."""
        return self._bytes

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        trials = self._by_id.values()
        yield Count("bytes of stored trials", self._bytes, sum(t.sample_bytes + t.info_bytes for t in trials), None)
        yield Count("stored trials", len(self._by_id), len(self._recent), None)
        owned = sum(map(len, self._by_owner.values()))
        yield Count("stored trials with an owner", owned, sum(bool(trial.owner) for trial in trials), None)

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        """See `TrialStore.apply`."""
        await trio.lowlevel.checkpoint()
        batch = _Batch(self._by_id, self._create)
        refused: dict[int, str] = {}
        for index, write in enumerate(writes):
            reason = batch.write(write)
            if reason is not None:
                refused[index] = reason
        growth = batch.growth()
        evicted = self._make_room(growth, batch.touched)
        if evicted is None:
            batch.undo()
            for trial in batch.created:
                self._take_out(trial)
            raise ResourceExhaustedError(
                f"the datastore's memory is full: {self._bytes} of {self._max_bytes} bytes, "
                f"{growth} more needed, and no ended trial left to make room"
            )
        self._bytes += growth
        for trial in batch.touched:
            self._touch(trial)
            trial.tidy()
        self._watches.notify({*(trial.trial_id for trial in batch.touched), *evicted}, trials=batch.trials)
        return refused

    async def trial(self, trial_id: str) -> StoredTrial | None:
        """See `TrialStore.trial`."""
        await trio.lowlevel.checkpoint()
        trial = self._by_id.get(trial_id)
        if trial is None:
            return None
        self._touch(trial)
        return trial.stored()

    async def trials(
        self, *, after: int, limit: int, ids: Collection[str] | None = None, properties: Mapping[str, str] | None = None
    ) -> list[StoredTrial]:
        """See `TrialStore.trials`."""
        await trio.lowlevel.checkpoint()
        found: list[StoredTrial] = []
        for trial in self._candidates(after, ids):
            if properties and not trial.has_properties(properties):
                continue
            found.append(trial.stored())
            if len(found) >= limit:
                break
        return found

    async def open_logged(self) -> list[str]:
        """See `TrialStore.open_logged`."""
        await trio.lowlevel.checkpoint()
        return [trial.trial_id for trial in self._by_id.values() if trial.logged and trial.open]

    async def stored_bytes(self, owner: str) -> int:
        """See `TrialStore.stored_bytes`."""
        await trio.lowlevel.checkpoint()
        return sum(trial.counted_bytes for trial in self._by_owner.get(owner, ()))

    async def samples(self, number: int, *, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
        """See `TrialStore.samples`."""
        await trio.lowlevel.checkpoint()
        trial = self._recent.get(number)
        if trial is None:
            raise NotFoundError(f"the trial with number {number} is not stored any more")
        self._touch(trial)
        if after < trial.evicted.last_position:
            raise DataLossError(f"the samples of trial {trial.trial_id!r} were evicted to make room")
        found: list[StoredSample] = []
        size = 0
        for row in trial.rows_after(after):
            found.append(StoredSample(row.position, row.tick_id, row.data))
            size += len(row.data)
            if len(found) >= limit or size >= max_bytes:
                break
        return found

    async def delete(
        self, trial_ids: Collection[str], *, numbers: Collection[int] | None = None, ended: bool = False
    ) -> list[str]:
        """See `TrialStore.delete`."""
        await trio.lowlevel.checkpoint()
        deleted = []
        for trial_id in dict.fromkeys(trial_ids):
            trial = self._by_id.get(trial_id)
            if trial is not None and is_deleted(trial.head.number, trial.head.end, numbers, ended=ended):
                self._forget(trial)
                deleted.append(trial_id)
        self._watches.notify(deleted, trials=bool(deleted))
        return deleted

    @asynccontextmanager
    async def watch(self, trial_id: str | None = None) -> AsyncIterator[StoreWatch]:
        """See `TrialStore.watch`."""
        with self._watches.open(trial_id) as watch:
            yield watch

    def _create(self, write: TrialWrite) -> MemoryTrial:
        self._last_number += 1
        trial = MemoryTrial(self._last_number, write)
        self._by_id[write.trial_id] = self._recent[self._last_number] = trial
        self._numbers.append(self._last_number)
        if trial.owner:
            self._by_owner[trial.owner].add(trial)
        return trial

    def _take_out(self, trial: MemoryTrial) -> None:
        del self._by_id[trial.trial_id], self._recent[trial.head.number]
        if trial.owner:
            self._by_owner[trial.owner].discard(trial)
            if not self._by_owner[trial.owner]:
                del self._by_owner[trial.owner]

    def _forget(self, trial: MemoryTrial) -> None:
        self._take_out(trial)
        self._bytes -= trial.sample_bytes + trial.info_bytes
        if len(self._numbers) > 2 * len(self._recent) + 16:
            self._numbers = sorted(self._recent)

    def _touch(self, trial: MemoryTrial) -> None:
        self._recent[trial.head.number] = self._recent.pop(trial.head.number)

    def _candidates(self, after: int, ids: Collection[str] | None) -> Iterator[MemoryTrial]:
        if ids is not None:
            chosen = (self._by_id[trial_id] for trial_id in set(ids) if trial_id in self._by_id)
            ordered = sorted(chosen, key=lambda trial: trial.head.number)
            yield from (trial for trial in ordered if trial.head.number > after)
            return
        for index in range(bisect_right(self._numbers, after), len(self._numbers)):
            trial = self._recent.get(self._numbers[index])
            if trial is not None:
                yield trial

    def _make_room(self, growth: int, spared: Collection[MemoryTrial]) -> list[str] | None:
        """Evict and forget trials until there is memory for so many bytes; return the ids of these trials.

        None: it is not enough, and no trial was changed.
        """
        missing = self._bytes + growth - self._max_bytes
        evicted: list[MemoryTrial] = []
        forgotten: list[MemoryTrial] = []
        if missing > 0:
            ended = [trial for trial in self._recent.values() if not trial.open and trial not in spared]
            for trial in ended:
                if missing > 0 and trial.has_samples:
                    evicted.append(trial)
                    missing -= trial.sample_bytes
            for trial in ended:
                if missing > 0:
                    forgotten.append(trial)
                    missing -= trial.info_bytes
        if missing > 0 and growth > 0:
            return None
        for trial in evicted:
            self._bytes -= trial.sample_bytes
            trial.evict()
        for trial in forgotten:
            self._forget(trial)
        return [trial.trial_id for trial in (*evicted, *forgotten)]


class _Batch:
    """A batch being applied, which can be taken back.

    Attributes:
        touched: the trials it wrote to.
        created: those of them that were not there before.
        trials: whether watchers of all trials have to know.
    """

    def __init__(self, by_id: dict[str, MemoryTrial], create: Callable[[TrialWrite], MemoryTrial]) -> None:
        self._by_id = by_id
        self._create = create
        self._undo: list[Undo] = []
        self._bytes_before: dict[MemoryTrial, int] = {}
        self.created: list[MemoryTrial] = []
        self.trials = False

    @property
    def touched(self) -> Collection[MemoryTrial]:
        return self._bytes_before.keys()

    def growth(self) -> int:
        """Return how many bytes more there are than before."""
        return sum(trial.sample_bytes + trial.info_bytes - before for trial, before in self._bytes_before.items())

    def write(self, write: Write) -> str | None:
        """Do one write; return why it was refused."""
        trial = self._by_id.get(write.trial_id)
        if isinstance(write, TrialWrite):
            self.trials = True
            if trial is None:
                trial = self._create(write)
                self.created.append(trial)
                self._bytes_before[trial] = 0
            else:
                self._touch(trial)
                trial.describe(write)
            return None
        reason = refusal(write) if isinstance(write, SampleWrite) else None
        if reason is not None:
            return reason
        if trial is None:
            return NO_SUCH_TRIAL.format(write.trial_id)
        self._touch(trial)
        end = trial.head.end
        if isinstance(write, EndWrite):
            trial.head.finish(write)
        elif isinstance(write, OutcomeWrite):
            trial.end_with(write)
            self.trials = True
        else:
            try:
                trial.write(write, self._undo)
            except InvalidArgumentError as error:
                return str(error)
        self.trials |= trial.head.end != end
        return None

    def undo(self) -> None:
        """Take everything back but the creation of trials."""
        for step in reversed(self._undo):
            step()

    def _touch(self, trial: MemoryTrial) -> None:
        if trial not in self._bytes_before:
            self._bytes_before[trial] = trial.sample_bytes + trial.info_bytes
            self._undo.append(trial.remember())
