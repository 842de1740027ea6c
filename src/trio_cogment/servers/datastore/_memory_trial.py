"""A trial as the memory store keeps it, with a way back from half of a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.recount import Count
from trio_cogment.servers.datastore._merging import begin_waiting, merge_late
from trio_cogment.servers.datastore._write_rules import NO_TICK, RULES, Action, Found, Head
from trio_cogment.servers.datastore.storage import (
    ROW_BYTES,
    OutcomeWrite,
    SampleWrite,
    StoredTrial,
    TrialEnd,
    TrialWrite,
    WriteKind,
    trial_bytes,
)

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
        self.user_id, self.logged = write.user_id, write.logged
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
            self._append(write, waiting=False, data=write.data)
            self.head.grow(tick_id, write.state)
            return
        row = self._row(tick_id)
        action = self._action(write, row)
        if action is Action.COMPLETE and row is not None:
            data = merge_late(write.data, row.data)
        elif action is Action.MERGE and row is not None:
            data = merge_late(row.data, write.data)
        elif action is Action.WAIT:
            data = begin_waiting(write.data)
        else:
            data = write.data
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
        head, evicted, said = replace(self.head), self.evicted, (self.user_id, self.logged, self.params)
        info_bytes, next_position, outcome = self.info_bytes, self._next_position, self.outcome

        def undo() -> None:
            self.head, self.evicted = head, evicted
            self.info_bytes, self._next_position, self.outcome = info_bytes, next_position, outcome
            self.user_id, self.logged, self.params = said
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
