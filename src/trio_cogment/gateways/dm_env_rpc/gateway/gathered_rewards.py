"""The rewards since a slot's last reply as one number; however many come, only sums of them are kept."""

from __future__ import annotations

from collections.abc import Mapping

from trio_cogment.base.rewards import RewardMean
from trio_cogment.gateways.dm_env_rpc.gateway.templates import RewardMode
from trio_cogment.sdk import RecvReward


class GatheredRewards:
    """The rewards of one slot since its last reply.

    Args:
        mode: see `templates.WorldTemplate.reward_mode`.
    """

    def __init__(self, mode: RewardMode) -> None:
        self._mode = mode
        self.clear()

    def clear(self) -> None:
        """Forget them."""
        self._sum = self._last = 0.0
        self._mean = RewardMean()

    def add(self, reward: RecvReward) -> None:
        """Take note of one."""
        self._sum += reward.value
        self._last = reward.value
        for source in reward.sources:
            self._mean.add(source.value, source.confidence)

    def take(self) -> float:
        """Return the number, and forget them."""
        numbers: Mapping[RewardMode, float] = {"sum": self._sum, "last": self._last, "weighted": self._mean.value}
        self.clear()
        return numbers[self._mode]
