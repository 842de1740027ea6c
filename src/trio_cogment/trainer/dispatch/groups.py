"""The processes of a run: those of its worker's group, and those that have left it.

A worker is the leader of its own session and group, and has a token in its environment that nobody else has; what it
starts inherits both. While the leader is not waited for, its number, which is the group's, is not given to anybody
else, so the group can be signalled. A process that has left the group, and whatever an earlier server has left behind,
is known by its token alone: it is taken hold of first (pidfd_open(2)), then looked at, and then signalled, so that no
process gets a signal that has the number by chance. Where a system has no such means, such processes are left alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection

import trio

from trio_cogment.base.host import Runner
from trio_cogment.base.host.processes import processes
from trio_cogment.trainer.dispatch.command import TOKEN_VARIABLE

#: How often it is looked whether processes that were told to end have done so.
_POLL_SECONDS = 0.05


class Group:
    """The processes of one worker.

    Args:
        leader: the worker; nobody else may wait for it.
        token: in its environment.
        runner: runs what blocks.
    """

    def __init__(self, leader: subprocess.Popen[bytes], token: str, runner: Runner) -> None:
        self._leader = leader
        self._token = token
        self._runner = runner
        self._waited = False

    async def leader_ended(self) -> None:
        """Return when the worker itself has ended. Its number stays taken."""
        if hasattr(os, "pidfd_open"):
            descriptor = os.pidfd_open(self._leader.pid)
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)
            return
        while not _has_ended(self._leader.pid):  # noqa: ASYNC110  the system tells nobody
            await trio.sleep(_POLL_SECONDS)

    async def end(self, term_seconds: float, kill_seconds: float) -> bool:
        """End all processes: with SIGTERM, and after a while with SIGKILL; return whether none is left.

        Args:
            term_seconds: how long to wait behind the first.
            kill_seconds: how long to wait behind the second; the system may keep a process from ending.
        """
        for number, seconds in ((signal.SIGTERM, term_seconds), (signal.SIGKILL, kill_seconds)):
            deadline = trio.current_time() + seconds
            first = True
            while await self._runner(self._any_left):
                if first or number is signal.SIGKILL:  # one that was just being forked has not seen the signal
                    await self._runner(self._signal, number)
                first = False
                if trio.current_time() >= deadline:
                    break
                await trio.sleep(_POLL_SECONDS)
            else:
                return True
        return False

    async def wait(self) -> int:
        """Take the exit code of a worker that has ended. Afterwards its number may be given to others."""
        self._waited = True
        return await self._runner(self._leader.wait)

    def _any_left(self) -> bool:
        found = processes()
        if found is None:
            return _exists(self._leader.pid)
        return any(p.group == self._leader.pid and not p.ended for p in found) or bool(marked([self._token]))

    def _signal(self, number: signal.Signals) -> None:
        assert not self._waited
        try:
            os.killpg(self._leader.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nothing is left of it; or some of it runs as somebody else
        signal_marked([self._token], number)


async def end_marked(tokens: Collection[str], runner: Runner, term_seconds: float, kill_seconds: float) -> int:
    """End the processes that have one of these tokens in their environment; return how many are left."""
    left = 0
    for number, seconds in ((signal.SIGTERM, term_seconds), (signal.SIGKILL, kill_seconds)):
        deadline = trio.current_time() + seconds
        left = await runner(signal_marked, tokens, number)
        while left and trio.current_time() < deadline:
            await trio.sleep(_POLL_SECONDS)
            left = len(await runner(marked, tokens))
            if left and number is signal.SIGKILL:
                await runner(signal_marked, tokens, number)
        if not left:
            break
    return left


def marked(tokens: Collection[str]) -> list[int]:
    """Return the processes that have one of these tokens in their environment."""
    wanted = _entries(tokens)
    return [p.pid for p in processes() or () if not p.ended and _has(p.pid, wanted)]


def signal_marked(tokens: Collection[str], number: signal.Signals) -> int:
    """Send a signal to the processes that have one of these tokens; return how many there were."""
    wanted = _entries(tokens)
    count = 0
    if not hasattr(os, "pidfd_open"):
        return 0
    for pid in marked(tokens):
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            continue  # it has ended
        try:
            # From here on the number is of no matter: it is the very process that is looked at again.
            if _has(pid, wanted):
                signal.pidfd_send_signal(descriptor, number)
                count += 1
        except OSError:
            pass  # it has ended, or runs as somebody else
        finally:
            os.close(descriptor)
    return count


def _entries(tokens: Collection[str]) -> set[bytes]:
    return {f"{TOKEN_VARIABLE}={token}".encode() for token in tokens if token}


def _has(pid: int, wanted: set[bytes]) -> bool:
    if pid == os.getpid():
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return not wanted.isdisjoint(file.read().split(b"\0"))
    except OSError:
        return False  # it has ended, or is somebody else's


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; its number stays taken."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
