"""The trainer in simulated worlds; see `simulated`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.simulated import simulated

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.sim(seeds=5)
def test_who_vanishes_repeats_and_reconnects(sim: Any) -> None:
    """`nox -s soak` runs 300 seeds."""
    sim(simulated)
