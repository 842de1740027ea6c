"""A trial within one batch, for storages that keep its samples in chunks: the rules of writes, without I/O.

Nearly every sample follows all others, and is only added: nothing is read for it. For any other one the chunks are
read that may have its tick, and those that it changes are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import lt
from typing import NamedTuple

from trio_cogment.base.errors import DataLossError, InvalidArgumentError
from trio_cogment.servers.datastore._chunk_layouts import SampleData, joined, size_of, sizes_of
from trio_cogment.servers.datastore._merging import begin_waiting, merge_late
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER, RULES, Action, Found, Head, refusal
from trio_cogment.servers.datastore.chunks import ChunkSample, NewSamples
from trio_cogment.servers.datastore.storage import SampleWrite, WriteKind


class Row(NamedTuple):
    """A sample of a trial, as it is encoded: as `ChunkSample`, and its parts may be all that there is of its data."""

    position: int
    tick_id: int
    timestamp: int
    data: SampleData


_make_row = partial(tuple.__new__, Row)

#: Returns the chunks with a tick from the first to the last of these: position, samples, ticks of those that wait.
Load = Callable[[int, int], Iterable[tuple[int, Sequence[ChunkSample], Sequence[int]]]]


def following(
    writes: Sequence[SampleWrite], attempt: int, top_tick: int, position: int
) -> tuple[NewSamples, int] | None:
    """Return samples of a trial as columns, and the last one's state, if nothing but adding them is to be done.

    Nearly all samples are written like this, so it decides how fast writing is: nothing is done for each of them.

    Args:
        writes: of one trial.
        attempt: of the trial.
        top_tick: the highest tick that it has.
        position: of the first one.

    Returns:
        None: they do not each follow the one before; each is to be written by the rules.
    """
    _, ticks, timestamps, states, data, kinds, attempts = zip(*writes, strict=True)
    if (
        top_tick < ticks[0]
        and ticks[-1] <= MAX_NUMBER
        and all(map(lt, ticks, ticks[1:]))
        and min(timestamps) >= 0
        and max(timestamps) <= MAX_NUMBER
        and WriteKind.LATE not in kinds
        and set(attempts) <= {0, attempt}
    ):
        return NewSamples(range(position, position + len(ticks)), ticks, timestamps, data), states[-1]
    return None


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

    __slots__ = (
        "_added", "_load", "_loaded", "_new", "_waiting", "_where", "changed", "head", "next_position", "top_tick",
    )  # fmt: skip

    def __init__(self, head: Head, top_tick: int, next_position: int, load: Load) -> None:
        self.head = head
        self.top_tick = top_tick
        self.next_position = next_position
        self.changed: set[int] = set()
        self._load = load
        #: New samples that were added together, and nothing else was written.
        self._new: NewSamples | None = None
        #: New samples by their ticks, in the order of their positions, as in each chunk.
        self._added: dict[int, Row] = {}
        self._loaded: dict[int, dict[int, Row]] = {}
        self._where: dict[int, int] = {}
        #: The ticks whose samples are out of sync, and wait for the one of their tick.
        self._waiting: set[int] = set()

    def write(self, write: SampleWrite) -> str | None:
        """Do what the rules say; return why a sample was refused."""
        if self._new is not None:
            self._spread()
        _, tick_id, timestamp, state, data, kind, _ = write
        if self.top_tick < tick_id <= MAX_NUMBER and 0 <= timestamp <= MAX_NUMBER and kind is not WriteKind.LATE:
            # The usual case is inline: it decides how fast writing is.
            position = self.next_position
            self._added[tick_id] = _make_row((position, tick_id, timestamp, data))
            self.next_position = position + 1
            self.top_tick = tick_id
            self.head.raw_bytes += size_of(data)
            self.head.grow(tick_id, state)
            return None
        reason = refusal(write)
        if reason is None:
            try:
                self._write_by_rules(write)
            except (InvalidArgumentError, DataLossError) as error:
                return str(error)
        return reason

    def extend(self, writes: Sequence[SampleWrite]) -> bool:
        """Do what `write` would with samples that each follow the one before; False: they do not, nothing was done."""
        found = following(writes, self.head.attempt, self.top_tick, self.next_position)
        if found is None:
            return False
        samples, state = found
        self._spread()
        self._new = samples
        if self._added:
            self._spread()
        self.next_position += len(writes)
        self.top_tick = samples.ticks[-1]
        self.head.raw_bytes += sum(sizes_of(samples.data))
        self.head.grow(self.top_tick, state, len(writes))
        return True

    def _spread(self) -> None:
        """Make rows of samples that were added together, because something else is written, too."""
        if self._new is not None:
            rows = map(_make_row, zip(*self._new, strict=True))
            self._added.update(zip(self._new.ticks, rows, strict=True))
            self._new = None

    @property
    def added(self) -> NewSamples:
        """The new samples, in the order of their positions."""
        return NewSamples.of(self._added.values()) if self._new is None else self._new

    def chunk(self, position: int) -> NewSamples:
        """Return the samples of a chunk that was read, as they are now; none: it is to be removed."""
        return NewSamples.of(self._loaded[position].values())

    def waiting(self, ticks: Iterable[int]) -> list[int]:
        """Return those of these ticks whose samples wait for the one of their tick."""
        return [tick for tick in ticks if tick in self._waiting] if self._waiting else []

    def _write_by_rules(self, write: SampleWrite) -> None:
        tick_id = write.tick_id
        held = self._find(tick_id)
        same = held is not None and held.timestamp == write.timestamp
        found = Found.NOTHING if held is None else Found.of(tick_id in self._waiting, same)
        action = RULES[write.kind, found]
        if action is Action.KEEP:
            pass
        elif action is Action.WAIT:
            self._add(Row(self.next_position, tick_id, write.timestamp, begin_waiting(joined(write.data))))
            self._waiting.add(tick_id)
        elif action is Action.MERGE and held is not None:
            self._replace(held._replace(data=merge_late(joined(held.data), joined(write.data))))
        else:
            data = write.data
            if action is Action.COMPLETE and held is not None:
                data = merge_late(joined(data), joined(held.data))
            if action is Action.RERUN:
                self._remove_from(tick_id)
            elif held is not None:
                self._remove(tick_id)
            self._add(Row(self.next_position, tick_id, write.timestamp, data))
        self.head.follow(write, action)

    def _find(self, tick_id: int) -> Row | None:
        if tick_id > self.top_tick:
            return None
        held = self._held(tick_id)
        if held is None:
            self._read(tick_id, tick_id)
            held = self._held(tick_id)
        return held

    def _held(self, tick_id: int) -> Row | None:
        held = self._added.get(tick_id)
        if held is None and tick_id in self._where:
            held = self._loaded[self._where[tick_id]][tick_id]
        return held

    def _read(self, first: int, last: int) -> None:
        for position, samples, waiting in self._load(first, last):
            if position not in self._loaded:
                self._loaded[position] = {one.tick_id: Row(*one) for one in samples}
                self._where.update((one.tick_id, position) for one in samples)
                self._waiting.update(waiting)

    def _add(self, one: Row) -> None:
        self._added[one.tick_id] = one
        self.next_position = one.position + 1
        self.head.raw_bytes += size_of(one.data)
        self.top_tick = max(self.top_tick, one.tick_id)

    def _replace(self, one: Row) -> None:
        chunk = self._added
        if one.tick_id not in chunk:
            position = self._where[one.tick_id]
            chunk = self._loaded[position]
            self.changed.add(position)
        self.head.raw_bytes += size_of(one.data) - size_of(chunk[one.tick_id].data)
        chunk[one.tick_id] = one

    def _remove(self, tick_id: int) -> None:
        self._waiting.discard(tick_id)
        gone = self._added.pop(tick_id, None)
        if gone is None:
            position = self._where.pop(tick_id)
            gone = self._loaded[position].pop(tick_id)
            self.changed.add(position)
        self.head.raw_bytes -= size_of(gone.data)
        self.head.count -= 1

    def _remove_from(self, tick_id: int) -> None:
        self._read(tick_id, MAX_NUMBER)
        for tick in [tick for ticks in (self._added, self._where) for tick in ticks if tick >= tick_id]:
            self._remove(tick)
        self.top_tick = tick_id
