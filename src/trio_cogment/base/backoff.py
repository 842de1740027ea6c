"""Exponential backoff with jitter: pauses that grow with each failure in a row, up to a maximum."""

from __future__ import annotations

import random

#: As in gRPC's `connection-backoff.md`.
FACTOR = 1.6
_JITTER = 0.2
#: Even a factor of 2 stays within the range of a float.
_MAX_EXPONENT = 100


def exponential_delay(initial: float, maximum: float, failures: int, *, factor: float = FACTOR) -> float:
    """Return the seconds to wait after this many earlier failures in a row."""
    return min(initial * factor ** min(failures, _MAX_EXPONENT), maximum)


def with_jitter(seconds: float, rng: random.Random) -> float:
    """Return a pause within a fifth of `seconds`, so that clients that failed together do not all retry together."""
    return seconds * rng.uniform(1 - _JITTER, 1 + _JITTER)


class Backoff:
    """How long to wait after each failure in a row.

    Args:
        initial: seconds, after the first.
        maximum: seconds, the longest pause without jitter.
        rng: makes the pauses differ, by a fifth at most.
        factor: by how much each pause is longer than the one before.

    Attributes:
        failures: how many there have been in a row.
    """

    def __init__(self, initial: float, maximum: float, rng: random.Random, *, factor: float = FACTOR) -> None:
        self._initial = initial
        self._maximum = maximum
        self._rng = rng
        self._factor = factor
        self.failures = 0

    def failed(self) -> float:
        """Count a failure and return the seconds to wait before the next attempt."""
        seconds = exponential_delay(self._initial, self._maximum, self.failures, factor=self._factor)
        self.failures += 1
        return with_jitter(seconds, self._rng)

    def reset(self) -> None:
        """Note that an attempt was of use: the next failure is the first one again."""
        self.failures = 0
