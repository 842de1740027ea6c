"""One sleeper for the deadlines of many: a cancel scope for each trial would cost more than its timers do."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Protocol

import trio

from trio_cogment.recount import Count

#: The queue is made anew when more of it than this, and than what still counts, is out of date.
_MOST_STALE = 1000


class Sleeper(Protocol):
    """Who is to be woken."""

    def wake(self) -> None:
        """Learn that the deadline has come. It must not raise."""


class Alarms:
    """Wakes each sleeper at its deadline, on Trio's clock, while `run` runs."""

    def __init__(self) -> None:
        self._deadlines: dict[Sleeper, float] = {}
        #: In their order; one that is not in `_deadlines` any more is out of date.
        self._queue: list[tuple[float, int, Sleeper]] = []
        self._numbers = itertools.count()
        self._next = math.inf
        self._sleep = trio.CancelScope()

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.recount`."""
        yield Count("sleepers", len(self._deadlines), len(self._deadlines))

    def set(self, sleeper: Sleeper, deadline: float) -> None:
        """Set or move a sleeper's deadline; infinity: it is not woken."""
        if deadline == math.inf:
            self._deadlines.pop(sleeper, None)
            return
        self._deadlines[sleeper] = deadline
        if len(self._queue) > 2 * len(self._deadlines) + _MOST_STALE:
            self._queue = [(due, next(self._numbers), each) for each, due in self._deadlines.items()]
            heapq.heapify(self._queue)
        else:
            heapq.heappush(self._queue, (deadline, next(self._numbers), sleeper))
        if deadline < self._next:
            self._next = self._sleep.deadline = deadline

    async def run(self) -> None:
        """Sleep and wake others, until cancelled."""
        while True:
            with self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            while (queue := self._queue) and queue[0][0] <= now:
                deadline, _, sleeper = heapq.heappop(queue)
                if self._deadlines.get(sleeper) == deadline:
                    del self._deadlines[sleeper]
                    sleeper.wake()
            self._next = queue[0][0] if queue else math.inf
            self._sleep = trio.CancelScope(deadline=self._next)
