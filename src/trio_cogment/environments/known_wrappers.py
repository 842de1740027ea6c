"""Wrappers of other packages that tell an episode otherwise than it was: the log says once what to expect.

They are used as they are: a user may know, or may have nothing else. `docs/peers.md` says of each what it does, in
which version, and what to use instead.
"""

from __future__ import annotations

import logging
from typing import Any

_log = logging.getLogger(__name__)

#: By package and class: what is not as it was, and what to do about it.
_FAULTS = {
    ("shimmy", "OpenSpielCompatibilityV0"): (
        "it cuts games of chance short, adds final rewards again for each agent that leaves, never shows the last "
        "move, and reset() forgets the parameters of a game that it was given; 'openspiel/kuhn_poker' is the same game "
        "without these"
    ),
    ("shimmy", "MeltingPotCompatibilityV0"): (
        "it tells every last step as terminated, a limit of the substrate included, because Lab2D gives each the "
        "discount 0; a trial with max_steps below that limit is told as truncated"
    ),
    ("shimmy", "DmControlCompatibilityV0"): (
        "it knows a time limit by a discount other than 0, and tells one with discount 0 as terminated; a trial with "
        "max_steps below that limit is told as truncated"
    ),
    ("shimmy", "DmControlMultiAgentCompatibilityV0"): (
        "it tells a last step with discount 0 as truncated, and any other, as time limits are, as terminated, which is "
        "the wrong way round; the environment of dm_env itself is taken, too"
    ),
    ("shimmy", "BSuiteCompatibilityV0"): (
        "it tells every last step as terminated, a limit of steps included, because bsuite gives each the discount 0; "
        "a trial with max_steps below that limit is told as truncated"
    ),
    ("shimmy", "DmLabCompatibilityV0"): (
        "it tells every end as terminated, a limit of time included; a trial with max_steps below that limit is told "
        "as truncated"
    ),
    ("supersuit", "black_death_par"): (
        "it tells no end when one comes, and then plays one more step of zeros, which is terminated and truncated for "
        "everybody; agents may leave a trial without it"
    ),
}
#: A chain of wrappers is not longer than that; `env` of a wrapper might lead back to itself.
_LONGEST_CHAIN = 64

_told: set[tuple[str, str]] = set()


def note_known_wrappers(environment: Any) -> None:
    """Log once for each class of `_FAULTS` that an environment is of, or is wrapped by."""
    inner = environment
    for _ in range(_LONGEST_CHAIN):
        key = type(inner).__module__.partition(".")[0], type(inner).__name__
        if key in _FAULTS and key not in _told:
            _told.add(key)
            _log.warning("%s of %s: %s (docs/peers.md)", key[1], key[0], _FAULTS[key])
        try:
            inner = inner.env
        except AttributeError:
            return
