"""A trial's time and timers: many deadlines, one sleeping task, and none of its turns while nothing is armed.

This module keeps the deadlines. Which timers there are, and what is armed when, the trial's machine decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import trio

from trio_cogment.recount import Count
from trio_cogment.trial import Timer


def _nothing(_timer: Timer) -> None:
    pass


class Timers:
    """Calls `fire(timer)` at each armed deadline of the trial's time.

    That is Trio's clock without the pauses: while the trial is suspended (its data log cannot keep up, so nobody is
    read) its time stands still, and no deadline passes that a participant had no chance to meet.

    Arming a timer again moves its deadline. Everything but `run` is synchronous and may be called from any task.
    """

    __slots__ = (
        "_clock", "_deadlines", "_fire", "_next", "_paused_seconds", "_reached", "_sleep", "_stopped", "_suspended_at",
    )  # fmt: skip

    def __init__(self, fire: Callable[[Timer], None]) -> None:
        self._fire = fire
        self._clock = trio.lowlevel.current_clock().current_time  # as `trio.current_time`, without its two other calls
        self._deadlines: dict[Timer, float] = {}
        self._next = math.inf
        self._sleep = trio.CancelScope()
        self._stopped = False
        self._paused_seconds = 0.0
        self._suspended_at: float | None = None
        #: A deadline that has passed is in the past, whatever adding and subtracting pauses has rounded off.
        self._reached = -math.inf

    def now(self) -> float:
        """Return the trial's time, in seconds; it never goes back."""
        clock = self._clock() if self._suspended_at is None else self._suspended_at
        now = clock - self._paused_seconds
        return now if now > self._reached else self._reached

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.recount`."""
        number = len(self._deadlines)
        yield Count("deadlines of a trial", number, 0 if self._stopped else number)

    def suspend(self) -> None:
        """Let the time stand still; no error when it does already."""
        if self._suspended_at is None:
            self._suspended_at = trio.current_time()
            self._sleep.deadline = math.inf

    def resume(self) -> None:
        """Let the time go on; no error when it does already."""
        if self._suspended_at is not None:
            self._paused_seconds += trio.current_time() - self._suspended_at
            self._suspended_at = None
            self._sleep.deadline = self._next + self._paused_seconds

    def arm(self, timer: Timer, deadline: float) -> None:
        """Set or move a deadline."""
        self._deadlines[timer] = deadline
        if deadline < self._next:
            # The sleeper wakes by its scope's deadline alone: moving it is all it takes.
            self._next = deadline
            if self._suspended_at is None:
                self._sleep.deadline = deadline + self._paused_seconds

    def disarm(self, timer: Timer) -> None:
        """Forget a timer; one that is not armed is no error.

        The sleeper may wake once for nothing: cheaper than finding the next deadline at every disarming.
        """
        self._deadlines.pop(timer, None)

    def stop(self) -> None:
        """Let `run` return; nothing fires any more."""
        self._stopped = True
        self._fire = _nothing  # the trial has this, and this had the trial
        self._deadlines.clear()
        self._sleep.cancel()

    async def run(self) -> None:
        """Sleep and fire until stopped."""
        while True:
            with self._sleep:
                await trio.sleep_forever()
            if self._suspended_at is None and self._next + self._paused_seconds <= trio.current_time():
                self._reached = max(self._reached, self._next)
            now = self.now()
            due = [timer for timer, deadline in self._deadlines.items() if deadline <= now]
            for timer in sorted(due, key=self._deadlines.__getitem__):
                # An earlier one may have disarmed it.
                if self._deadlines.get(timer, math.inf) <= now:
                    del self._deadlines[timer]
                    self._fire(timer)
            self._next = min(self._deadlines.values(), default=math.inf)
            if self._stopped:
                return
            wake_at = math.inf if self._suspended_at is not None else self._next + self._paused_seconds
            self._sleep = trio.CancelScope(deadline=wake_at)
