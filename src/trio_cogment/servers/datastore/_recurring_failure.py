"""Failures that recur, in a log: their beginning, their end, and rarely a line between.

What is tried again every few seconds, for as long as a disk is full, would fill a log, too, and hide all the rest.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable

import trio

#: While it lasts, a line is written so often.
_REMIND_SECONDS = 600.0
#: It is over when something works and nothing has failed for so long. What is tried again is tried within that time:
#: in between, on a disk that is nearly full, small things may work.
_QUIET_SECONDS = 15.0


class RecurringFailure:
    """Logs one kind of failure.

    Its owner waits for work in `idle`, so that the end is logged even if no more work comes.

    Args:
        logger: where to.
        what: has failed, as the beginning of a sentence: "writes failed".
        over: what is said in the end.
    """

    def __init__(self, logger: logging.Logger, what: str, over: str) -> None:
        self._logger = logger
        self._what = what
        self._over = over
        self._began: float | None = None
        self._last = self._told = 0.0
        #: When it is over, if nothing fails until then.
        self._over_at = math.inf
        self._count = 0

    def failed(self, why: object) -> None:
        """Take note of a failure."""
        now = trio.current_time()
        self._count += 1
        self._over_at = math.inf
        if self._began is None:
            self._began = self._told = now
            self._logger.warning("%s: %s", self._what, why)
        elif now - self._told >= _REMIND_SECONDS:
            self._told = now
            self._logger.warning("%s, %d times in %.0f s: %s", self._what, self._count, now - self._began, why)
        else:
            self._logger.debug("%s: %s", self._what, why)
        self._last = now

    def worked(self) -> None:
        """Take note that it has worked."""
        if self._began is None:
            return
        self._over_at = self._last + _QUIET_SECONDS
        if trio.current_time() >= self._over_at:
            self._tell_over()

    async def idle(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Wait for work, and say meanwhile that it is over."""
        if self._began is not None:
            with trio.move_on_at(self._over_at):
                await wait()
                return
            self._tell_over()
        await wait()

    def _tell_over(self) -> None:
        assert self._began is not None
        times = "once" if self._count == 1 else f"{self._count} times in {self._last - self._began:.0f} s"
        self._logger.warning("%s (failed %s)", self._over, times)
        self._began, self._count, self._over_at = None, 0, math.inf
