"""Plans of faults."""

from __future__ import annotations

import random

import pytest

from trio_cogment.testing import Fault, FaultPlan

STORM = Fault("storm", at=2.5, target="sea", details={"force": 9, "called": 'it\'s "one"', "warm": False})


def fog(rng: random.Random) -> Fault:
    return Fault("fog", at=rng.uniform(0, 10))


def rain(rng: random.Random) -> Fault:
    return Fault("rain", target=rng.choice("abc"))


def test_order_is_that_of_the_times() -> None:
    plan = FaultPlan((STORM, Fault("early", at=1)))
    assert [fault.name for fault in plan] == ["early", "storm"]
    assert plan.named("storm") == plan.named("storm", "sea") == [STORM]
    assert plan.named("storm", "land") == []
    assert plan.without(0) == FaultPlan((STORM,))
    assert len(plan) == 2


def test_seed_decides() -> None:
    drawn = [FaultPlan.draw(random.Random(seed), [fog, rain], (0, 5)) for seed in range(50)]
    assert drawn == [FaultPlan.draw(random.Random(seed), [fog, rain], (0, 5)) for seed in range(50)]
    assert {len(plan) for plan in drawn} == {0, 1, 2, 3, 4, 5}
    assert len(FaultPlan.draw(random.Random(1), [fog], 3)) == 3


def test_print_can_be_read_again() -> None:
    for plan in (FaultPlan(), FaultPlan((STORM,)), FaultPlan((STORM, Fault("x", details={"y": None, "z": -1.5})))):
        assert FaultPlan.parse(str(plan)) == plan
    assert str(FaultPlan((Fault("fog", at=1.5),))) == "FaultPlan(Fault('fog', at=1.5))"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "FaultPlan",
        "FaultPlan(1)",
        "FaultPlan(Fault())",
        "FaultPlan(Fault(open('x')))",
        "Fault(1)",
        "FaultPlan(Fault(1))",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        FaultPlan.parse(text)


@pytest.mark.parametrize("guilty", [[], [3], [0, 9], [2, 3, 4], list(range(10))])
def test_shrinking_leaves_what_is_needed(guilty: list[int]) -> None:
    faults = tuple(Fault(str(number), at=number) for number in range(10))
    needed = {faults[number].name for number in guilty}
    asked = []

    def fails(plan: FaultPlan) -> bool:
        asked.append(plan)
        return needed <= {fault.name for fault in plan}

    small = FaultPlan(faults).shrink(fails)
    assert [fault.name for fault in small] == [str(number) for number in guilty]
    assert len(asked) < 60


def test_shrinking_is_bounded() -> None:
    asked = []

    def fails(plan: FaultPlan) -> bool:
        asked.append(plan)
        return False

    plan = FaultPlan(tuple(Fault(str(number)) for number in range(64)))
    assert plan.shrink(fails, attempts=10) == plan
    assert len(asked) == 10


@pytest.mark.parametrize("name", ["at", "name", "two words", ""])
def test_details_have_names_that_print(name: str) -> None:
    with pytest.raises(ValueError, match="expected names of their own"):
        Fault("storm", details={name: 1})
