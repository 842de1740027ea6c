"""The usual sample of a trial, straight to the bytes that are stored: pure, and a third quicker than by a message.

Usual is a tick of not too many actors in which none of those that act failed to, and in which there is nothing but
observations, actions and some rewards. What is the same
in many ticks (which actor sees and does which payload, who rewards whom) is serialised by protobuf once; the rest are a
few numbers and the payloads, which are put between. What comes of it is parsed to the very message that
`TrialConverter.convert` makes; the bytes need not be those that protobuf would choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import NamedTuple

from trio_cogment.api.common_pb2 import Reward, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.datastore._layouts import Deliveries, Layouts
from trio_cogment.datastore._wire import tag, varint
from trio_cogment.datastore.storage import SampleWrite, WriteKind

#: More actors are not usual: what is remembered of a shape grows with them.
_MAX_ACTORS = 64
_MAX_SHAPES = 256
#: Nor are more rewards in a sample, each counted for each of its receivers: those of one actor are put one behind the
#: other, which takes longer the more there are.
_MAX_DELIVERIES = 100
#: Pairs of a sender and a receiver, and lengths of payloads, that are remembered.
_MAX_HEADS = 4096
#: Ticks and timestamps above cannot be stored, and mean nothing.
MAX_NUMBER = 2**63 - 1
#: The tick of an action that never came.
NO_ACTION_TICK = -2
#: The sender or receiver of a reward or message that is no actor.
ENVIRONMENT = -1
#: Each is below 128, so it takes one byte.
STATES = frozenset(TrialState.values())
#: Looking up a member of an enumeration takes as long as half of a conversion.
_LOGGED = WriteKind.LOGGED

_TICK_TAG = tag(StoredTrialSample, "tick_id")
_TIMESTAMP_TAG = tag(StoredTrialSample, "timestamp")
_STATE_TAG = tag(StoredTrialSample, "state")
_ACTOR_TAG = varint(tag(StoredTrialSample, "actor_samples"))
_PAYLOAD_TAG = varint(tag(StoredTrialSample, "payloads"))
_MEAN_TAG = tag(StoredTrialActorSample, "reward")
_RECEIVED_TAG = varint(tag(StoredTrialActorSample, "received_rewards"))
_SENT_TAG = varint(tag(StoredTrialActorSample, "sent_rewards"))
_VALUE_TAG = tag(StoredTrialActorSampleReward, "reward")
_CONFIDENCE_TAG = tag(StoredTrialActorSampleReward, "confidence")

#: A tag and its value, several times.
_pack_time_state = Struct("<BQBB").pack
_pack_float = Struct("<Bf").pack
_TWO_FLOATS = Struct("<BfBf")
_pack_two_floats = _TWO_FLOATS.pack

#: The rewards of whoever got none yet: see `UsualSamples._rewarded`.
_NOTHING = (0.0, 0.0, b"")

#: Its own constructor takes twice as long.
_make_write = partial(tuple.__new__, SampleWrite)


class _Shape(NamedTuple):
    """What a tick's actor samples are without rewards."""

    #: Each serialised.
    actors: tuple[bytes, ...]
    #: The same as entries of the whole sample.
    entries: tuple[bytes, ...]
    #: All of these.
    joined: bytes


@lru_cache(maxsize=_MAX_SHAPES)
def _shape(count: int, actors_map: tuple[int, ...], observations: int, actions: int) -> _Shape | None:
    """Return the shape of a tick in which each of the first `actions` actors acted; None: that is not right."""
    if actions > count or not all(0 <= index < observations for index in actors_map):
        return None
    actors: list[bytes] = []
    for number in range(count):
        actor = StoredTrialActorSample(actor=number)
        if number < len(actors_map):
            actor.observation = actors_map[number]
        if number < actions:
            actor.action = observations + number
        actors.append(actor.SerializeToString())
    entries = tuple(map(_actor_entry, actors))
    return _Shape(tuple(actors), entries, b"".join(entries))


@lru_cache(maxsize=_MAX_HEADS)
def _payload_head(length: int) -> bytes:
    return _PAYLOAD_TAG + varint(length)


@lru_cache(maxsize=_MAX_HEADS)
def _reward_head(sender: int, receiver: int) -> bytes:
    """Return how a reward begins, from its length on; value and confidence follow."""
    head = StoredTrialActorSampleReward(sender=sender, receiver=receiver).SerializeToString()
    return varint(len(head) + _TWO_FLOATS.size) + head


def _actor_entry(actor: bytes) -> bytes:
    return _ACTOR_TAG + varint(len(actor)) + actor


class UsualSamples:
    """Serialises usual samples of one trial.

    Args:
        trial_id: of the trial.
        index: its actors by their names.
        receivers_of: whom a receiver's name stands for, by their indexes.
        count: how many actors it has.

    Attributes:
        layouts: what samples looked like.
    """

    def __init__(
        self, trial_id: str, index: Mapping[str, int], receivers_of: Callable[[str], Sequence[int]], count: int
    ) -> None:
        self._trial_id = trial_id
        self._start = StoredTrialSample(trial_id=trial_id).SerializeToString() + bytes([_TICK_TAG])
        self._index = index
        self._receivers_of = receivers_of
        self._count = count
        self.layouts = Layouts()

    def write(self, sample: DatalogSample) -> SampleWrite | None:
        """Convert and serialise a sample, which is only read; None: it is not a usual one, or not a good one."""
        data = self.layouts.serialised(sample)
        if data is None:
            return self.write_by_fields(sample)
        write = self.layouts.write(data)
        if write is None:
            write = self.write_by_fields(sample)
            if write is not None:
                self.layouts.learn(data, write, self._deliveries(sample))
        return write

    def write_by_fields(self, sample: DatalogSample) -> SampleWrite | None:
        """Do as `write`, for a sample that is like none before."""
        info = sample.info
        tick_id, timestamp, state = info.tick_id, info.timestamp, info.state
        if (
            self._count > _MAX_ACTORS
            or tick_id >= MAX_NUMBER
            or timestamp > MAX_NUMBER
            or state not in STATES
            or info.out_of_sync
            or info.special_events
            or sample.messages
            or sample.default_actors
            or sample.unavailable_actors
            or not (timestamp or sample.HasField("info"))
        ):
            return None
        observations = sample.observations
        # What repeats is taken by slices, in one step: going through it entry by entry takes three times as long.
        payloads = observations.observations[:]
        seen = len(payloads)
        for action in sample.actions[:]:
            if action.tick_id == NO_ACTION_TICK:
                return None
            payloads.append(action.content)
        actors_map = observations.actors_map[:]
        if len(actors_map) > self._count:
            return None
        shape = _shape(self._count, tuple(actors_map), seen, len(payloads) - seen)
        if shape is None:
            return None
        actors = shape.joined
        if rewards := sample.rewards[:]:
            rewarded = self._rewarded(rewards, shape)
            if rewarded is None:
                return None
            actors = rewarded
        numbers = _pack_time_state(_TIMESTAMP_TAG, timestamp, _STATE_TAG, state)
        parts = [self._start, varint(tick_id), numbers, actors]
        for payload in payloads:
            parts.append(_payload_head(len(payload)))
            parts.append(payload)
        return _make_write((self._trial_id, tick_id, timestamp, state, b"".join(parts), _LOGGED))

    def _rewarded(self, rewards: Sequence[Reward], shape: _Shape) -> bytes | None:
        """Return the actor samples with their rewards; None: there are many, or some with user data."""
        deliveries = 0
        # By receiver: the sum of weighted values, that of weights, and the rewards.
        received: dict[int, tuple[float, float, bytes]] = {}
        sent: dict[int, bytes] = {}
        for reward in rewards:
            receivers = self._receivers_of(reward.receiver_name)
            if not receivers:
                continue
            for source in reward.sources[:]:
                deliveries += len(receivers)
                if deliveries > _MAX_DELIVERIES or source.HasField("user_data"):
                    return None
                sender = self._index.get(source.sender_name, ENVIRONMENT)
                value = source.value
                weight = confidence = source.confidence
                if not weight > 0:
                    weight = 0.0
                weighted = value * weight if weight else 0.0
                floats = _pack_two_floats(_VALUE_TAG, value, _CONFIDENCE_TAG, confidence)
                for receiver in receivers:
                    entry = _reward_head(sender, receiver) + floats
                    total, weights, before = received.get(receiver, _NOTHING)
                    received[receiver] = (total + weighted, weights + weight, before + _RECEIVED_TAG + entry)
                    if sender >= 0:
                        sent[sender] = sent.get(sender, b"") + _SENT_TAG + entry
        entries = list(shape.entries)
        for actor, (total, weights, those_received) in received.items():
            mean = _pack_float(_MEAN_TAG, total / weights if weights > 0 else 0.0)
            entries[actor] = _actor_entry(shape.actors[actor] + mean + those_received + sent.pop(actor, b""))
        for actor, those_sent in sent.items():
            entries[actor] = _actor_entry(shape.actors[actor] + those_sent)
        return b"".join(entries)

    def _deliveries(self, sample: DatalogSample) -> Deliveries:
        """Return who got the rewards of a usual sample, as `_rewarded` gives them."""
        received: dict[int, list[int]] = {}
        sent: dict[int, list[int]] = {}
        sources = [(reward, source) for reward in sample.rewards for source in reward.sources]
        for number, (reward, source) in enumerate(sources):
            sender = self._index.get(source.sender_name, ENVIRONMENT)
            for receiver in self._receivers_of(reward.receiver_name):
                received.setdefault(receiver, []).append(number)
                if sender >= 0:
                    sent.setdefault(sender, []).append(number)
        return Deliveries(received, sent)
