"""Schedule of the checks of services: each one periodically, and several at the same time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

import trio

from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.servers.directory._entries import Entry
from trio_cogment.servers.directory._health import Health, State
from trio_cogment.servers.directory._monitored_entries import MonitoredEntries

_log = logging.getLogger(__name__)


class CheckScheduler:
    """Runs the health checks that are due, and records the results.

    Services that are shown and services that are not have separate limits (`max_concurrent_checks`), so that many
    services that do not answer do not delay the checks of those that do.

    Args:
        monitored: the registrations and their health.
        check: checks one service; returns its load, or None if it does not answer.
        remove: removes the registration of a service that has been down for too long.
        on_shown: called when a service becomes visible to inquiries.
        config: the intervals and limits.
    """

    def __init__(
        self,
        monitored: MonitoredEntries,
        check: Callable[[Entry], Awaitable[int | None]],
        remove: Callable[[Entry], Awaitable[None]],
        on_shown: Callable[[], None],
        config: DirectoryServerConfig,
    ) -> None:
        self._monitored = monitored
        self._check = check
        self._remove = remove
        self._on_shown = on_shown
        self._config = config
        self._running: dict[int, trio.Event] = {}
        self._limits = {shown: trio.CapacityLimiter(config.max_concurrent_checks) for shown in (True, False)}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Run the checks that are due, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                while True:
                    for entry in self._monitored.due(trio.current_time()):
                        self._start(nursery, entry)
                    await trio.sleep(self._config.scan_interval_seconds)
            finally:
                self._nursery = None

    async def check_now(self, entries: Iterable[Entry], *, wait_seconds: float) -> None:
        """Check these services now, and wait for the results, but not longer than `wait_seconds`.

        Checks that take longer continue in the background. A new service that may be starting is checked repeatedly:
        the result is that it is up, or down.
        """
        if self._nursery is None:
            await trio.lowlevel.checkpoint()
            return
        checks = [self._start(self._nursery, entry) for entry in entries]
        with trio.move_on_after(wait_seconds):
            for done in checks:
                await done.wait()

    def is_running(self, entry: Entry) -> bool:
        """Return whether a check of this service is running."""
        return entry.service_id in self._running

    def _start(self, nursery: trio.Nursery, entry: Entry) -> trio.Event:
        """Start a check unless one is running; return the event that is set when it ends."""
        done = self._running.get(entry.service_id)
        if done is None:
            done = self._running[entry.service_id] = trio.Event()
            nursery.start_soon(self._run_one, entry, done, name=f"health check of service {entry.service_id}")
        return done

    async def _run_one(self, entry: Entry, done: trio.Event) -> None:
        try:
            try:
                change = await self._check_repeatedly(entry)
            finally:
                del self._running[entry.service_id]
                done.set()
            if change is not None:
                await self._follow_up(entry, *change)
        except Exception:  # noqa: BLE001  the boundary of a registration
            _log.exception("the health check of %s failed", described(entry))

    async def _check_repeatedly(self, entry: Entry) -> tuple[Health, Health] | None:
        """Check until it is known whether the service is up; return as `_check_within_limit` does."""
        change = await self._check_within_limit(entry)
        while change is not None and change[1].state is State.NEW:  # it may be starting
            await trio.sleep_until(change[1].due)
            change = await self._check_within_limit(entry)
        return change

    async def _follow_up(self, entry: Entry, before: Health, after: Health) -> None:
        """Do what the result of a check asks for."""
        if after.shown and not before.shown:
            self._on_shown()
        if after.state is not before.state:
            # That a new service answers is not news.
            well = before.state is State.NEW and after.state is State.UP
            _log.log(logging.DEBUG if well else logging.INFO, "%s is %s", described(entry), after.state.value)
        if self._monitored.given_up(entry, trio.current_time()):
            await self._remove(entry)

    async def _check_within_limit(self, entry: Entry) -> tuple[Health, Health] | None:
        """Return the health before and after the check; None when the service is no longer registered."""
        before = self._monitored.health(entry)
        if before is None:
            return None
        async with self._limits[before.shown]:
            if self._monitored.health(entry) is None:  # deregistered while this waited
                return None
            load = await self._load_of(entry)
        self._monitored.record(entry, load, trio.current_time())
        after = self._monitored.health(entry)
        return None if after is None else (before, after)

    async def _load_of(self, entry: Entry) -> int | None:
        try:
            return await self._check(entry)
        except Exception:  # noqa: BLE001  whatever a foreign server causes must not end the other checks
            _log.exception("the health check of %s failed", described(entry))
            return None


def described(entry: Entry) -> str:
    """Return which service it is, for the log."""
    return f"service {entry.service_id} at {entry.service.host}:{entry.service.port}"
