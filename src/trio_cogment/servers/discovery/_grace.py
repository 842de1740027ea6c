"""A grace period: a block that may finish although it is being cancelled."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_cogment.rpc import OwnNursery


class GracePeriod:
    """The state of a block with a grace period.

    Attributes:
        cancelled_at: when the block was cancelled from outside; infinite before that.
    """

    def __init__(self, seconds: float) -> None:
        self.cancelled_at = math.inf
        self.shield = trio.CancelScope(shield=True)
        self.done = False
        self._seconds = seconds

    async def watch(self) -> None:
        """Wait for the cancellation that the shield keeps from the block, and set the deadline of the block."""
        try:
            await trio.sleep_forever()
        finally:
            if not self.done:
                self.cancelled_at = trio.current_time()
                self.shield.deadline = self.cancelled_at + self._seconds


@asynccontextmanager
async def grace_period(seconds: float) -> AsyncIterator[GracePeriod]:
    """When the block is cancelled from outside, let it go on for at most `seconds` from then."""
    state = GracePeriod(seconds)
    async with OwnNursery() as nursery:
        nursery.start_soon(state.watch)
        try:
            with state.shield:
                yield state
        finally:
            state.done = True
            nursery.cancel_scope.cancel()
