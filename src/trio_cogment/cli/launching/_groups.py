"""The process groups that a launcher has started, and what else has come of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable

import trio

from trio_cogment.base.host.processes import processes

#: Given the processes started here, returns all others that have come of them; see `strays.Strays`.
FindStrays = Callable[[Collection[int]], Iterable[int]]


def no_strays(_leaders: Collection[int]) -> Iterable[int]:
    """Find none: only groups are stopped."""
    return ()


class Groups:
    """Process groups, each made of a command and whatever it has started.

    Args:
        find_strays: finds processes that have left their groups.
    """

    def __init__(self, find_strays: FindStrays = no_strays) -> None:
        self._leaders: dict[int, trio.Process] = {}
        self._find_strays = find_strays

    def add(self, leader: trio.Process) -> None:
        """Add the group of a process that was started as the leader of one."""
        self._leaders[leader.pid] = leader

    def prune(self) -> None:
        """Forget the groups of which nothing is left: their numbers may be given to others."""
        # Asking for the exit code also takes it from the system, which until then keeps the process.
        running = {group for group, leader in self._leaders.items() if leader.returncode is None}
        left = {group for group in self._leaders.keys() - running if _exists(group)}
        if left and (known := processes()) is not None:
            # Members that have ended count until somebody takes notice, which may be never.
            left &= {process.group for process in known if not process.ended}
        self._leaders = {group: leader for group, leader in self._leaders.items() if group in running | left}

    def strays(self) -> list[int]:
        """Return the processes that are in none of the groups."""
        return [pid for pid in self._find_strays(self._leaders.keys()) if _group_of(pid) not in self._leaders]

    def any_left(self) -> bool:
        """Tell whether any process is left."""
        self.prune()
        return bool(self._leaders) or bool(self.strays())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process that is left."""
        strays = self.strays()
        for group in self._leaders:
            _send(os.killpg, group, number)
        for pid in strays:
            _send(os.kill, pid, number)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as somebody else
        return True
    return True


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _send(send: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
    try:
        send(target, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended, or runs as somebody else
