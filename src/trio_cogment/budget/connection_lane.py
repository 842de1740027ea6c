"""In which lane a connection reads: see `turn_order`.

A server cannot see what a call is for. But participants of trials, data logs and watchers have calls that stay open,
and open few others on the same connection. Who makes thousands of calls does not, however long the first of them takes.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

from trio_cogment.budget.turn_order import Lane

#: A server's connection is an established one when it has had the same call open for this long, and has begun no more
#: than so many others meanwhile.
_ESTABLISHED_SECONDS: Final = 0.5
_QUIET_CALLS: Final = 16


class WatchedEngine(Protocol):
    """An engine, as far as it matters here."""

    client_side: bool

    @property
    def oldest(self) -> int:
        """The number of the stream that has been open for longest; 0 if none is."""

    @property
    def calls_begun(self) -> int:
        """How many calls the peer has begun."""


class ConnectionLane:
    """The lane of one connection.

    Attributes:
        lane: as it was found when it was looked at last.
        until: when `look` should be called again, on Trio's clock.
    """

    __slots__ = ("_calls_then", "_engine", "_oldest", "lane", "until")

    def __init__(self, engine: WatchedEngine) -> None:
        # What this process has asked for itself is not somebody else's work.
        self.lane = Lane.ESTABLISHED if engine.client_side else Lane.OTHERS
        self.until = math.inf if engine.client_side else -math.inf
        self._engine = engine
        self._oldest = 0
        self._calls_then = 0

    def look(self, now: float) -> None:
        """Decide about the lane from now on."""
        oldest = self._engine.oldest
        begun = self._engine.calls_begun
        quiet = begun - self._calls_then <= _QUIET_CALLS
        self.lane = Lane.ESTABLISHED if oldest and oldest == self._oldest and quiet else Lane.OTHERS
        self._oldest, self._calls_then = oldest, begun
        self.until = now + _ESTABLISHED_SECONDS

    def crowd(self) -> None:
        """So many calls have come at once that it is no established one."""
        self.lane = Lane.OTHERS
