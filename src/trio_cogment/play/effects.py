"""Effects of a machine, done in its order, though doing one may make the machine want more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Effect = TypeVar("Effect")


class EffectQueue(Generic[Effect]):
    """Performs effects one after the other, never one within another.

    Args:
        perform: does what one asks for. It may call the queue again: what it adds comes last.
    """

    def __init__(self, perform: Callable[[Effect], None]) -> None:
        self._perform = perform
        self._waiting: deque[Effect] = deque()
        self._performing = False

    def __call__(self, effects: Iterable[Effect]) -> None:
        """Perform these, and those that come of them; from within an effect: remember them for afterwards."""
        self._waiting.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._waiting:
                self._perform(self._waiting.popleft())
        finally:
            self._performing = False
