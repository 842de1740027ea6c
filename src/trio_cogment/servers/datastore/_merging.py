"""Late samples: merging one into the stored sample of its tick, on serialized `StoredTrialSample` messages.

Once a tick has been logged, rewards for it may still come; each comes as a sample of its own. It is merged into the
tick's sample. A data log that was away may deliver such a sample again, and a reward must not count twice; so the
merged sample keeps a digest of each (`StoredTrialSample.merged_samples`), and a sample with a known digest changes
nothing.
"""

from __future__ import annotations

import hashlib

from google.protobuf.message import DecodeError

from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSample, StoredTrialSample
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.rewards import mean_reward


def merge_late(stored: bytes, late: bytes) -> bytes:
    """Return the sample of a tick with an out-of-sync sample of that tick merged into it.

    State, timestamp and owner stay. Rewards and messages are added behind those that are there, payloads too, and the
    aggregated reward of each receiver is computed again. An observation or action is taken only where there
    is none. A sample that was merged before changes nothing.

    Args:
        stored: the serialized sample of the tick.
        late: the serialized out-of-sync sample, or several that wait together, as `begin_waiting` and this function
            made them.

    Raises:
        InvalidArgumentError: one of the two is not a serialized `StoredTrialSample`.
    """
    target, source = _parse(stored), _parse(late)
    known = set(target.merged_samples)
    digests = [digest for digest in _digests(source, late) if digest not in known]
    if not digests:
        return stored
    offset = len(target.payloads)
    target.payloads.extend(source.payloads)
    actors = {actor.actor: actor for actor in target.actor_samples}
    for addition in source.actor_samples:
        actor = actors.get(addition.actor)
        if actor is None:
            actor = actors[addition.actor] = target.actor_samples.add(actor=addition.actor)
        _merge_actor(actor, addition, offset)
    for whole, more in (
        (target.default_actors, source.default_actors),
        (target.unavailable_actors, source.unavailable_actors),
        (target.held_actors, source.held_actors),
    ):
        whole.extend(number for number in more if number not in whole)
    target.special_events.extend(event for event in source.special_events if event not in target.special_events)
    target.merged_samples.extend(digests)
    return target.SerializeToString()


def begin_waiting(late: bytes) -> bytes:
    """Return an out-of-sync sample as it waits for the sample of its tick: it knows its own digest.

    Raises:
        InvalidArgumentError: it is not a serialized `StoredTrialSample`.
    """
    sample = _parse(late)
    if not sample.merged_samples:
        sample.merged_samples.extend(_digests(sample, late))
    return sample.SerializeToString()


def _parse(data: bytes) -> StoredTrialSample:
    try:
        return StoredTrialSample.FromString(data)
    except DecodeError as error:
        raise InvalidArgumentError("data: expected a serialized StoredTrialSample") from error


def _digests(sample: StoredTrialSample, data: bytes) -> list[int]:
    if sample.merged_samples:  # several that waited together
        return list(sample.merged_samples)
    return [int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")]


def _merge_actor(target: StoredTrialActorSample, source: StoredTrialActorSample, offset: int) -> None:
    """Add what `source` says; its payloads have moved by `offset`."""
    if source.HasField("observation") and not target.HasField("observation"):
        target.observation = source.observation + offset
    if source.HasField("action") and not target.HasField("action"):
        target.action = source.action + offset
    for rewards, more_rewards in (
        (target.received_rewards, source.received_rewards),
        (target.sent_rewards, source.sent_rewards),
    ):
        first = len(rewards)
        rewards.extend(more_rewards)
        for reward in rewards[first:]:
            if reward.HasField("user_data"):
                reward.user_data += offset
    for messages, more_messages in (
        (target.received_messages, source.received_messages),
        (target.sent_messages, source.sent_messages),
    ):
        first = len(messages)
        messages.extend(more_messages)
        for message in messages[first:]:
            message.payload += offset
    if source.received_rewards:
        target.reward = mean_reward((reward.reward, reward.confidence) for reward in target.received_rewards)
    elif source.HasField("reward") and not target.HasField("reward"):
        target.reward = source.reward
