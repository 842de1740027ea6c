"""The mean of rewards."""

from __future__ import annotations

import math

from trio_cogment.rewards import mean_reward


def test_mean_reward() -> None:
    assert mean_reward([]) == 0.0
    assert mean_reward([(5.0, 0.0), (7.0, -1.0), (8.0, math.nan)]) == 0.0
    assert mean_reward([(5.0, 0.0), (1.0, 1.0), (3.0, 3.0)]) == 2.5
    assert math.isnan(mean_reward([(math.nan, 1.0), (1.0, 1.0)]))
