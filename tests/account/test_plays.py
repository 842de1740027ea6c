"""Trials played at random are as their accounts say."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.account.plays import Player
from trio_cogment.api.common_pb2 import EndCause

#: How trials end that an orchestrator ends by itself.
NOT_HERE = {f"END_CAUSE_{name}" for name in ("SERVER_STOPPED", "NOT_STARTED", "INTERNAL")}


def outcomes(seeds: range) -> Counter[int]:
    """Play; `Play` compares each step with the account."""
    reached: Counter[int] = Counter()
    for seed in seeds:
        outcome = Player(seed).run().machine.outcome
        reached[0 if outcome is None else outcome.message().cause] += 1
    return reached


def test_some_plays() -> None:
    reached = outcomes(range(250))
    assert reached[0] < 60, "most of them come to an end"
    assert {EndCause.Name(cause) for cause in EndCause.values() if cause not in reached} == NOT_HERE


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_plays() -> None:
    assert sum(outcomes(range(100_000)).values()) == 100_000
