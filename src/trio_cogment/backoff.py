"""Pauses between attempts: they grow with each failure in a row, are bounded, and differ from client to client."""

from __future__ import annotations

import random

#: As in gRPC's `connection-backoff.md`.
FACTOR = 1.6
_JITTER = 0.2
#: Even a factor of 2 stays within the range of a float.
_MAX_EXPONENT = 100


def growing(initial: float, longest: float, failures: int, *, factor: float = FACTOR) -> float:
    """Return the seconds to wait after so many earlier failures in a row."""
    return min(initial * factor ** min(failures, _MAX_EXPONENT), longest)


def spread(seconds: float, rng: random.Random) -> float:
    """Return a pause within a fifth of `seconds`, so that a crowd that failed together does not come back together."""
    return seconds * rng.uniform(1 - _JITTER, 1 + _JITTER)


class Backoff:
    """How long to wait after each failure in a row.

    Args:
        initial: seconds, after the first.
        longest: seconds, at most.
        rng: makes the pauses differ, by a fifth at most.
        factor: by how much each pause is longer than the one before.

    Attributes:
        failures: how many there have been in a row.
    """

    def __init__(self, initial: float, longest: float, rng: random.Random, *, factor: float = FACTOR) -> None:
        self._initial = initial
        self._longest = longest
        self._rng = rng
        self._factor = factor
        self.failures = 0

    def failed(self) -> float:
        """Count a failure and return the seconds to wait before the next attempt."""
        seconds = growing(self._initial, self._longest, self.failures, factor=self._factor)
        self.failures += 1
        return spread(seconds, self._rng)

    def reset(self) -> None:
        """Note that an attempt was of use: the next failure is the first one again."""
        self.failures = 0
