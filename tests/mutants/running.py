"""One run of the simulated suite, by its name: `safety/12`, or the name of a service's suite and a seed."""

from __future__ import annotations

from tests.sim.mutations import first_words
from tests.sim.suite import BUDGET, Unit, gathered, plan_of, scenario_of
from trio_cogment.testing import simulate


def run(name: str) -> str | None:
    """Do a run; return the first words of what was wrong with it, None if nothing was."""
    suite, _, seed = name.rpartition("/")
    unit = Unit(int(seed), suite)
    errors: list[BaseException] = []
    with gathered(errors):
        simulate(unit.seed, scenario_of(suite), plan=plan_of(unit), budget=BUDGET)
    return first_words(errors[0]) if errors else None
