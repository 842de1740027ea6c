"""Environments for `trio-cogment play`: one with all kinds of things to see and do, one of large numbers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CHARACTERS = "".join(map(chr, range(32, 127)))


class Gallery(gymnasium.Env[Any, Any]):
    """Shows one observation of each kind, and in a text what was done before."""

    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "board": spaces.Box(0, 9, (2, 3), np.int64),
            "heat": spaces.Box(0.0, 1.0, (5, 30)),
            "speed": spaces.Box(-1.0, 1.0, (2,)),
            "done": spaces.Text(500, charset=CHARACTERS),
            "bag": spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(2)]),
        }
    )
    action_space = spaces.Dict(
        {
            "go": spaces.Discrete(3),
            "power": spaces.Box(0.0, 1.0, (1,)),
            "lamps": spaces.MultiBinary(3),
            "word": spaces.Text(20, min_length=0, charset=CHARACTERS),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed)
        return self._seen("nothing"), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action, and say what it was."""
        done = f"{action['go']} {action['power'][0]:.1f} {''.join(map(str, action['lamps']))} {action['word']}"
        return self._seen(done), 0.0, False, False, {}

    def _seen(self, done: str) -> dict[str, Any]:
        return {
            "picture": np.full((8, 8, 3), 200, np.uint8),
            "board": np.arange(6).reshape(2, 3),
            "heat": np.linspace(0, 1, 150, dtype=np.float32).reshape(5, 30),
            "speed": np.array([0.5, -0.25], np.float32),
            "done": done,
            "bag": (3, np.array([1, 0], np.int8)),
        }


class Exact(gymnasium.Env[Any, Any]):
    """Shows a board of three dimensions, and the first number of the action before; that is written as JSON."""

    observation_space = spaces.Dict(
        {"board": spaces.Box(0, 1, (3, 3, 2), np.int64), "done": spaces.Text(500, min_length=0, charset=CHARACTERS)}
    )
    action_space = spaces.Box(-(2**63), 2**63 - 1, (65,), np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed)
        return self._seen("nothing"), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action, and say what it was."""
        return self._seen(f"it was {action[0]}"), 0.0, False, False, {}

    def _seen(self, done: str) -> dict[str, Any]:
        return {"board": np.zeros((3, 3, 2), np.int64), "done": done}


def make() -> Gallery:
    """Return one."""
    return Gallery()


def make_exact() -> Exact:
    """Return one."""
    return Exact()
