"""Some seeds of the suites, and what the suites can show of themselves. `nox -s sim` runs many more seeds."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim import suite
from tests.sim.counting import DECLARED, missing
from tests.sim.scenario import SUITES, draw_plan
from tests.sim.services import SERVICE_SUITES
from tests.sim.suite import (
    CHECKED_ONCE_IN,
    Unit,
    is_checked,
    kept_units,
    plan_of,
    read_units,
    report,
    run_unit,
    units_of,
)
from trio_cogment.testing import CHECKERS, FaultPlan, InvariantError, World

pytestmark = pytest.mark.usefixtures("quiet")


#: Behind those that `nox -s sim` runs by default; the first two are run twice and compared.
SEEDS = range(320, 324)


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    for unit in units_of(seed):
        if unit.suite in SUITES:
            run_unit(unit)


def test_what_once_failed_can_still_be_run() -> None:
    assert len(kept_units()) >= 16
    assert all(plan_of(unit) for unit in kept_units() if unit.suite in SUITES)
    assert [is_checked(seed) for seed in SEEDS] == [True, True, False, False]


def test_what_is_kept_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = "FaultPlan(Fault('drain', at=3.023, target='actors-3', grace=0.1))"
    file = tmp_path / "seeds.txt"
    file.write_text(
        f"# seeds\n7  # why\n\n8 liveness {plan}  # why\n9 safety FaultPlan()\n10 orchestrator's farewells  # why\n"
    )
    assert read_units(file) == [
        Unit(7, "liveness"),
        Unit(8, "liveness", plan),
        Unit(9, "safety", "FaultPlan()"),
        Unit(10, "orchestrator's farewells"),
    ]


@pytest.mark.parametrize("suite", SERVICE_SUITES)
def test_service(suite: str) -> None:
    assert run_unit(Unit(41, suite))[suite] == 1


def test_every_suite_has_its_seeds() -> None:
    units = [unit for seed in range(400) for unit in units_of(seed)]
    counts = Counter(unit.suite for unit in units)
    assert counts.pop("safety") == counts.pop("liveness") == 200
    assert counts.keys() == SERVICE_SUITES.keys()
    assert max(counts.values()) - min(counts.values()) <= 1
    checked = Counter(unit.suite for unit in units if is_checked(unit.seed))
    assert checked["safety"] == checked["liveness"] == 200 / CHECKED_ONCE_IN
    # Each service's suite is among those that are run twice.
    more = {unit.suite for seed in range(400 * len(SERVICE_SUITES)) if is_checked(seed) for unit in units_of(seed)}
    assert more == SUITES.keys() | SERVICE_SUITES.keys()


def test_plans_differ_and_can_be_read_again() -> None:
    expected = {name.removeprefix("fault: ") for name in DECLARED if name.startswith("fault: ")} | {"misbehaves"}
    for name in SUITES:
        plans = [draw_plan(seed, name) for seed in range(200)]
        assert len({str(plan) for plan in plans}) > 150
        assert [FaultPlan.parse(str(plan)) for plan in plans] == plans
        assert {fault.name for plan in plans for fault in plan} == expected
        assert draw_plan(3, name) == plans[3]
    assert draw_plan(3, "safety") != draw_plan(3, "liveness")


def test_what_is_declared_must_be_reached() -> None:
    everything = dict.fromkeys(DECLARED, 1)
    assert missing(everything, 10**6) == []
    assert missing({}, 299) == []
    assert "watcher overflow" in missing({}, 300)
    assert "hook: deaf" not in missing({}, 2999)
    assert missing({**everything, "LAST_ACK timeout": 0}, 300) == ["LAST_ACK timeout"]


def test_a_counter_at_zero_or_a_run_that_another_process_does_differently_fails_the_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Here:
        """A pool whose processes are this one."""

        def __init__(self, _jobs: int) -> None: ...
        def __enter__(self) -> Here:
            return self

        def __exit__(self, *_: object) -> None: ...
        def imap_unordered(self, function: Any, chunks: Any) -> Any:
            return map(function, chunks)

    reached = dict.fromkeys(DECLARED, 1)
    units = [Unit(seed, "safety") for seed in range(300)]
    ran: list[tuple[str, int]] = []
    unstable: list[int] = []

    def run_chunk(chunk: list[Unit]) -> suite.Chunk:
        where = os.environ["PYTHONHASHSEED"]
        ran.extend((where, unit.seed) for unit in chunk)
        seen = {unit: f"begin\n{where if unit.seed in unstable else ''}" for unit in chunk if is_checked(unit.seed)}
        return suite.Chunk(sum((Counter(reached) for _ in chunk), Counter()), [], seen)

    monkeypatch.setattr(suite, "run_chunk", run_chunk)
    monkeypatch.setattr("tests.sim.suite.multiprocessing.get_context", lambda _method: SimpleNamespace(Pool=Here))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert report(units, 2) == 0
    out = capsys.readouterr().out
    assert "    300 watcher overflow\n" in out
    assert re.search(r"\n300 seeds in 300 runs, 0 failed; 16 runs done twice; \d+ s\n\Z", out)
    checked = [unit.seed for unit in units if is_checked(unit.seed)]
    assert ran == [*(("1", seed) for seed in range(300)), *(("2", seed) for seed in checked)]
    assert "PYTHONHASHSEED" not in os.environ
    del reached["watcher overflow"]
    assert report(units, 2) == 1
    assert "never reached: watcher overflow\n300 seeds in 300 runs, 0 failed" in capsys.readouterr().out
    reached["watcher overflow"] = 1
    unstable.append(41)
    assert report(units, 2) == 1
    out = capsys.readouterr().out
    assert "seed 41 failed" in out
    assert "event 1 with PYTHONHASHSEED=1: 1\nevent 1 with PYTHONHASHSEED=2: 2\n" in out
    assert "300 seeds in 300 runs, 1 failed" in out


def test_a_failing_seed_is_told_with_all_that_it_takes_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fragile(world: World) -> None:
        world.history.record("somebody", "looked")
        if world.plan.named("reset"):
            raise ValueError("something broke")
        if not world.plan:
            raise AssertionError("another thing")  # which is not what is looked for

    unit = next(
        unit
        for unit in (Unit(seed, "safety") for seed in range(100))
        if len(plan_of(unit)) > 3 and len(plan_of(unit).named("reset")) == 1
    )
    monkeypatch.setattr(suite, "SUITES", {"safety": fragile})
    monkeypatch.setattr(suite, "commit", lambda: "abc123")
    reached, [(failed, text)], seen = suite.run_chunk([unit])
    assert (reached, failed, seen) == ({}, unit, {})
    lines = text.splitlines()
    assert re.fullmatch(
        rf"seed {unit.seed} failed at abc123: safety: (ValueError in test_suites.py, line \d+)", lines[0]
    )
    assert "ValueError: something broke" in lines
    assert f"plan: {plan_of(unit)}" in lines
    assert "  0.000000 - somebody: looked" in lines
    (smallest,) = (line for line in lines if line.startswith("smallest plan: "))
    assert smallest.count("Fault(") == smallest.count("Fault('reset'") == 1
    assert f'again: nox -s sim -- --seed {unit.seed} --suite "safety"' in lines
    plan = FaultPlan.parse(smallest.removeprefix("smallest plan: "))
    assert suite.kind_of_failure(unit, plan) == lines[0].rpartition(": ")[2]
    assert lines[-1].endswith(f'--suite "safety" --plan "{plan}"')


def test_one_that_failed_with_a_plan_that_was_kept_is_seen_again_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def strict(_world: World) -> None:
        with pytest.raises(KeyError):  # and what that raises is not an Exception
            pass

    monkeypatch.setattr(suite, "SUITES", {"safety": strict})
    unit = Unit(7, "safety", "FaultPlan(Fault('reset', 1.5, 'env-0'))")
    command = f'nox -s sim -- --seed 7 --suite "safety" --plan "{unit.kept}"'
    _, [(_, text)], _ = suite.run_chunk([unit])
    assert "DID NOT RAISE" in text
    assert f"again: {command}" in text.splitlines()
    different = suite.difference(unit, "a\nb\n", "a\nc\n").text.splitlines()
    assert different[-2:] == [f"again: PYTHONHASHSEED={seed} {command}" for seed in suite.HASH_SEEDS]


def test_the_same_failure_is_of_the_same_kind() -> None:
    error = InvariantError("rewards-come-once: t: twice\nmore")
    assert suite.kind_of(ExceptionGroup("x", [error, ValueError()])) == "InvariantError rewards-come-once"
    assert suite.kind_of(ValueError("a: b")) == "ValueError"
    with pytest.raises(AssertionError) as caught:
        assert not error.args
    assert re.fullmatch(r"AssertionError in test_suites\.py, line \d+", suite.kind_of(caught.value))


def test_the_commit_is_named_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert suite.commit()
    monkeypatch.setattr(suite, "KEPT", tmp_path / "seeds.txt")
    assert suite.commit() == "a commit that git does not know"


def test_every_checker_has_a_sentence() -> None:
    for name, checker in CHECKERS.items():
        assert checker.__doc__, name
