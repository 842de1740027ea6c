"""Fair scheduling: which connection runs next. Pure, without tasks and without a clock.

Trio's loop runs all tasks that are ready in one pass, and looks for input only between passes. If a thousand
connections have something to read, a trial whose input comes a moment later waits for all thousand. So connections
take *turns*: a pass has a number of units of work to give away (a unit is about a tenth of a millisecond), and who
finds none left waits for the next pass, in order of arrival.

There are two lanes, each with units of its own, so that neither can use up the other's:

* `ESTABLISHED`: reading on a connection that has had a call open for a while, as participants of trials, data logs and
  watchers have, and on connections that this process has opened itself;
* `OTHERS`: everything else. New connections, handshakes, reading on connections without such a call, the beginning of
  every call, and the end of calls whose connection is lost.

In a lane everybody who waits does so once, whatever they wait for, and goes to the back of the queue afterwards. So
a connection with ten thousand calls delays another by one call, not by ten thousand.

How much a unit really costs depends on the handlers and on the machine. `adapt` is told how long a pass took, and
changes the number of units: half as many after a pass that took too long, slowly more after short ones. The other lane
shrinks only when this one cannot shrink any more.

Whoever takes a turn says how many units it will take, as far as that is known: what is let go in one pass must not
turn out to be a hundred times as much. `charge` corrects it afterwards, from the next passes if need be.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Final, Protocol

# In which lane a connection reads: see `turn_order`.
#
# A server cannot see what a call is for. But participants of trials, data logs and watchers have calls that stay open,
# and open few others on the same connection. Who makes thousands of calls does not, however long the first of them
# takes.

#: A server's connection is an established one when it has had the same call open for this long, and has begun no more
#: than this many others meanwhile.
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
        """So many calls have come at once that it is not an established one."""
        self.lane = Lane.OTHERS


#: A pass should take no longer than this while somebody waits for a turn. A tick of a trial takes several passes.
PASS_SECONDS: Final = 0.002
#: The most and the fewest units of a pass in each lane. A process that does heavy work of its own has long passes
#: whatever happens here, so the fewest must still be worth having.
_MOST: Final = (256, 128)
_FEWEST: Final = (32, 8)


class Lane(enum.IntEnum):
    """See the module."""

    ESTABLISHED = 0
    OTHERS = 1


class TurnOrder:
    """See the module."""

    __slots__ = ("_credits", "_sizes", "_waiting")

    def __init__(self) -> None:
        self._sizes = list(_MOST)
        self._credits = list(_MOST)
        # By owner, in order of arrival.
        self._waiting: tuple[dict[object, tuple[int, Callable[[], None]]], ...] = ({}, {})

    @property
    def crowded(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting[0] or self._waiting[1])

    def units(self, lane: Lane) -> int:
        """Return how many units a pass has now."""
        return self._sizes[lane]

    def take(self, lane: Lane, units: int = 1) -> bool:
        """Take these, unless there is none or somebody waits for it. The last ones need not be all there."""
        if self._credits[lane] > 0 and not self._waiting[lane]:
            self._credits[lane] -= units
            return True
        return False

    def charge(self, lane: Lane, units: int) -> None:
        """Take these, whether they are there or not; a negative number gives them back."""
        self._credits[lane] -= units

    def wait(self, lane: Lane, owner: object, go: Callable[[], None], units: int = 1) -> None:
        """Have `go` called when it is this owner's turn and these are taken; it may call `wait` again."""
        self._waiting[lane][owner] = units, go

    def leave(self, lane: Lane, owner: object) -> None:
        """Wait no more."""
        self._waiting[lane].pop(owner, None)

    def next_pass(self) -> None:
        """Give the units of one pass to those who wait."""
        for lane, waiting in enumerate(self._waiting):
            # What was charged beyond the last pass is paid now; what it left over is not added.
            self._credits[lane] = min(self._credits[lane], 0) + self._sizes[lane]
            while waiting and self._credits[lane] > 0:
                units, go = waiting.pop(next(iter(waiting)))
                self._credits[lane] -= units
                go()

    def adapt(self, seconds: float) -> None:
        """Change the number of units after a pass that took so long."""
        sizes = self._sizes
        if seconds > PASS_SECONDS:
            lane = Lane.OTHERS if sizes[Lane.OTHERS] > _FEWEST[Lane.OTHERS] else Lane.ESTABLISHED
            sizes[lane] = max(sizes[lane] // 2, _FEWEST[lane])
        elif seconds < PASS_SECONDS / 2:
            for lane in Lane:
                sizes[lane] = min(sizes[lane] + sizes[lane] // 8 + 1, _MOST[lane])
