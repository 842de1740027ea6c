"""Plans of faults."""

from __future__ import annotations

import math
import random
from typing import Any

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


@pytest.mark.parametrize("name", ["at", "name", "two words", "", "class", "details"])
def test_details_have_names_that_print(name: str) -> None:
    with pytest.raises(ValueError, match="expected names of their own"):
        Fault("storm", details={name: 1})


def test_what_pytest_prints_can_be_read() -> None:
    plan = FaultPlan((STORM, Fault("fog", at=1.5)))
    assert repr(plan) == str(plan)
    assert FaultPlan.parse(repr(plan)) == plan
    assert repr(STORM) == str(STORM)


def test_a_fault_may_be_written_as_it_is_made() -> None:
    expected = FaultPlan((Fault("crash", 4.0, "env-0", {"power": False}),))
    for text in (
        "FaultPlan(Fault('crash', 4.0, 'env-0', power=False))",
        "FaultPlan(Fault(name='crash', target='env-0', at=4.0, power=False))",
        " FaultPlan(\n  Fault('crash', 4, target='env-0', power=False),\n)",
    ):
        assert FaultPlan.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FaultPlan(faults=(Fault(name='fog', at=1.0, target='', details={}),))", "faults are given by position"),
        ("FaultPlan(**{'faults': ()})", "faults are given by position"),
        ("FaultPlan(Fault('x', 1.0, 'a', {'b': 1}))", r"expected Fault\(name, at, target, detail=\.\.\.\)"),
        ("FaultPlan(Fault('x', details={'b': 1}))", "expected names of their own, got 'details'"),
        ("FaultPlan(Fault('x', **{'b': 1}))", "expected each argument once"),
        ("FaultPlan(Fault('x', 1.0, at=2.0))", "expected each argument once"),
        ("FaultPlan(Fault(at=2.0))", "expected a name"),
        ("Foo(Bar('x'))", r"expected FaultPlan\(\.\.\.\), got Foo"),
        ("FaultPlan(Bar('x'))", r"expected Fault\(\.\.\.\), got Bar"),
        ("FaultPlan(testing.Fault('x'))", r"expected Fault\(\.\.\.\), got testing"),
        ("FaultPlan(Fault('x', at=1e999))", "at: expected seconds from 0 on, got inf"),
        ("FaultPlan(Fault('x', at='soon'))", "at: expected seconds"),
        ("FaultPlan(Fault('x', at=-1))", "at: expected seconds"),
        ("FaultPlan(Fault('x', target=3))", "expected texts"),
        ("FaultPlan(Fault('x', y=[1]))", "y: expected a text"),
    ],
)
def test_no_other_plan_is_read_than_was_given(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^expected FaultPlan\(Fault\(\.\.\.\), \.\.\.\), got .*{expected}"):
        FaultPlan.parse(text)


@pytest.mark.parametrize("at", [math.inf, math.nan, -0.5])
def test_times_are_those_of_a_run(at: float) -> None:
    with pytest.raises(ValueError, match="at: expected seconds from 0 on"):
        Fault("storm", at=at)


@pytest.mark.parametrize("value", [math.inf, math.nan, (1, 2), random.Random])
def test_details_have_values_that_print(value: Any) -> None:
    with pytest.raises(ValueError, match="force: expected a text, a finite number"):
        Fault("storm", details={"force": value})


def test_nothing_can_be_drawn_from_nothing() -> None:
    assert FaultPlan.draw(random.Random(1), [], 0) == FaultPlan()
    with pytest.raises(ValueError, match="makers: expected at least one"):
        FaultPlan.draw(random.Random(1), [], 2)
    for count in (-1, (8, 3), (-2, 3)):
        with pytest.raises(ValueError, match="count: expected"):
            FaultPlan.draw(random.Random(1), [fog], count)
