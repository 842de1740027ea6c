"""A trial's timers: many deadlines, one sleeping task, and none of its turns while nothing is armed."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from trio_cogment.trial import Timer


class Timers:
    """Calls `fire(timer)` at each armed deadline, on Trio's clock.

    Arming a timer again moves its deadline. Everything but `run` is synchronous and may be called from any task.
    """

    def __init__(self, fire: Callable[[Timer], None]) -> None:
        self._fire = fire
        self._deadlines: dict[Timer, float] = {}
        self._next = math.inf
        self._sleep = trio.CancelScope()

    def arm(self, timer: Timer, deadline: float) -> None:
        """Set or move a deadline."""
        self._deadlines[timer] = deadline
        if deadline < self._next:
            # The sleeper wakes by its scope's deadline alone: moving it is all it takes.
            self._next = deadline
            self._sleep.deadline = deadline

    def disarm(self, timer: Timer) -> None:
        """Forget a timer; one that is not armed is no error.

        The sleeper may wake once for nothing: cheaper than finding the next deadline at every disarming.
        """
        self._deadlines.pop(timer, None)

    async def run(self) -> None:
        """Sleep and fire until cancelled."""
        while True:
            with self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            due = [timer for timer, deadline in self._deadlines.items() if deadline <= now]
            for timer in sorted(due, key=self._deadlines.__getitem__):
                # An earlier one may have disarmed it.
                if self._deadlines.get(timer, math.inf) <= now:
                    del self._deadlines[timer]
                    self._fire(timer)
            self._next = min(self._deadlines.values(), default=math.inf)
            self._sleep = trio.CancelScope(deadline=self._next)
