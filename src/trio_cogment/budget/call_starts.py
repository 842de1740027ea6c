"""Handlers begin in turns: a client that opens a thousand calls at once delays the calls of others by one at a time.

A call waits here between its request and its handler's first step. One that is over by then, because the client has
reset it or is gone, costs nothing more: no task is made for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import Turns

#: The task of a handler, its cancel scopes and its first step.
_CALL_UNITS = 3


class Startable(Protocol):
    """A server's call."""

    @property
    def over(self) -> bool:
        """The call has its status."""

    async def run(self) -> None:
        """Run the handler."""


class CallStarts:
    """The calls of one connection whose handlers have not begun.

    Args:
        turns: of the run.
        nursery: for the handlers; `drop` must be called before it closes.
        on_skipped: called for each call whose handler will never begin.
    """

    def __init__(self, turns: Turns, nursery: trio.Nursery, on_skipped: Callable[[], None]) -> None:
        self._on_skipped = on_skipped
        self._turns = turns
        self._nursery = nursery
        self._calls: deque[tuple[Startable, str]] = deque()

    def handlers(self) -> int:
        """Return how many handlers there are, with those that have not begun."""
        return len(self._nursery.child_tasks) + len(self._calls)

    def start(self, call: Startable, name: str) -> None:
        """Begin a call's handler, now or when it is its turn."""
        turns = self._turns
        if turns.take(Lane.OTHERS, _CALL_UNITS):  # not while others wait, nor therefore while calls do so here
            self._nursery.start_soon(call.run, name=name)
            return
        self._calls.append((call, name))
        turns.wait(Lane.OTHERS, self, self._start_next, _CALL_UNITS)

    def _start_next(self) -> None:
        calls = self._calls
        while calls:
            call, name = calls.popleft()
            if not call.over:
                self._nursery.start_soon(call.run, name=name)
                break
            self._on_skipped()
        if calls:
            self._turns.wait(Lane.OTHERS, self, self._start_next, _CALL_UNITS)

    def drop(self) -> None:
        """Begin none of those that wait."""
        while self._calls:
            self._calls.popleft()
            self._on_skipped()
        self._turns.leave(Lane.OTHERS, self)
