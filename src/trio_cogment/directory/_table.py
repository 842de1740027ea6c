"""The registrations and their health: everything that is needed to answer an inquiry.

Pure: the time is an argument, and so is the random generator. The registrations are replaced as a whole (`adopt`) when
they have been written to the file. The results of health checks come one by one (`record`) and are not written.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from trio_cogment.config import DirectoryServerConfig
from trio_cogment.directory._health import FULL_LOAD, Health
from trio_cogment.directory._registry import Entry, Registry
from trio_cogment.directory._requests import Inquiry

#: With load balancing, services whose load is at most this much above the lowest are considered equal.
LOAD_SPREAD = 10


class Table:
    """The registrations and the health of each.

    Args:
        config: the limits and intervals.

    Attributes:
        registry: the registrations as last written. To change them, change a copy and `adopt` it.
    """

    def __init__(self, config: DirectoryServerConfig) -> None:
        self.registry = Registry()
        self._config = config
        self._health: dict[int, Health] = {}

    def adopt(self, registry: Registry, now: float) -> None:
        """Replace the registrations; a new one is due for its first check."""
        health = {}
        for entry in registry:
            # Only a permanent registration ever changes, into another permanent one: its health stays valid.
            known = self._health.get(entry.service_id)
            health[entry.service_id] = known or Health.at_first(exempt=entry.exempt, now=now)
        self.registry = registry
        self._health = health

    def health(self, entry: Entry) -> Health | None:
        """Return the health of a service; None if it is no longer registered."""
        return self._health.get(entry.service_id)

    def due(self, now: float) -> list[Entry]:
        """Return the services whose next check is due."""
        return [entry for entry in self.registry if self._health[entry.service_id].due <= now]

    def record(self, entry: Entry, load: int | None, now: float) -> None:
        """Record the result of a health check: the load, or None when the service did not answer."""
        health = self._health.get(entry.service_id)
        if health is not None and not entry.exempt:
            self._health[entry.service_id] = health.after_check(load, now, self._config)

    def given_up(self, entry: Entry, now: float) -> bool:
        """Return whether a service has been down for long enough to remove its registration."""
        health = self._health.get(entry.service_id)
        return health is not None and health.given_up(now, self._config)

    def shown(self, inquiry: Inquiry, token: bytes) -> list[Entry]:
        """Return the registrations that answer an inquiry, the newest first."""
        return [entry for entry in self.registry.matching(inquiry, token) if self._health[entry.service_id].shown]

    def stale(self, entries: Iterable[Entry], now: float) -> list[Entry]:
        """Return those that are checked at all and whose last check is older than `fresh_check_seconds`."""
        oldest = now - self._config.fresh_check_seconds
        return [entry for entry in entries if not entry.exempt and self._health[entry.service_id].checked_at < oldest]

    def least_loaded(self, entries: Sequence[Entry], rng: random.Random) -> list[Entry]:
        """Return those with the lowest load, or within `LOAD_SPREAD` of it, in random order; none with full load."""
        loads = {entry.service_id: self._health[entry.service_id].load for entry in entries}
        limit = min(min(loads.values(), default=0) + LOAD_SPREAD, FULL_LOAD - 1)
        chosen = [entry for entry in entries if loads[entry.service_id] <= limit]
        rng.shuffle(chosen)
        return chosen
