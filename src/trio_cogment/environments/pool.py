"""Environments between their trials: reused, kept by name, closed when nobody needs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from trio_cogment.environments.hosts import CLOSE_SECONDS, KeptHost

HostT = TypeVar("HostT", bound=KeptHost)


@dataclass(frozen=True, slots=True)
class Key:
    """What environments must have in common to stand for each other.

    Attributes:
        id: see `EnvironmentConfig.id`.
        arguments: those of the configuration, serialised.
        pictures: whether it draws.
        instance: see `EnvironmentConfig.instance`.
    """

    id: str = ""
    arguments: bytes = b""
    pictures: bool = False
    instance: str = ""


@dataclass(slots=True)
class _Idle:
    key: Key
    host: KeptHost
    since: float


class Pool:
    """Environments that no trial uses now.

    The longest idle ones are closed when there are too many, when they have been idle for long enough, and when the
    Trio run ends.
    """

    def __init__(self, *, max_idle: int, idle_seconds: float) -> None:
        """Make an empty pool.

        Args:
            max_idle: the maximum number of environments that may wait for trials.
            idle_seconds: so long each may wait.
        """
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._idle: list[_Idle] = []
        self._taken: dict[Key, trio.Event] = {}
        self._watched = False

    def is_taken(self, key: Key) -> bool:
        """Whether a trial uses the instance that is named, so that others wait for it."""
        return key in self._taken

    async def acquire(self, key: Key, make: Callable[[], Awaitable[HostT]]) -> HostT:
        """Return an environment for a trial: one that is idle, or a new one. Waits for an instance that is in use.

        After `Cancelled` nothing is taken.
        """
        while key in self._taken:
            await self._taken[key].wait()
        if key.instance:
            self._taken[key] = trio.Event()
        gone: list[KeptHost] = []
        found: Any = None  # those of a pool are all of the kind that is made for it
        for position in reversed(range(len(self._idle))):
            if self._idle[position].key == key:
                found = self._idle.pop(position).host
                if found.usable:
                    break
                gone.append(found)  # it was lost while it waited
                found = None
        host: HostT | None = None
        try:
            await close_all(gone)
            host = found or await make()
        finally:
            if host is None:  # it has failed, or was cancelled: others wait for the name
                self._free(key)
        return host

    async def release(self, key: Key, host: KeptHost) -> None:
        """Take an environment back, or close it if it is not usable any more.

        It is shielded from cancellation; closing takes no longer than twice `CLOSE_SECONDS`.
        """
        if host.usable:
            self._idle.append(_Idle(key, host, trio.current_time()))
            self._free(key)
            if not self._watched:
                self._watched = True
                trio.lowlevel.spawn_system_task(self._watch)
            surplus = [self._idle.pop(0) for _ in range(len(self._idle) - self._max_idle)]
        else:
            self._free(key)
            surplus = [_Idle(key, host, 0.0)]
        await close_all([one.host for one in surplus])

    async def aclose(self) -> None:
        """Close all that are idle; shielded as `release` is."""
        closing, self._idle = self._idle, []
        await close_all([one.host for one in closing])

    def _free(self, key: Key) -> None:
        taken = self._taken.pop(key, None)
        if taken is not None:
            taken.set()

    async def _watch(self) -> None:
        """Close those that are idle for long, as long as there are any; all of them when the run ends."""
        try:
            while self._idle:
                await trio.sleep_until(self._idle[0].since + self._idle_seconds)
                late = trio.current_time() - self._idle_seconds
                closing = [one for one in self._idle if one.since <= late]
                self._idle = [one for one in self._idle if one.since > late]
                await close_all([one.host for one in closing])
        finally:
            self._watched = False
            if self._idle:
                await self.aclose()


async def close_all(hosts: Sequence[KeptHost]) -> None:
    """Close environments, all at once; shielded as `Pool.release` is."""
    if not hosts:
        return
    with trio.CancelScope(deadline=trio.current_time() + 2 * CLOSE_SECONDS, shield=True):
        async with trio.open_nursery() as nursery:
            for host in hosts:
                nursery.start_soon(host.aclose)
