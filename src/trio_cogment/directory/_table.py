"""Who is registered and how they are: everything an inquiry is answered from.

Pure: the time is an argument, and chance a generator. The registrations come whole (`adopt`), when they have been
written; how the services are comes one by one (`looked`) and is written nowhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from trio_cogment.config import DirectoryServerConfig
from trio_cogment.directory._health import FULL_LOAD, Health
from trio_cogment.directory._registry import Entry, Registry
from trio_cogment.directory._requests import Inquiry

#: Sharing out load, services are as good as the best of them if their load is at most so much higher.
LOAD_SPREAD = 10


class Table:
    """The registrations and the health of each.

    Args:
        config: the rules.

    Attributes:
        registry: the registrations, as they were written last. Change a copy, and `adopt` it.
    """

    def __init__(self, config: DirectoryServerConfig) -> None:
        self.registry = Registry()
        self._config = config
        self._health: dict[int, Health] = {}

    def adopt(self, registry: Registry, now: float) -> None:
        """Take over changed registrations; what is new to us is due to be looked at."""
        health = {}
        for entry in registry:
            # Only a permanent one ever changes, into another permanent one: what is known of a service stays true.
            known = self._health.get(entry.service_id)
            health[entry.service_id] = known or Health.at_first(exempt=entry.exempt, now=now)
        self.registry = registry
        self._health = health

    def health(self, entry: Entry) -> Health | None:
        """Return how a service is; None if it is not registered any more."""
        return self._health.get(entry.service_id)

    def due(self, now: float) -> list[Entry]:
        """Return whom to look at."""
        return [entry for entry in self.registry if self._health[entry.service_id].due <= now]

    def looked(self, entry: Entry, load: int | None, now: float) -> None:
        """Learn what a look at a service showed: its load, or None when it did not answer."""
        health = self._health.get(entry.service_id)
        if health is not None and not entry.exempt:
            self._health[entry.service_id] = health.after_look(load, now, self._config)

    def given_up(self, entry: Entry, now: float) -> bool:
        """Tell whether a service has been away for long enough to be forgotten."""
        health = self._health.get(entry.service_id)
        return health is not None and health.given_up(now, self._config)

    def shown(self, inquiry: Inquiry, token: bytes) -> list[Entry]:
        """Return those an inquiry is told of, the newest first."""
        return [entry for entry in self.registry.matching(inquiry, token) if self._health[entry.service_id].shown]

    def stale(self, entries: Iterable[Entry], now: float) -> list[Entry]:
        """Return those of them whom nobody has looked at just now, of those that can be looked at."""
        oldest = now - self._config.fresh_check_seconds
        return [entry for entry in entries if not entry.exempt and self._health[entry.service_id].looked_at < oldest]

    def least_loaded(self, entries: Sequence[Entry], rng: random.Random) -> list[Entry]:
        """Return those with the least load, or hardly more, in any order; nobody who wants nobody."""
        loads = {entry.service_id: self._health[entry.service_id].load for entry in entries}
        limit = min(min(loads.values(), default=0) + LOAD_SPREAD, FULL_LOAD - 1)
        chosen = [entry for entry in entries if loads[entry.service_id] <= limit]
        rng.shuffle(chosen)
        return chosen
