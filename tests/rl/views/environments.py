"""Environments for the tests of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps, and ends after five; `on_step` is called with the number of each.

    Attributes:
        closed: how often it was closed.
        spoiled: its observations are NaN.
    """

    def __init__(self, on_step: Callable[[int], object] = lambda _: None) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 100.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.on_step = on_step
        self.steps = 0
        self.closed = 0
        self.spoiled = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        if options and "fail" in options:
            raise ValueError("as it was told")
        return self._observation(), {"options": options or {}}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.on_step(self.steps)
        return self._observation(), 0.1 * self.steps, self.steps == 5, False, {}

    def _observation(self) -> Any:
        if self.spoiled:
            return np.full(2, np.nan, np.float32)
        return np.array([self.steps, self.np_random.random()], np.float32)

    def close(self) -> None:
        self.closed += 1
