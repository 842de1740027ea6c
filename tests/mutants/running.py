"""One run of the simulated suite, by its name: its suite and seed, `safety/12`, or one that is kept, `kept/3`."""

from __future__ import annotations

from tests.sim.mutations import first_words
from tests.sim.services import SERVICE_SUITES, Scenario, judged
from tests.sim.suite import BUDGET, Unit, gathered, kept_units, plan_of, scenario_of
from tests.sim.test_memory_pool import crowd
from tests.sim.test_quotas import races
from trio_cogment.testing import simulate

#: Of the simulated suite: seeds of each of its two kinds, and of each service's.
SEEDS = 40
SERVICE_SEEDS = 8
#: Simulations of what many take of one server, which tests of `tests/sim` run; and seeds of each.
CROWDS: dict[str, Scenario] = {"quotas": judged(races), "memory": judged(crowd)}
CROWD_SEEDS = 3
#: Instead of a suite: those that every run of the suites begins with.
KEPT = "kept"


def run_names() -> list[str]:
    """Return the runs that are tried: those that are kept, the first seeds of the suites, and some of the services'."""
    trials = [f"{('safety', 'liveness')[seed % 2]}/{seed}" for seed in range(2 * SEEDS)]
    services = [f"{suite}/{seed}" for suite in SERVICE_SUITES for seed in range(SERVICE_SEEDS)]
    crowds = [f"{name}/{seed}" for name in CROWDS for seed in range(CROWD_SEEDS)]
    return [*(f"{KEPT}/{number}" for number in range(len(kept_units()))), *trials, *services, *crowds]


def run(name: str) -> str | None:
    """Do a run; return the first words of what was wrong with it, None if nothing was."""
    suite, _, number = name.rpartition("/")
    unit = kept_units()[int(number)] if suite == KEPT else Unit(int(number), suite)
    scenario = CROWDS.get(unit.suite) or scenario_of(unit.suite)
    errors: list[BaseException] = []
    with gathered(errors):
        simulate(unit.seed, scenario, plan=plan_of(unit), budget=BUDGET)
    return first_words(errors[0]) if errors else None
