"""A trial within one batch, for storages that keep its samples in chunks: the rules of writes, without I/O.

Nearly every sample follows all others, and is only added: nothing is read for it. For any other one the chunks are
read that may have its tick, and those that it changes are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from trio_cogment.base.errors import DataLossError, InvalidArgumentError
from trio_cogment.servers.datastore._chunk_layouts import Cut, Parts
from trio_cogment.servers.datastore._merging import begin_waiting, merge_late
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER, RULES, Action, Found, Head, refusal
from trio_cogment.servers.datastore.storage import SampleWrite, WriteKind


class Row(NamedTuple):
    """A sample of a trial."""

    position: int
    tick_id: int
    timestamp: int
    #: It is an out-of-sync sample that waits for the one of its tick.
    waiting: bool
    data: bytes
    #: Where the parts of `data` are, if that is known.
    cut: Cut | Parts | None = None


_make_row = partial(tuple.__new__, Row)

#: Returns the chunks with a tick from the first to the last of these, by their positions.
Load = Callable[[int, int], Iterable[tuple[int, Sequence[Row]]]]


class TrialEdit:
    """The samples of a trial as a batch changes them.

    Args:
        head: of the trial; it follows what is written.
        top_tick: the highest tick of all samples; `NO_TICK` without one.
        next_position: of the next sample.
        load: reads chunks.

    Attributes:
        head: see above.
        top_tick: see above.
        next_position: see above.
        changed: the positions of the chunks that were read and are not any more what they were.
    """

    __slots__ = ("_added", "_load", "_loaded", "_where", "changed", "head", "next_position", "top_tick")

    def __init__(self, head: Head, top_tick: int, next_position: int, load: Load) -> None:
        self.head = head
        self.top_tick = top_tick
        self.next_position = next_position
        self.changed: set[int] = set()
        self._load = load
        #: New samples by their ticks, in the order of their positions, as in each chunk.
        self._added: dict[int, Row] = {}
        self._loaded: dict[int, dict[int, Row]] = {}
        self._where: dict[int, int] = {}

    def write(self, write: SampleWrite) -> str | None:
        """Do what the rules say; return why a sample was refused."""
        _, tick_id, timestamp, state, data, kind, cut, _ = write
        if self.top_tick < tick_id <= MAX_NUMBER and 0 <= timestamp <= MAX_NUMBER and kind is not WriteKind.LATE:
            # The usual case is inline: it decides how fast writing is.
            position = self.next_position
            self._added[tick_id] = _make_row((position, tick_id, timestamp, False, data, cut))
            self.next_position = position + 1
            self.top_tick = tick_id
            self.head.raw_bytes += len(data)
            self.head.grow(tick_id, state)
            return None
        reason = refusal(write)
        if reason is None:
            try:
                self._write_by_rules(write)
            except (InvalidArgumentError, DataLossError) as error:
                return str(error)
        return reason

    @property
    def added(self) -> list[Row]:
        """The new samples, in the order of their positions."""
        return list(self._added.values())

    def chunk(self, position: int) -> list[Row]:
        """Return the samples of a chunk that was read, as they are now; none: it is to be removed."""
        return list(self._loaded[position].values())

    def _write_by_rules(self, write: SampleWrite) -> None:
        tick_id = write.tick_id
        row = self._find(tick_id)
        found = Found.NOTHING if row is None else Found.of(row.waiting, row.timestamp == write.timestamp)
        action = RULES[write.kind, found]
        if action is Action.KEEP:
            pass
        elif action is Action.WAIT:
            self._add(Row(self.next_position, tick_id, write.timestamp, True, begin_waiting(write.data)))
        elif action is Action.MERGE and row is not None:
            self._replace(row._replace(data=merge_late(row.data, write.data), cut=None))
        else:
            data, cut = write.data, write.cut
            if action is Action.COMPLETE and row is not None:
                data, cut = merge_late(data, row.data), None
            if action is Action.RERUN:
                self._remove_from(tick_id)
            elif row is not None:
                self._remove(tick_id)
            self._add(Row(self.next_position, tick_id, write.timestamp, False, data, cut))
        self.head.follow(write, action)

    def _find(self, tick_id: int) -> Row | None:
        if tick_id > self.top_tick:
            return None
        row = self._row(tick_id)
        if row is None:
            self._read(tick_id, tick_id)
            row = self._row(tick_id)
        return row

    def _row(self, tick_id: int) -> Row | None:
        row = self._added.get(tick_id)
        if row is None and tick_id in self._where:
            row = self._loaded[self._where[tick_id]][tick_id]
        return row

    def _read(self, first: int, last: int) -> None:
        for position, rows in self._load(first, last):
            if position not in self._loaded:
                self._loaded[position] = {row.tick_id: row for row in rows}
                self._where.update((row.tick_id, position) for row in rows)

    def _add(self, row: Row) -> None:
        self._added[row.tick_id] = row
        self.next_position = row.position + 1
        self.head.raw_bytes += len(row.data)
        self.top_tick = max(self.top_tick, row.tick_id)

    def _replace(self, row: Row) -> None:
        chunk = self._added
        if row.tick_id not in chunk:
            position = self._where[row.tick_id]
            chunk = self._loaded[position]
            self.changed.add(position)
        self.head.raw_bytes += len(row.data) - len(chunk[row.tick_id].data)
        chunk[row.tick_id] = row

    def _remove(self, tick_id: int) -> None:
        gone = self._added.pop(tick_id, None)
        if gone is None:
            position = self._where.pop(tick_id)
            gone = self._loaded[position].pop(tick_id)
            self.changed.add(position)
        self.head.raw_bytes -= len(gone.data)
        self.head.count -= 1

    def _remove_from(self, tick_id: int) -> None:
        self._read(tick_id, MAX_NUMBER)
        for tick in [tick for ticks in (self._added, self._where) for tick in ticks if tick >= tick_id]:
            self._remove(tick)
        self.top_tick = tick_id


def in_chunks(rows: Sequence[Row], most_bytes: int) -> Iterator[Sequence[Row]]:
    """Yield rows in pieces whose ticks ascend, of at least one row and otherwise at most this many bytes of data."""
    first = size = 0
    for number, row in enumerate(rows):
        if number > first and (size + len(row.data) > most_bytes or row.tick_id < rows[number - 1].tick_id):
            yield rows[first:number]
            first, size = number, 0
        size += len(row.data)
    if first < len(rows):
        yield rows[first:]
