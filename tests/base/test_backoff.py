"""Pauses between attempts."""

from __future__ import annotations

import random

import pytest

from trio_cogment.base.backoff import Backoff, exponential_delay


def test_backoff_grows_to_its_limit_and_differs_by_client() -> None:
    def delays(seed: int) -> list[float]:
        backoff = Backoff(1.0, 10.0, random.Random(seed))
        return [backoff.failed() for _ in range(10)]

    expected = [1.0, 1.6, 2.56, 4.096, 6.5536, 10, 10, 10, 10, 10]
    for seed in range(20):
        assert all(0.8 * e <= got <= 1.2 * e for got, e in zip(delays(seed), expected, strict=True))
    assert delays(1) == delays(1)
    assert delays(1) != delays(2)
    backoff = Backoff(1.0, 10.0, random.Random(1))
    for _ in range(5):
        backoff.failed()
    backoff.reset()
    assert backoff.failed() <= 1.2


class Extreme(random.Random):
    """Draws the least and the greatest number in turn."""

    greatest = False

    def uniform(self, a: float, b: float) -> float:
        self.greatest = not self.greatest
        return a if self.greatest else b


def test_backoff_is_jittered_by_a_fifth_either_way() -> None:
    backoff = Backoff(1.0, 2.0, Extreme())
    delays = [backoff.failed() for _ in range(6)]
    assert delays == pytest.approx([0.8, 1.6 * 1.2, 2.0 * 0.8, 2.0 * 1.2, 2.0 * 0.8, 2.0 * 1.2])
    drawn = [Backoff(1.0, 2.0, random.Random(seed)).failed() for seed in range(300)]
    assert 0.8 <= min(drawn) < 0.82
    assert 1.18 < max(drawn) <= 1.2


def test_backoff_never_exceeds_its_limit_not_even_at_first() -> None:
    backoff = Backoff(10.0, 2.0, random.Random(1))
    assert all(1.6 <= backoff.failed() <= 2.4 for _ in range(10))


def test_a_factor_of_its_own_and_any_number_of_failures() -> None:
    assert [exponential_delay(1, 10, failures, factor=2) for failures in range(5)] == [1, 2, 4, 8, 10]
    assert exponential_delay(0.1, 30, 10**9, factor=2) == 30
