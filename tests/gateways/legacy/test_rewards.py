"""Feedback and rewards, both ways."""

from __future__ import annotations

import math

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import BytesValue, StringValue
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.api.legacy.common_pb2 import Feedback
from trio_cogment.api.legacy.common_pb2 import Reward as LegacyReward
from trio_cogment.base.rewards import mean_reward
from trio_cogment.gateways.legacy.actor_ids import ActorIds
from trio_cogment.gateways.legacy.rewards import legacy_reward, reward_of, sum_of
from trio_cogment.sdk import Reward

IDS = ActorIds(("a", "b"), [("beta", "b"), ("alpha", "a"), ("gamma", "b")], "world")
GAMMA = IDS.members[2]
FLOATS = st.floats(-1e6, 1e6, width=32)


def packed(content: bytes) -> AnyMessage:
    found = AnyMessage()
    found.Pack(BytesValue(value=content))
    return found


def test_actor_id_becomes_the_receiver() -> None:
    assert reward_of(Feedback(actor_id=2, tick_id=-1, value=1.5, confidence=0.5), IDS) == Reward("gamma", 1.5, 0.5, -1)


@pytest.mark.parametrize("tick_id", [-1, 0, 7])
def test_tick_ids_are_kept(tick_id: int) -> None:
    reward = reward_of(Feedback(tick_id=tick_id), IDS)
    assert isinstance(reward, Reward)
    assert reward.tick_id == tick_id


def test_content_becomes_a_bytes_value() -> None:
    reward = reward_of(Feedback(content=b"why"), IDS)
    assert isinstance(reward, Reward)
    assert reward.user_data == BytesValue(value=b"why")


@pytest.mark.parametrize(
    ("feedback", "text"),
    [
        (Feedback(actor_id=3), "an actor of the trial, got actor_id 3"),
        # What a field without a sign makes of the environment's id.
        (Feedback(actor_id=2**32 - 1), "got actor_id 4294967295"),
        (Feedback(tick_id=-2), "got tick_id -2"),
        (Feedback(value=math.nan), "a finite value and confidence, got nan and 0.0"),
        (Feedback(confidence=math.inf), "got 0.0 and inf"),
    ],
)
def test_feedback_that_is_no_reward(feedback: Feedback, text: str) -> None:
    reason = reward_of(feedback, IDS)
    assert isinstance(reason, str)
    assert text in reason


def test_a_reward_for_an_old_agent() -> None:
    other = AnyMessage()
    other.Pack(StringValue(value="x"))
    sources = [
        RewardSource(sender_name="alpha", value=1, confidence=1, user_data=packed(b"why")),
        RewardSource(sender_name="world", value=3, confidence=0.5, user_data=other),
        RewardSource(value=2, confidence=1),
    ]
    reward = legacy_reward(2.0, sources, 7, GAMMA)
    assert (reward.value, reward.confidence) == (2.0, 1)
    assert [each.content for each in reward.feedbacks] == [b"why", StringValue(value="x").SerializeToString(), b""]
    assert {(each.actor_id, each.agent_id, each.tick_id) for each in reward.feedbacks} == {(2, 1, 7)}


def test_user_data_that_is_no_bytes_value_after_all() -> None:
    broken = packed(b"x")
    broken.value = b"\xff"
    assert legacy_reward(0, [RewardSource(user_data=broken)], 0, GAMMA).feedbacks[0].content == b"\xff"


@given(st.lists(st.tuples(FLOATS, st.floats(0, 1, width=32), st.binary(max_size=4)), min_size=1, max_size=6))
def test_round_trip(given_feedback: list[tuple[float, float, bytes]]) -> None:
    feedbacks = [
        Feedback(actor_id=2, agent_id=1, tick_id=4, value=value, confidence=confidence, content=content)
        for value, confidence, content in given_feedback
    ]
    sources = []
    for feedback in feedbacks:
        reward = reward_of(feedback, IDS)
        assert isinstance(reward, Reward)
        source = RewardSource(value=reward.value, confidence=reward.confidence)
        if reward.user_data is not None:
            source.user_data.Pack(reward.user_data)
        sources.append(source)
    value = mean_reward((source.value, source.confidence) for source in sources)
    made = legacy_reward(value, sources, 4, GAMMA)
    assert list(made.feedbacks) == feedbacks
    # The formula of the legacy API, which divides by zero where today's has 0.
    weights = sum(confidence for _, confidence, _ in given_feedback)
    if weights > 1e-6:
        expected = sum(value * confidence for value, confidence, _ in given_feedback) / weights
        assert made.value == pytest.approx(expected, rel=1e-4, abs=1e-3)
    elif weights == 0:
        assert made.value == 0


@given(st.lists(FLOATS, max_size=5))
def test_several_rewards_as_one(values: list[float]) -> None:
    total = sum_of(LegacyReward(value=value, feedbacks=[Feedback(value=value)]) for value in values)
    if not values:
        assert total is None
    else:
        assert total is not None
        assert total.value == pytest.approx(sum(values), rel=1e-5, abs=1)
        assert [each.value for each in total.feedbacks] == values
        assert total.confidence == 1


def test_a_sum_stays_within_single_precision() -> None:
    total = sum_of([LegacyReward(value=3e38), LegacyReward(value=3e38)])
    assert total is not None
    assert math.isfinite(total.value)
