"""Feedback of the legacy API and rewards of today's.

Both APIs make the same mean of several values, weighted by their confidences, so that the values agree. The sender of a
feedback is lost: the legacy message has no field for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.gateways.legacy.actor_ids import ActorIds, Member
from trio_cogment.sdk import Reward

#: Of a feedback: the latest tick.
LATEST_TICK = -1
_FLOAT_MAX = 3.4028234663852886e38


def reward_of(feedback: legacy.Feedback, ids: ActorIds) -> Reward | str:
    """Return the reward that a feedback is; or, in words, why it is none.

    Its content becomes the reward's user data, as a `google.protobuf.BytesValue`.
    """
    receiver = ids.name_of(feedback.actor_id)
    if receiver is None:
        return f"expected feedback for an actor of the trial, got actor_id {feedback.actor_id}"
    if feedback.tick_id < LATEST_TICK:
        return f"expected feedback for a tick, or {LATEST_TICK} for the latest one, got tick_id {feedback.tick_id}"
    if not (math.isfinite(feedback.value) and math.isfinite(feedback.confidence)):
        found = f"{feedback.value} and {feedback.confidence}"
        return f"expected feedback with a finite value and confidence, got {found}"
    content = None
    if feedback.content:
        content = BytesValue(value=feedback.content)
    return Reward(receiver, feedback.value, feedback.confidence, feedback.tick_id, content)


def legacy_reward(value: float, sources: Sequence[RewardSource], tick_id: int, receiver: Member) -> legacy.Reward:
    """Return a reward for an old agent or client.

    Args:
        value: of the reward.
        sources: what it is the mean of.
        tick_id: the tick that is rewarded.
        receiver: the actor that gets it.
    """
    reward = legacy.Reward(value=_single(value), confidence=1)
    for source in sources:
        feedback = reward.feedbacks.add()
        feedback.actor_id, feedback.agent_id = receiver.actor_id, receiver.id_in_class
        feedback.tick_id, feedback.value, feedback.confidence = tick_id, source.value, source.confidence
        if source.HasField("user_data"):
            feedback.content = _content(source.user_data)
    return reward


def sum_of(rewards: Iterable[legacy.Reward]) -> legacy.Reward | None:
    """Return several rewards as one: the sum of their values, with all their feedbacks; None of none."""
    total: legacy.Reward | None = None
    value = 0.0
    for reward in rewards:
        total = total or legacy.Reward(confidence=1)
        value += reward.value
        total.feedbacks.extend(reward.feedbacks)
    if total is not None:
        total.value = _single(value)
    return total


def _single(value: float) -> float:
    """Return a number that a field of single precision takes."""
    return max(-_FLOAT_MAX, min(_FLOAT_MAX, value))


def _content(user_data: AnyMessage) -> bytes:
    """Return the bytes of a `BytesValue`, and of any other message its serialized form."""
    if user_data.Is(BytesValue.DESCRIPTOR):
        try:
            return BytesValue.FromString(user_data.value).value
        except DecodeError:
            pass  # what it is instead is its receiver's to judge
    return user_data.value
