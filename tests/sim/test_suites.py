"""The suites' first seeds, those that once failed, and what it can show of itself. `nox -s sim` runs many more."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim import suite
from tests.sim.counting import DECLARED, missing
from tests.sim.scenario import SUITES, draw_plan, scenario
from tests.sim.suite import kept_seeds, report, run_seed
from trio_cogment.testing import CHECKERS, Fault, FaultPlan, World, simulate


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


def test_a_counter_at_zero_fails_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Here:
        """A pool whose processes are this one."""

        def __init__(self, _jobs: int) -> None: ...
        def __enter__(self) -> Here:
            return self

        def __exit__(self, *_: object) -> None: ...
        def imap_unordered(self, function: Any, chunks: Any) -> Any:
            return map(function, chunks)

    reached = [Counter(dict.fromkeys(DECLARED, 1))]
    monkeypatch.setattr(suite, "run_suite", lambda _seed, _suite: reached[0])
    monkeypatch.setattr("tests.sim.suite.multiprocessing.get_context", lambda _method: SimpleNamespace(Pool=Here))
    assert report(list(range(300)), 2) == 0
    assert "    300 watcher overflow\n" in capsys.readouterr().out
    del reached[0]["watcher overflow"]
    assert report(list(range(300)), 2) == 1
    assert "never reached: watcher overflow\n300 seeds, 0 failed\n" in capsys.readouterr().out


def test_a_failing_seed_is_told_with_its_smallest_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fragile(world: World) -> None:
        if world.plan.named("reset"):
            raise ValueError("something broke")

    async def sturdy(_world: World) -> None: ...

    seed = next(seed for seed in range(100) if len(draw_plan(seed, "safety").named("reset")) == 1)
    monkeypatch.setattr(suite, "SUITES", {"safety": fragile, "liveness": sturdy})
    assert suite.run_chunk([seed])[1][0][:2] == (seed, "safety")
    text = suite.run_chunk([seed])[1][0][2]
    assert text.startswith("ValueError: something broke\nsmallest plan: FaultPlan(Fault('reset'")
    assert text.count("Fault(") == 1


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
@pytest.mark.parametrize("seed", [28, 33, 34])  # trial-0 is on hosts of its own in them
def test_what_happens_to_one_trial_is_not_seen_by_the_others(seed: int, faults: list[Fault]) -> None:
    """Event by event, and to the microsecond."""
    calm = simulate(seed, scenario, plan=FaultPlan()).history
    stormy = simulate(seed, scenario, plan=FaultPlan(tuple(faults))).history

    def seen(history: object, trial_id: str) -> list[str]:
        # The far watcher shares its connection with all trials; the disks are looked at when all of them are over.
        assert history in (calm, stormy)
        events = (calm if history is calm else stormy).of_trial(trial_id)
        return sorted(str(event) for event in events if event.who != "afar" and event.what != "kept")

    assert seen(calm, "trial-0") != seen(stormy, "trial-0")
    for trial_id in ("trial-1", "trial-2", "trial-3"):
        assert seen(calm, trial_id) == seen(stormy, trial_id)
        assert len(seen(calm, trial_id)) > 50


def test_every_checker_has_a_sentence() -> None:
    for name, checker in CHECKERS.items():
        assert checker.__doc__, name
