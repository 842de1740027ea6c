"""Columns of stored samples: runs of samples that look alike, as arrays, without an object for each of them.

`pages` reads a trial. Of a chunk the arrays are its columns. Where the storage has no chunks a run is made of
serialized samples of equal length: put together, their bytes are a table with a row for each. Its first row tells the
layout (`_chunk_layouts`), and so which columns of bytes are tick, timestamp, rewards and payloads; all others have to
be the same in every row. Needs NumPy.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.shared_message import varint
from trio_cogment.servers.datastore._chunk_layouts import Layout, Layouts, tick_field
from trio_cogment.servers.datastore._sqlite import SqliteStore
from trio_cogment.servers.datastore._sqlite_reader import StoredPart
from trio_cogment.servers.datastore.chunks import Chunk, OpenChunk, VaryingValues
from trio_cogment.servers.datastore.storage import StoredSample, StoredTrial, TrialStore

#: So many samples, or about so many bytes, are read at a time.
_PAGE_SAMPLES = 4096
_PAGE_BYTES = 4 * 1024 * 1024
#: Fewer samples in a row are not worth it.
LEAST_RUN = 16

_CONTINUES = 0x80


@dataclass(slots=True)
class Run:
    """Samples of a trial, one after the other, that look alike.

    Attributes:
        start: where the run begins among the given samples.
        stop: where it ends.
        sample: what all of them have; tick, timestamp and rewards are 0, payloads empty. None: these samples have too
            little in common, and there are no arrays.
        ticks: of each sample.
        timestamps: of each sample, in nanoseconds since the epoch.
        rewards: of each reward, see `chunks.GroupColumns`, the 32-bit floats.
        payloads: of each payload of `sample`, an array of bytes of shape (samples, length).
        layout: what `sample` is made of.
    """

    start: int
    stop: int
    sample: StoredTrialSample | None
    ticks: Any
    timestamps: Any
    rewards: Mapping[tuple[int, str, int, str], Any]
    payloads: Sequence[Any]
    layout: Layout | None = None

    def skip_first(self) -> None:
        """Leave out its first sample."""
        self.start += 1
        self.ticks, self.timestamps = self.ticks[1:], self.timestamps[1:]
        self.rewards = {name: column[1:] for name, column in self.rewards.items()}
        self.payloads = [payload[1:] for payload in self.payloads]


class SamplesPage:
    """Samples of a trial, one after the other."""

    def __init__(self, samples: Sequence[StoredSample]) -> None:
        self._samples = samples

    def runs(self) -> Iterator[Run]:
        """Yield the runs of its samples, in order; together they are all of them."""
        return runs(self._samples)

    def data(self, start: int, stop: int) -> list[bytes]:
        """Return some samples, serialized."""
        return [sample.data for sample in self._samples[start:stop]]


class ChunkPage:
    """The samples of a chunk behind a position.

    Args:
        chunk: which.
        trial_id: its trial, for the text of an error.
        after: the position.

    Raises:
        DataLossError: it is damaged.
    """

    def __init__(self, chunk: Chunk, trial_id: str, after: int) -> None:
        self._opened = OpenChunk(chunk, trial_id)
        self._first = self._opened.index(after)

    def runs(self) -> Iterator[Run]:
        """See `SamplesPage.runs`."""
        import numpy as np

        found = self._opened.columns(least=LEAST_RUN)
        stretches = []
        for group in found.groups:
            if group.layout is None:
                continue
            differs = group.rows[1:] - group.rows[:-1] != 1
            for payload in group.payloads:
                if isinstance(payload, VaryingValues):
                    differs |= np.diff(payload.offsets, 2) != 0
            ends = np.flatnonzero(differs) + 1 if differs.any() else differs[:0]
            stretches += [
                (int(group.rows[begin]), begin, int(end), group)
                for begin, end in zip([0, *ends.tolist()], [*ends.tolist(), len(group.rows)], strict=True)
            ]
        plain = self._first
        for start, begin, end, group in sorted(stretches, key=itemgetter(0)):
            skipped = max(0, self._first - start)
            at, stop = start + skipped, start + end - begin
            if stop - at < LEAST_RUN:
                continue
            if plain < at:
                yield _without(plain - self._first, at - self._first)
            yield Run(
                at - self._first,
                stop - self._first,
                group.sample,
                found.ticks[at:stop],
                found.timestamps[at:stop],
                {name: column[begin + skipped : end] for name, column in group.rewards.items()},
                [_rows_of(payload, begin + skipped, end) for payload in group.payloads],
                group.layout,
            )
            plain = stop
        if plain < self._opened.samples_count:
            yield _without(plain - self._first, self._opened.samples_count - self._first)

    def data(self, start: int, stop: int) -> list[bytes]:
        """See `SamplesPage.data`."""
        return self._opened.data(self._first + start, self._first + stop)


def _rows_of(payload: Any, begin: int, end: int) -> Any:
    if not isinstance(payload, VaryingValues):
        return payload[begin:end]
    first, last = payload.offsets[begin], payload.offsets[end]
    return payload.data[first:last].reshape(end - begin, (last - first) // (end - begin))


Page: TypeAlias = SamplesPage | ChunkPage


class TrialPages(NamedTuple):
    """The next samples of a trial.

    Attributes:
        place: of the trial among those that are read.
        opened: decodes them: that may take some milliseconds, and raises DataLossError for what is damaged.
        last: there are no more of this trial.
    """

    place: int
    opened: Callable[[], list[Page]]
    last: bool


async def pages(store: TrialStore, trials: Sequence[StoredTrial]) -> AsyncGenerator[list[TrialPages], None]:
    """Yield the next samples of trials that have ended, one trial after the other: several short ones at a time."""
    place = after = 0
    while place < len(trials):
        found: list[tuple[list[StoredPart], bool]]
        if isinstance(store, SqliteStore):
            numbers = [trial.number for trial in trials[place:]]
            found = await store.parts(numbers, after=after, max_bytes=_PAGE_BYTES)
        else:
            page = await store.samples(trials[place].number, after=after, limit=_PAGE_SAMPLES, max_bytes=_PAGE_BYTES)
            more = len(page) == _PAGE_SAMPLES or sum([len(sample.data) for sample in page]) >= _PAGE_BYTES
            found = [([page], more)]
        yield [
            TrialPages(at, partial(_opened, parts, trials[at].trial_id), not more)
            for at, (parts, more) in enumerate(found, place)
        ]
        place += len(found)
        parts, more = found[-1]
        if not more:
            after = 0
            continue
        place -= 1
        if len(found) > 1:
            after = 0
        if parts and parts[-1]:
            last = parts[-1]
            after = last[-1].position if isinstance(last, list) else last[0].last_position


def _opened(parts: Sequence[StoredPart], trial_id: str) -> list[Page]:
    return [SamplesPage(part) if isinstance(part, list) else ChunkPage(part[0], trial_id, part[1]) for part in parts]


def runs(samples: Sequence[StoredSample]) -> Iterator[Run]:
    """Yield the runs of samples of one trial, in order; together they are all of the samples."""
    last: Run | None = None
    for run in _runs(samples):
        if last is not None and (joined := _joined(last, run)) is not None:
            last = joined
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _joined(one: Run, other: Run) -> Run | None:
    """Return two neighbouring runs as one; None: they differ in more than the length of their ticks."""
    import numpy as np

    if one.layout is None or other.layout is None or one.layout.key != other.layout.key:
        return None
    if any(a.shape[1] != b.shape[1] for a, b in zip(one.payloads, other.payloads, strict=True)):
        return None
    return Run(
        one.start,
        other.stop,
        one.sample,
        np.concatenate([one.ticks, other.ticks]),
        np.concatenate([one.timestamps, other.timestamps]),
        {name: np.concatenate([column, other.rewards[name]]) for name, column in one.rewards.items()},
        [np.concatenate(pair) for pair in zip(one.payloads, other.payloads, strict=True)],
        one.layout,
    )


def _runs(samples: Sequence[StoredSample]) -> Iterator[Run]:
    layouts = Layouts()
    begin = plain = 0
    while begin < len(samples):
        length, end = len(samples[begin].data), begin + 1
        while end < len(samples) and len(samples[end].data) == length:
            end += 1
        while end - begin >= LEAST_RUN:
            run = _run(layouts, samples, begin, end)
            if run is None:
                break
            if plain < begin:
                yield _without(plain, begin)
            yield run
            begin = plain = run.stop
        # The first one looks like none behind it.
        begin = end if end - begin < LEAST_RUN else begin + 1
    if plain < len(samples):
        yield _without(plain, len(samples))


def _without(start: int, stop: int) -> Run:
    return Run(start, stop, None, None, None, {}, ())


def _run(layouts: Layouts, samples: Sequence[StoredSample], begin: int, end: int) -> Run | None:
    """Return the run that begins with a sample, if it is long enough; those up to `end` are equally long."""
    import numpy as np

    first = samples[begin]
    try:
        timestamp = StoredTrialSample.FromString(first.data).timestamp
    except DecodeError:
        return None
    split = layouts.split(first.tick_id, timestamp, first.data)
    if split is None:
        return None
    layout = split.layout
    table = np.frombuffer(b"".join([sample.data for sample in samples[begin:end]]), np.uint8)
    table = table.reshape(end - begin, len(first.data))
    places = _places(layout, first.tick_id, [len(payload) for payload in split.values[layout.floats :]])
    same = np.ones(table.shape[1], bool)
    for place in (*places.floats, *places.payloads, places.timestamp, places.tick):
        same[place] = False
    alike = (table[:, same] == table[0, same]).all(axis=1)
    alike &= ((table[:, places.tick] & _CONTINUES) == (table[0, places.tick] & _CONTINUES)).all(axis=1)
    count = len(table) if alike.all() else int(alike.argmin())
    if count < LEAST_RUN:
        return None
    table = table[:count]

    def numbers(place: slice, kind: str) -> Any:
        return np.ascontiguousarray(table[:, place]).view(kind)[:, 0]

    stamped = places.timestamp.stop > places.timestamp.start
    return Run(
        begin,
        begin + count,
        layout.sample(),
        np.fromiter((sample.tick_id for sample in samples[begin : begin + count]), np.int64, count),
        numbers(places.timestamp, "<i8") if stamped else np.zeros(count, np.int64),
        {name: numbers(place, "<f4") for name, place in zip(layout.rewards(), places.floats, strict=True)},
        [table[:, place] for place in places.payloads],
        layout,
    )


@dataclass(slots=True)
class _Places:
    tick: slice
    timestamp: slice
    floats: list[slice]
    payloads: list[slice]


def _places(layout: Layout, tick_id: int, lengths: Sequence[int]) -> _Places:
    """Return where in a sample of a layout that is which differs."""
    at = len(layout.before)
    end = at + len(tick_field(tick_id))
    tick, at = slice(at, end), end
    timestamp, floats, payloads = slice(0, 0), [], []
    for name, piece in zip((*layout.names, ""), layout.same, strict=True):
        at += len(piece)
        if name == "timestamp":
            timestamp = slice(at, at + 8)
            at += 8
        elif name:
            floats.append(slice(at, at + 4))
            at += 4
    for length in lengths:
        at += 1 + len(varint(length))
        payloads.append(slice(at, at + length))
        at += length
    return _Places(tick, timestamp, floats, payloads)
