"""The fast path of the conversion for objects: `SharedSample`, which have never been serialised.

A stored sample is made of the payloads, the rewards and what is the same in all samples of its layout. The layout is
learned from the full conversion, and follows from what is looked at of each sample: who sees which observation, who
gave rewards to whom, and which numbers are 0, as protobuf leaves zeros out. The lengths of payloads do not matter, nor
how large they are. The parts are what the storage gets; most samples are never put together.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from trio_cogment.base.shared_message import SharedReward, SharedSample
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
#: Numbers of rewards that are remembered for each layout.
_MAX_KNOWN = 256

_make_write, _make_parts = partial(tuple.__new__, SampleWrite), partial(tuple.__new__, Parts)


class _Found(NamedTuple):
    """What differs in a sample, and a key of what does not.

    Attributes:
        key: samples with the same have the same layout.
        tick_id: of the sample.
        timestamp: of the sample.
        numbers: value and confidence of each source of a reward, one after the other.
        payloads: as they are stored: observations, then actions.
        checkpoint: what the environment has saved of itself, serialized.
    """

    key: Hashable
    tick_id: int
    timestamp: int
    numbers: tuple[float, ...]
    payloads: list[bytes]
    checkpoint: bytes | None = None


def _given(rewards: Iterable[SharedReward]) -> tuple[tuple[Hashable, ...] | None, tuple[float, ...]]:
    """Return the part of a key that is about rewards, and their numbers; None: there is more than those.

    For each source of a reward the part has from whom and to whom it is, and which of its numbers are 0.
    """
    signature: tuple[Hashable, ...] = ()
    numbers: tuple[float, ...] = ()
    for reward in rewards:
        if reward.stored is None:  # most of those for the record alone have been looked at in an earlier tick
            reward.stored = _looked_at(reward)
        added, values = reward.stored
        if added is None:
            return None, ()
        signature += added
        numbers += values
    return (signature, numbers) if len(numbers) <= 2 * _MAX_SOURCES else (None, ())


def _looked_at(reward: SharedReward) -> tuple[tuple[Hashable, ...] | None, tuple[float, ...]]:
    numbers: list[float] = []
    signature: list[Hashable] = []
    for source in reward.sources[: _MAX_SOURCES + 1]:
        if source.HasField("user_data"):
            return None, ()
        value, confidence = source.value, source.confidence
        numbers += value, confidence
        signature += (
            reward.receiver_name,
            source.sender_name,
            # Protobuf writes all numbers but 0, which is not -0.
            value != 0 or math.copysign(1, value) < 0,
            confidence != 0 or math.copysign(1, confidence) < 0,
        )
    return tuple(signature), tuple(numbers)


class _Template:
    """How shared samples of one layout are converted.

    Args:
        found: in one.
        write: its full conversion.
        deliveries: who received and sent its rewards.

    Attributes:
        layout: of the samples.
        write: see above.
        size: of a stored sample, but for its tick, its payloads, and what the environment has saved.

    Raises:
        ValueError: there is no template for such a sample.
    """

    __slots__ = ("_known", "_means", "_pack", "_pick", "_stamp", "layout", "size", "write")

    def __init__(self, found: _Found, write: SampleWrite, deliveries: Deliveries) -> None:
        split = Layouts().split(write.tick_id, write.timestamp, joined(write.data))
        if split is None:
            raise ValueError("it has no layout")
        layout = self.layout = split.layout
        self.write = write
        receivers = sorted(deliveries.received)
        self._means = [deliveries.received[receiver] for receiver in receivers]
        rewards = iter(layout.rewards())
        # All pieces of a sample are in one row: what is the same, numbers, and means.
        numbers = len(layout.same) + 1
        means = numbers + len(found.numbers)
        form, picked = ["<"], list[int]()
        self._stamp = -1
        for place, (same, name) in enumerate(zip(layout.same, (*layout.names, ""), strict=True)):
            form.append(f"{len(same)}s")
            picked.append(place)
            if name == "timestamp":
                self._stamp = struct.calcsize("".join(form))
                form.append("8s")
                picked.append(numbers - 1)
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
        self._pick: Any = itemgetter(*picked)
        middle = struct.Struct("".join(form))
        self._pack = middle.pack
        self.size = len(layout.before) + middle.size + len(layout.after)
        #: What is between tick and payloads, before and after the timestamp, by the numbers: most come again.
        self._known: dict[tuple[float, ...], tuple[bytes, bytes]] = {}

    def _around_timestamp(self, numbers: tuple[float, ...]) -> tuple[bytes, bytes] | None:
        """Return what is between tick and payloads, before and after the timestamp; None: the numbers do not fit."""
        row: list[Any] = [*self.layout.same, bytes(8), *numbers]
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
        found = (middle, b"") if self._stamp < 0 else (middle[: self._stamp], middle[self._stamp + 8 :])
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[numbers] = found
        return found

    def convert(
        self,
        tick_id: int,
        timestamp: int,
        numbers: tuple[float, ...],
        payloads: list[bytes],
        saved: bytes | None,
    ) -> SampleWrite | None:
        """Convert a sample; see `_Found`. None: it has numbers that do not fit."""
        around = self._known.get(numbers) or self._around_timestamp(numbers)
        if around is None:
            return None
        before, after = around
        middle = b"".join((before, timestamp.to_bytes(8, "little"), after)) if self._stamp >= 0 else before
        size = self.size + (2 if 0 < tick_id < 128 else len(tick_field(tick_id)))
        for payload in payloads:
            length = len(payload)
            size += length + (2 if length < 128 else len(payload_head(length)))
        checkpoint = b""
        if saved is not None:
            checkpoint = checkpoint_field(saved)
            size += len(checkpoint)
        write, parts = self.write, _make_parts((self.layout, tick_id, middle, payloads, size, checkpoint))
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

    def convert(self, samples: Sequence[SharedSample], start: int = 0) -> list[SampleWrite]:
        """Convert samples, which are only read, from one of them on; `learn` from the first that is not converted."""
        self._wanted = None
        writes: list[SampleWrite] = []
        of_key = self._of_key
        for sample in islice(samples, start, None):
            observations, rewards = sample.observations, sample.rewards
            if observations is None:
                break
            if len(rewards) == 1 and rewards[0].stored is not None:
                signature, numbers = rewards[0].stored
            else:
                signature, numbers = _given(rewards)
            if signature is None:
                break
            tick_id, timestamp = sample.tick_id, sample.timestamp
            payloads = list(map(bytes, observations.observations))
            count = len(payloads)
            for action in sample.actions:
                payloads.append(bytes(action.content))
            key = (sample.state, timestamp > 0, count, *observations.actors_map, len(payloads), *signature)
            template, saved = of_key.get(key), observations.checkpoint
            if self._credit < _MAX_CREDIT:
                self._credit += 1
            if template is None:
                if saved is None and self._credit >= _LEARN:
                    self._wanted = _Found(key, tick_id, timestamp, numbers, payloads)
                break
            if tick_id >= MAX_NUMBER or timestamp > MAX_NUMBER:
                break
            write = template.convert(tick_id, timestamp, numbers, payloads, saved)
            if write is None:
                break
            writes.append(write)
        return writes

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
        converted = template.convert(*found[1:])
        if converted is None or joined(converted.data) != joined(write.data):
            return
        if len(self._of_key) >= _MAX_TEMPLATES:
            self._of_key.clear()
        self._of_key[found.key] = template
