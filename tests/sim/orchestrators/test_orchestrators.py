"""Events that the simulated orchestrators are to come to do happen, within a few seeds."""

from __future__ import annotations

import pytest

from tests.sim.orchestrators.parting import MANNERS
from tests.sim.services import ORCHESTRATORS, Scenario
from trio_cogment.testing import simulate

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(1000, 1012)
REACHED = {
    "orchestrator with little room": {"started", "taken", "full", "too large", "bad"},
    "orchestrator short of memory": {
        "a trial gives way",
        "who does not read is given up",
        "an observation is kept",
        "an observation is not kept",
    },
    "orchestrator that asks for tokens": {
        "started",
        "taken",
        *(
            f"join: {code}"
            for code in ("OK", "PERMISSION_DENIED", "FAILED_PRECONDITION", "NOT_FOUND", "INVALID_ARGUMENT")
        ),
        "join: DEADLINE_EXCEEDED",
    },
    "orchestrator's data logs": {"a trial waits", "samples are lost", "away for long"},
    "orchestrator's farewells": {
        *(f"{manner}, {who}" for manner in set(MANNERS) - {"refused"} for who in ("client", "served")),
        "refused, served",
    },
    "orchestrator that stops": {"stop"},
    "orchestrator with ticks at a rate": {"missed", "late", "absent"},
}


@pytest.mark.parametrize(("name", "scenario"), ORCHESTRATORS.items())
def test_what_is_to_happen_does_happen(name: str, scenario: Scenario) -> None:
    missing = set(REACHED[name])
    for seed in SEEDS:
        missing -= simulate(seed, scenario).counters.keys()
        if not missing:
            return
    pytest.fail(f"never reached: {missing}")
