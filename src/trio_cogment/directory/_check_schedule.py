"""Looking at all registered services again and again, several at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

import trio

from trio_cogment.config import DirectoryServerConfig
from trio_cogment.directory._health import Health
from trio_cogment.directory._registry import Entry
from trio_cogment.directory._table import Table

_log = logging.getLogger(__name__)


class Checker:
    """Sees to it that the table knows how the services are.

    Those that are shown and those that are not have places of their own (`max_concurrent_checks`): a crowd that does
    not answer holds nobody up who did.

    Args:
        table: what is known.
        look: looks at one service: its load, or None.
        forget: takes a service that is gone for good out of the registrations.
        on_shown: called when there is one more that inquiries are told of.
        config: how often to look.
    """

    def __init__(
        self,
        table: Table,
        look: Callable[[Entry], Awaitable[int | None]],
        forget: Callable[[Entry], Awaitable[None]],
        on_shown: Callable[[], None],
        config: DirectoryServerConfig,
    ) -> None:
        self._table = table
        self._look = look
        self._forget = forget
        self._on_shown = on_shown
        self._config = config
        self._running: dict[int, trio.Event] = {}
        self._places = {shown: trio.CapacityLimiter(config.max_concurrent_checks) for shown in (True, False)}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Look at whoever is due, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                while True:
                    for entry in self._table.due(trio.current_time()):
                        self._begin(nursery, entry)
                    await trio.sleep(self._config.scan_interval_seconds)
            finally:
                self._nursery = None

    async def look_at(self, entries: Iterable[Entry], *, wait_seconds: float) -> None:
        """Look at these now, and wait until that is done, or for so long; then it goes on without us."""
        if self._nursery is None:
            await trio.lowlevel.checkpoint()
            return
        looks = [self._begin(self._nursery, entry) for entry in entries]
        with trio.move_on_after(wait_seconds):
            for done in looks:
                await done.wait()

    def is_running(self, entry: Entry) -> bool:
        """Tell whether a service is being looked at."""
        return entry.service_id in self._running

    def _begin(self, nursery: trio.Nursery, entry: Entry) -> trio.Event:
        done = self._running.get(entry.service_id)
        if done is None:
            done = self._running[entry.service_id] = trio.Event()
            nursery.start_soon(self._check, entry, done, name=f"look at service {entry.service_id}")
        return done

    async def _check(self, entry: Entry, done: trio.Event) -> None:
        try:
            change = await self._look_in_turn(entry)
        finally:
            del self._running[entry.service_id]
            done.set()
        if change is None:
            return
        before, after = change
        if after.shown and not before.shown:
            self._on_shown()
        if after.state is not before.state:
            _log.info("%s is %s", described(entry), after.state.value)
        if self._table.given_up(entry, trio.current_time()):
            await self._forget(entry)

    async def _look_in_turn(self, entry: Entry) -> tuple[Health, Health] | None:
        """Return the health before and after a look; None when the service is not registered any more."""
        before = self._table.health(entry)
        if before is None:
            return None
        async with self._places[before.shown]:
            if self._table.health(entry) is None:  # taken back while this waited
                return None
            load = await self._looked(entry)
        self._table.looked(entry, load, trio.current_time())
        after = self._table.health(entry)
        return None if after is None else (before, after)

    async def _looked(self, entry: Entry) -> int | None:
        try:
            return await self._look(entry)
        except Exception:  # noqa: BLE001  whatever a stranger's server brings about concerns nobody else
            _log.exception("the look at %s failed", described(entry))
            return None


def described(entry: Entry) -> str:
    """Return which service it is, for the log."""
    return f"service {entry.service_id} at {entry.service.host}:{entry.service.port}"
