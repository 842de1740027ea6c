"""Counts everything again that a run counts; see `trio_cogment.base.recount`."""

from __future__ import annotations

import gc
from collections import Counter
from itertools import compress
from typing import Any

from trio_cogment.base.recount import Count


class _Recounts(dict[type, bool]):
    """Whether objects of a kind count."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = recounts = callable(getattr(kind, "recount", None)) and not issubclass(kind, type)
        return recounts


_RECOUNTS = _Recounts()


class Counts:
    """Counts again whatever counts, at any time of a run; use it within one.

    It keeps what it has seen, so that at rest also those are looked at that nobody refers to any more.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def wrong(self, *, at_rest: bool = False) -> list[str]:
        """Return what is counted wrongly by any object that this run has made, a line each.

        Args:
            at_rest: nothing is going on any more: also return what is not what it was at the beginning.
        """
        self._seen.update((id(one), one) for one in _counting())
        found: Counter[str] = Counter()
        for counting in self._seen.values():
            for count in counting.recount():
                found.update(_wrong(type(counting).__name__, count, at_rest))
        return [f"{text} ({times} times)" if times > 1 else text for text, times in sorted(found.items())]


def _wrong(who: str, count: Count, at_rest: bool) -> list[str]:
    if count.kept != count.counted:
        return [f"{who}: {count.what}: {count.kept:g} are counted, there are {count.counted:g}"]
    if at_rest and count.at_rest is not None and count.kept != count.at_rest:
        return [f"{who}: {count.what}: {count.kept:g} at rest, not {count.at_rest:g}"]
    return []


def _counting() -> list[Any]:
    """Return the objects of this run that count. What was there before is frozen, and not among them."""
    # There are tens of thousands of objects, so all of this is done in C but for a kind that is new.
    objects = gc.get_objects()
    return list(compress(objects, map(_RECOUNTS.__getitem__, map(type, objects))))
