"""Finishing something though everything around is being cancelled."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_cogment.rpc import OwnNursery


class Lingering:
    """How it goes.

    Attributes:
        cancelled_at: when it was cancelled from outside; infinite before.
    """

    def __init__(self, seconds: float) -> None:
        self.cancelled_at = math.inf
        self.shield = trio.CancelScope(shield=True)
        self.done = False
        self._seconds = seconds

    async def watch(self) -> None:
        """Feel the cancellation in the block's stead."""
        try:
            await trio.sleep_forever()
        finally:
            if not self.done:
                self.cancelled_at = trio.current_time()
                self.shield.deadline = self.cancelled_at + self._seconds


@asynccontextmanager
async def lingering(seconds: float) -> AsyncIterator[Lingering]:
    """Let a block go on when it is cancelled from outside, for so many seconds from then on."""
    state = Lingering(seconds)
    async with OwnNursery() as nursery:
        nursery.start_soon(state.watch)
        try:
            with state.shield:
                yield state
        finally:
            state.done = True
            nursery.cancel_scope.cancel()
