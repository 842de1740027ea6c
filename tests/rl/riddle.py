"""A game in text, which tells the whole story with each turn, as TextArena does."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
from gymnasium.spaces import Text

_CHARACTERS = string.ascii_letters + string.digits + " .:?!'\n"


class Riddle(gymnasium.Env[str, str]):
    """Which word is it? Each wrong answer costs a tenth, the right one brings 1 and the end."""

    def __init__(self, word: str = "tea") -> None:
        self.observation_space = Text(2000, min_length=0, charset=_CHARACTERS)
        self.action_space = Text(20, min_length=0, charset=_CHARACTERS)
        self._word = word
        self._story = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._story = f"It has {len(self._word)} letters."
        return self._story, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        is_right = action == self._word
        self._story += f"\n{action}? {'Yes!' if is_right else 'No.'}"
        return self._story, 1.0 if is_right else -0.1, is_right, False, {}
