"""One sleeper for the deadlines of many: a cancel scope for each trial would cost more than its timers do."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Protocol

import trio

from trio_cogment.base.recount import Count

#: The queue is made again when more of it than this, and than what still counts, is out of date.
_MOST_STALE = 1000


class Sleeper(Protocol):
    """Who is to be woken."""

    def wake(self) -> None:
        """Learn that the deadline has come. It must not raise."""


class Alarms:
    """Wakes each sleeper at its deadline, on Trio's clock, while `run` runs."""

    def __init__(self) -> None:
        #: By the number of its deadline, and the number of each.
        self._sleepers: dict[int, Sleeper] = {}
        self._current: dict[Sleeper, int] = {}
        #: Deadlines in their order; one whose number nobody has is out of date, and keeps nobody alive.
        self._queue: list[tuple[float, int]] = []
        self._numbers = itertools.count()
        self._next = math.inf
        self._sleep = trio.CancelScope()

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("sleepers", len(self._sleepers), len(self._current))

    def set(self, sleeper: Sleeper, deadline: float) -> None:
        """Set or move a sleeper's deadline; infinity: it is not woken."""
        before = self._current.pop(sleeper, None)
        if before is not None:
            del self._sleepers[before]
        if deadline == math.inf:
            return
        self._current[sleeper] = number = next(self._numbers)
        self._sleepers[number] = sleeper
        heapq.heappush(self._queue, (deadline, number))
        if len(self._queue) > 2 * len(self._sleepers) + _MOST_STALE:
            self._queue = [entry for entry in self._queue if entry[1] in self._sleepers]
            heapq.heapify(self._queue)
        if deadline < self._next:
            self._next = self._sleep.deadline = deadline

    async def run(self) -> None:
        """Sleep and wake others, until cancelled."""
        while True:
            with self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            while (queue := self._queue) and queue[0][0] <= now:
                _, number = heapq.heappop(queue)
                sleeper = self._sleepers.pop(number, None)
                if sleeper is not None:
                    del self._current[sleeper]
                    sleeper.wake()
            self._next = queue[0][0] if queue else math.inf
            self._sleep = trio.CancelScope(deadline=self._next)
