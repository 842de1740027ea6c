"""What several rewards for the same tick amount to: one rule for trials, and for what is stored of them."""

from __future__ import annotations

from collections.abc import Iterable


def mean_reward(rewards: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (value, confidence) pairs, weighted by confidence.

    Rewards whose confidence is not above 0 do not count; if none counts it is 0. NaN is a value like any other.
    """
    total = weight = 0.0
    for value, confidence in rewards:
        if confidence > 0:
            total += value * confidence
            weight += confidence
    return total / weight if weight > 0 else 0.0
