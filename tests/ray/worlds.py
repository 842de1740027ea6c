"""Environments that take their time, and note in files which process has played what."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium


class Paced(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose steps take some time; each episode is noted in the file of its process.

    Args:
        folder: has the files, which the ids of processes are the names of.
        seconds: of a step.
    """

    def __init__(self, folder: str = "", seconds: float = 0.0) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._file = Path(folder, str(os.getpid())) if folder else None
        self._seconds = seconds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(f"{seed}\n")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Make a step."""
        time.sleep(self._seconds)
        return super().step(action)


class Still(gymnasium.Env[Any, Any]):
    """One step, whose reward is the action: it begins like that each time, whatever the seed."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), float)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        return 0, {}

    def step(self, action: Any) -> Any:
        """Make the step."""
        return 0, float(action[0]), True, False, {}


class Talking(Still):
    """It logs that it is at a step."""

    def step(self, action: Any) -> Any:
        """Make the step."""
        logging.getLogger("mine").warning("tired")
        return super().step(action)


def played(folder: Path) -> Counter[int]:
    """Return how many episodes each process has begun."""
    return Counter({int(path.name): len(path.read_text().splitlines()) for path in folder.iterdir()})
