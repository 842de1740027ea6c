"""The fast path of the conversion: samples that have the same layout as an earlier one of their trial.

Most ticks of a trial differ only in their numbers and in the content of their payloads. So do the bytes that protobuf
serialises them to, which takes it a microsecond: between these places, which have the same length from tick to tick,
the bytes are the same. A `Template` is learned from a sample and from what the full conversion made of it: it knows the
places in both. A sample whose other bytes are all the same is cut at these places, and the pieces are put together to
the stored sample. Its fields are not read one by one: what they mean follows from the bytes that are the same.

The result is parsed to the very message that `TrialConverter.convert` returns; the bytes need not be those that
protobuf would choose.

It takes 4 microseconds where the full conversion takes 10.5: without it `ingest_ratio` of `benchmarks/datastore.py` is
38 % lower. Samples whose payloads vary in length from tick to tick gain nothing, so after some misses most of them are
not even looked up: `_conversion_shared` is for them.
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
from trio_cogment.servers.datastore._chunk_layouts import Layouts
from trio_cogment.servers.datastore._protobuf_wire import Field, Place, find_places, number_of, tag
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER
from trio_cogment.servers.datastore.storage import SampleWrite

#: Larger samples have no templates: they are copied several times on this path, which takes longer than reading
#: their fields.
_MAX_SAMPLE_BYTES = 16 * 1024
#: The templates of a trial are limited by the memory they take together: their bytes, and this many for each place.
_MAX_TEMPLATES_BYTES = 256 * 1024
_PLACE_BYTES = 160
#: Templates for samples of the same length, which are tried one after the other.
_MAX_OF_A_LENGTH = 4
#: Limits the time that is spent on samples without a template. A lookup that fails costs `_MISS`, learning a template
#: costs `_LEARN`, and each sample with a template earns 1, up to `_MAX_CREDIT`. When the credit is too low to learn,
#: `_PAUSE` samples are not looked up at all, and then the credit is raised by `_ALLOWANCE`. Each pause is twice as long
#: as the one before, up to `_MAX_PAUSE`, until a sample has a template again.
_MAX_CREDIT = 256
_MISS = 2
_LEARN = 32
_PAUSE = 64
_MAX_PAUSE = 1024
_ALLOWANCE = 8

#: A tick that takes this many bytes as a varint is below `MAX_NUMBER`.
_MAX_TICK_BYTES = 8
#: The tick of an action that never came, -2, as protobuf writes it.
_NO_ACTION = b"\x03"
#: For each byte of a varint, whether another one follows.
_CONTINUES = bytes(byte >> 7 for byte in range(256))
#: The places that hold varints.
_TICKS = ("tick", "action_tick", "other_tick")

_make_write = partial(tuple.__new__, SampleWrite)


_SOURCE = {tag(RewardSource, "value"): Field("value"), tag(RewardSource, "confidence"): Field("confidence")}
_SAMPLE = {
    tag(DatalogSample, "info"): Field(
        inside={tag(SampleInfo, "tick_id"): Field("tick"), tag(SampleInfo, "timestamp"): Field("timestamp")}
    ),
    tag(DatalogSample, "observations"): Field(
        inside={
            tag(ObservationSet, "tick_id"): Field("other_tick"),
            tag(ObservationSet, "timestamp"): Field(),
            tag(ObservationSet, "observations"): Field("payload"),
        },
    ),
    tag(DatalogSample, "actions"): Field(
        inside={
            tag(Action, "tick_id"): Field("action_tick"),
            tag(Action, "timestamp"): Field(),
            tag(Action, "content"): Field("payload"),
        },
    ),
    tag(DatalogSample, "rewards"): Field(
        inside={
            tag(Reward, "tick_id"): Field("other_tick"),
            tag(Reward, "value"): Field(),
            tag(Reward, "sources"): Field("source", _SOURCE),
        },
    ),
}
_REWARD = {
    tag(StoredTrialActorSampleReward, "reward"): Field("value"),
    tag(StoredTrialActorSampleReward, "confidence"): Field("confidence"),
}
_STORED = {
    tag(StoredTrialSample, "tick_id"): Field("tick"),
    tag(StoredTrialSample, "timestamp"): Field("timestamp"),
    tag(StoredTrialSample, "actor_samples"): Field(
        "actor",
        {
            tag(StoredTrialActorSample, "reward"): Field("mean"),
            tag(StoredTrialActorSample, "received_rewards"): Field("reward", _REWARD),
            tag(StoredTrialActorSample, "sent_rewards"): Field("reward", _REWARD),
        },
    ),
    tag(StoredTrialSample, "payloads"): Field("payload"),
}


#: The `struct` format of values of fixed length; all others are bytes.
_FORMATS = {"timestamp": "Q", "value": "f", "confidence": "f", "mean": "f"}


class _Cut(NamedTuple):
    """How to cut bytes at their places: pieces that are always the same alternate with pieces that differ."""

    struct: Struct
    same: tuple[bytes, ...]


def _cut(data: bytes, places: Sequence[Place]) -> _Cut:
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
    """Which actors received and sent the rewards of a sample.

    Attributes:
        received: for each receiver the sources of rewards, numbered through the sample.
        sent: the same for each sender that is an actor.
    """

    received: Mapping[int, Sequence[int]]
    sent: Mapping[int, Sequence[int]]


class _Columns:
    """At which index of a row the pieces of a sample are.

    Attributes:
        of: the indexes of the pieces with a name, in order.
        sources: the indexes of value and confidence of each source of a reward; 0 where they are 0, as protobuf leaves
            zeros out.
        end: the index after all of them.
    """

    def __init__(self, places: Sequence[Place], first: int) -> None:
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


def _pieces(places: Iterable[Place], columns: _Columns, deliveries: Deliveries) -> Iterator[tuple[Place, int]]:
    """Yield the places of the stored sample that differ, and the index of a row for each."""
    actor, mean = -1, columns.end
    payloads = iter(columns.of.get("payload", ()))
    sources: Iterator[int] = iter(())
    source: Mapping[str, int] = {}
    for place in places:
        if place.what == "actor":
            actor += 1
            sources = chain(deliveries.received.get(actor, ()), deliveries.sent.get(actor, ()))
        elif place.what == "reward":
            source = columns.sources[next(sources)]
        elif place.what == "mean":
            yield place, mean
            mean += 1
        elif place.what in ("value", "confidence"):
            yield place, source[place.what]
        elif place.what == "payload":
            if place.end > place.start:
                yield place, next(payloads)
        elif place.what in columns.of:  # else it is 0
            yield place, columns.of[place.what][0]


class Template:
    """How samples of one layout are converted.

    A sample has the layout if all bytes between the places are the same, tags and lengths among them, and if each
    varint ends where its place does. Without the second check the varint of a longer number could go on in the bytes
    after its place, and these would be other fields.

    What the stored sample is made of is collected in one row: 0.0, the pieces of the stored sample that are always the
    same, the pieces of the given sample, and the means of the rewards.

    Args:
        data: a serialised sample with `info` and without messages and user data.
        write: its full conversion.
        deliveries: who received and sent its rewards.

    Attributes:
        bytes: the memory it takes, about.

    Raises:
        ValueError: there is no template for such a sample.
    """

    __slots__ = (
        "_action_ticks",
        "_continues",
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
        places = list(find_places(data, _SAMPLE, 0, len(data)))
        cut = _cut(data, [place for place in places if place.end > place.start])
        stored = list(find_places(write.data, _STORED, 0, len(write.data)))
        cut_of_stored = Layouts().cut(write.tick_id, write.timestamp, write.data)
        self._write = write._replace(data=b"", cut=cut_of_stored)
        # How many pieces the stored sample has decides where in the row those of the given one begin.
        count = sum(1 for _ in _pieces(stored, _Columns(places, 0), deliveries))
        columns = _Columns(places, count + 2)
        pieces = list(_pieces(stored, columns, deliveries))
        stored_cut = _cut(write.data, [place for place, _ in pieces])
        self._unpack, self._same = cut.struct.unpack, cut.same
        self._pack, self._row = stored_cut.struct.pack, (0.0, *stored_cut.same)
        self.bytes = sum(_PLACE_BYTES + len(piece) for piece in cut.same + stored_cut.same)
        picked = [1]
        for number, (_, piece) in enumerate(pieces):
            picked += piece, number + 2
        if len(picked) < 2:
            raise ValueError("there is nothing that differs")
        self._pick: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(*picked)
        # With a single index `itemgetter` returns no tuple, so the first column, which is always the same, is picked
        # twice.
        self._pick_ticks: Callable[[tuple[Any, ...]], tuple[bytes, ...]] = itemgetter(
            1, 1, *(number for name in _TICKS for number in columns.of.get(name, ()))
        )
        self._continues = self._continuations(self._row + self._unpack(data))
        self._means = [
            [(columns.sources[source]["value"], columns.sources[source]["confidence"]) for source in received]
            for _, received in sorted(deliveries.received.items())
        ]
        self._tick = columns.of.get("tick", [0])[0]
        self._timestamp = columns.of.get("timestamp", [0])[0]
        if any(place.what == "tick" and place.end - place.start > _MAX_TICK_BYTES for place in places):
            raise ValueError("a tick that may be too large")
        #: Those that are as long as `_NO_ACTION`.
        lengths = [place.end - place.start for place in places if place.what == "action_tick"]
        ticks = zip(columns.of.get("action_tick", ()), lengths, strict=True)
        self._action_ticks = [number for number, length in ticks if length == len(_NO_ACTION)]

    def convert(self, data: bytes) -> SampleWrite | None:
        """Convert a serialised sample that is as long as the one this was learned from.

        Returns:
            None: it has another layout.
        """
        fields = self._unpack(data)
        if fields[::2] != self._same:
            return None
        row: tuple[Any, ...] = self._row + fields
        if self._continuations(row) != self._continues:
            return None
        for number in self._action_ticks:
            if row[number] == _NO_ACTION:
                return None
        timestamp = row[self._timestamp] if self._timestamp else 0
        if timestamp > MAX_NUMBER:
            return None
        tick_id = number_of(row[self._tick]) if self._tick else 0
        for sources in self._means:  # as `RewardMean`, without its calls: a test holds both conversions together
            total = weights = 0.0
            for value, confidence in sources:
                weight = row[confidence]
                if weight > 0:
                    total += row[value] * weight
                    weights += weight
            row += (total / weights if weights > 0 else 0.0,)
        trial_id, _, _, state, _, kind, cut, attempt = self._write
        return _make_write((trial_id, tick_id, timestamp, state, self._pack(*self._pick(row)), kind, cut, attempt))

    def _continuations(self, row: tuple[Any, ...]) -> bytes:
        return b"".join(self._pick_ticks(row)).translate(_CONTINUES)


class Templates:
    """The templates of a trial.

    Attributes:
        credit: limits the time that is spent on samples without a template.
        wanted: the last sample that was looked up has no template and may become one.
    """

    def __init__(self) -> None:
        self._of_length: dict[int, list[Template]] = {}
        self._bytes = 0
        self._pause = 0
        self._next_pause = _PAUSE
        self.credit = _MAX_CREDIT
        self.wanted = False

    def convert(self, sample: DatalogSample) -> SampleWrite | None:
        """Convert a sample, which is only read; None: there is no template for it, or it was not looked up."""
        self.wanted = False
        if self._pause:
            self._pause -= 1
            return None
        data = sample.SerializeToString()
        for template in self._of_length.get(len(data), ()):
            write = template.convert(data)
            if write is not None:
                if self.credit < _MAX_CREDIT:
                    self.credit += 1
                    self._next_pause = _PAUSE
                return write
        self.credit -= _MISS
        if self.credit >= _LEARN and len(data) <= _MAX_SAMPLE_BYTES:
            self.wanted = True
        else:
            self._pause = self._next_pause
            self._next_pause = min(2 * self._next_pause, _MAX_PAUSE)
            self.credit = min(self.credit + _ALLOWANCE, _MAX_CREDIT)
        return None

    def learn(self, sample: DatalogSample, write: SampleWrite, deliveries: Deliveries) -> None:
        """Make a template of a sample, if there can be one.

        Args:
            sample: one with `info` and without messages and user data.
            write: its full conversion.
            deliveries: who received and sent its rewards.
        """
        self.credit -= _LEARN
        data = sample.SerializeToString()
        try:
            template = Template(data, write, deliveries)
        except (ValueError, IndexError):
            return  # it has something that is not usual
        converted = template.convert(data)
        if converted is None or converted._replace(cut=None) != write:
            return
        if self._bytes + template.bytes > _MAX_TEMPLATES_BYTES:
            self._of_length.clear()
            self._bytes = 0
        alike = self._of_length.setdefault(len(data), [])
        alike.insert(0, template)
        self._bytes += template.bytes
        if len(alike) > _MAX_OF_A_LENGTH:
            self._bytes -= alike.pop().bytes
