"""Usual samples that look like one before: pure, and several times quicker than reading them field by field.

Most ticks of a trial differ in their numbers and in the content of their payloads only. So do the bytes that protobuf
makes of them, which takes it a microsecond: between those places, which are of the same length from tick to tick,
they are the same. A `Layout` knows the places, in the data log's sample and in what is stored of it. A sample all of
whose other bytes are those that it knows is cut into pieces, and these are put together anew. Nothing of such a sample
is looked at for what it means, because that is in the bytes that are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple

from trio_cogment.api.common_pb2 import Action, Reward, RewardSource
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.datastore._wire import EIGHT_BYTES, FOUR_BYTES, LENGTH, number_of, tag, varint_end
from trio_cogment.datastore.storage import SampleWrite

#: Larger samples are copied here and there; that takes longer than their fields do.
MAX_BYTES = 16 * 1024
#: What the layouts of a trial take together; what each place does, beside the bytes; and how many are of one length.
_MAX_LAYOUTS_BYTES = 256 * 1024
_PLACE_BYTES = 160
_MAX_OF_A_LENGTH = 4
#: What is spent on samples that are like none before: a look at one costs `_LOOK`, learning its layout `_LEARN`, and
#: one that was known earns 1. Whoever cannot learn any more takes `_PAUSE` samples in the other way before the next
#: look, and gets `_ALLOWANCE` for it.
_CREDIT = 256
_LOOK = 2
_LEARN = 32
_PAUSE = 64
_ALLOWANCE = 8

#: Ticks of so many digits are below 2**63 - 1.
_MAX_DIGITS = 8
_MAX_TIMESTAMP = 2**63 - 1
#: The tick of an action that never came, -2.
_NO_ACTION = b"\x03"
#: Whether a byte of a number of variable length is not its last, for each byte; and where such numbers are.
_GOES_ON = bytes(byte >> 7 for byte in range(256))
_TICKS = ("tick", "action_tick", "other_tick")

_make_write = partial(tuple.__new__, SampleWrite)


class _Field(NamedTuple):
    """A field that is looked for.

    Attributes:
        what: what is found is called so.
        inside: of a message: what is looked for in it, by tags.
    """

    what: str
    inside: Mapping[int, _Field] | None = None


_SOURCE = {tag(RewardSource, "value"): _Field("value"), tag(RewardSource, "confidence"): _Field("confidence")}
_SAMPLE = {
    tag(DatalogSample, "info"): _Field(
        "info", {tag(SampleInfo, "tick_id"): _Field("tick"), tag(SampleInfo, "timestamp"): _Field("timestamp")}
    ),
    tag(DatalogSample, "observations"): _Field(
        "observations",
        {
            tag(ObservationSet, "tick_id"): _Field("other_tick"),
            tag(ObservationSet, "timestamp"): _Field("number"),
            tag(ObservationSet, "observations"): _Field("payload"),
        },
    ),
    tag(DatalogSample, "actions"): _Field(
        "action",
        {
            tag(Action, "tick_id"): _Field("action_tick"),
            tag(Action, "timestamp"): _Field("number"),
            tag(Action, "content"): _Field("payload"),
        },
    ),
    tag(DatalogSample, "rewards"): _Field(
        "reward",
        {
            tag(Reward, "tick_id"): _Field("other_tick"),
            tag(Reward, "value"): _Field("number"),
            tag(Reward, "sources"): _Field("source", _SOURCE),
        },
    ),
}
_REWARD = {
    tag(StoredTrialActorSampleReward, "reward"): _Field("value"),
    tag(StoredTrialActorSampleReward, "confidence"): _Field("confidence"),
}
_STORED = {
    tag(StoredTrialSample, "tick_id"): _Field("tick"),
    tag(StoredTrialSample, "timestamp"): _Field("timestamp"),
    tag(StoredTrialSample, "actor_samples"): _Field(
        "actor",
        {
            tag(StoredTrialActorSample, "reward"): _Field("mean"),
            tag(StoredTrialActorSample, "received_rewards"): _Field("reward", _REWARD),
            tag(StoredTrialActorSample, "sent_rewards"): _Field("reward", _REWARD),
        },
    ),
    tag(StoredTrialSample, "payloads"): _Field("payload"),
}


class _Place(NamedTuple):
    """Where something was found: its value, without its tag and length; a message has no length, it only begins."""

    what: str
    start: int
    end: int


def _places(data: bytes, fields: Mapping[int, _Field], start: int, end: int) -> Iterator[_Place]:
    """Yield what is looked for in a message, in its order.

    Raises:
        ValueError: it is written in a way that this does not know.
    """
    at = start
    while at < end:
        found = data[at]
        at += 1
        kind, field = found & 7, fields.get(found)
        if found > 127:
            raise ValueError("a field with a number of 16 or more")
        if kind == LENGTH:
            begin = varint_end(data, at)
            until = begin + number_of(data[at:begin])
        else:
            begin = at
            if kind == EIGHT_BYTES:
                until = at + 8
            elif kind == FOUR_BYTES:
                until = at + 4
            elif kind == 0:
                until = varint_end(data, at)
            else:
                raise ValueError("a group")
        if field is not None:
            yield _Place(field.what, begin, begin if field.inside is not None else until)
            if field.inside is not None:
                yield from _places(data, field.inside, begin, until)
        at = until


#: How a value of fixed length is cut out and put in; all others are bytes.
_FORMATS = {"timestamp": "Q", "value": "f", "confidence": "f", "mean": "f"}


class _Cut(NamedTuple):
    """Bytes cut at the places that differ: by turns a piece that is always the same and one that is not."""

    struct: Struct
    same: tuple[bytes, ...]


def _cut(data: bytes, places: Sequence[_Place]) -> _Cut:
    form = ["<"]
    same: list[bytes] = []
    at = 0
    for place in places:
        same.append(data[at : place.start])
        form.append(f"{place.start - at}s")
        form.append(_FORMATS.get(place.what) or f"{place.end - place.start}s")
        at = place.end
    same.append(data[at:])
    form.append(f"{len(data) - at}s")
    return _Cut(Struct("".join(form)), tuple(same))


class Deliveries(NamedTuple):
    """Who was given the rewards of a sample, and by whom: the sources of all rewards, by their number."""

    received: Mapping[int, Sequence[int]]
    sent: Mapping[int, Sequence[int]]


class _Taken:
    """Where in a row the pieces of a sample are.

    Attributes:
        of: the numbers of what has a name, in its order.
        sources: value and confidence of each source of a reward; 0 where that is 0, and not written.
        end: the number behind all of them.
    """

    def __init__(self, places: Sequence[_Place], first: int) -> None:
        self.of: dict[str, list[int]] = {}
        self.sources: list[dict[str, int]] = []
        number = first + 1
        for place in places:
            if place.what == "source":
                self.sources.append({"value": 0, "confidence": 0})
            elif place.end > place.start:
                if place.what in ("value", "confidence"):
                    self.sources[-1][place.what] = number
                self.of.setdefault(place.what, []).append(number)
                number += 2
        self.end = number


def _pieces(places: Iterable[_Place], taken: _Taken, deliveries: Deliveries) -> Iterator[tuple[_Place, int]]:
    """Yield what differs in what is stored, and which of a row it is."""
    actor, mean = -1, taken.end
    payloads = iter(taken.of.get("payload", ()))
    sources: Iterator[int] = iter(())
    source: Mapping[str, int] = {}
    for place in places:
        if place.what == "actor":
            actor += 1
            sources = chain(deliveries.received.get(actor, ()), deliveries.sent.get(actor, ()))
        elif place.what == "reward":
            source = taken.sources[next(sources)]
        elif place.what == "mean":
            yield place, mean
            mean += 1
        elif place.what in ("value", "confidence"):
            yield place, source[place.what]
        elif place.what == "payload":
            if place.end > place.start:
                yield place, next(payloads)
        elif place.what in taken.of:  # else it is 0
            yield place, taken.of[place.what][0]


class Layout:
    """How samples of one kind look, and what is stored of them.

    A sample is of this kind if all bytes between the places are the same, tags and lengths among them, and if each tick
    ends where its place does; or else a longer one could go on in the tag behind it, and there would be other fields.

    Everything that what is stored is made of is in one row: 0.0, what is always the same in it, the pieces of the
    sample, and the means of the rewards.

    Args:
        data: a usual sample, serialised.
        write: what is stored of it.
        deliveries: who got its rewards.

    Attributes:
        bytes: what it takes, about.

    Raises:
        ValueError: it has none.
    """

    __slots__ = (
        "_action_ticks",
        "_goes_on",
        "_means",
        "_pack",
        "_pick",
        "_pick_ticks",
        "_row",
        "_same",
        "_tick",
        "_timestamp",
        "_unpack",
        "_write",
        "bytes",
    )

    def __init__(self, data: bytes, write: SampleWrite, deliveries: Deliveries) -> None:
        places = list(_places(data, _SAMPLE, 0, len(data)))
        cut = _cut(data, [place for place in places if place.end > place.start])
        stored = list(_places(write.data, _STORED, 0, len(write.data)))
        self._write = write._replace(data=b"")
        count = sum(1 for _ in _pieces(stored, _Taken(places, 0), deliveries))
        taken = _Taken(places, count + 2)
        pieces = list(_pieces(stored, taken, deliveries))
        given = _cut(write.data, [place for place, _ in pieces])
        self._unpack, self._same = cut.struct.unpack, cut.same
        self._pack, self._row = given.struct.pack, (0.0, *given.same)
        self.bytes = sum(_PLACE_BYTES + len(piece) for piece in cut.same + given.same)
        picked = [1]
        for number, (_, piece) in enumerate(pieces):
            picked += piece, number + 2
        if len(picked) < 2:
            raise ValueError("there is nothing that differs")
        self._pick: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(*picked)
        # The first two are always the same: of a single one `itemgetter` makes no tuple.
        self._pick_ticks: Callable[[tuple[Any, ...]], tuple[bytes, ...]] = itemgetter(
            1, 1, *(number for name in _TICKS for number in taken.of.get(name, ()))
        )
        self._goes_on = self._which_go_on(self._row + self._unpack(data))
        self._means = [
            [(taken.sources[source]["value"], taken.sources[source]["confidence"]) for source in received]
            for _, received in sorted(deliveries.received.items())
        ]
        self._tick = taken.of.get("tick", [0])[0]
        self._timestamp = taken.of.get("timestamp", [0])[0]
        if any(place.what == "tick" and place.end - place.start > _MAX_DIGITS for place in places):
            raise ValueError("a tick that may be too large")
        #: Those that may be `_NO_ACTION`.
        lengths = [place.end - place.start for place in places if place.what == "action_tick"]
        ticks = zip(taken.of.get("action_tick", ()), lengths, strict=True)
        self._action_ticks = [number for number, length in ticks if length == len(_NO_ACTION)]

    def write(self, data: bytes) -> SampleWrite | None:
        """Return what is stored of a serialised sample of the same length; None: it is of another kind."""
        fields = self._unpack(data)
        if fields[::2] != self._same:
            return None
        row: tuple[Any, ...] = self._row + fields
        if self._which_go_on(row) != self._goes_on:
            return None
        for number in self._action_ticks:
            if row[number] == _NO_ACTION:
                return None
        timestamp = row[self._timestamp] if self._timestamp else 0
        if timestamp > _MAX_TIMESTAMP:
            return None
        tick_id = number_of(row[self._tick]) if self._tick else 0
        for sources in self._means:
            total = weights = 0.0
            for value, confidence in sources:
                weight = row[confidence]
                if weight > 0:
                    total += row[value] * weight
                    weights += weight
            row += (total / weights if weights > 0 else 0.0,)
        trial_id, _, _, state, _, kind = self._write
        return _make_write((trial_id, tick_id, timestamp, state, self._pack(*self._pick(row)), kind))

    def _which_go_on(self, row: tuple[Any, ...]) -> bytes:
        return b"".join(self._pick_ticks(row)).translate(_GOES_ON)


class Layouts:
    """The layouts of a trial's samples.

    Attributes:
        credit: what may still be spent on samples that are like none before.
    """

    def __init__(self) -> None:
        self._of_length: dict[int, list[Layout]] = {}
        self._bytes = 0
        self.credit = _CREDIT
        self._pause = 0

    def serialised(self, sample: DatalogSample) -> bytes | None:
        """Return the bytes of a sample; None: it is not worth while now."""
        if self._pause:
            self._pause -= 1
            return None
        return sample.SerializeToString()

    def write(self, data: bytes) -> SampleWrite | None:
        """Return what is stored of a serialised sample; None: no layout is known."""
        for layout in self._of_length.get(len(data), ()):
            write = layout.write(data)
            if write is not None:
                if self.credit < _CREDIT:
                    self.credit += 1
                return write
        self.credit -= _LOOK
        if self.credit < _LEARN or len(data) > MAX_BYTES:
            self._pause = _PAUSE
            self.credit = min(self.credit + _ALLOWANCE, _CREDIT)
        return None

    def learn(self, data: bytes, write: SampleWrite, deliveries: Deliveries) -> None:
        """Take note of how a usual sample looks.

        Args:
            data: the sample, serialised.
            write: what is stored of it.
            deliveries: who got its rewards.
        """
        if self.credit < _LEARN or len(data) > MAX_BYTES:
            return
        self.credit -= _LEARN
        try:
            layout = Layout(data, write, deliveries)
        except (ValueError, IndexError):
            return  # it has something that this knows nothing of
        if layout.write(data) != write:
            return
        if self._bytes + layout.bytes > _MAX_LAYOUTS_BYTES:
            self._of_length.clear()
            self._bytes = 0
        alike = self._of_length.setdefault(len(data), [])
        alike.insert(0, layout)
        self._bytes += layout.bytes
        if len(alike) > _MAX_OF_A_LENGTH:
            self._bytes -= alike.pop().bytes
