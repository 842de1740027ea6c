"""The fast path of the conversion: samples that have the same layout as an earlier one of their trial.

Most ticks of a trial differ only in their numbers and in the content of their payloads. So do the bytes that protobuf
serialises them to, which takes it a microsecond: between these places, which have the same length from tick to tick,
the bytes are the same. A `Template` is learned from a sample and from what the full conversion made of it: it knows the
places in both. A sample whose other bytes are all the same is not read field by field, and not put together either: it
goes to the storage as it came (`Parts` of a `Cut`), and that takes the columns out of all samples of a commit at once.
Where the bytes are wanted, of trials that are followed, they are parsed to the very message that
`TrialConverter.convert` returns, and need not be those that protobuf would choose.

It takes 3 microseconds where the full conversion takes 10.5. Samples whose payloads vary in length from tick to tick
gain nothing, so after some misses most of them are not even looked up: `_conversion_varying` is for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
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
from trio_cogment.servers.datastore._chunk_layouts import Cut, Layouts, Parts, joined, payload_head
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
#: For each byte of a varint, whether another one follows; no number ends with a 0, unless others wrote it.
_CONTINUES = bytes([2, *(byte >> 7 for byte in range(1, 256))])
#: The places that hold varints.
_TICKS = ("tick", "action_tick", "other_tick")

# What is looked up for each sample.
_new, _number = tuple.__new__, int.from_bytes


_SOURCE = {tag(RewardSource, "value"): Field("value"), tag(RewardSource, "confidence"): Field("confidence")}
_SAMPLE = {
    tag(DatalogSample, "info"): Field(
        inside={tag(SampleInfo, "tick_id"): Field("tick"), tag(SampleInfo, "timestamp"): Field("timestamp")}
    ),
    tag(DatalogSample, "observations"): Field(
        "message",
        inside={
            tag(ObservationSet, "tick_id"): Field("other_tick"),
            tag(ObservationSet, "timestamp"): Field(),
            tag(ObservationSet, "observations"): Field("payload"),
        },
    ),
    tag(DatalogSample, "actions"): Field(
        "message",
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


class Deliveries(NamedTuple):
    """Which actors received and sent the rewards of a sample.

    Attributes:
        received: for each receiver the sources of rewards, numbered through the sample.
        sent: the same for each sender that is an actor.
    """

    received: Mapping[int, Sequence[int]]
    sent: Mapping[int, Sequence[int]]


class _Places:
    """The places of a sample by what is there, as slices; those of numbers that are 0 are empty."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.of: dict[str, list[slice]] = {}
        #: The value and the confidence of each source of a reward.
        self.sources: list[dict[str, slice]] = []
        for place in places:
            where = slice(place.start, place.end)
            if place.what == "source":
                self.sources.append({"value": _NOWHERE, "confidence": _NOWHERE})
            elif place.what in ("value", "confidence"):
                self.sources[-1][place.what] = where
            else:
                self.of.setdefault(place.what, []).append(where)

    def one(self, what: str) -> slice:
        found = self.of.get(what)
        return found[0] if found else _NOWHERE


_NOWHERE = slice(0, 0)


def _values(
    stored: Iterable[Place], came: _Places, deliveries: Deliveries
) -> tuple[list[slice], dict[int, list[tuple[slice, slice]]]]:
    """Return where the numbers and payloads of a stored sample are in the one that came; and of what means are made."""
    actor = -1
    numbers, payloads = list[slice](), list[slice]()
    means: dict[int, list[tuple[slice, slice]]] = {}
    # Those that are empty may not be there.
    left = (where for where in came.of.get("payload", ()) if where.stop > where.start)
    sources: Iterator[int] = iter(())
    source: Mapping[str, slice] = {}
    for place in stored:
        if place.what == "actor":
            actor += 1
            sources = chain(deliveries.received.get(actor, ()), deliveries.sent.get(actor, ()))
        elif place.what == "reward":
            source = came.sources[next(sources)]
        elif place.what == "mean":
            received = [came.sources[number] for number in deliveries.received[actor]]
            means[len(numbers)] = [(each["value"], each["confidence"]) for each in received]
            numbers.append(_NOWHERE)
        elif place.what in ("value", "confidence"):
            numbers.append(source[place.what])
        elif place.what == "payload":
            payloads.append(next(left) if place.end > place.start else _NOWHERE)
    if next(left, None) is not None:
        raise ValueError("some of its payloads are not stored")
    return [*numbers, *payloads], means


class Template:
    """How samples of one layout are converted.

    A sample has the layout if all bytes between the places are the same, tags and lengths among them, and if each
    varint ends where its place does. Without the second check the varint of a longer number could go on in the bytes
    after its place, and these would be other fields.

    The sample is not taken to pieces here, only looked at: the storage takes columns out of all that it stores at once
    (`Cut`), and most samples are never put together.

    Args:
        data: a serialised sample with `info` and without messages and user data; its payloads may be taken out.
        places: where its fields are.
        write: its full conversion.
        deliveries: who received and sent its rewards.
        payloads: those that were taken out, as the stored sample has them.

    Attributes:
        bytes: the memory it takes, about.

    Raises:
        ValueError: there is no template for such a sample.
    """

    __slots__ = (
        "_action_ticks", "_continues", "_cut", "_same", "_size", "_tick", "_timestamp", "_unpack_same",
        "_unpack_ticks", "_write", "bytes",
    )  # fmt: skip

    def __init__(
        self,
        data: bytes,
        places: Sequence[Place],
        write: SampleWrite,
        deliveries: Deliveries,
        payloads: Sequence[bytes] | None = None,
    ) -> None:
        whole = joined(write.data)
        split = Layouts().split(write.tick_id, write.timestamp, whole)
        if split is None:
            raise ValueError("it has no layout")
        self._write = write
        form, same, at = ["<"], list[bytes](), 0
        ticks, tick_form, tick_at = list[Place](), ["<"], 0
        for place in places:
            if place.end > place.start:
                form.append(f"{place.start - at}s{place.end - place.start}x")
                same.append(data[at : place.start])
                at = place.end
                if place.what in _TICKS:
                    ticks.append(place)
                    tick_form.append(f"{place.start - tick_at}x{place.end - place.start}s")
                    tick_at = place.end
        same.append(data[at:])
        self._same, self._unpack_same = tuple(same), Struct("".join([*form, f"{len(data) - at}s"])).unpack
        self._unpack_ticks = Struct("".join([*tick_form, f"{len(data) - tick_at}x"])).unpack
        self._continues = b"".join(self._unpack_ticks(data)).translate(_CONTINUES)
        found = _Places(places)
        self._timestamp, tick = found.one("timestamp"), found.one("tick")
        self._tick = next((number for number, place in enumerate(ticks) if place.what == "tick"), -1)
        stored = list(find_places(whole, _STORED, 0, len(whole)))
        self._size = len(whole)
        if payloads is not None:
            if split.values[split.layout.floats :] != tuple(payloads):
                raise ValueError("some of its payloads are not stored")
            stored = [place for place in stored if place.what != "payload"]
            self._size -= sum(len(payload_head(len(payload))) + len(payload) for payload in payloads)
        values, means = _values(stored, found, deliveries)
        pieces = (*same, *split.layout.same)
        self.bytes = sum(map(len, pieces)) + _PLACE_BYTES * (len(pieces) + len(values))
        self._cut = Cut(split.layout, len(data), tick, self._timestamp, values, means)
        if len(same) < 2:
            raise ValueError("there is nothing that differs")
        if tick.stop - tick.start > _MAX_TICK_BYTES:
            raise ValueError("a tick that may be too large")
        #: Those that are as long as `_NO_ACTION`.
        self._action_ticks = [
            number
            for number, place in enumerate(ticks)
            if place.what == "action_tick" and place.end - place.start == len(_NO_ACTION)
        ]

    def convert(
        self, data: bytes, payloads: Sequence[bytes] = (), size: int = 0, checkpoint: bytes = b""
    ) -> SampleWrite | None:
        """Convert a serialised sample that is as long as the one this was learned from.

        Args:
            data: the sample, without what was taken out.
            payloads: those that were taken out.
            size: how many bytes a stored sample has for these and for its checkpoint.
            checkpoint: what the stored sample has of that.

        Returns:
            None: it has another layout.
        """
        ticks = self._unpack_ticks(data)
        if self._unpack_same(data) != self._same or b"".join(ticks).translate(_CONTINUES) != self._continues:
            return None
        for number in self._action_ticks:
            if ticks[number] == _NO_ACTION:
                return None
        timestamp = _number(data[self._timestamp], "little")
        if timestamp > MAX_NUMBER:
            return None
        tick_id = number_of(ticks[self._tick]) if self._tick >= 0 else 0
        trial_id, _, _, state, _, kind, attempt = self._write
        parts = _new(Parts, (self._cut, tick_id, data, payloads, self._size + size, checkpoint))
        return _new(SampleWrite, (trial_id, tick_id, timestamp, state, parts, kind, attempt))


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

    def convert(
        self, data: bytes, payloads: Sequence[bytes] = (), size: int = 0, checkpoint: bytes = b""
    ) -> SampleWrite | None:
        """Convert a serialised sample as `Template.convert` does; None: none fits, or it was not looked up."""
        self.wanted = False
        if self._pause:
            self._pause -= 1
            return None
        for template in self._of_length.get(len(data), ()):
            write = template.convert(data, payloads, size, checkpoint)
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
        data = sample.SerializeToString()
        self.learn_from(lambda: Template(data, places_of(data), write, deliveries), (data,), write)

    def learn_from(self, make: Callable[[], Template], sample: Sequence[Any], write: SampleWrite) -> None:
        """Add a template, if it makes of its sample what the full conversion has made of that.

        Args:
            make: returns the template. It raises ValueError, LookupError or StopIteration if there can be none.
            sample: it, as arguments of `convert`.
            write: its full conversion.
        """
        self.credit -= _LEARN
        try:
            template = make()
        except (ValueError, LookupError, StopIteration):
            return  # it has something that is not usual
        converted = template.convert(*sample)
        if converted is None or converted._replace(data=joined(converted.data)) != write:
            return
        if self._bytes + template.bytes > _MAX_TEMPLATES_BYTES:
            self._of_length.clear()
            self._bytes = 0
        alike = self._of_length.setdefault(len(sample[0]), [])
        alike.insert(0, template)
        self._bytes += template.bytes
        if len(alike) > _MAX_OF_A_LENGTH:
            self._bytes -= alike.pop().bytes


def places_of(data: bytes) -> list[Place]:
    """Return where the fields of a serialised sample are; "message" begins one that has payloads.

    Raises:
        ValueError: it has something that no usual sample has.
    """
    return list(find_places(data, _SAMPLE, 0, len(data)))
