"""The mean of several rewards for the same tick: one rule for trials, for gateways and for what is stored of them."""

from __future__ import annotations

from collections.abc import Iterable


class RewardMean:
    """A mean of rewards, weighted by their confidence, that is made one reward at a time.

    Rewards whose confidence is not above 0 do not count; if none counts it is 0. NaN is a value like any other.
    """

    __slots__ = ("_total", "_weight")

    def __init__(self) -> None:
        self._total = self._weight = 0.0

    def add(self, value: float, confidence: float) -> None:
        """Take one more reward into it."""
        if confidence > 0:
            self._total += value * confidence
            self._weight += confidence

    @property
    def value(self) -> float:
        """The mean of what was added."""
        return self._total / self._weight if self._weight > 0 else 0.0


def mean_reward(rewards: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (value, confidence) pairs, as a `RewardMean` makes it."""
    mean = RewardMean()
    for value, confidence in rewards:
        mean.add(value, confidence)
    return mean.value
