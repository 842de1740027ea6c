"""Processes that leave their group, as daemons do: on Linux they are handed to the launcher, which can find them."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection
from types import TracebackType

from trio_cogment.base.host.processes import Process, processes

_PR_SET_CHILD_SUBREAPER = 36


class Strays:
    """Finds all processes that have come of this one, for the time of a block.

    It is for a process that does nothing else: whatever it has started counts. On other systems than Linux it finds
    none.
    """

    def __enter__(self) -> Strays:
        """Let orphans become children of this process."""
        self._adopt(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let them go to the system again."""
        self._adopt(False)

    def __call__(self, leaders: Collection[int]) -> list[int]:
        """Return the processes below this one that are still running, and bury those that have ended.

        Args:
            leaders: children of this process for which somebody else waits.
        """
        children: dict[int, list[Process]] = {}
        for process in processes() or ():
            children.setdefault(process.parent, []).append(process)
        found = []
        waiting = [os.getpid()]
        while waiting:
            for process in children.get(waiting.pop(), ()):
                waiting.append(process.pid)
                if not process.ended:
                    found.append(process.pid)
                elif process.parent == os.getpid() and process.pid not in leaders:
                    _bury(process.pid)
        return found

    def _adopt(self, yes: bool) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def _bury(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # somebody else has
