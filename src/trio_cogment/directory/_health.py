"""How one registered service is, as a table.

The state says whether inquiries show the service. A look at it has two outcomes, and the table knows what they make of
each state:

=========== ========= ==========
state       answered  failed
=========== ========= ==========
NEW         UP        DOWN
UP          UP        DOWN
DOWN        UP        DOWN
ASSUMED     -         -
=========== ========= ==========

Only UP and ASSUMED are shown. ASSUMED are those nobody looks at: permanent registrations, and client actors, who cannot
be called. What the table does not hold is how often a service that is DOWN has failed, and since when; it is forgotten
when both are enough.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from trio_cogment.config import DirectoryServerConfig

#: A service of this load wants nobody sent to it.
FULL_LOAD = 255


class State(enum.Enum):
    """What is known of a service."""

    NEW = "new"
    UP = "up"
    DOWN = "down"
    ASSUMED = "assumed"


#: (state, the look was answered) -> the next state.
TABLE: dict[tuple[State, bool], State] = {
    (State.NEW, True): State.UP,
    (State.NEW, False): State.DOWN,
    (State.UP, True): State.UP,
    (State.UP, False): State.DOWN,
    (State.DOWN, True): State.UP,
    (State.DOWN, False): State.DOWN,
}
SHOWN = frozenset({State.UP, State.ASSUMED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a service is. Times are on whatever clock the caller has.

    Attributes:
        state: see the table.
        due: when to look at it again.
        looked_at: when that was done before; minus infinity if never.
        load: what it said of itself, from 0 to 255.
        failures: looks in a row that failed.
        failing_since: when the first of these was.
    """

    state: State
    due: float
    looked_at: float = -math.inf
    load: int = 0
    failures: int = 0
    failing_since: float = math.inf

    @classmethod
    def at_first(cls, *, exempt: bool, now: float) -> Health:
        """Return the health of a service that is new to us; `exempt` if nobody shall look at it."""
        return cls(state=State.ASSUMED, due=math.inf) if exempt else cls(state=State.NEW, due=now)

    @property
    def shown(self) -> bool:
        """Whether inquiries show it."""
        return self.state in SHOWN

    def after_look(self, load: int | None, now: float, config: DirectoryServerConfig) -> Health:
        """Return the health after a look that ended now.

        Args:
            load: what the service said; None when it did not answer.
            now: the time.
            config: how often to look.
        """
        state = TABLE[self.state, load is not None]
        if load is not None:
            return Health(state=state, due=now + config.check_interval_seconds, looked_at=now, load=load)
        # 2**32 is more than any interval may be, and no float's end.
        pause = config.recheck_initial_seconds * 2.0 ** min(self.failures, 32)
        return Health(
            state=state,
            due=now + min(pause, config.check_interval_seconds),
            looked_at=now,
            load=FULL_LOAD,
            failures=self.failures + 1,
            failing_since=min(self.failing_since, now),
        )

    def given_up(self, now: float, config: DirectoryServerConfig) -> bool:
        """Tell whether it has failed often and long enough to be forgotten."""
        return self.failures >= config.max_failures and now - self.failing_since >= config.forget_seconds
