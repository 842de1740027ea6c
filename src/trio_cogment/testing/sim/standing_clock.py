"""A hint for tests whose mock clock stands still while everybody waits for a later time.

Trio's MockClock moves when the test says so. A test that has jumped too short a way, or whose platform has something to
wait for at its end, hangs then, and nothing says why.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing

from trio_cogment.testing.sim._waiting import indented, who_waits

#: So long nothing happens, in real seconds, before the hint.
PATIENCE_SECONDS = 5.0


class _Steps(trio.abc.Instrument):
    """Counts the steps of tasks, without those of Trio itself: a thread that returns is one of them."""

    def __init__(self) -> None:
        self.number = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.number += not task.name.startswith("<")


@asynccontextmanager
async def told_when_time_stands_still(tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Tell who waits for which time when nothing goes on in the block, unless the clock moves by itself.

    Args:
        tell: called with the hint, once for each time at which the clock stands.
    """
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, trio.testing.MockClock) or clock.autojump_threshold < math.inf:
        yield
        return
    steps, over, scope = _Steps(), threading.Event(), trio.CancelScope()
    trio.lowlevel.add_instrument(steps)

    async def watch() -> None:
        limiter = trio.CapacityLimiter(1)
        told_at = math.nan
        with scope:
            while True:
                before = steps.number
                await trio.to_thread.run_sync(over.wait, PATIENCE_SECONDS, abandon_on_cancel=True, limiter=limiter)
                now = trio.current_time()
                stands = clock.rate == 0 and clock.autojump_threshold == math.inf and steps.number == before
                left = trio.lowlevel.current_statistics().seconds_to_next_deadline
                if stands and now != told_at and 0 < left < math.inf:
                    told_at = now
                    tell(_hint(now, left))

    # Of a nursery, the errors of the block would come out in a group.
    trio.lowlevel.spawn_system_task(watch, name="<told_when_time_stands_still>")
    try:
        yield
    finally:
        over.set()
        scope.cancel()
        trio.lowlevel.remove_instrument(steps)


def _hint(now: float, left: float) -> str:
    lines = who_waits()
    return (
        f"the mock clock stands at {now:.9g} s, and everybody waits: the next deadline is in {left:.9g} s. "
        f"Jump again, or take the fixture autojump_clock.\nwho waits:{indented(lines)}"
    )
