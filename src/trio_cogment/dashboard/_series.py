"""Curves of a trial that may be of any length, in room that is not: points become coarser, the newest stay exact.

When there are too many points, every other one of the older half is dropped. A page gets a curve as a whole at first,
and then the points that are new; when older ones were dropped it gets all of it again, which is rare: the room has to
fill up by half before.
"""

from __future__ import annotations

import math
from typing import Any

#: Points of one curve. More than a screen has.
MAX_POINTS = 2000
#: Curves of one trial; further ones are left out.
MAX_CURVES = 64


class Curve:
    """Values by tick, in the order of the ticks."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self.ticks: list[int] = []
        self.values: list[float] = []
        #: Points with smaller indexes were told; negative: all of it has to be.
        self._told = -1

    def add(self, tick: int, value: float) -> None:
        """Add a point; what is no number, or not later than what is there, is passed over."""
        if not math.isfinite(value) or (self.ticks and tick <= self.ticks[-1]):
            return
        if len(self.ticks) >= self._max_points:
            half = self._max_points // 2
            self.ticks = self.ticks[:half:2] + self.ticks[half:]
            self.values = self.values[:half:2] + self.values[half:]
            self._told = -1
        self.ticks.append(tick)
        self.values.append(value)

    def news(self) -> dict[str, Any] | None:
        """Return what a page has not been told: new points, or with `all` every point; None: it knows everything."""
        if self._told == len(self.ticks):
            return None
        begin = max(0, self._told)
        news: dict[str, Any] = {"ticks": self.ticks[begin:], "values": self.values[begin:]}
        if self._told < 0:
            news["all"] = True
        self._told = len(self.ticks)
        return news


class Curves:
    """The curves of one trial, by their names."""

    def __init__(self) -> None:
        self._curves: dict[str, Curve] = {}

    def add(self, name: str, tick: int, value: float) -> None:
        """Add a point to a curve."""
        curve = self._curves.get(name)
        if curve is None:
            if len(self._curves) >= MAX_CURVES:
                return
            curve = self._curves[name] = Curve()
        curve.add(tick, value)

    def news(self) -> dict[str, Any]:
        """Return what a page has not been told, by the names of the curves."""
        found = {name: curve.news() for name, curve in self._curves.items()}
        return {name: news for name, news in found.items() if news is not None}
