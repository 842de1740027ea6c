"""Blocking functions in a simulation: they take virtual time, and what they do is there before anyone is told."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")

#: How long a function takes to begin, and how long it then takes to tell: often no time at all.
_SECONDS = (0.0, 0.0, 0.0005, 0.003)


class SimRunner:
    """Runs functions as worker threads do; a `trio_cogment.base.host.Runner`.

    A function runs at one moment, and waits for nobody. Some time passes before it begins, as a thread has to start,
    and some before its caller learns that it has ended, as a thread has to tell the event loop. Meanwhile others can
    see what it has done.

    Args:
        threads: how many functions are under way at a time; more wait.
        rng: decides how long each takes.
    """

    def __init__(self, threads: float, rng: random.Random) -> None:
        self._limiter = trio.CapacityLimiter(threads)
        self._rng = rng

    async def __call__(self, function: Callable[..., T], *args: object) -> T:
        """See `Runner`."""
        before, after = self._rng.choice(_SECONDS), self._rng.choice(_SECONDS)
        async with self._limiter:
            await trio.sleep(before)
            try:
                return function(*args)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(after)
