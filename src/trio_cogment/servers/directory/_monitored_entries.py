"""The registrations and their health: everything that is needed to answer an inquiry.

Pure: the time is an argument. The registrations are replaced as a whole (`adopt`) when they have been written to the
file. The results of health checks come one by one (`record`) and are not written.
"""

from __future__ import annotations

from collections.abc import Iterable

from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.servers.directory._entries import Entries, Entry
from trio_cogment.servers.directory._health import Health
from trio_cogment.servers.directory._requests import Inquiry


class MonitoredEntries:
    """The registrations and the health of each.

    Args:
        config: the limits and intervals.

    Attributes:
        entries: the registrations as last written. To change them, change a copy and `adopt` it.
    """

    def __init__(self, config: DirectoryServerConfig) -> None:
        self.entries = Entries()
        self._config = config
        self._health: dict[int, Health] = {}

    def adopt(self, entries: Entries, now: float) -> None:
        """Replace the registrations; a new one is due for its first check."""
        health = {}
        for entry in entries:
            # Only a permanent registration ever changes, into another permanent one: its health stays valid.
            known = self._health.get(entry.service_id)
            health[entry.service_id] = known or Health.at_first(exempt=entry.exempt, now=now, config=self._config)
        self.entries = entries
        self._health = health

    def health(self, entry: Entry) -> Health | None:
        """Return the health of a service; None if it is no longer registered."""
        return self._health.get(entry.service_id)

    def load(self, entry: Entry) -> int:
        """Return the load of a registered service as of its last check."""
        return self._health[entry.service_id].load

    def due(self, now: float) -> list[Entry]:
        """Return the services whose next check is due."""
        return [entry for entry in self.entries if self._health[entry.service_id].due <= now]

    def record(self, entry: Entry, load: int | None, now: float) -> None:
        """Record the result of a health check: the load, or None when the service did not answer."""
        health = self._health.get(entry.service_id)
        if health is not None and not entry.exempt:
            self._health[entry.service_id] = health.after_check(load, now, self._config)

    def given_up(self, entry: Entry, now: float) -> bool:
        """Return whether a service has been down for long enough to remove its registration."""
        health = self._health.get(entry.service_id)
        return health is not None and health.given_up(now, self._config)

    def shown(self, inquiry: Inquiry, token: bytes, account: str | None = None) -> list[Entry]:
        """Return the registrations that answer an inquiry, in the order of `Entries.matching`."""
        found = self.entries.matching(inquiry, token, account)
        return [entry for entry in found if self._health[entry.service_id].shown]

    def awaited(self) -> bool:
        """Return whether a service may still deregister: one that is checked, and is not known to be down."""
        return any(self._health[entry.service_id].may_deregister for entry in self.entries)

    def stale(self, entries: Iterable[Entry], now: float) -> list[Entry]:
        """Return those that are checked at all and whose last check is older than `fresh_check_seconds`."""
        oldest = now - self._config.fresh_check_seconds
        return [entry for entry in entries if not entry.exempt and self._health[entry.service_id].checked_at < oldest]
