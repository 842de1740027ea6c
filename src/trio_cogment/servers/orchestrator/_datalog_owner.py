"""The owner of a data log: its trial, as far as the log needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Owner(Protocol):
    """What the trial does for its data log."""

    def spawn(self, function: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task of the trial."""

    def on_datalog_full(self, full: bool) -> None:
        """Pause the trial, or let it go on; never called with the same value twice in a row."""

    def on_samples_lost(self, count: int) -> None:
        """Learn that samples were lost."""
