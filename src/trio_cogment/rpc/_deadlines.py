"""The deadlines of a client's calls on one connection, watched by one task."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sized
from typing import Protocol

import trio

#: Below this many entries it is not worth while to look for calls that have ended.
_FEW = 64


class Expiring(Protocol):
    """A call, as far as its deadline is concerned."""

    @property
    def over(self) -> bool:
        """It has ended: its deadline means nothing any more."""

    def on_deadline(self) -> None:
        """Its deadline has come."""


class Deadlines:
    """Calls `on_deadline` when a call's time has come.

    A task or a cancel scope for each call would cost more than the rest of a small call. So one task sleeps until the
    earliest deadline, in a cancel scope: `arm` moves that scope's deadline and need not wake the task.

    Entries of calls that have ended stay in the heap until their time, or until they are the most of it. Removing one
    from the middle means searching for it, and most calls end long before their deadline. The sweep keeps the heap
    within a few times the number of open calls, and is rare enough to cost little for each call.

    Args:
        open_calls: those that run, to be counted.
    """

    def __init__(self, open_calls: Sized) -> None:
        self._open_calls = open_calls
        self._entries: list[tuple[float, int, Expiring]] = []
        self._numbers = itertools.count()  # calls cannot be compared
        self._scope: trio.CancelScope | None = None

    def arm(self, deadline: float, call: Expiring) -> None:
        """Have `call.on_deadline` called at this time, unless the call has ended by then."""
        entries = self._entries
        if len(entries) > _FEW and len(entries) > 4 * len(self._open_calls):
            entries[:] = [entry for entry in entries if not entry[2].over]
            heapq.heapify(entries)
        heapq.heappush(entries, (deadline, next(self._numbers), call))
        if self._scope is not None:
            self._scope.deadline = entries[0][0]

    async def run(self) -> None:
        """Watch them until cancelled."""
        entries = self._entries
        while True:
            with trio.CancelScope() as self._scope:
                if entries:
                    self._scope.deadline = entries[0][0]
                await trio.sleep_forever()
            now = trio.current_time()
            while entries and entries[0][0] <= now:
                heapq.heappop(entries)[2].on_deadline()
