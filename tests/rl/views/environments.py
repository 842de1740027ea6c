"""Environments for the tests of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

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


class Masked(gymnasium.Env[Any, Any]):
    """Allows some actions only, and raises an exception at others; ends after five steps, each of which is worth 1.

    Attributes:
        KINDS: by name, the action space, the mask, and the mask in one row as MaskablePPO takes it.
    """

    KINDS: ClassVar[dict[str, tuple[Any, Any, list[bool]]]] = {
        "Discrete": (gymnasium.spaces.Discrete(4), np.array([0, 1, 0, 1], np.int8), [False, True, False, True]),
        "MultiDiscrete": (
            gymnasium.spaces.MultiDiscrete([2, 3]),
            (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8)),
            [True, False, False, True, True],
        ),
        "MultiBinary": (
            gymnasium.spaces.MultiBinary(3),
            np.array([0, 1, 2], np.int8),
            [True, False, False, True, True, True],
        ),
    }

    def __init__(self, kind: str = "Discrete") -> None:
        self.observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
        self.action_space, self.mask, self.row = self.KINDS[kind]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {"action_mask": self.mask}

    def step(self, action: Any) -> Any:
        if not self._allows(action):
            raise ValueError(f"{action} is not allowed")
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 5, False, {"action_mask": self.mask}

    def _allows(self, action: Any) -> bool:
        if isinstance(self.action_space, gymnasium.spaces.Discrete):
            return bool(self.mask[action])
        if isinstance(self.mask, tuple):
            return all(mask[each] for mask, each in zip(self.mask, action, strict=True))
        return bool(((self.mask == 2) | (self.mask == action)).all())
