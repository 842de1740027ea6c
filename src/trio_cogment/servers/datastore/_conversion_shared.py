"""The fast path of the conversion for objects: `SharedSample`, which have never been serialised.

A stored sample is made of the payloads, the rewards and what is the same in all samples of its layout. The layout is
learned from the full conversion, and follows from what is looked at of each sample: who sees which observation, who
gave rewards to whom, and which numbers are 0, as protobuf leaves zeros out. The lengths of payloads do not matter, nor
how large they are. The parts are what the storage gets; most samples are never put together.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from trio_cogment.base.shared_message import SharedSample
from trio_cogment.servers.datastore._chunk_layouts import (
    Layouts,
    Parts,
    checkpoint_field,
    joined,
    payload_head,
    tick_field,
)
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

_make_write, _make_parts = partial(tuple.__new__, SampleWrite), partial(tuple.__new__, Parts)


class _Found(NamedTuple):
    """What differs in a sample, and a key of what does not.

    Attributes:
        key: samples with the same have the same layout; None: this one takes the other way.
        tick_id: of the sample.
        timestamp: of the sample.
        numbers: value and confidence of each source of a reward, one after the other.
        payloads: as they are stored: observations, then actions.
        checkpoint: what the environment has saved of itself, serialized.
    """

    key: Hashable
    tick_id: int
    timestamp: int
    numbers: list[float]
    payloads: list[bytes]
    checkpoint: bytes | None = None


_NONE = _Found(None, 0, 0, [], [])


def _in_shared(sample: SharedSample) -> _Found:
    observations = sample.observations
    if observations is None:
        return _NONE
    payloads = [bytes(observation) for observation in observations.observations]
    count = len(payloads)
    for action in sample.actions:
        payloads.append(bytes(action.content))
    places = observations.actors_map
    saved = observations.checkpoint
    return _found(sample.tick_id, sample.timestamp, sample.state, sample.rewards, count, places, payloads, saved)


def _found(
    tick_id: int,
    timestamp: int,
    state: int,
    rewards: Iterable[Any],
    observations: int,
    places: Iterable[int],
    payloads: list[bytes],
    checkpoint: bytes | None,
) -> _Found:
    numbers: list[float] = []
    signature: list[Hashable] = []
    for reward in rewards:
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
    if len(numbers) > 2 * _MAX_SOURCES:
        return _NONE
    key = (state, timestamp > 0, observations, *places, len(payloads), *signature)
    return _Found(key, tick_id, timestamp, numbers, payloads, checkpoint)


class _Template:
    """How shared samples of one layout are converted.

    Args:
        found: in one.
        write: its full conversion.
        deliveries: who received and sent its rewards.

    Raises:
        ValueError: there is no template for such a sample.
    """

    __slots__ = ("_layout", "_means", "_pack", "_pick", "_same", "_size", "_write")

    def __init__(self, found: _Found, write: SampleWrite, deliveries: Deliveries) -> None:
        split = Layouts().split(write.tick_id, write.timestamp, joined(write.data))
        if split is None:
            raise ValueError("it has no layout")
        layout = self._layout = split.layout
        self._write = write
        receivers = sorted(deliveries.received)
        self._means = [deliveries.received[receiver] for receiver in receivers]
        rewards = iter(layout.rewards())
        # All pieces of a sample are in one row: what is the same, timestamp, numbers, and means.
        timestamp = len(layout.same)
        numbers, means = timestamp + 1, timestamp + 1 + len(found.numbers)
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
        middle = struct.Struct("".join(form))
        self._pack = middle.pack
        self._size = len(layout.before) + middle.size + len(layout.after)

    def convert(self, found: _Found) -> SampleWrite | None:
        """Convert a sample; None: it has numbers that do not fit."""
        _, tick_id, timestamp, numbers, payloads, saved = found
        layout = self._layout
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
        size = self._size + len(tick_field(tick_id))
        for payload in payloads:
            length = len(payload)
            size += length + len(payload_head(length))
        checkpoint = b""
        if saved is not None:
            checkpoint = checkpoint_field(saved)
            size += len(checkpoint)
        write, parts = self._write, _make_parts((layout, tick_id, middle, payloads, size, checkpoint))
        return _make_write((write[0], tick_id, timestamp, write[3], parts, write[5], write[6]))


class SharedTemplates:
    """The layouts of a trial's shared samples."""

    def __init__(self) -> None:
        self._of_key: dict[Hashable, _Template] = {}
        self._credit = _MAX_CREDIT
        self._wanted: _Found | None = None

    @property
    def wanted(self) -> bool:
        """Whether the last sample that was looked up may teach its layout."""
        return self._wanted is not None

    def convert(self, sample: SharedSample) -> SampleWrite | None:
        """Convert a sample, which is only read; None: `learn` from its full conversion."""
        self._wanted = None
        found = _in_shared(sample)
        if self._credit < _MAX_CREDIT:
            self._credit += 1
        template = self._of_key.get(found.key)
        if template is not None:
            if found.tick_id >= MAX_NUMBER or found.timestamp > MAX_NUMBER:
                return None
            return template.convert(found)
        if found.key is not None and found.checkpoint is None and self._credit >= _LEARN:
            self._wanted = found
        return None

    def learn(self, write: SampleWrite, deliveries: Deliveries) -> None:
        """Learn the layout of the sample that was looked up last, if that is worth the time.

        Args:
            write: its full conversion.
            deliveries: who received and sent its rewards.
        """
        found, self._wanted = self._wanted, None
        if found is None:
            return
        self._credit -= _LEARN
        try:
            template = _Template(found, write, deliveries)
        except (ValueError, LookupError):
            return  # it has something that is not usual
        converted = template.convert(found)
        if converted is None or joined(converted.data) != joined(write.data):
            return
        if len(self._of_key) >= _MAX_TEMPLATES:
            self._of_key.clear()
        self._of_key[found.key] = template
