"""The layouts of samples: all that does not differ between samples which look alike, and where the rest is. Pure.

A serialized `StoredTrialSample` begins with who and which trial, then come tick, timestamp, state, what each actor did,
the payloads, and what is rare. A sample has a layout if it is written in this order, as protobuf writes it, and if it
has the tick and the timestamp that it is stored under: then it can be put together again from these, its rewards, and
its payloads, bit for bit. Any other bytes have none.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, cast

from google.protobuf.message import DecodeError

from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.base.shared_message import field_tag, varint
from trio_cogment.servers.datastore._protobuf_wire import (
    LENGTH,
    Field,
    Place,
    find_places,
    number_of,
    tag,
    varint_end,
)

#: Bytes of the layouts that are remembered, and how many of them may look alike from outside.
_MAX_KNOWN_BYTES = 1024 * 1024
_MAX_ALIKE = 4
#: Longer constant parts are no layout.
_MAX_LAYOUT_BYTES = 64 * 1024

_SIZE = struct.Struct("<I")

_USER, _TRIAL = (tag(StoredTrialSample, name) | LENGTH for name in ("user_id", "trial_id"))
_TICK = tag(StoredTrialSample, "tick_id")
_TIMESTAMP = tag(StoredTrialSample, "timestamp")
_STATE = tag(StoredTrialSample, "state")
_ACTOR = tag(StoredTrialSample, "actor_samples")
_PAYLOAD = tag(StoredTrialSample, "payloads")
_CONTINUES = 0x80
_TICK_TAG = bytes((_TICK,))
PAYLOAD_TAG = bytes((_PAYLOAD,))
#: It comes last in a sample. As it is in few samples, it belongs to no layout.
_CHECKPOINT_TAG = field_tag(StoredTrialSample, "checkpoint")

_REWARD = {
    tag(StoredTrialActorSampleReward, "reward"): Field("reward"),
    tag(StoredTrialActorSampleReward, "confidence"): Field("confidence"),
}
#: What differs between the tick and the payloads.
_MIDDLE = {
    _TIMESTAMP: Field("timestamp"),
    _ACTOR: Field(
        "actor",
        {
            tag(StoredTrialActorSample, "reward"): Field("mean"),
            tag(StoredTrialActorSample, "received_rewards"): Field("received_rewards", _REWARD),
            tag(StoredTrialActorSample, "sent_rewards"): Field("sent_rewards", _REWARD),
        },
    ),
}


#: The values that may differ, and how many bytes each takes.
_LENGTHS = {"timestamp": 8, "mean": 4, "reward": 4, "confidence": 4}


class Layout:
    """All that does not differ between samples which look alike.

    Attributes:
        key: all of it as bytes; two layouts with the same are the same.
        before: what comes before the tick.
        same: what is between tick and payloads, without the values that differ.
        names: which values these are, one between two of `same`.
        payloads: how many payloads there are.
        after: what comes after them.
        middle: cuts what is between tick and payloads.
        numbers: cuts only the numbers out of it.
    """

    __slots__ = ("after", "before", "floats", "key", "middle", "names", "numbers", "payloads", "same")

    def __init__(self, before: bytes, same: Sequence[bytes], names: Sequence[str], payloads: int, after: bytes) -> None:
        self.before, self.same, self.names = before, tuple(same), tuple(names)
        self.payloads, self.after = payloads, after
        self.middle, self.numbers = _cutters(self.names, self.same)
        self.floats = sum(name != "timestamp" for name in names)
        parts = [before, after, "\0".join(names).encode(), *same]
        self.key = _SIZE.pack(payloads) + b"".join(_SIZE.pack(len(part)) + part for part in parts)

    @classmethod
    def of_key(cls, key: bytes) -> Layout:
        """Return the layout with this key."""
        (payloads,) = _SIZE.unpack_from(key)
        parts, at = [], _SIZE.size
        while at < len(key):
            (size,) = _SIZE.unpack_from(key, at)
            at += _SIZE.size
            parts.append(key[at : at + size])
            at += size
        before, after, names, *same = parts
        return cls(before, same, names.decode().split("\0") if names else (), payloads, after)

    def sample(self) -> StoredTrialSample:
        """Return the sample that all of these are but for what differs: numbers are 0 and payloads empty."""
        values = [bytes(_LENGTHS[name]) for name in self.names]
        middle = b"".join(chain.from_iterable(zip(self.same, (*values, b""), strict=True)))
        return StoredTrialSample.FromString(self.before + middle + (PAYLOAD_TAG + b"\0") * self.payloads + self.after)

    @property
    def layout(self) -> Layout:
        """Itself: see `Form`."""
        return self

    def columns(self, parts: Sequence[Parts]) -> list[bytes | Sequence[bytes]]:
        """See `Cut.columns`."""
        found: list[bytes | Sequence[bytes]] = []
        if self.floats:
            found += zip(*self.numbers.iter_unpack(b"".join(map(_given_of, parts))), strict=True)
        if self.payloads:
            found += zip(*map(_payloads_of, parts), strict=True)
        return found

    def joined(self, parts: Sequence[Parts]) -> list[bytes]:
        """See `Cut.joined`."""
        ticks, given = map(tick_field, map(_tick_of, parts)), map(_given_of, parts)
        return _joined([repeat(self.before), ticks, given], parts, self.after)

    def rewards(self) -> list[tuple[int, str, int, str]]:
        """Return what each of the columns of numbers is, in order.

        Returns:
            For the mean of an actor's rewards: the index of its `actor_samples`, "reward", -1, "reward". For a reward
            of those: the index, "received_rewards" or "sent_rewards", the index of the reward, and "reward" or
            "confidence".
        """
        return _rewards_of(self.names, self.same)


@lru_cache(32)
def _cutters(names: Sequence[str], same: Sequence[bytes]) -> tuple[struct.Struct, struct.Struct]:
    """Return `Layout.middle` and `Layout.numbers`: the layouts of many trials differ only before the tick."""
    form = ["<"]
    for name, piece in zip((*names, ""), same, strict=True):
        form.append(f"{len(piece)}s{_LENGTHS[name]}s" if name else f"{len(piece)}s")
    middle = struct.Struct("".join(form))
    form, gap = ["<"], 0
    for name, piece in zip((*names, ""), same, strict=True):
        gap += len(piece)
        if name == "timestamp":  # it is kept for all samples
            gap += _LENGTHS[name]
        elif name:
            form.append(f"{gap}x{_LENGTHS[name]}s")
            gap = 0
    return middle, struct.Struct("".join([*form, f"{gap}x"]))


@lru_cache(32)
def _rewards_of(names: Sequence[str], same: Sequence[bytes]) -> list[tuple[int, str, int, str]]:
    values = [bytes(_LENGTHS[name]) for name in names]
    middle = b"".join(chain.from_iterable(zip(same, (*values, b""), strict=True)))
    found: list[tuple[int, str, int, str]] = []
    actor, kind, number = -1, "reward", -1
    for place in find_places(middle, _MIDDLE, 0, len(middle)):
        if place.what == "actor":
            actor, kind, number = actor + 1, "reward", -1
        elif place.what in ("received_rewards", "sent_rewards"):
            number = number + 1 if place.what == kind else 0
            kind = place.what
        elif place.what == "mean":
            found.append((actor, "reward", -1, "reward"))
        elif place.what != "timestamp":
            found.append((actor, kind, number, place.what))
    return found


class Parts(NamedTuple):
    """A serialized sample that is not put together: who keeps columns needs only its parts.

    Attributes:
        form: tells what is where in `given`.
        tick_id: of the sample.
        given: for a layout, what is between its tick and its payloads; for a cut, the sample as it came.
        payloads: of the sample, unless they are in `given`.
        size: how many bytes the stored sample has.
        checkpoint: what comes behind all that its layout tells of: see `checkpoint_field`.
    """

    form: Layout | Cut
    tick_id: int
    given: bytes
    payloads: Sequence[bytes]
    size: int
    checkpoint: bytes = b""

    def joined(self) -> bytes:
        """Return it put together."""
        return self.form.joined([self])[0]


_form_of, _tick_of, _given_of, _payloads_of, _size_of, _checkpoint_of = map(itemgetter, range(6))


def _joined(columns: list[Iterable[bytes]], parts: Sequence[Parts], after: bytes) -> list[bytes]:
    """Return samples put together: what is in columns, their payloads, and what comes after these."""
    for payloads in zip(*map(_payloads_of, parts), strict=True):
        columns += map(payload_head, map(len, payloads)), payloads
    columns += repeat(after), map(_checkpoint_of, parts)
    return list(map(b"".join, zip(*columns, strict=False)))


def checkpoint_field(content: bytes) -> bytes:
    """Return the field with a serialized checkpoint, which follows all others."""
    return b"".join((_checkpoint_head(len(content)), content))


@lru_cache(64)
def _checkpoint_head(length: int) -> bytes:
    return _CHECKPOINT_TAG + varint(length)


class Cut:
    """Where the parts of stored samples are in samples as they came, which have one layout and the same lengths.

    Args:
        layout: of the stored samples.
        came: how many bytes a sample has as it came.
        tick: where its tick is, a varint; empty: it is 0.
        timestamp: where its timestamp is, 8 bytes.
        values: where each number of the layout is, and then each payload, unless these were taken out before; empty:
            it is 0, or an empty payload.
        means: for the numbers that are means of rewards, where values and confidences of these are.

    Attributes:
        layout: see above.
    """

    __slots__ = ("_columns", "_form", "_means", "_payloads", "_pieces", "layout")

    def __init__(
        self,
        layout: Layout,
        came: int,
        tick: slice,
        timestamp: slice,
        values: Sequence[slice],
        means: Mapping[int, Sequence[tuple[slice, slice]]],
    ) -> None:
        self.layout = layout
        self._form = list(_pieces_of(layout, tick, timestamp, values, means))
        #: Where the payloads are; empty: they were taken out.
        self._payloads = values[layout.floats :]
        places = [*values, *(place for sources in means.values() for source in sources for place in source)]
        ends = {place.start: place.stop for place in places if place.stop > place.start}
        columns = {start: number for number, start in enumerate(sorted(ends))}
        form, at = ["<"], 0
        for start in sorted(ends):
            form.append(f"{start - at}x{ends[start] - start}s")
            at = ends[start]
        self._pieces = struct.Struct("".join([*form, f"{came - at}x"]))
        #: The column of each value; -1: it is empty.
        self._columns = [columns[place.start] if place.stop > place.start else -1 for place in values]
        self._means = {
            number: [
                tuple(columns[place.start] if place.stop > place.start else -1 for place in source)
                for source in sources
            ]
            for number, sources in means.items()
        }

    def columns(self, parts: Sequence[Parts]) -> list[bytes | Sequence[bytes]]:
        """Return the numbers and payloads of samples, one at least, each as a column.

        Returns:
            Values one after the other where they are equally long, else each by itself.
        """
        count = len(parts)
        pieces = list(zip(*map(self._pieces.unpack, map(_given_of, parts)), strict=True))
        found: list[bytes | Sequence[bytes]] = []
        for number, column in enumerate(self._columns):
            if number in self._means:
                found.append(b"".join(_means_of(self._means[number], pieces, count)))
            elif column >= 0:
                found.append(b"".join(pieces[column]))
            else:
                found.append((_ZERO if number < self.layout.floats else b"") * count)
        if not self._payloads and self.layout.payloads:
            found += zip(*map(_payloads_of, parts), strict=True)
        return found

    def joined(self, parts: Sequence[Parts]) -> list[bytes]:
        """Return samples put together, one at least: a piece of all of them at a time."""
        given = list(map(_given_of, parts))
        pieces = list(zip(*map(self._pieces.unpack, given), strict=True)) if self._means else []
        columns: list[Iterable[bytes]] = []
        for part in self._form:
            if isinstance(part, bytes):
                columns.append(repeat(part))
            elif isinstance(part, slice):
                columns.append(map(itemgetter(part), given))
            else:
                columns.append(_means_of(self._means[part], pieces, len(parts)))
        for place in self._payloads:
            columns += repeat(payload_head(place.stop - place.start)), map(itemgetter(place), given)
        return _joined(columns, parts, self.layout.after)


def _pieces_of(
    layout: Layout, tick: slice, timestamp: slice, values: Sequence[slice], means: Collection[int]
) -> Iterator[bytes | slice | int]:
    """Yield what is before the payloads of a stored sample: what is always the same, where the rest is, and means."""
    yield layout.before
    if tick.stop > tick.start:
        yield _TICK_TAG
        yield tick
    number = 0
    for name, same in zip((*layout.names, ""), layout.same, strict=True):
        yield same
        if name == "timestamp":
            yield timestamp
        elif name:
            place = values[number]
            yield number if number in means else place if place.stop > place.start else _ZERO
            number += 1


#: A serialized stored sample, or what it is made of.
SampleData: TypeAlias = bytes | Parts


def size_of(data: SampleData) -> int:
    """Return how many bytes a stored sample has."""
    # Those that are most come first: this is done for each sample.
    return data[4] if isinstance(data, Parts) else len(data)


def sizes_of(data: Collection[SampleData]) -> list[int]:
    """Return the same of several; most often they are all parts."""
    return list(map(_size_of if all_parts(data) else size_of, data))


def all_parts(data: Iterable[SampleData]) -> bool:
    """Whether all of these are parts."""
    return set(map(type, data)) == {Parts}


def joined(data: SampleData) -> bytes:
    """Return a stored sample as bytes."""
    return data.joined() if isinstance(data, Parts) else data


def all_joined(data: Sequence[SampleData]) -> list[bytes]:
    """Return the same of several: those that are alike are put together at once, which takes a fifth of the time."""
    found = list(data)
    alike = defaultdict[Layout | Cut, list[int]](list)
    for number, each in enumerate(data):
        if isinstance(each, Parts):
            alike[each[0]].append(number)
    for form, numbers in alike.items():
        parts: list[Any] = [data[number] for number in numbers]
        for number, each in zip(numbers, form.joined(parts), strict=True):
            found[number] = each
    return cast("list[bytes]", found)


_ZERO, _NEGATIVE_ZERO = struct.pack("<f", 0.0), struct.pack("<f", -0.0)


def _means_of(sources: Sequence[tuple[int, ...]], pieces: Sequence[Sequence[bytes]], count: int) -> Sequence[bytes]:
    """Return the means of rewards as `RewardMean` makes them: a test holds both together."""
    if len(sources) == 1:
        ((value, confidence),) = sources
        # Most often there is one reward, of which one is sure: the mean is its value.
        if (
            confidence >= 0
            and value >= 0
            and set(pieces[confidence]) == {_SURE}
            and _NEGATIVE_ZERO not in pieces[value]
        ):
            return pieces[value]
    totals, weights = [0.0] * count, [0.0] * count
    for value, confidence in sources:
        values, confidences = (
            struct.unpack(f"<{count}f", b"".join(pieces[column])) if column >= 0 else (0.0,) * count
            for column in (value, confidence)
        )
        for number, weight in enumerate(confidences):
            if weight > 0:
                totals[number] += values[number] * weight
                weights[number] += weight
    means = [total / weight if weight > 0 else 0.0 for total, weight in zip(totals, weights, strict=True)]
    return list(map(_four_bytes, means))


_SURE = struct.pack("<f", 1.0)


def _four_bytes(number: float) -> bytes:
    try:
        return struct.pack("<f", number)
    except OverflowError:  # as protobuf does it
        return struct.pack("<f", math.copysign(math.inf, number))


class Split(NamedTuple):
    """The parts of one sample."""

    layout: Layout
    values: tuple[bytes, ...]
    tick_length: int


class Layouts:
    """Finds the layouts of samples; those it has met are found faster."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, int, int, bytes], list[Layout]] = {}
        self._bytes = 0

    def split(self, tick_id: int, timestamp: int, data: bytes) -> Split | None:
        """Return the parts of a sample; None: it is none that has a layout."""
        try:
            return self._split(tick_id, timestamp, data)
        except (ValueError, IndexError, struct.error, DecodeError):
            return None

    def _split(self, tick_id: int, timestamp: int, data: bytes) -> Split | None:
        at = 0
        while data[at] in (_USER, _TRIAL):
            begin = varint_end(data, at + 1)
            at = begin + number_of(data[at + 1 : begin])
        before, tick = data[:at], tick_field(tick_id)
        if not data.startswith(tick, at):
            return None
        start = at = at + len(tick)
        end = len(data)
        while at < end:
            found = data[at]
            if found == _ACTOR:
                size = data[at + 1]
                if size < 128:
                    at += 2 + size
                else:
                    begin = varint_end(data, at + 1)
                    at = begin + number_of(data[at + 1 : begin])
            elif found == _TIMESTAMP:
                at += 9
            elif found == _STATE:
                at = varint_end(data, at + 1)
            else:
                break
        middle = at
        payloads = []
        while at < end and data[at] == _PAYLOAD:
            size = data[at + 1]
            if size < 128:
                at += 2
            else:
                begin = varint_end(data, at + 1)
                size = number_of(data[at + 1 : begin])
                if data[at + 1 : begin] != varint(size):
                    return None  # not as it would be written again
                at = begin
            payloads.append(data[at : at + size])
            at += size
        if at > end or len(data) - at + middle > _MAX_LAYOUT_BYTES:
            return None
        after = data[at:]
        if after.startswith(_CHECKPOINT_TAG):
            return None
        alike = self._known.get((before, middle - start, len(payloads), after))
        for layout in alike or ():
            pieces = layout.middle.unpack_from(data, start)
            if pieces[::2] == layout.same:
                return _given(layout, pieces[1::2], timestamp, payloads, len(tick))
        return self._learn(before, data[start:middle], timestamp, payloads, after, len(tick))

    def _learn(
        self, before: bytes, middle: bytes, timestamp: int, payloads: list[bytes], after: bytes, tick_length: int
    ) -> Split | None:
        found = [place for place in find_places(middle, _MIDDLE, 0, len(middle)) if place.end > place.start]
        if any(place.end - place.start != _LENGTHS[place.what] for place in found):
            return None
        stamps = [place for place in found if place.what == "timestamp"]
        if len(stamps) > 1 or (timestamp != 0 and not stamps):
            return None
        same = [middle[first.end : second.start] for first, second in _neighbours(found, len(middle))]
        layout = Layout(before, same, [place.what for place in found], len(payloads), after)
        layout.sample()
        pieces = layout.middle.unpack(middle)
        self._bytes += len(layout.key)
        if self._bytes > _MAX_KNOWN_BYTES:
            self._known.clear()
            self._bytes = len(layout.key)
        alike = self._known.setdefault((before, len(middle), len(payloads), after), [])
        alike.insert(0, layout)
        del alike[_MAX_ALIKE:]
        return _given(layout, pieces[1::2], timestamp, payloads, tick_length)


def _neighbours(found: Sequence[Place], end: int) -> Iterator[tuple[Place, Place]]:
    return zip((Place("", 0, 0), *found), (*found, Place("", end, end)), strict=True)


def _given(
    layout: Layout, values: Sequence[bytes], timestamp: int, payloads: Sequence[bytes], tick_length: int
) -> Split | None:
    if layout.floats < len(values):  # one of them is the timestamp
        at = layout.names.index("timestamp")
        if values[at] != timestamp.to_bytes(8, "little"):
            return None
        values = (*values[:at], *values[at + 1 :])
    return Split(layout, (*values, *payloads), tick_length)


@lru_cache(4096)
def payload_head(length: int) -> bytes:
    """Return what comes before a payload of some length."""
    return PAYLOAD_TAG + varint(length)


#: The lowest seven bits of numbers as the first byte of a varint: of its only one, or of one with more.
_ONLY, _FIRST = bytes(range(128)), bytes(range(128, 256))


def tick_fields(ticks: Sequence[int]) -> bytes:
    """Return the fields with some ticks, which are equally long: their first bytes, then the second ones, and so on."""
    length = len(tick_field(ticks[0]))
    if not length:
        return b""
    count = len(ticks)
    planes = [_TICK_TAG * count]
    for number in range(length - 1):
        more = _CONTINUES if number < length - 2 else 0
        if number == 0 and type(ticks) is range and ticks.step == 1:
            first = ticks[0] & 127
            planes.append(((_FIRST if more else _ONLY) * (count // 128 + 2))[first : first + count])
        else:
            shift = 7 * number
            planes.append(bytes([tick >> shift & 127 | more for tick in ticks]))
    return b"".join(planes)


def tick_field(tick_id: int) -> bytes:
    """Return the field with a tick, as protobuf writes it: nothing for 0."""
    if tick_id < 128:
        return bytes((_TICK, tick_id)) if tick_id else b""
    if tick_id < 16384:
        return bytes((_TICK, tick_id & 127 | 128, tick_id >> 7))
    return _TICK_TAG + varint(tick_id)
