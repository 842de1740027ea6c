"""Choice of a learner's opponents among stored versions of a policy. Pure; randomness comes in as an argument.

`prioritised` is the prioritised fictitious self-play of Vinyals et al., "Grandmaster level in StarCraft II using
multi-agent reinforcement learning" (Nature 575, 2019): an opponent is chosen the more often, the less the learner wins
against it ("hard"), or the closer their games are ("even").
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from trio_cogment.base.errors import InvalidArgumentError

#: Chooses one of some versions, given the learner's win rate against each, and a generator.
Matchmaking: TypeAlias = Callable[[Sequence[int], Mapping[int, float], random.Random], int]

#: What a weight is at least, so that no opponent is forgotten for good.
_FLOOR = 1e-3


def latest(versions: Sequence[int], _win_rates: Mapping[int, float], _rng: random.Random) -> int:
    """Choose the newest version."""
    return max(versions)


def uniform(versions: Sequence[int], _win_rates: Mapping[int, float], rng: random.Random) -> int:
    """Choose any version, each as often as the others."""
    return rng.choice(versions)


def prioritised(weighting: str = "hard", *, power: float = 2.0) -> Matchmaking:
    """Return a choice by the learner's win rate.

    Args:
        weighting: "hard" weighs an opponent by (1 - win rate) ** power; "even" by win rate * (1 - win rate).
        power: for "hard": how much stronger opponents are preferred.

    Raises:
        InvalidArgumentError: there is no such weighting.
    """
    weights: dict[str, Callable[[float], float]] = {
        "hard": lambda rate: (1.0 - rate) ** power,
        "even": lambda rate: rate * (1.0 - rate),
    }
    if weighting not in weights:
        raise InvalidArgumentError(f"weighting: expected one of {', '.join(weights)}, got {weighting!r}")
    weight = weights[weighting]

    def choose(versions: Sequence[int], win_rates: Mapping[int, float], rng: random.Random) -> int:
        return rng.choices(versions, [max(_FLOOR, weight(win_rates[version])) for version in versions])[0]

    return choose


#: The choices that have a name.
NAMED: Mapping[str, Matchmaking] = {"latest": latest, "uniform": uniform, "pfsp": prioritised()}


def matchmaking(choice: str | Matchmaking) -> Matchmaking:
    """Return the choice of that name; a function is returned as it is.

    Raises:
        InvalidArgumentError: there is no such name.
    """
    if not isinstance(choice, str):
        return choice
    if choice not in NAMED:
        raise InvalidArgumentError(f"matchmaking: expected a function or one of {', '.join(NAMED)}, got {choice!r}")
    return NAMED[choice]
