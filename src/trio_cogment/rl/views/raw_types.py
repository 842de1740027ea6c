"""The types of what an environment of Gymnasium really returns, which a trial does not carry.

An environment may return an `int` where its space has `numpy.int64`, or any number as the reward. A view gives back
what the environment gave: the value from the trial, in the type that the environment used.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override


class TypeMemory(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remembers the observation and the reward that the environment has returned last.

    Attributes:
        unremembered_step: makes a step of which nobody will ask.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._step = self.unremembered_step = env.step
        self.observation: Any = None
        self.reward: Any = 0.0

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        result = self.env.reset(seed=seed, options=options)
        if isinstance(result, tuple) and result:
            self.observation = result[0]
        return result

    @override
    def step(self, action: Any) -> Any:
        result = self._step(action)
        if type(result) is tuple and len(result) == 5:
            self.observation, self.reward = result[0], result[1]
        return result


def like(value: Any, original: Any) -> Any:
    """Return a value in the type that the original has, if both are numbers; so with the parts of tuples and dicts."""
    kind = type(original)
    if type(value) is kind:
        if kind is tuple:
            return tuple(like(part, other) for part, other in zip(value, original, strict=True))
        if kind is dict:
            return {key: like(part, original[key]) for key, part in value.items()}
        return value
    if isinstance(value, int | float | np.generic) and issubclass(kind, int | float | np.generic):
        return kind(value)
    return value
