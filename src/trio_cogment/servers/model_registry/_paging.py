"""Pages of lists, and the handles that lead from one page to the next. No I/O.

A handle says where the next page begins, in terms that stay true when the list changes: a version's number, the id of
the last model, or, where the request itself names what it wants, how many of these have been answered.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from google.protobuf.message import Message

from trio_cogment.base.errors import InvalidArgumentError

#: In front of the id of the last model of a page. The reference's handles are numbers, which are understood too.
AFTER = "after:"
#: Longer lists of ids or numbers in one request are refused.
MAX_NAMED = 10_000

_DIGITS = re.compile(r"[0-9]{1,20}")


def position_of(handle: str, field: str) -> int:
    """Return the number that a handle is; nothing means 0.

    Raises:
        InvalidArgumentError: it is none.
    """
    if handle == "":
        return 0
    if not _DIGITS.fullmatch(handle):
        raise InvalidArgumentError(f"{field}: expected a handle from the page before, or nothing, got {handle[:80]!r}")
    return int(handle)


def start_among(ids: Sequence[str], handle: str, field: str) -> int:
    """Return where a page of sorted ids begins.

    Raises:
        InvalidArgumentError: the handle is none.
    """
    if handle.startswith(AFTER):
        return bisect_right(ids, handle.removeprefix(AFTER))
    return min(position_of(handle, field), len(ids))


def check_named(names: Sequence[object], field: str) -> None:
    """Raise InvalidArgumentError when a request names too many things."""
    if len(names) > MAX_NAMED:
        raise InvalidArgumentError(f"{field}: expected at most {MAX_NAMED}, got {len(names)}")


class Page:
    """Rows of a reply, until there are enough.

    Args:
        count: how many are wanted at most; 0 for all.
        max_bytes: how long they may be together; there is one row at least.
    """

    def __init__(self, count: int, max_bytes: int) -> None:
        self._count = count
        self._room = max_bytes
        self.rows = 0

    def takes(self, row: Message) -> bool:
        """Whether this row goes onto the page; once one does not, none does."""
        size = row.ByteSize()
        if (self._count and self.rows >= self._count) or (self.rows and size > self._room):
            self._room = -1
            return False
        self.rows += 1
        self._room -= size
        return True

    @property
    def wanted(self) -> int:
        """How many more rows may fit, by their count; more than anybody has, when all are wanted."""
        return self._count - self.rows if self._count else 1 << 62
