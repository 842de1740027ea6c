"""Profiles of legacy applications: what makes no sense is refused."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.legacy import LegacyProfile


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"classes": ()}, "classes: expected at least one actor class, got none"),
        ({"classes": ("plane", "plane")}, "classes: expected each class once, got 'plane', 'plane'"),
        ({"deltas": {"ship": bytes}}, "deltas: expected actor classes ('plane', 'drone'), got 'ship'"),
        ({"names": {"plane": ["p"], "ship": ["s"]}}, "names: expected actor classes ('plane', 'drone'), got 'ship'"),
        ({"on_agent_error": "wait"}, "on_agent_error: expected "),
        ({"call_timeout_seconds": -1.0}, "call_timeout_seconds: expected seconds, 0 or more, got -1.0"),
        ({"end_timeout_seconds": float("inf")}, "end_timeout_seconds: expected seconds, 0 or more, got inf"),
        ({"end_timeout_seconds": float("nan")}, "end_timeout_seconds: expected seconds, 0 or more, got nan"),
    ],
)
def test_what_makes_no_sense(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        LegacyProfile(**{"classes": ("plane", "drone"), **given})
    assert str(caught.value).startswith(expected)


def test_least_times() -> None:
    found = LegacyProfile(classes=("plane",), call_timeout_seconds=0, end_timeout_seconds=0)
    assert (found.call_timeout_seconds, found.end_timeout_seconds) == (0, 0)
