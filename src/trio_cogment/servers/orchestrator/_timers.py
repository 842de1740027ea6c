"""A trial's time and timers: many deadlines, and one sleeper for all trials (`_alarms`).

This module keeps the deadlines. Which timers there are, and what is armed when, the trial's machine decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import trio

from trio_cogment.base.recount import Count
from trio_cogment.servers.orchestrator._alarms import Alarms
from trio_cogment.trial import Timer


def _nothing(_timer: Timer) -> None:
    pass


class Timers:
    """Calls `fire(timer)` at each armed deadline of the trial's time.

    That is Trio's clock without the pauses: while the trial is suspended (its data log cannot keep up, so nobody is
    read) its time stands still, and no deadline passes that a participant had no chance to meet.

    Arming a timer again moves its deadline. All of it may be called from any task.

    Args:
        fire: told about each.
        alarms: wakes it.

    Attributes:
        clock: Trio's.
        steady: there has been no pause yet: what `now` returns is what the clock says.
    """

    __slots__ = (
        "_alarms", "_deadlines", "_failure", "_fire", "_next", "_over", "_paused_seconds", "_reached", "_suspended_at",
        "clock", "steady",
    )  # fmt: skip

    def __init__(self, fire: Callable[[Timer], None], alarms: Alarms) -> None:
        self._fire = fire
        self._alarms = alarms
        self.clock = trio.lowlevel.current_clock().current_time  # as `trio.current_time`, without its two other calls
        self._deadlines: dict[Timer, float] = {}
        self._next = math.inf
        self._over = trio.Event()
        self._failure: Exception | None = None
        self.steady = True
        self._paused_seconds = 0.0
        self._suspended_at: float | None = None
        #: A deadline that has passed is in the past, whatever adding and subtracting pauses has rounded off.
        self._reached = -math.inf

    def now(self) -> float:
        """Return the trial's time, in seconds; it never goes back."""
        clock = self.clock() if self._suspended_at is None else self._suspended_at
        now = clock - self._paused_seconds
        return now if now > self._reached else self._reached

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        number = len(self._deadlines)
        yield Count("deadlines of a trial", number, 0 if self._over.is_set() else number)

    @property
    def suspended(self) -> bool:
        """Whether the time stands still."""
        return self._suspended_at is not None

    def suspend(self) -> None:
        """Let the time stand still; no error when it does already."""
        if self._suspended_at is None:
            self.steady = False
            self._suspended_at = trio.current_time()
            self._alarms.set(self, math.inf)

    def resume(self) -> None:
        """Let the time go on; no error when it does already."""
        if self._suspended_at is not None:
            self._paused_seconds += trio.current_time() - self._suspended_at
            self._suspended_at = None
            self._wake_at(self._next)

    def arm(self, timer: Timer, deadline: float) -> None:
        """Set or move a deadline."""
        self._deadlines[timer] = deadline
        if deadline < self._next:
            self._next = deadline
            if self._suspended_at is None:
                self._wake_at(deadline)

    def _wake_at(self, deadline: float) -> None:
        if not self._over.is_set():
            self._alarms.set(self, deadline + self._paused_seconds)

    def disarm(self, timer: Timer) -> None:
        """Forget a timer; one that is not armed is not an error.

        It may be woken once for nothing: cheaper than finding the next deadline at every disarming.
        """
        self._deadlines.pop(timer, None)

    def stop(self) -> None:
        """Let `wait_stopped` return; nothing fires any more."""
        self._fire = _nothing  # the trial has this, and this had the trial
        self._deadlines.clear()
        self._alarms.set(self, math.inf)
        self._over.set()

    async def wait_stopped(self) -> None:
        """Wait for `stop`.

        Raises:
            Exception: what firing a timer has raised; nothing fires any more.
        """
        await self._over.wait()
        if self._failure is not None:
            raise self._failure

    def wake(self) -> None:
        """See `Sleeper.wake`: fire what is due."""
        if self._suspended_at is None and self._next + self._paused_seconds <= trio.current_time():
            self._reached = max(self._reached, self._next)
        now = self.now()
        due = [timer for timer, deadline in self._deadlines.items() if deadline <= now]
        try:
            for timer in sorted(due, key=self._deadlines.__getitem__):
                # An earlier one may have disarmed it.
                if self._deadlines.get(timer, math.inf) <= now:
                    del self._deadlines[timer]
                    self._fire(timer)
        except Exception as error:  # noqa: BLE001  the boundary of a trial: `wait_stopped` raises it
            self._failure = error
            self.stop()
        self._next = min(self._deadlines.values(), default=math.inf)
        if self._suspended_at is None:
            self._wake_at(self._next)
