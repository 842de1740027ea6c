"""The pace of trials and whom they wait for, seen from outside: by looking now and then.

Nothing is measured within a tick. Each look says which tick a trial is at, and who has not answered yet. Over many
looks, the share of those in which somebody was waited for is the share of the time that the trial has waited for them:
of a trial that is slow, it says who is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

#: Looks that count: at ten a second, those of the last ten seconds.
_LOOKS = 100
#: Fewer say nothing about shares.
_ENOUGH = 5


@dataclass(frozen=True, slots=True)
class Look:
    """A trial at one moment.

    Attributes:
        now: in seconds, on any scale.
        tick: that it is at.
        awaited: the names of those who are waited for.
    """

    now: float
    tick: int
    awaited: frozenset[str]


class Pace:
    """The last looks at one trial."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=_LOOKS)

    def look(self, now: float, tick: int, awaited: Collection[str]) -> None:
        """Take a look."""
        self._looks.append(Look(now, tick, frozenset(awaited)))

    @property
    def ticks_per_second(self) -> float | None:
        """How fast it is; None: nobody knows yet."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        seconds = last.now - first.now
        return max(0, last.tick - first.tick) / seconds if seconds > 0 else None

    def waited(self) -> dict[str, float]:
        """Return for whom the trial has waited, and for which share of the time; nothing before enough is known."""
        if len(self._looks) < _ENOUGH:
            return {}
        counts: dict[str, int] = {}
        for look in self._looks:
            for name in look.awaited:
                counts[name] = counts.get(name, 0) + 1
        return {name: count / len(self._looks) for name, count in counts.items()}
