"""Chunks: samples of one trial stored as one row, in columns where they have one layout; made, read, merged. Pure.

Use from a store, in the order of the life of a chunk:

- `ChunkCodec(level).encode(samples)` makes a `Chunk` of `ChunkSample` (position, tick, timestamp, data). A codec knows
  the layouts it has met, and belongs to one thread at a time.
- A `Chunk` is what a row or a message carries: which positions and ticks it spans, how many samples, how its bytes are
  encoded and how many they are decoded, how many bytes the samples had, a checksum of all of that, and the bytes.
- `decode(chunk, trial_id, after=..., limit=...)` gives the samples back, bit for bit: `[ChunkSample, ...]`.
- `ChunkCodec.merge(chunks, trial_id)` makes one chunk of several, in their order, column by column.
- `columns(chunk, trial_id)` gives arrays (it needs NumPy) without an object for each sample: see `Columns`.

Whatever is damaged, in the bytes or in what is said of them, is a `DataLossError` that names the trial and the ticks.

**How the bytes are made.** A serialized `StoredTrialSample` begins with who and which trial, then tick, timestamp,
state, and what each actor did, then come payloads, and what is rare. From tick to tick only a few of these bytes
differ: tick, timestamp, rewards, and the payloads. A `Layout` is all that does not differ. A chunk has each of its
layouts once, the numbers of all samples, and for each layout a column for each reward and each payload of its samples:
the values one after the other, with the length of each where they are not equally long. Samples which have no layout,
or one that no other sample has, are one column of whole samples. A column of short values of equal length is kept byte
by byte (all first bytes, then all second ones), because numbers are compressed better like that. What environments have
saved of themselves comes last, with the places of the samples that have it, which look like their neighbours otherwise.

All of it is compressed with zstd, unless it does not become smaller. zstd's own readers say nothing of a frame that
lacks its end, and a chunk may be damaged where zstd does not look. So a chunk has its size and a checksum of its own,
over all that is stored, and both are looked at before anything is made of it.
"""

from __future__ import annotations

import struct
import sys
import threading
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, compress, groupby, islice, repeat
from operator import attrgetter, ge, itemgetter, lt, sub
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

from typing_extensions import override

from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import DataLossError
from trio_cogment.servers.datastore._chunk_layouts import (
    Cut,
    Layout,
    Layouts,
    Parts,
    SampleData,
    all_parts,
    joined,
    payload_head,
    sizes_of,
    tick_field,
    tick_fields,
)
from trio_cogment.servers.datastore.storage import ROW_BYTES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: zstd's fastest usual level: a microsecond a kilobyte.
DEFAULT_LEVEL = 1
#: The highest level; it takes a hundred times as long.
MOST_LEVEL = 22
#: `Chunk.encoding`: the bytes as they are, or as one frame of zstd.
PLAIN, ZSTD = 0, 1

#: The first byte of a chunk's decoded bytes: without checkpoints, and with them.
_VERSION, _WITH_CHECKPOINTS = 1, 2
#: Layouts of a chunk; samples of others are stored whole.
_MAX_LAYOUTS = 32
#: Columns of values this long are kept byte by byte, if there are as many values.
_LEAST_PLANES, _MOST_PLANES = 2, 128
_LEAST_PLANED = 16
#: Fewer samples are put together one by one.
_FEW = 24
#: Fewer bytes are not compressed: the frame alone would take as much.
_LEAST_COMPRESSED = 64
#: No chunk is larger decoded; a larger size is damage, and is not allocated.
_MAX_SIZE = 1 << 31
_WORD = 1 << 64

_HEAD = struct.Struct("<BBIII")
_RUN = struct.Struct("<QI")
_META = struct.Struct("<QQQQQQQQ")
_COLUMN = struct.Struct("<BII")
_SIZE = struct.Struct("<I")
_VARYING, _FIXED, _PLANES = 0, 1, 2


class ChunkSample(NamedTuple):
    """A sample as it goes into a chunk and comes out of it.

    Attributes:
        position: its place in the order of arrival; ascending in a chunk.
        tick_id: of the sample.
        timestamp: nanoseconds since the epoch.
        data: a serialized `StoredTrialSample`, or any other bytes.
    """

    position: int
    tick_id: int
    timestamp: int
    data: bytes


#: The same as it is encoded, where its parts are enough, which are trusted.
NewSample: TypeAlias = tuple[int, int, int, SampleData]


class NewSamples(NamedTuple):
    """Samples of one trial as they are encoded, in columns that are equally long; see `ChunkSample`."""

    positions: Sequence[int]
    ticks: Sequence[int]
    timestamps: Sequence[int]
    data: Sequence[SampleData]

    @classmethod
    def of(cls, samples: Iterable[NewSample]) -> NewSamples:
        """Return the columns of samples."""
        return cls(*zip(*samples, strict=True)) if samples else cls((), (), (), ())

    def in_chunks(self, most_bytes: int, most_samples: int) -> Iterator[NewSamples]:
        """Yield them in pieces whose ticks ascend, of one sample at least.

        Args:
            most_bytes: of the data of a piece.
            most_samples: of a piece.
        """
        positions, ticks, timestamps, data = self
        if not ticks:
            return
        sizes = sizes_of(data)
        if len(ticks) <= most_samples and sum(sizes) <= most_bytes and all(map(lt, ticks, islice(ticks, 1, None))):
            yield self
            return
        ends, first, size = list[int](), 0, 0
        for number, length in enumerate(sizes):
            if number > first and (
                size + length > most_bytes or number - first >= most_samples or ticks[number] < ticks[number - 1]
            ):
                ends.append(number)
                first, size = number, 0
            size += length
        for start, end in zip((0, *ends), (*ends, len(ticks)), strict=True):
            yield NewSamples(positions[start:end], ticks[start:end], timestamps[start:end], data[start:end])


class Chunk(NamedTuple):
    """Samples of one trial, encoded.

    Attributes:
        first_position: of the first sample.
        last_position: of the last one.
        first_tick: of the first sample; where ticks ascend, the lowest.
        last_tick: of the last one.
        samples_count: how many samples.
        encoding: `PLAIN` or `ZSTD`.
        size: of the decoded bytes.
        raw_bytes: what the samples had as serialized messages, together.
        checksum: of all of these and `data`.
        data: the encoded bytes.
    """

    first_position: int
    last_position: int
    first_tick: int
    last_tick: int
    samples_count: int
    encoding: int
    size: int
    raw_bytes: int
    checksum: int
    data: bytes


def counted_chunk(samples_count: int, raw_bytes: int, size: int) -> int:
    """Return what a chunk counts against its owner's quota: what it takes, and never more than its samples alone."""
    return min(ROW_BYTES + size, samples_count * ROW_BYTES + raw_bytes)


# Columns, and what a chunk has decoded


class _Column:
    """Values one after the other.

    Attributes:
        width: of each; -1: they differ.
        lengths: of each, if they differ.
        data: has all of them; by planes if `planed`: the first bytes of all values, then the second ones.
        begin: where they begin in `data`: what was read stays where it is.
        size: how many bytes they are.
        planed: see `data`.
    """

    __slots__ = ("begin", "data", "lengths", "planed", "size", "width")

    def __init__(
        self,
        width: int,
        lengths: array[int],
        data: bytes,
        *,
        begin: int = 0,
        size: int | None = None,
        planed: bool = False,
    ) -> None:
        self.width, self.lengths, self.data, self.begin, self.planed = width, lengths, data, begin, planed
        self.size = len(data) if size is None else size

    @classmethod
    def of(cls, values: bytes | Sequence[bytes], count: int) -> _Column:
        """Return a column of some values, which may be one after the other already."""
        if isinstance(values, bytes):
            return cls(len(values) // count, _NO_LENGTHS, values)
        lengths = array("I", map(len, values))
        data = b"".join(values)
        if lengths.count(lengths[0]) == count:
            return cls(lengths[0], _NO_LENGTHS, data)
        return cls(-1, lengths, data)

    @classmethod
    def joined(cls, columns: Sequence[_Column], counts: Sequence[int]) -> _Column:
        widths = {column.width for column in columns}
        if len(widths) == 1 and -1 not in widths:
            width = columns[0].width
            if any(column.planed for column in columns):
                planes = [
                    column.plane(number, 0, count, count)
                    for number in range(width)
                    for column, count in zip(columns, counts, strict=True)
                ]
                return cls(width, _NO_LENGTHS, b"".join(planes), planed=True)
            return cls(width, _NO_LENGTHS, b"".join([column.all() for column in columns]))
        lengths = array("I")
        for column, count in zip(columns, counts, strict=True):
            lengths.extend(column.lengths if column.width < 0 else array("I", [column.width]) * count)
        return cls(-1, lengths, b"".join([column.rows(count) for column, count in zip(columns, counts, strict=True)]))

    def all(self) -> bytes:
        """Return all values as they are in `data`."""
        return self.data if self.size == len(self.data) else self.data[self.begin : self.begin + self.size]

    def plane(self, number: int, start: int, stop: int, count: int) -> bytes:
        """Return one byte of each of some values, which are equally long; `count` is that of all values."""
        data, begin, width = self.data, self.begin, self.width
        if self.planed:
            return data[begin + number * count + start : begin + number * count + stop]
        return data[begin + start * width + number : begin + stop * width : width]

    def value(self, index: int, count: int) -> bytes:
        """Return one of the values; `count` is that of all."""
        data, begin, width = self.data, self.begin, self.width
        if self.planed:
            return data[begin + index : begin + self.size : count]
        if width < 0:
            begin += sum(islice(self.lengths, index))
            return data[begin : begin + self.lengths[index]]
        return data[begin + index * width : begin + (index + 1) * width]

    def rows(self, count: int) -> bytes:
        """Return all values, one after the other."""
        if not self.planed:
            return self.all()
        whole = bytearray(self.size)
        for number in range(self.width):
            whole[number :: self.width] = self.plane(number, 0, count, count)
        return bytes(whole)

    def values(self, start: int, stop: int) -> list[bytes]:
        """Return some of the values, which are not kept by planes."""
        data, begin, width = self.data, self.begin, self.width
        if width >= 0:
            return _cut_evenly(data, width, begin + start * width, stop - start)
        begin += sum(islice(self.lengths, start))
        ends = list(accumulate(islice(self.lengths, start, stop), initial=begin))
        return list(map(data.__getitem__, map(slice, ends, ends[1:])))

    def write(self, count: int, into: list[bytes]) -> None:
        width = self.width
        if width < 0:
            into += _COLUMN.pack(_VARYING, 0, self.size), _little(self.lengths).tobytes(), self.all()
        elif self.planed:
            into += _COLUMN.pack(_PLANES, width, self.size), self.all()
        elif _in_planes(width, count):
            into.append(_COLUMN.pack(_PLANES, width, self.size))
            data, begin, end = self.data, self.begin, self.begin + self.size
            into += [data[at:end:width] for at in range(begin, begin + width)]
        else:
            into += _COLUMN.pack(_FIXED, width, self.size), self.all()


_NO_LENGTHS = array("I")


def _in_planes(width: int, count: int) -> bool:
    return _LEAST_PLANES <= width <= _MOST_PLANES and count >= _LEAST_PLANED


def _cut_evenly(data: bytes, width: int, begin: int, count: int) -> list[bytes]:
    if not width:
        return [b""] * count
    return [data[at : at + width] for at in range(begin, begin + count * width, width)]


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder != "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


@dataclass(slots=True)
class _Group:
    """The samples of a chunk with one layout; None: samples as they are, in one column."""

    layout: Layout | None
    count: int
    columns: list[_Column]

    def payloads(self) -> list[list[bytes]]:
        """Return the values of each payload; nothing for samples as they are."""
        if self.layout is None:
            return []
        count, columns = self.count, self.columns[self.layout.floats :]
        return [
            column.values(0, count) if column.width < 0 else _cut_evenly(column.rows(count), column.width, 0, count)
            for column in columns
        ]


@dataclass(slots=True)
class _Body:
    """What a chunk has, decoded.

    Attributes:
        positions: of the samples.
        ticks: of the samples.
        timestamps: of the samples.
        groups: by layout.
        which: for each sample, the number of its group; empty: there is one group.
        checkpoints: the field that follows some of the samples in a group with a layout, by their places in the chunk.
    """

    positions: list[range]
    ticks: list[range]
    timestamps: Sequence[int]
    groups: list[_Group]
    which: bytes
    checkpoints: Mapping[int, bytes] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        count, checkpoints = len(self.timestamps), self.checkpoints
        version = _WITH_CHECKPOINTS if checkpoints else _VERSION
        parts = [_HEAD.pack(version, len(self.groups), count, len(self.positions), len(self.ticks))]
        parts += [_RUN.pack(run.start, len(run)) for run in chain(self.positions, self.ticks)]
        stamps = self.timestamps
        deltas = list(map(sub, stamps, chain((0,), stamps)))
        try:
            packed = struct.pack(f"<{count}q", *deltas)
        except struct.error:  # the same words, of what differs by more than has room beside a sign
            packed = struct.pack(f"<{count}Q", *(delta % _WORD for delta in deltas))
        _Column(8, _NO_LENGTHS, packed).write(count, parts)
        if len(self.groups) > 1:
            parts.append(self.which)
        for group in self.groups:
            key = b"" if group.layout is None else group.layout.key
            parts += _SIZE.pack(group.count), _SIZE.pack(len(group.columns)), _SIZE.pack(len(key)), key
            for column in group.columns:
                column.write(group.count, parts)
        if checkpoints:
            parts += _SIZE.pack(len(checkpoints)), _little(array("I", checkpoints)).tobytes()
            _Column.of([*checkpoints.values()], len(checkpoints)).write(len(checkpoints), parts)
        return b"".join(parts)


class _Reader:
    """Reads what `_Body.to_bytes` writes; what is not there is a ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def skip(self, size: int) -> int:
        """Pass over some bytes; return where they begin."""
        if size > len(self._data) - self._at:
            raise ValueError("it ends too early")
        self._at += size
        return self._at - size

    def take(self, size: int) -> bytes:
        begin = self.skip(size)
        return self._data[begin : begin + size]

    def size(self) -> int:
        return int(_SIZE.unpack(self.take(_SIZE.size))[0])

    def runs(self, number: int, count: int) -> list[range]:
        found = [range(start, start + length) for start, length in _RUN.iter_unpack(self.take(number * _RUN.size))]
        if sum(map(len, found)) != count:
            raise ValueError("runs of another length")
        return found

    def column(self, count: int) -> _Column:
        kind, width, size = _COLUMN.unpack(self.take(_COLUMN.size))
        if kind == _VARYING:
            lengths = array("I", self.take(4 * count))
            lengths = _little(lengths)
            if sum(lengths) != size:
                raise ValueError("values of another length")
            return _Column(-1, lengths, self._data, begin=self.skip(size), size=size)
        if kind not in (_FIXED, _PLANES) or width * count != size:
            raise ValueError("a column of another length")
        return _Column(width, _NO_LENGTHS, self._data, begin=self.skip(size), size=size, planed=kind == _PLANES)

    def checkpoints(self, count: int) -> dict[int, bytes]:
        some = self.size()
        places = _little(array("I", self.take(4 * some)))
        if not some or places[-1] >= count or any(map(ge, places, places[1:])):
            raise ValueError("checkpoints of other samples")
        column = self.column(some)
        values = _cut_evenly(column.rows(some), column.width, 0, some) if column.width >= 0 else column.values(0, some)
        return dict(zip(places, values, strict=True))

    def body(self) -> _Body:
        version, groups, count, positions, ticks = _HEAD.unpack(self.take(_HEAD.size))
        if version not in (_VERSION, _WITH_CHECKPOINTS):
            raise ValueError(f"it is of version {version}")
        body = _Body(self.runs(positions, count), self.runs(ticks, count), (), [], b"")
        stamps = self.column(count)
        if stamps.width != 8:
            raise ValueError("timestamps of another length")
        body.timestamps = _Stamps(stamps, count)
        if groups > 1:
            body.which = self.take(count)
        for number in range(groups):
            of, columns, key = self.size(), self.size(), self.size()
            layout = Layout.of_key(self.take(key)) if key else None
            wanted = 1 if layout is None else layout.floats + layout.payloads
            if columns != wanted or of != (body.which.count(number) if groups > 1 else count):
                raise ValueError("a group of another size")
            group = _Group(layout, of, [self.column(of) for _ in range(columns)])
            if layout is not None and any(column.width != 4 for column in group.columns[: layout.floats]):
                raise ValueError("a reward of another length")
            body.groups.append(group)
        if version == _WITH_CHECKPOINTS:
            body.checkpoints = self.checkpoints(count)
        if self._at != len(self._data):
            raise ValueError("there is more than there should be")
        return body


class _Stamps(Sequence[int]):
    """The timestamps of a chunk that was read: numbers are made of them when they are asked for; arrays need none.

    Args:
        deltas: the differences from each to the next, as words of 8 bytes.
        count: how many there are.
    """

    def __init__(self, deltas: _Column, count: int) -> None:
        self._deltas = deltas
        self._count = count
        self._numbers: list[int] | None = None
        self._array: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> list[int]: ...

    @override
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if self._array is not None and isinstance(place, slice):
            found: list[int] = self._array[place].view("u8").tolist()
            return found
        return self._all()[place]

    @override
    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def array(self) -> npt.NDArray[np.int64]:
        """Return all as an array."""
        if self._array is None:
            import numpy as np

            # In words: what is too much for one is left out.
            self._array = np.cumsum(_words(_payloads(self._deltas, self._count), "<i8"))
        return self._array

    def _all(self) -> list[int]:
        if self._numbers is None:
            count = self._count
            # Whether the differences have a sign or not is the same to the words that they add up to.
            numbers = list(accumulate(struct.unpack(f"<{count}q", self._deltas.rows(count))))
            if count and (min(numbers) < 0 or max(numbers) >= _WORD):
                numbers = [stamp % _WORD for stamp in numbers]
            self._numbers = numbers
        return self._numbers


def _runs(numbers: Sequence[int]) -> list[range]:
    """Return numbers as ranges of ascending ones, as few as there can be."""
    if isinstance(numbers, range):
        return [numbers]
    first, count = numbers[0], len(numbers)
    whole = range(first, first + count)
    if numbers[-1] == whole[-1] and list(numbers) == list(whole):
        return [whole]
    return _joined_runs([range(number, number + 1) for number in numbers])


def _joined_runs(runs: Iterable[range]) -> list[range]:
    found: list[range] = []
    for run in runs:
        if found and found[-1].stop == run.start:
            found[-1] = range(found[-1].start, run.stop)
        else:
            found.append(run)
    return found


class _Gathered:
    """The samples of a layout, as they come: many at a time in columns, or one by one."""

    def __init__(self, layout: Layout | None) -> None:
        self._layout = layout
        self._pieces: list[tuple[int, list[_Column]]] = []
        self._alone: list[tuple[bytes, ...]] = []

    def add_one(self, values: tuple[bytes, ...]) -> None:
        self._alone.append(values)

    def add(self, count: int, columns: list[_Column]) -> None:
        self._gather()
        self._pieces.append((count, columns))

    def _gather(self) -> None:
        if self._alone:
            count = len(self._alone)
            self._pieces.append((count, [_Column.of(column, count) for column in zip(*self._alone, strict=True)]))
            self._alone = []

    def group(self) -> _Group:
        self._gather()
        counts = [count for count, _ in self._pieces]
        if len(counts) == 1:
            return _Group(self._layout, counts[0], self._pieces[0][1])
        each = zip(*(columns for _, columns in self._pieces), strict=True)
        return _Group(self._layout, sum(counts), [_Column.joined(columns, counts) for columns in each])


class _Builder:
    """Sorts samples by their layouts."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._numbers: dict[bytes, int] = {}
        self._found: list[_Gathered] = []
        #: Samples whose columns are made together with those of the same layout that come later, by its number: the
        #: samples between them may be of others.
        self._waiting: dict[int, tuple[Cut | Layout, list[Parts]]] = {}
        self.which = bytearray()
        self.checkpoints: dict[int, bytes] = {}

    def add(self, samples: NewSamples) -> None:
        _, ticks, timestamps, data = samples
        forms = list(map(_form_of, data)) if all_parts(data) else [_form_in(each) for each in data]
        start = 0
        for form, group in _runs_of(forms):
            end = start + group
            if form is None or not self._has_room(form.layout):
                for number in range(start, end):
                    self._add_one(ticks[number], timestamps[number], data[number])
            else:
                self._add_alike(form, self._number(form.layout), data[start:end])
            start = end
        for number in list(self._waiting):
            self._gather(number)

    def _add_alike(self, form: Cut | Layout, number: int, data: Sequence[Any]) -> None:
        self._keep_checkpoints(data)
        self.which += bytes((number,)) * len(data)
        waiting = self._waiting.get(number)
        if waiting is not None and waiting[0] is form:
            waiting[1].extend(data)
        else:
            self._gather(number)
            self._waiting[number] = form, list(data)

    def _keep_checkpoints(self, data: Sequence[Parts]) -> None:
        checkpoints = list(map(_checkpoint_of, data))
        if any(checkpoints):
            begin = len(self.which)
            self.checkpoints.update((begin + at, each) for at, each in enumerate(checkpoints) if each)

    def _gather(self, number: int) -> None:
        """Make columns of the samples that wait for more of their layout, before others of it are added."""
        form, parts = self._waiting.pop(number, (None, []))
        if form is not None:
            self._found[number].add(len(parts), [_Column.of(column, len(parts)) for column in form.columns(parts)])

    def _has_room(self, layout: Layout) -> bool:
        return layout.key in self._numbers or len(self._found) < _MAX_LAYOUTS

    def _add_one(self, tick_id: int, timestamp: int, given: SampleData) -> None:
        data = joined(given)
        found = self._layouts.split(tick_id, timestamp, data)
        if found is None or not self._has_room(found.layout):
            number = self._number(None)
            self._found[number].add_one((data,))
        else:
            number = self._number(found.layout)
            self._gather(number)
            self._found[number].add_one(found.values)
        self.which.append(number)

    def _number(self, layout: Layout | None) -> int:
        key = b"" if layout is None else layout.key
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._found)
            self._found.append(_Gathered(layout))
        return number

    def groups(self) -> list[_Group]:
        return [found.group() for found in self._found]


_form_of, _checkpoint_of = itemgetter(0), itemgetter(5)


def _runs_of(forms: Sequence[Cut | Layout | None]) -> Iterator[tuple[Cut | Layout | None, int]]:
    """Yield what is the same several times in a row, and how often."""
    if forms.count(forms[0]) == len(forms):
        yield forms[0], len(forms)
        return
    for form, group in groupby(forms):
        yield form, len(list(group))


def _form_in(data: SampleData) -> Cut | Layout | None:
    """Return what samples have in common whose parts can be taken together."""
    return data.form if isinstance(data, Parts) else None


_make_sample = partial(tuple.__new__, ChunkSample)


class ChunkCodec:
    """Encodes and merges chunks. One thread at a time may use it.

    Args:
        level: of zstd's compression, 1 (fastest) to 22; 0: nothing is compressed.
    """

    def __init__(self, level: int = DEFAULT_LEVEL) -> None:
        self._level = level
        self._layouts = Layouts()

    def encode(self, samples: Sequence[NewSample] | NewSamples) -> Chunk:
        """Return a chunk of samples, one at least, whose positions ascend."""
        columns = samples if isinstance(samples, NewSamples) else NewSamples.of(samples)
        builder = _Builder(self._layouts)
        builder.add(columns)
        positions, ticks, timestamps, data = columns
        which, checkpoints = bytes(builder.which), builder.checkpoints
        body = _Body(_runs(positions), _runs(ticks), timestamps, builder.groups(), which, checkpoints)
        return self._chunk(body, sum(sizes_of(data)))

    def merge(self, chunks: Sequence[Chunk], trial_id: str) -> Chunk:
        """Return one chunk with the samples of several of the trial, in their order.

        Raises:
            DataLossError: one of them is damaged.
        """
        bodies = [_body(chunk, trial_id) for chunk in chunks]
        numbers: dict[bytes, int] = {}
        found: list[list[_Group]] = []
        which = bytearray()
        checkpoints: dict[int, bytes] = {}
        for body in bodies:
            checkpoints.update((len(which) + at, each) for at, each in body.checkpoints.items())
            renumbered = bytearray(256)
            for old, group in enumerate(body.groups):
                key = b"" if group.layout is None else group.layout.key
                if key not in numbers and len(found) >= _MAX_LAYOUTS:
                    return self._merge_whole(chunks, trial_id)
                number = numbers.setdefault(key, len(found))
                if number == len(found):
                    found.append([])
                found[number].append(group)
                renumbered[old] = number
            which += (body.which or bytes(len(body.timestamps))).translate(renumbered)
        groups = [
            _Group(
                some[0].layout,
                sum(group.count for group in some),
                [
                    _Column.joined(columns, [group.count for group in some])
                    for columns in zip(*(group.columns for group in some), strict=True)
                ],
            )
            for some in found
        ]
        merged = _Body(
            _joined_runs(chain.from_iterable(body.positions for body in bodies)),
            _joined_runs(chain.from_iterable(body.ticks for body in bodies)),
            list(chain.from_iterable(body.timestamps for body in bodies)),
            groups,
            bytes(which),
            checkpoints,
        )
        return self._chunk(merged, sum(chunk.raw_bytes for chunk in chunks))

    def _merge_whole(self, chunks: Sequence[Chunk], trial_id: str) -> Chunk:
        """Do the same where there are more layouts than a chunk may have: those that come later are stored whole."""
        return self.encode([sample for chunk in chunks for sample in decode(chunk, trial_id)])

    def _chunk(self, body: _Body, raw_bytes: int) -> Chunk:
        plain = body.to_bytes()
        data, encoding = plain, PLAIN
        if self._level and len(plain) >= _LEAST_COMPRESSED:
            compressed = _compress(plain, self._level)
            if len(compressed) < len(plain):
                data, encoding = compressed, ZSTD
        positions, ticks = body.positions, body.ticks
        chunk = Chunk(
            positions[0][0], positions[-1][-1], ticks[0][0], ticks[-1][-1],
            len(body.timestamps), encoding, len(plain), raw_bytes, 0, data,
        )  # fmt: skip
        return chunk._replace(checksum=_checksum(chunk))


class ChunkRun(NamedTuple):
    """Samples of a chunk, one after the other, that have one layout.

    Attributes:
        start: where they begin in the chunk.
        ticks: of each.
        layout: of all of them; None: these have none in common, and `OpenChunk.data` gives them.
        payloads: for each payload of the layout, what it is in each of them.
    """

    start: int
    ticks: Sequence[int]
    layout: Layout | None
    payloads: Sequence[Sequence[bytes]]


class OpenChunk:
    """A chunk whose bytes are decoded, so that samples can be taken from it several times.

    Args:
        chunk: which.
        trial_id: its trial, for the text of an error.

    Raises:
        DataLossError: it is damaged.
    """

    __slots__ = ("_body", "_chunk", "_trial_id")

    def __init__(self, chunk: Chunk, trial_id: str) -> None:
        self._body = _body(chunk, trial_id)
        self._chunk = chunk._replace(data=b"")
        self._trial_id = trial_id

    def samples(self, *, after: int = 0, limit: int | None = None) -> list[ChunkSample]:
        """Return samples, each bit for bit as it was encoded.

        Args:
            after: only those with a higher position.
            limit: how many at most; None: all.

        Raises:
            DataLossError: the chunk is damaged.
        """
        positions, ticks, timestamps, data = self._part(after, limit)
        return list(map(_make_sample, zip(positions, ticks, timestamps, data, strict=True)))

    def stored(self, *, after: int = 0, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Return the same as what a `StoredSample` is made of."""
        positions, ticks, _, data = self._part(after, limit)
        return zip(positions, ticks, data)  # noqa: B905  they are equally many, and this is the fastest way

    @property
    def samples_count(self) -> int:
        """How many samples there are."""
        return self._chunk.samples_count

    def index(self, after: int) -> int:
        """Return how many samples have this position or a lower one."""
        runs = self._body.positions
        return sum(len(run) if run.stop <= after + 1 else max(0, after + 1 - run.start) for run in runs)

    def data(self, start: int, stop: int) -> list[bytes]:
        """Return some of the samples, by their places in the chunk, as they are stored.

        Raises:
            DataLossError: the chunk is damaged.
        """
        body = self._body
        ticks, timestamps = _part(body.ticks, start, stop), body.timestamps[start:stop]
        try:
            found = list(_samples_of(body, start, stop, ticks, timestamps))
        except (ValueError, LookupError, struct.error) as error:
            raise _damaged(self._chunk, self._trial_id, str(error)) from error
        for at, checkpoint in body.checkpoints.items():
            if start <= at < stop:
                found[at - start] += checkpoint
        return found

    @property
    def ascends(self) -> bool:
        """Whether no tick of its samples is lower than one before it."""
        ticks = self._body.ticks
        return all(map(lt, map(attrgetter("start"), ticks), map(attrgetter("start"), islice(ticks, 1, None))))

    @property
    def with_checkpoints(self) -> Sequence[int]:
        """The places of samples that have a checkpoint and a layout, ascending; `runs` and `columns` leave it out."""
        return [*self._body.checkpoints]

    def runs(self) -> Iterator[ChunkRun]:
        """Yield its samples in runs that have one layout each; together they are all of them, in their order.

        Raises:
            DataLossError: the chunk is damaged.
        """
        body = self._body
        ticks = _part(body.ticks, 0, self.samples_count)
        groups = [group.payloads() for group in body.groups]
        passed = [0] * len(groups)
        start = 0
        for number, alike in groupby(body.which or bytes(self.samples_count)):
            count, begin = len(list(alike)), passed[number]
            some = [column[begin : begin + count] for column in groups[number]]
            yield ChunkRun(start, ticks[start : start + count], body.groups[number].layout, some)
            passed[number] += count
            start += count

    def columns(self, *, least: int = 1) -> Columns:
        """Return the samples as arrays; NumPy must be installed.

        Args:
            least: groups of fewer samples are left out.
        """
        return _columns(self._body, self._chunk.samples_count, least)

    def _part(self, after: int, limit: int | None) -> tuple[Sequence[int], Sequence[int], Sequence[int], list[bytes]]:
        chunk, body = self._chunk, self._body
        start = self.index(after) if after >= chunk.first_position else 0
        stop = chunk.samples_count if limit is None else min(start + limit, chunk.samples_count)
        positions, ticks = (_part(runs, start, stop) for runs in (body.positions, body.ticks))
        return positions, ticks, body.timestamps[start:stop], self.data(start, stop)


def decode(chunk: Chunk, trial_id: str, *, after: int = 0, limit: int | None = None) -> list[ChunkSample]:
    """Return samples of a chunk: see `OpenChunk.samples`.

    Raises:
        DataLossError: it is damaged.
    """
    return OpenChunk(chunk, trial_id).samples(after=after, limit=limit)


def _part(runs: Sequence[range], start: int, stop: int) -> Sequence[int]:
    return runs[0][start:stop] if len(runs) == 1 else list(islice(chain.from_iterable(runs), start, stop))


def _samples_of(body: _Body, start: int, stop: int, ticks: Sequence[int], timestamps: Sequence[int]) -> Iterable[bytes]:
    if len(body.groups) == 1:
        return _samples_in(body.groups[0], start, stop, ticks, timestamps)
    which = body.which[start:stop]
    found: list[bytes] = []
    streams: list[Iterator[bytes]] = []
    for number, group in enumerate(body.groups):
        before, count = body.which.count(number, 0, start), which.count(number)
        # Those of a group are mostly together, and seldom in all parts of a chunk.
        if count == len(which):
            return _samples_in(group, before, before + count, ticks, timestamps)
        is_member = bytearray(256)
        is_member[number] = 1
        members = which.translate(is_member)
        some = list(compress(ticks, members)), list(compress(timestamps, members))
        streams.append(iter(_samples_in(group, before, before + count, *some) if count else ()))
    for number, alike in groupby(which):
        found += islice(streams[number], len(list(alike)))
    return found


def _samples_in(
    group: _Group, start: int, stop: int, ticks: Sequence[int], timestamps: Sequence[int]
) -> Iterable[bytes]:
    """Return some samples of a group: what differs between what does not."""
    layout = group.layout
    if layout is None:
        return group.columns[0].values(start, stop)
    if start == stop:
        return []
    if stop - start <= _FEW:
        return [_sample_at(group, layout, start + at, ticks[at], timestamps[at]) for at in range(stop - start)]
    if len(tick_field(min(ticks))) < len(tick_field(max(ticks))):
        found: list[bytes] = []
        begin = 0
        for _, alike in groupby(map(len, map(tick_field, ticks))):
            end = begin + len(list(alike))
            some = slice(begin, end)
            found += _samples_in(group, start + begin, start + end, ticks[some], timestamps[some])
            begin = end
        return found
    count = stop - start
    columns = iter(group.columns)
    block = _Block(count)
    block.same(layout.before)
    fields = tick_fields(ticks)
    block.column(_Column(len(fields) // count, _NO_LENGTHS, fields, planed=True), 0, count, count)
    for name, same in zip((*layout.names, ""), layout.same, strict=True):
        block.same(same)
        if name == "timestamp":
            block.column(_Column(8, _NO_LENGTHS, struct.pack(f"<{count}Q", *timestamps)), 0, count, count)
        elif name:
            block.column(next(columns), start, stop, group.count)
    parts: list[Iterable[bytes]] = []
    for column in columns:
        if column.width < 0:
            parts += block.values(), map(payload_head, islice(column.lengths, start, stop)), column.values(start, stop)
            block = _Block(count)
            continue
        block.same(payload_head(column.width))
        if column.width <= _MOST_PLANES:
            block.column(column, start, stop, group.count)
        else:
            parts += block.values(), column.values(start, stop)
            block = _Block(count)
    block.same(layout.after)
    parts.append(block.values())
    return map(b"".join, zip(*parts, strict=True)) if len(parts) > 1 else parts[0]


def _sample_at(group: _Group, layout: Layout, index: int, tick_id: int, timestamp: int) -> bytes:
    columns = iter(group.columns)
    parts = [layout.before, tick_field(tick_id)]
    for name, same in zip((*layout.names, ""), layout.same, strict=True):
        parts.append(same)
        if name == "timestamp":
            parts.append(timestamp.to_bytes(8, "little"))
        elif name:
            parts.append(next(columns).value(index, group.count))
    for column in columns:
        value = column.value(index, group.count)
        parts += payload_head(len(value)), value
    parts.append(layout.after)
    return b"".join(parts)


class _Block:
    """Consecutive bytes of samples, as many in each sample: put together for all samples at once, byte by byte.

    Args:
        count: of the samples.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._template = bytearray()
        #: Where the bytes of a column begin, and these, from one sample to the next.
        self._planes: list[tuple[int, bytes]] = []

    def same(self, piece: bytes) -> None:
        """Add what is the same in all samples."""
        self._template += piece

    def column(self, column: _Column, start: int, stop: int, count: int) -> None:
        """Add some of the values of a column that has `count`; they are equally long."""
        planes, template, some = self._planes, self._template, self._count
        for number in range(column.width):
            plane = column.plane(number, start, stop, count)
            if plane.count(plane[:1]) < some:
                planes.append((len(template), plane))
            template += plane[:1]

    def values(self) -> Iterable[bytes]:
        """Return it for each sample."""
        if not self._planes:
            return repeat(bytes(self._template), self._count)
        width = len(self._template)
        whole = self._template * self._count
        for at, plane in self._planes:
            whole[at::width] = plane
        return _cut_evenly(bytes(whole), width, 0, self._count)


# Arrays


@dataclass(slots=True)
class VaryingValues:
    """Values whose lengths differ.

    Attributes:
        offsets: where each value begins in `data`, and where the last one ends; one more than there are values.
        data: all of them, one after the other.
    """

    offsets: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]


@dataclass(slots=True)
class GroupColumns:
    """The columns of the samples of a chunk that have one layout.

    Attributes:
        rows: which of the chunk's samples these are, ascending.
        sample: what all of them have; its tick, timestamp and numbers are 0, its payloads empty. None: these samples
            have no layout in common, and the only one of `payloads` has them whole, serialized.
        rewards: a column of 32-bit floats for each reward that `Layout.rewards` names, by that name.
        payloads: the column of each payload of `sample`: an array of shape (samples, bytes), or one with offsets.
        layout: what `sample` is made of.
    """

    rows: npt.NDArray[np.int64]
    sample: StoredTrialSample | None
    rewards: Mapping[tuple[int, str, int, str], npt.NDArray[np.float32]]
    payloads: Sequence[npt.NDArray[np.uint8] | VaryingValues] = field(default_factory=list)
    layout: Layout | None = None


@dataclass(slots=True)
class Columns:
    """A chunk as arrays, which are not to be written to.

    Attributes:
        positions: of all samples, in the order of their arrival.
        ticks: of these samples.
        timestamps: of these samples, in nanoseconds since the epoch.
        groups: the rest, by layout: each sample is in one of them.
    """

    positions: npt.NDArray[np.int64]
    ticks: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    groups: Sequence[GroupColumns]


def columns(chunk: Chunk, trial_id: str) -> Columns:
    """Return a chunk as arrays; NumPy must be installed.

    Args:
        chunk: which.
        trial_id: its trial, for the text of an error.

    Raises:
        DataLossError: it is damaged.
    """
    return OpenChunk(chunk, trial_id).columns()


def _columns(body: _Body, count: int, least: int) -> Columns:
    import numpy as np

    which = np.frombuffer(body.which, np.uint8)
    groups = []
    for number, group in enumerate(body.groups):
        if group.count < least:
            continue
        layout, rewards, payloads = group.layout, {}, group.columns
        if layout is not None:
            payloads = group.columns[layout.floats :]
            rewards = {
                name: _words(_payloads(column, group.count), "<f4")
                for name, column in zip(layout.rewards(), group.columns, strict=False)
            }
        groups.append(
            GroupColumns(
                np.flatnonzero(which == number) if body.which else np.arange(count),
                None if layout is None else layout.sample(),
                rewards,
                [_payloads(column, group.count) for column in payloads],
                layout,
            )
        )
    assert isinstance(body.timestamps, _Stamps)
    return Columns(_numbers(body.positions), _numbers(body.ticks), body.timestamps.array(), groups)


def _words(values: Any, kind: str) -> Any:
    """Return values of some bytes as numbers."""
    import numpy as np

    return np.ascontiguousarray(values).view(kind)[:, 0]


def _numbers(runs: Sequence[range]) -> Any:
    import numpy as np

    if len(runs) == 1:
        return np.arange(runs[0].start, runs[0].stop, dtype=np.int64)
    lengths = np.array([len(run) for run in runs])
    starts = np.array([run.start for run in runs], np.int64)
    # Each number is its run's first one, and how far it is in the run.
    passed = np.cumsum(lengths) - lengths
    return np.repeat(starts - passed, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def _payloads(column: _Column, count: int) -> Any:
    import numpy as np

    data = np.frombuffer(column.data, np.uint8, column.size, column.begin)
    if column.planed:
        return data.reshape(column.width, count).T
    if column.width >= 0:
        return data.reshape(count, column.width)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.frombuffer(column.lengths, np.uint32), out=offsets[1:])
    return VaryingValues(offsets, data)


# Bytes as they are stored


def _body(chunk: Chunk, trial_id: str) -> _Body:
    try:
        if chunk.checksum != _checksum(chunk):
            raise ValueError("its checksum is another one")
        return _Reader(_plain(chunk)).body()
    except (ValueError, LookupError, OverflowError, struct.error) as error:
        raise _damaged(chunk, trial_id, str(error)) from error


def _damaged(chunk: Chunk, trial_id: str, why: str) -> DataLossError:
    return DataLossError(
        f"trial {trial_id!r}: the samples of ticks {chunk.first_tick} to {chunk.last_tick} are damaged ({why})"
    )


def _checksum(chunk: Chunk) -> int:
    *numbers, _, data = chunk
    return zlib.crc32(data, zlib.crc32(_META.pack(*(number % _WORD for number in numbers))))


def _plain(chunk: Chunk) -> bytes:
    if chunk.encoding == PLAIN:
        plain = chunk.data
    elif chunk.encoding == ZSTD and chunk.size <= _MAX_SIZE:
        plain = _decompress(chunk.data, chunk.size)
    else:
        raise ValueError(f"it has the encoding {chunk.encoding} and {chunk.size} bytes")
    if len(plain) != chunk.size:
        raise ValueError(f"it has {len(plain)} of {chunk.size} bytes")
    return plain


#: Compressors and decompressors are for one thread at a time, and making one takes longer than using it.
_zstd = threading.local()

if sys.version_info >= (3, 14):
    from compression import zstd

    def _compress(data: bytes, level: int) -> bytes:
        parameters = zstd.CompressionParameter
        return zstd.compress(data, options={parameters.compression_level: level, parameters.checksum_flag: 1})

    def _decompress(data: bytes, size: int) -> bytes:
        reader = zstd.ZstdDecompressor()
        try:
            plain = reader.decompress(data, max_length=size)
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from error
        if not reader.eof or reader.unused_data:
            raise ValueError("it has another size")
        return plain

else:

    def _compress(data: bytes, level: int) -> bytes:
        import zstandard

        if getattr(_zstd, "level", None) != level:
            _zstd.compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
            _zstd.level = level
        compressed: bytes = _zstd.compressor.compress(data)
        return compressed

    def _decompress(data: bytes, size: int) -> bytes:
        import zstandard

        try:
            # The frame says how large it is, and that is allocated before a byte is looked at.
            if zstandard.frame_content_size(data) != size:
                raise ValueError("it has another size")
            if not hasattr(_zstd, "decompressor"):
                _zstd.decompressor = zstandard.ZstdDecompressor()
            plain: bytes = _zstd.decompressor.decompress(data, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        return plain
