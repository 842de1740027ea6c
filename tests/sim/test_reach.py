"""Rare faults do what they are for, and the search keeps what reaches most."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.sim import rare, reach
from tests.sim.faults import makers
from tests.sim.reach import Find, Looking, changed, fewest, kind_of_event, one_each, smaller, told
from tests.sim.suite import CORPUS, Unit, plan_of, read_units, run_unit
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.rpc import RpcConfig
from trio_cogment.testing import Fault, FaultPlan, HistoryEvent

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(
    ("fault", "reached"),
    [
        (Fault(rare.RUDE, at=3.0, target="orchestrator", details={"does": "pads"}), "rude peer: pads"),
        (Fault(rare.RUDE, at=3.0, target="orchestrator", details={"does": "shrinks"}), "rude peer: shrinks"),
        (Fault(rare.RUDE, at=3.0, target="orchestrator", details={"does": "resets"}), "rude peer: resets"),
        (Fault(rare.RUDE, at=3.0, target="orchestrator", details={"does": "withholds"}), "rude peer: withholds"),
        (Fault(rare.RUDE, at=3.0, target="orchestrator", details={"does": "leaves"}), "rude peer: leaves"),
        (Fault(rare.HALF, target="trial-1", details={"sent": 2}), "fault: half closes"),
        (Fault(rare.LATE, target="trial-1", details={"seconds": 1.0}), "fault: joins late"),
        (Fault(rare.TWICE, at=3.0, target="trial-1"), "a place that is taken: FAILED_PRECONDITION"),
        (Fault("partition", at=0.0, target=rare.HOOKS, details={"seconds": 30.0}), "start refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rare_fault_happens(fault: Fault, reached: str) -> None:
    assert run_unit(Unit(421, "liveness", str(FaultPlan((fault,)))))[reached]


@pytest.mark.parametrize("limit", rare.LIMITS)
def test_a_limit_is_set_to_what_a_plan_says(limit: str) -> None:
    most = rare.LIMITS[limit][0]
    plan = FaultPlan((Fault(rare.TIGHT, target=limit, details={"most": most}),))
    before = OrchestratorConfig(), RpcConfig()
    after = rare.tightened(plan, *before)
    if limit == "inactivity":
        assert (after, rare.inactivity(plan, 30)) == (before, most)
    else:
        assert after != before
        assert most in [getattr(one, name) for one in after for name in one.__dataclass_fields__]
    assert rare.hits_everybody(plan) is (limit not in ("window", "call outbox", "heartbeat"))
    assert rare.tightened(FaultPlan(), *before) == before
    assert rare.inactivity(FaultPlan(), 30) == 30


def test_plans_are_changed_by_the_seed_alone_and_can_be_read_again() -> None:
    plans = [FaultPlan()]
    for seed in range(60):
        plans.append(changed(random.Random(seed), plans[-1]))
        assert plans[-1] == changed(random.Random(seed), plans[-2])
        assert FaultPlan.parse(str(plans[-1])) == plans[-1]
    assert max(map(len, (plan.faults for plan in plans))) <= reach.MOST_FAULTS
    names = {fault.name for plan in plans for fault in plan}
    assert names >= {rare.LATE, rare.TWICE, rare.HALF, rare.TIGHT, rare.RUDE, "misbehaves"}


def test_there_is_one_of_what_there_can_be_only_one() -> None:
    rng = random.Random(1)
    faults = [maker(rng) for maker in [*makers(1.0), *rare.RARE] * 40]
    kept = list(one_each(faults))
    once = [(fault.name, fault.target) for fault in kept if fault.name in ("misbehaves", rare.TIGHT)]
    assert len(once) == len(set(once))
    assert sum(fault.name == "reset" for fault in kept) == sum(fault.name == "reset" for fault in faults)


def find(seed: int, *reached: Any) -> Find:
    return Find(Unit(seed, "safety"), frozenset((module, 1, 2) for module in reached))


def test_fewest_runs_are_kept_and_those_that_reach_most_come_first() -> None:
    one, two, both, known = find(1, "a"), find(2, "b", "c"), find(3, "a", "b"), find(4, "k")
    chosen = fewest([one, two, both, known], known.reached, 5)
    assert [kept.unit.seed for kept, _ in chosen] == [2, 1]
    assert [len(added) for _, added in chosen] == [2, 1]
    assert [kept.unit.seed for kept, _ in fewest([one, two, both], frozenset(), 1)] == [2]


def test_a_find_is_told_by_what_it_adds() -> None:
    added = {("counted", "watcher overflow"), ("event", "actor", "closed", "outcome=OK")}
    added_steps = {("rpc/_pool.py", 1, 2), ("rpc/_pool.py", 2, 3), ("trial/_ticks.py", 1, 2)}
    text = told(frozenset([*added, *added_steps]))
    assert text == "watcher overflow; actor closed outcome=OK; rpc/_pool (2); trial/_ticks (1)"


def test_an_event_is_of_a_kind_whoever_it_is_of() -> None:
    event = HistoryEvent(
        seconds=1.0, trial_id="trial-1", who="actor bob", what="closed", details={"outcome": "CANCELLED", "tick": 3}
    )
    assert kind_of_event(event) == ("event", "actor", "closed", "outcome=CANCELLED")


@pytest.mark.sources
def test_a_run_is_looked_at_and_a_find_made_smaller() -> None:
    late = Fault(rare.LATE, target="trial-1", details={"seconds": 1.0})
    half = Fault(rare.HALF, target="trial-2", details={"sent": 1})
    looking = Looking()
    found = looking.look(Unit(422, "safety", str(FaultPlan((late, half)))))
    assert not found.failure
    assert {one[0] for one in found.reached} >= {"counted", "event", "trial/_ticks.py", "rpc/_engine.py"}
    small = smaller(looking, found, frozenset([("counted", f"fault: {rare.HALF}")]))
    assert list(plan_of(small.unit)) == [half]


def test_the_corpus_has_plans_and_what_they_reach() -> None:
    units = read_units(CORPUS)
    assert len(units) <= reach.MOST_KEPT
    assert all(unit.kept and plan_of(unit) for unit in units)
