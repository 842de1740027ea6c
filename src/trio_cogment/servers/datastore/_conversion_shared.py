"""The fast path of the conversion for samples of this process, which are objects: `SharedSample`.

`_conversion_templates` learns how a serialised sample becomes a stored one. Here nothing is serialised on the way: a
stored sample is put together from the payloads, the rewards and what is the same in all samples of its layout. The
layout is learned from the full conversion, and follows from what is looked at of each sample: who sees which
observation, who gave rewards to whom, and which numbers are 0, as protobuf leaves zeros out. The lengths of payloads do
not matter, nor how large they are: each is copied once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from trio_cogment.base.shared_message import SharedSample
from trio_cogment.servers.datastore._chunk_layouts import Cut, Layouts, payload_head, tick_field
from trio_cogment.servers.datastore._conversion_templates import Deliveries
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER
from trio_cogment.servers.datastore.storage import SampleWrite

#: Samples with more sources of rewards take the other way.
_MAX_SOURCES = 256
#: Layouts of a trial, and limits of the time that is spent on samples without one: learning costs `_LEARN`, and each
#: sample that is converted, or passed on without learning, earns 1, up to `_MAX_CREDIT`.
_MAX_TEMPLATES = 64
_MAX_CREDIT = 256
_LEARN = 32
#: Lengths of payloads for which it is kept where the parts of a sample are.
_MAX_CUTS = 8

_make_write = partial(tuple.__new__, SampleWrite)


class _Parts(NamedTuple):
    """What differs in a shared sample, and a key of what does not.

    Attributes:
        key: samples with the same have the same layout; None: this one takes the other way.
        numbers: value and confidence of each source of a reward, one after the other.
        payloads: as they are stored: observations, then actions.
    """

    key: Hashable
    numbers: list[float]
    payloads: list[bytes]


_NONE = _Parts(None, [], [])


def _parts_of(sample: SharedSample) -> _Parts:
    numbers: list[float] = []
    signature: list[Hashable] = []
    for reward in sample.rewards:
        for source in reward.sources:
            if source.HasField("user_data"):
                return _NONE
            value, confidence = source.value, source.confidence
            numbers += value, confidence
            signature += (
                reward.receiver_name,
                source.sender_name,
                # Protobuf writes all numbers but 0, which is not -0.
                value != 0 or math.copysign(1, value) < 0,
                confidence != 0 or math.copysign(1, confidence) < 0,
            )
    observations, actions = sample.observations, sample.actions
    if observations is None or len(numbers) > 2 * _MAX_SOURCES:
        return _NONE
    payloads = [bytes(observation) for observation in observations.observations]
    count = len(payloads)
    for action in actions:
        payloads.append(bytes(action.content))
    key = (sample.state, sample.timestamp > 0, count, *observations.actors_map, len(actions), *signature)
    return _Parts(key, numbers, payloads)


class _Template:
    """How shared samples of one layout are converted.

    Args:
        parts: of one.
        write: its full conversion.
        deliveries: who received and sent its rewards.

    Raises:
        ValueError: there is no template for such a sample.
    """

    __slots__ = ("_cuts", "_layout", "_means", "_pack", "_pick", "_same", "_write")

    def __init__(self, parts: _Parts, write: SampleWrite, deliveries: Deliveries) -> None:
        split = Layouts().split(write.tick_id, write.timestamp, write.data)
        if split is None:
            raise ValueError("it has no layout")
        layout = self._layout = split.layout
        self._write = write
        receivers = sorted(deliveries.received)
        self._means = [deliveries.received[receiver] for receiver in receivers]
        rewards = iter(layout.rewards())
        # All pieces of a sample are in one row: what is the same, timestamp, numbers, and means.
        timestamp = len(layout.same)
        numbers, means = timestamp + 1, timestamp + 1 + len(parts.numbers)
        form, picked = ["<"], list[int]()
        for place, (same, name) in enumerate(zip(layout.same, (*layout.names, ""), strict=True)):
            form.append(f"{len(same)}s")
            picked.append(place)
            if name == "timestamp":
                form.append("Q")
                picked.append(timestamp)
            elif name:
                form.append("f")
                actor, kind, number, which = next(rewards)
                if kind == "reward":
                    picked.append(means + receivers.index(actor))
                else:
                    sources = (deliveries.received if kind == "received_rewards" else deliveries.sent)[actor]
                    picked.append(numbers + 2 * sources[number] + (which == "confidence"))
        if len(picked) < 2:
            raise ValueError("it has no timestamp and no rewards")
        self._same = layout.same
        self._pick: Any = itemgetter(*picked)
        self._pack = struct.Struct("".join(form)).pack
        self._cuts: dict[tuple[int, ...], Cut] = {}

    def convert(self, tick_id: int, timestamp: int, parts: _Parts) -> SampleWrite | None:
        """Convert a sample; None: it has numbers that do not fit."""
        numbers, layout = parts.numbers, self._layout
        row: list[Any] = [*self._same, timestamp, *numbers]
        for sources in self._means:  # as `RewardMean`, without its calls: a test holds both conversions together
            total = weights = 0.0
            for source in sources:
                weight = numbers[2 * source + 1]
                if weight > 0:
                    total += numbers[2 * source] * weight
                    weights += weight
            row.append(total / weights if weights > 0 else 0.0)
        try:
            middle = self._pack(*self._pick(row))
        except (struct.error, OverflowError):
            return None
        tick = tick_field(tick_id)
        joined = [layout.before, tick, middle]
        for payload in parts.payloads:
            joined += payload_head(len(payload)), payload
        joined.append(layout.after)
        lengths = (len(tick), *map(len, parts.payloads))
        cut = self._cuts.get(lengths)
        if cut is None and len(self._cuts) < _MAX_CUTS:
            cut = self._cuts[lengths] = Cut(layout, lengths[0], lengths[1:])
        write = self._write
        return _make_write((write[0], tick_id, timestamp, write[3], b"".join(joined), write[5], cut, write[7]))


class SharedTemplates:
    """The layouts of a trial's shared samples."""

    def __init__(self) -> None:
        self._of_key: dict[Hashable, _Template] = {}
        self._credit = _MAX_CREDIT
        self._wanted: _Parts | None = None

    @property
    def wanted(self) -> bool:
        """Whether the last sample that was looked up may teach its layout."""
        return self._wanted is not None

    def convert(self, sample: SharedSample) -> SampleWrite | None:
        """Convert a sample; None: `learn` from its full conversion."""
        self._wanted = None
        parts = _parts_of(sample)
        if self._credit < _MAX_CREDIT:
            self._credit += 1
        template = self._of_key.get(parts.key)
        if template is not None:
            if sample.tick_id >= MAX_NUMBER or sample.timestamp > MAX_NUMBER:
                return None
            return template.convert(sample.tick_id, sample.timestamp, parts)
        if parts.key is not None and self._credit >= _LEARN:
            self._wanted = parts
        return None

    def learn(self, write: SampleWrite, deliveries: Deliveries) -> None:
        """Learn the layout of the sample that was looked up last, if that is worth the time.

        Args:
            write: its full conversion.
            deliveries: who received and sent its rewards.
        """
        parts, self._wanted = self._wanted, None
        if parts is None:
            return
        self._credit -= _LEARN
        try:
            template = _Template(parts, write, deliveries)
        except (ValueError, LookupError):
            return  # it has something that is not usual
        converted = template.convert(write.tick_id, write.timestamp, parts)
        if converted is None or converted.data != write.data:
            return
        if len(self._of_key) >= _MAX_TEMPLATES:
            self._of_key.clear()
        self._of_key[parts.key] = template
