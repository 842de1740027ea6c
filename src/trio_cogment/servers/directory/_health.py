"""The health of one registered service, as a table.

The state decides whether inquiries show the service. A health check has two outcomes, and the table says which state
follows:

=========== ========= ==========
state       answered  failed
=========== ========= ==========
NEW         UP        DOWN
UP          UP        DOWN
DOWN        UP        DOWN
ASSUMED     -         -
=========== ========= ==========

A NEW service may only just be starting: as long as the reply to its registration waits, a failed check leaves it NEW,
and it is checked again soon.

Only UP and ASSUMED are shown. ASSUMED services are not checked: permanent registrations, and client actors, which
cannot be called. The table does not hold how many checks of a DOWN service have failed in a row, nor since when; when
both limits are passed, the registration is removed.
"""

from __future__ import annotations

import enum
import math
from dataclasses import replace

from trio_cogment.base.backoff import exponential_delay
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.records import record

#: A service with this load takes no more clients.
FULL_LOAD = 255


#: The pause after the first failed check of a service that may be starting; each further one is twice as long,
_SOON_SECONDS = 0.05
#: and none is longer.
_LATER_SECONDS = 0.4


class State(enum.Enum):
    """What the directory knows of a service."""

    NEW = "new"
    UP = "up"
    DOWN = "down"
    ASSUMED = "assumed"


#: (state, the check was answered) -> the next state.
TABLE: dict[tuple[State, bool], State] = {
    (State.NEW, True): State.UP,
    (State.NEW, False): State.DOWN,
    (State.UP, True): State.UP,
    (State.UP, False): State.DOWN,
    (State.DOWN, True): State.UP,
    (State.DOWN, False): State.DOWN,
}
SHOWN = frozenset({State.UP, State.ASSUMED})


@record(kw_only=True)
class Health:
    """The health of a service. Times are in seconds of the caller's clock.

    Attributes:
        state: see the table.
        due: when the next check is due; infinite for a service that is not checked.
        checked_at: when the last check ended; minus infinity if there was none.
        load: the load that the service reported, from 0 to 255.
        failures: the number of checks in a row that failed.
        failing_since: when the first of these ended; infinite if none failed.
        starting_until: until then a NEW service may be starting, and its failures do not count.
        early_failures: the number of those.
    """

    state: State
    due: float
    checked_at: float = -math.inf
    load: int = 0
    failures: int = 0
    failing_since: float = math.inf
    starting_until: float = -math.inf
    early_failures: int = 0

    @classmethod
    def at_first(cls, *, exempt: bool, now: float, config: DirectoryServerConfig) -> Health:
        """Return the health of a new registration; `exempt` if the service is not to be checked."""
        if exempt:
            return cls(state=State.ASSUMED, due=math.inf)
        return cls(state=State.NEW, due=now, starting_until=now + config.registration_wait_seconds)

    @property
    def shown(self) -> bool:
        """Whether inquiries show the service."""
        return self.state in SHOWN

    @property
    def may_deregister(self) -> bool:
        """Whether the service is one that deregisters when it stops, and may be alive."""
        return self.state in (State.NEW, State.UP)

    def after_check(self, load: int | None, now: float, config: DirectoryServerConfig) -> Health:
        """Return the health after a check that ended now.

        Args:
            load: the load that the service reported; None when it did not answer.
            now: the current time, in seconds.
            config: the intervals between checks.
        """
        state = TABLE[self.state, load is not None]
        if load is not None:
            return Health(state=state, due=now + config.check_interval_seconds, checked_at=now, load=load)
        if self.state is State.NEW:
            soon = now + exponential_delay(_SOON_SECONDS, _LATER_SECONDS, self.early_failures, factor=2)
            if soon < self.starting_until:
                early = self.early_failures + 1
                return replace(self, due=soon, checked_at=now, load=FULL_LOAD, early_failures=early)
        pause = exponential_delay(
            config.recheck_initial_seconds, config.check_interval_seconds, self.failures, factor=2
        )
        return Health(
            state=state,
            due=now + pause,
            checked_at=now,
            load=FULL_LOAD,
            failures=self.failures + 1,
            failing_since=min(self.failing_since, now),
        )

    def given_up(self, now: float, config: DirectoryServerConfig) -> bool:
        """Return whether enough checks have failed, for long enough, to remove the registration."""
        return self.failures >= config.max_failures and now - self.failing_since >= config.forget_seconds
