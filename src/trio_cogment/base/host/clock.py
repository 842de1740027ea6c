"""The clock of a server's loop."""

from __future__ import annotations

import time

import trio


class PerformanceCounter(trio.abc.Clock):
    """The time of `time.perf_counter`, in seconds.

    Trio's own clock is the same with an offset, which it adds in a function of its own; the loop and the connections
    ask for the time about four times in each of its passes.
    """

    current_time = staticmethod(time.perf_counter)

    def start_clock(self) -> None:
        """Do nothing: it always runs."""

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until then."""
        return deadline - time.perf_counter()
