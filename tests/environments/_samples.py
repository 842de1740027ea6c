"""Environments of the tests, small ones of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Inventory(gymnasium.Env[Any, Any]):
    """Nested observations and actions, a mask in the observation, and information."""

    def __init__(self, render_mode: str | None = None, length: int = 3) -> None:
        self.metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 7}
        self.render_mode = render_mode
        self.length = length
        self.observation_space = spaces.Dict(
            {
                "position": spaces.Box(-1, 1, (2,), np.float32),
                "items": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
                "action_mask": spaces.Box(0, 1, (2,), np.int8),
            }
        )
        self.action_space = spaces.Dict({"move": spaces.Discrete(2), "push": spaces.Box(-1, 1, (2,), np.float64)})
        self.steps = 0
        self.actions: list[Any] = []
        self.rendered = 0
        self.closed = 0

    def _value(self) -> dict[str, Any]:
        return {
            "position": np.array([self.steps / 10, 0], np.float32),
            "items": (np.int64(self.steps % 3), np.array([1, 0], np.int8)),
            "action_mask": np.array([1, self.steps % 2], np.int8),
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._value(), {"drawn": float(self.np_random.random()), "options": options or {}}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        action["push"][:] = 0  # it changes what it got
        self.steps += 1
        return self._value(), 0.1 * self.steps, False, self.steps >= self.length, {"steps": self.steps}

    def render(self) -> Any:
        self.rendered += 1
        if self.render_mode == "ansi":
            return f"step {self.steps}"
        return np.full((2, 3, 3), self.steps, np.uint8)

    def close(self) -> None:
        self.closed += 1


class Scripted(gymnasium.Env[Any, Any]):
    """Returns what it is told to."""

    def __init__(
        self,
        step: Callable[[], Any],
        reset: Callable[[], Any] = lambda: (np.zeros(2, np.float32), {}),
        space: Any = None,
    ) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32) if space is None else space
        self.action_space = spaces.Discrete(2)
        self._step = step
        self._reset = reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._reset()

    def step(self, action: Any) -> Any:
        return self._step()
