"""The suite's first seeds, those that once failed, and what it can show of itself. `nox -s sim` runs many more."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.scenario import draw_plan, scenario
from tests.sim.suite import kept_seeds, run_seed
from trio_cogment.testing import CHECKERS, Fault, FaultPlan, simulate


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What fakes do on purpose is logged as what it would be."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [*kept_seeds(), *range(10)])
def test_seed(seed: int) -> None:
    run_seed(seed)


def test_plans_differ_and_can_be_read_again() -> None:
    plans = [draw_plan(seed) for seed in range(200)]
    assert len({str(plan) for plan in plans}) > 150
    assert [FaultPlan.parse(str(plan)) for plan in plans] == plans
    names = {fault.name for plan in plans for fault in plan}
    assert names == {"misbehaves", "reset", "dark", "partition", "crash", "terminate", "start again"}
    assert draw_plan(3) == plans[3]


def mischief(target: str, misbehaviour: str, **details: object) -> Fault:
    return Fault("misbehaves", target=target, details={"misbehaviour": misbehaviour, "from_tick": 2, **details})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "faults",
    [
        [mischief("trial-0/ann", "crash")],
        [mischief("trial-0/ann", "deaf")],
        [mischief("trial-0/ann", "flood", count=100)],
        [mischief("trial-0/env", "vanish")],
        [mischief("trial-0/env", "silent")],
        [mischief("trial-0/datalog", "deaf")],
        [Fault("crash", at=4.0, target="env-0", details={"power": False})],
        [Fault("dark", at=4.0, target="actors-0")],
        [Fault("terminate", at=4.0, target="trial-0", details={"hard": True})],
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_happens_to_one_trial_is_not_seen_by_the_others(seed: int, faults: list[Fault]) -> None:
    """Event by event, and to the microsecond."""
    calm = simulate(seed, scenario, plan=FaultPlan()).history
    stormy = simulate(seed, scenario, plan=FaultPlan(tuple(faults))).history

    def seen(history: object, trial_id: str) -> list[str]:
        # The far watcher shares its connection with all trials.
        assert history in (calm, stormy)
        events = (calm if history is calm else stormy).of_trial(trial_id)
        return sorted(str(event) for event in events if event.who != "afar")

    assert seen(calm, "trial-0") != seen(stormy, "trial-0")
    for trial_id in ("trial-1", "trial-2", "trial-3"):
        assert seen(calm, trial_id) == seen(stormy, trial_id)
        assert len(seen(calm, trial_id)) > 50


def test_every_checker_has_a_sentence() -> None:
    for name, checker in CHECKERS.items():
        assert checker.__doc__, name
