"""The mean of rewards."""

from __future__ import annotations

import math

import pytest

from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.base.rewards import RewardMean, mean_reward
from trio_cogment.gateways.dm_env_rpc.gateway.records import GatheredRewards
from trio_cogment.sdk import RecvReward


def test_mean_reward() -> None:
    assert mean_reward([]) == 0.0
    assert mean_reward([(5.0, 0.0), (7.0, -1.0), (8.0, math.nan)]) == 0.0
    assert mean_reward([(5.0, 0.0), (1.0, 1.0), (3.0, 3.0)]) == 2.5
    assert math.isnan(mean_reward([(math.nan, 1.0), (1.0, 1.0)]))


def test_a_mean_that_is_made_one_at_a_time() -> None:
    mean = RewardMean()
    assert mean.value == 0.0
    mean.add(10.0, -0.5)
    assert mean.value == 0.0
    mean.add(1.0, 1.0)
    mean.add(4.0, 0.5)
    assert mean.value == 2.0


@pytest.mark.parametrize(
    "sources", [[(1.0, 1.0), (10.0, -0.5)], [(3.0, -1.0)], [(2.0, math.nan), (1.0, 0.5)], [(5.0, 0.0), (2.0, 2.0)]]
)
def test_a_gateway_makes_the_same_mean_as_a_trial(sources: list[tuple[float, float]]) -> None:
    gathered = GatheredRewards("weighted")
    found = [RewardSource(value=value, confidence=confidence) for value, confidence in sources]
    gathered.add(RecvReward(0, mean_reward(sources), found, "ann"))
    assert gathered.take() == mean_reward(sources)
