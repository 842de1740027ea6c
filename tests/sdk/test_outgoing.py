"""Outputs of participants besides their payloads: rewards, to whom and for which tick."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from trio_cogment.api.common_pb2 import ActorRunTrialOutput
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk import Reward
from trio_cogment.sdk._outgoing import rewards


def sent(*given: Any, **more: Any) -> list[Any]:
    """Return rewards as they travel."""
    given_reward = Reward(*given, **more)
    outputs: list[Any] = [output.whole() for output in rewards(ActorRunTrialOutput, given_reward, lambda: "ann")]
    return [output.reward for output in outputs]


@pytest.mark.parametrize("to", ["ben", ["ben"], ("ben",)])
def test_a_reward_is_for_the_tick_under_way_unless_it_says_another(to: Any) -> None:
    [reward] = sent(to, 0.5)
    assert (reward.receiver_name, reward.value, reward.tick_id) == ("ben", 0.5, -1)
    [source] = reward.sources
    assert (source.value, source.confidence) == (0.5, 1.0)
    [reward] = sent(to, 1, 2, tick_id=7, user_data=StringValue(value="why"))
    assert reward.tick_id == 7
    assert reward.sources[0].user_data.Is(StringValue.DESCRIPTOR)


def test_a_reward_for_several() -> None:
    assert [reward.receiver_name for reward in sent(["ben", "carl"], 1)] == ["ben", "carl"]


@pytest.mark.parametrize("given", [("ben", "much"), ("ben", 1, "sure"), (3, 1), ("ben", 1, 1, -1, "why")])
def test_what_is_no_reward(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="ann"):
        sent(*given)
