"""Environments that go wrong in the ways that the tests need, importable by other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MADE: list[Fragile] = []


class Fragile(gymnasium.Env[Any, Any]):
    """Counts its steps and resets; the action says what goes wrong."""

    KINDS = ("nothing", "raise", "nan", "reward", "tuple", "kill", "exit", "hang")

    def __init__(self, number: int = 0, mark: str = "", nested: bool = False) -> None:
        self.metadata = {"render_modes": []}
        self.observation_space = spaces.Box(-1e9, 1e9, (4,), np.float64)
        self.action_space = spaces.Discrete(len(self.KINDS))
        self.number = number
        self.mark = mark
        self.child = subprocess.Popen(["sleep", "600"]) if nested else None
        self.resets = self.steps = self.closed = 0
        self.thread = threading.get_ident()
        self.stopped = threading.Event()
        self.hanging = threading.Event()
        MADE.append(self)

    def _value(self) -> Any:
        same = self.thread == threading.get_ident()
        return np.array([self.resets, self.steps, os.getpid(), self.thread if same else -1], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets += 1
        self.steps = 0
        return self._value(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        kind = self.KINDS[action]
        if kind == "raise":
            raise ValueError("the dice fell off the table")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "exit":
            sys.exit(3)
        if kind == "hang":
            self.hanging.set()
            if self.mark:
                text = "" if self.child is None else str(self.child.pid)
                Path(f"{self.mark}.new").write_text(text)
                Path(f"{self.mark}.new").rename(self.mark)
            if not self.stopped.wait(30):
                time.sleep(600)
        if kind == "tuple":
            return self._value(), 1.0, False
        value = self._value() * np.nan if kind == "nan" else self._value()
        return value, float("nan") if kind == "reward" else 1.0, self.steps >= 3, False, {}

    def close(self) -> None:
        self.closed += 1
        if self.child is not None:
            self.child.terminate()
            self.child.wait(30)


def fragile_at_birth(kind: str = "nothing") -> Fragile:
    """Return one, unless it is to go wrong already."""
    if kind == "raise":
        raise ValueError("the dice were never cast")
    if kind == "exit":
        sys.exit(3)
    return Fragile()
