"""Trials in memory, up to a number of bytes. When they are too many, ended trials lose their samples."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from trio_cogment.base.recount import Count
from trio_cogment.servers.datastore._chunk_layouts import joined
from trio_cogment.servers.datastore._merging import begin_waiting, merge_late
from trio_cogment.servers.datastore._watching import StoreWatch, Watches
from trio_cogment.servers.datastore._write_rules import (
    NO_SUCH_TRIAL,
    NO_TICK,
    RULES,
    Action,
    Found,
    Head,
    absent,
    is_deleted,
    refusal,
    replaced,
    taken,
)
from trio_cogment.servers.datastore.storage import (
    ROW_BYTES,
    EndWrite,
    OutcomeWrite,
    SampleWrite,
    StoredSample,
    StoredTrial,
    TrialEnd,
    TrialWrite,
    Write,
    WriteKind,
    trial_bytes,
)

# A trial as the memory store keeps it, with a way back from half of a batch.

#: What Python needs for a sample beside its data, and for a trial beside its parameters; about.
SAMPLE_BYTES = 300
TRIAL_BYTES = 2000

_LATE = WriteKind.LATE  # looking it up takes longer than comparing

Undo = Callable[[], None]


class Row(NamedTuple):
    """A sample."""

    position: int
    tick_id: int
    timestamp: int
    waiting: bool
    data: bytes


class Evicted(NamedTuple):
    """What is remembered of samples that are gone."""

    ticks: int = 0
    high_tick: int = NO_TICK
    last_timestamp: int = 0
    last_position: int = 0


class MemoryTrial:
    """A trial and its samples.

    Attributes:
        head: what changes as samples come.
        evicted: what was taken away to make room.
        outcome: see `StoredTrial`.
        info_bytes: what it takes without samples.
        sample_bytes: what its samples take.
    """

    def __init__(self, number: int, write: TrialWrite) -> None:
        self.head = Head(number)
        self.trial_id = write.trial_id
        self.evicted = Evicted()
        self.outcome = b""
        self.owner = write.owner
        self.sample_bytes = 0
        self._next_position = 1
        self._rows: dict[int, Row] = {}
        self._by_tick: dict[int, int] = {}
        #: No sample of a later tick was ever here.
        self._highest_tick = NO_TICK
        #: Ascending; those of removed samples may still be in it.
        self._positions: list[int] = []
        self.describe(write)

    def describe(self, write: TrialWrite) -> None:
        """Take what a write says of the trial."""
        self.user_id, self.logged, self.endpoint = write.user_id, write.logged, write.endpoint
        self.head.describe(write)
        self.params = TrialParams()
        self.params.CopyFrom(write.params)
        # Twice: a parsed message takes more than a serialized one.
        self.info_bytes = TRIAL_BYTES + 2 * self.params.ByteSize() + len(self.trial_id) + len(self.user_id)
        self.info_bytes += len(self.outcome)

    def end_with(self, write: OutcomeWrite) -> None:
        """Take how the trial ended."""
        self.info_bytes += len(write.outcome) - len(self.outcome)
        self.outcome = write.outcome

    def stored(self) -> StoredTrial:
        """Return what readers get."""
        return StoredTrial(
            number=self.head.number,
            trial_id=self.trial_id,
            user_id=self.user_id,
            params=self.params,
            samples_count=self.head.count,
            last_state=self.head.last_state,
            end=self.head.end,
            logged=self.logged,
            evicted=self.evicted.ticks > 0,
            outcome=self.outcome,
            owner=self.owner,
            endpoint=self.endpoint,
            attempt=self.head.attempt,
            stored_bytes=self.counted_bytes,
            raw_bytes=self.sample_bytes - SAMPLE_BYTES * len(self._rows),
        )

    @property
    def counted_bytes(self) -> int:
        """What counts against its owner's quota."""
        samples = self.sample_bytes + (ROW_BYTES - SAMPLE_BYTES) * len(self._rows)
        return samples + trial_bytes(self.trial_id, self.user_id, self.params.ByteSize(), len(self.outcome))

    def has_properties(self, properties: Mapping[str, str]) -> bool:
        """Whether the trial has all of these, with equal values."""
        own = self.params.properties
        return all(name in own and own[name] == value for name, value in properties.items())

    def rows_after(self, position: int) -> Iterator[Row]:
        """Yield the samples with higher positions."""
        for index in range(bisect_right(self._positions, position), len(self._positions)):
            row = self._rows.get(self._positions[index])
            if row is not None:
                yield row

    def write(self, write: SampleWrite, undo: list[Undo]) -> None:
        """Do what the rules say; append to `undo` what takes it back, to be called in the reverse order.

        Raises:
            InvalidArgumentError: it cannot be merged; nothing was done.
        """
        tick_id = write.tick_id
        if tick_id > self._highest_tick and write.kind != _LATE:
            # Nearly every sample: it follows all others. `remember` takes it back.
            self._append(write, waiting=False, data=joined(write.data))
            self.head.grow(tick_id, write.state)
            return
        row = self._row(tick_id)
        action = self._action(write, row)
        if action is Action.COMPLETE and row is not None:
            data = merge_late(joined(write.data), row.data)
        elif action is Action.MERGE and row is not None:
            data = merge_late(row.data, joined(write.data))
        elif action is Action.WAIT:
            data = begin_waiting(joined(write.data))
        else:
            data = joined(write.data)
        if action is Action.MERGE and row is not None:
            self._set(row.position, row._replace(data=data), undo)
        elif action is Action.RERUN:
            self._remove_from(write.tick_id, undo)
        elif row is not None and action in (Action.COMPLETE, Action.REPLACE):
            self._set(row.position, None, undo)
            self.head.count -= 1
        if action not in (Action.MERGE, Action.KEEP):
            position = self._append(write, waiting=action is Action.WAIT, data=data)
            undo.append(lambda: self._set(position, None, None))  # before what it replaced is put back
        self.head.follow(write, action)

    def _append(self, write: SampleWrite, *, waiting: bool, data: bytes) -> int:
        position = self._next_position
        self._next_position += 1
        self._positions.append(position)
        self._rows[position] = Row(position, write.tick_id, write.timestamp, waiting, data)
        self._by_tick[write.tick_id] = position
        self._highest_tick = max(self._highest_tick, write.tick_id)
        self.sample_bytes += SAMPLE_BYTES + len(data)
        return position

    def evict(self) -> None:
        """Forget the samples, but not that they were there."""
        self.evicted = Evicted(
            ticks=self.head.count,
            high_tick=max(self.evicted.high_tick, *self._by_tick),
            last_timestamp=max(self.evicted.last_timestamp, *(row.timestamp for row in self._rows.values())),
            last_position=self._next_position - 1,
        )
        self._rows, self._by_tick, self._positions, self.sample_bytes = {}, {}, [], 0

    @property
    def has_samples(self) -> bool:
        """Whether there is something to evict."""
        return bool(self._rows)

    @property
    def open(self) -> bool:
        """Whether more samples are to come."""
        return self.head.end == TrialEnd.OPEN

    def remember(self) -> Undo:
        """Return what puts everything but the samples back as it is now."""
        head, evicted = replace(self.head), self.evicted
        said = self.user_id, self.logged, self.endpoint, self.params
        info_bytes, next_position, outcome = self.info_bytes, self._next_position, self.outcome

        def undo() -> None:
            self.head, self.evicted = head, evicted
            self.info_bytes, self._next_position, self.outcome = info_bytes, next_position, outcome
            self.user_id, self.logged, self.endpoint, self.params = said
            while self._positions and self._positions[-1] >= next_position:
                self._set(self._positions.pop(), None, None)

        return undo

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        counted = sum(SAMPLE_BYTES + len(row.data) for row in self._rows.values())
        yield Count("bytes of a trial's samples", self.sample_bytes, counted, None)
        yield Count("ticks of a trial", len(self._by_tick), len(self._rows), None)

    def tidy(self) -> None:
        """Forget the positions of removed samples, when they are many."""
        if len(self._positions) > 2 * len(self._rows) + 16:
            self._positions = sorted(self._rows)

    def _row(self, tick_id: int) -> Row | None:
        position = self._by_tick.get(tick_id)
        return None if position is None else self._rows[position]

    def _action(self, write: SampleWrite, row: Row | None) -> Action:
        if row is not None:
            found = Found.of(row.waiting, row.timestamp == write.timestamp)
        elif write.tick_id > self.evicted.high_tick or write.kind == WriteKind.STORED:
            found = Found.NOTHING
        elif write.kind == WriteKind.LATE:
            return Action.KEEP  # it belongs to what is gone
        else:
            # The timestamps of single samples are gone as well; a new run is later than all of the old one.
            found = Found.SAME if write.timestamp <= self.evicted.last_timestamp else Found.OTHER
        return RULES[write.kind, found]

    def _remove_from(self, tick_id: int, undo: list[Undo]) -> None:
        gone = [position for tick, position in self._by_tick.items() if tick >= tick_id]
        for position in gone:
            self._set(position, None, undo)
        self.head.count -= len(gone)
        if self.evicted.high_tick >= tick_id:
            # Which ticks there were is not known any more: at most one for each below.
            left = min(self.evicted.ticks, tick_id)
            self.head.count -= self.evicted.ticks - left
            kept = self.evicted._replace(ticks=left, high_tick=tick_id - 1)
            self.evicted = kept if left else Evicted()

    def _set(self, position: int, row: Row | None, undo: list[Undo] | None) -> None:
        """Put a sample at a position, or nothing; the position is in the list already."""
        before = self._rows.pop(position, None)
        if before is not None:
            del self._by_tick[before.tick_id]
            self.sample_bytes -= SAMPLE_BYTES + len(before.data)
        if row is not None:
            self._rows[position] = row
            self._by_tick[row.tick_id] = position
            self.sample_bytes += SAMPLE_BYTES + len(row.data)
        if undo is not None:
            undo.append(lambda: self._set(position, before, None))


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
        """Evict and forget trials until there is memory for this many bytes; return the ids of these trials.

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
            if trial is None:
                reason = absent(write)
            else:
                reason = taken(write, trial.head.end, trial.endpoint, trial.head.attempt)
            if reason is not None:
                return reason
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
        if (reason := replaced(write, trial.head.attempt)) is not None:
            return reason
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
