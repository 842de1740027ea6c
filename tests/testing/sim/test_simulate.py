"""One seed, one run; and what is said when a run goes nowhere."""

from __future__ import annotations

import itertools
import math
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Never

import pytest
import trio
import trio.testing
from trio._core import _run as trio_run

from tests.sim.suite import units_of
from tests.testing.sim.scenario import everything, fingerprints
from trio_cogment import actor_params, trial_params
from trio_cogment.testing import (
    DeadlockError,
    Fault,
    FaultPlan,
    LivelockError,
    NondeterminismError,
    SimulationError,
    World,
    cancel_at_every_step,
    check_determinism,
    simulate,
)

ROOT = Path(__file__).resolve().parents[3]
#: Whose real trials are compared; each takes a second or so in each process.
SUITE_SEEDS = 200


def test_virtual_time_costs_nothing_and_the_value_comes_back() -> None:
    async def scenario(world: World, hours: int) -> int:
        before = world.wall_clock()
        await trio.sleep(hours * 3600)
        return world.wall_clock() - before

    outcome = simulate(1, scenario, 24 * 365)
    assert outcome.value == 24 * 365 * 3600 * 10**9
    assert outcome.seconds == 24 * 365 * 3600


def test_equal_seeds_run_alike_and_each_seed_differently() -> None:
    outcomes = [simulate(seed, everything) for seed in (*range(20), *range(20))]
    assert [o.fingerprint for o in outcomes[:20]] == [o.fingerprint for o in outcomes[20:]]
    assert [o.value for o in outcomes[:20]] == [o.value for o in outcomes[20:]]
    assert len({o.fingerprint for o in outcomes}) == 20


def in_three_processes(module: str, *arguments: str) -> dict[str, str]:
    """Return what a module prints, names and texts, in each of three processes with hash seeds of their own."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "1", "random")
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    differ = [lines for lines in zip(*(output.splitlines() for output in outputs), strict=True) if len(set(lines)) > 1]
    assert differ == []
    found: dict[str, str] = {}
    for line in outputs[0].splitlines():
        name, text = line.split()
        assert name not in found
        found[name] = text
    assert len(set(found.values())) == len(found)
    return found


def of_seeds(seeds: range, chunk: int = 50) -> None:
    found: dict[str, str] = {}
    for first in range(seeds.start, seeds.stop, chunk):
        end = min(first + chunk, seeds.stop)
        found.update(in_three_processes("tests.testing.sim.scenario", str(first), str(end)))
    assert len(set(found.values())) == len(seeds)


def test_same_seed_same_schedule_in_three_processes() -> None:
    of_seeds(range(10))


def test_the_suites_units_are_the_same_in_three_processes() -> None:
    """With an orchestrator, and faults: what everybody saw is the same, too."""
    found = in_three_processes("tests.sim.fingerprints", "3", "4", "10")
    assert len(found) == 4  # the last one is also a service's
    assert {"3/liveness", "4/safety", "10/safety"} < found.keys()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_two_hundred_seeds_in_three_processes() -> None:
    of_seeds(range(200))


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_the_suites_units_of_two_hundred_seeds_are_the_same_in_three_processes() -> None:
    found: dict[str, str] = {}
    for first in range(0, SUITE_SEEDS, 25):  # so that a difference is told early
        found.update(in_three_processes("tests.sim.fingerprints", f"{first}-{min(first + 25, SUITE_SEEDS)}"))
    units = [unit for seed in range(SUITE_SEEDS) for unit in units_of(seed)]
    assert found.keys() == {f"{unit.seed}/{unit.suite.replace(' ', '-')}" for unit in units}
    assert len(set(found.values())) == len(found)


def test_what_others_drew_before_does_not_matter() -> None:
    random.seed(1)
    one = fingerprints(range(2))
    random.seed(2)
    random.random()
    assert fingerprints(range(2)) == one


def test_everything_is_put_back() -> None:
    random.seed(5)
    before = random.getstate(), trio_run._r.getstate(), trio_run._ALLOW_DETERMINISTIC_SCHEDULING

    async def fails(_world: World) -> Never:
        random.random()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(1, fails)
    assert (random.getstate(), trio_run._r.getstate(), trio_run._ALLOW_DETERMINISTIC_SCHEDULING) == before


def test_global_randomness_is_seeded_too() -> None:
    async def draws(_world: World) -> float:
        return random.random()

    assert simulate(3, draws).value == simulate(3, draws).value != simulate(4, draws).value


def test_streams_of_randomness_are_independent() -> None:
    one, other = World(1), World(1)
    one.rng.random()
    one.new_id()
    assert one.stream("x").random() == other.stream("x").random() != one.stream("y").random()
    assert World(1).new_id() == World(1).new_id() != World(2).new_id()


async def goes_round(_world: World) -> None:
    async with trio.open_nursery() as nursery:

        async def spin() -> None:
            while True:
                await trio.lowlevel.checkpoint()

        nursery.start_soon(spin, name="spinner")


def test_livelock_is_told_with_who_it_was() -> None:
    with pytest.raises(LivelockError, match=r"seed 7: 1000 steps were taken by 0 s .* spinner \(\d+\)") as caught:
        simulate(7, goes_round, budget=1000)
    assert "simulated with seed 7" in caught.value.__notes__[0]


@pytest.mark.parametrize("told", [False, True])
def test_timers_that_go_on_while_somebody_waits_are_told_from_a_livelock(told: bool) -> None:
    async def scenario(world: World) -> None:
        await trio.sleep(5)
        if told:
            world.history.record("ann", "was here")
        for _ in itertools.count():
            await trio.sleep(60)

    since = " since 5 s, when the last event was recorded" if told else ""
    with pytest.raises(LivelockError, match=f"only timers have run{since}: somebody may wait endlessly"):
        simulate(7, scenario, budget=1000)


def test_a_task_that_spins_after_hours_is_a_livelock() -> None:
    async def scenario(world: World) -> None:
        await trio.sleep(36_000)
        await goes_round(world)

    with pytest.raises(LivelockError, match=r"36000 s .* never waits for time to pass\?"):
        simulate(7, scenario, budget=1000)


def test_livelock_is_told_though_the_scenario_fails_on_its_way_out() -> None:
    async def scenario(world: World) -> None:
        try:
            await goes_round(world)
        finally:
            raise ZeroDivisionError

    with pytest.raises(LivelockError) as caught:
        simulate(7, scenario, budget=1000)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_deadlock_is_told_with_who_waits() -> None:
    async def scenario(_world: World) -> None:
        await trio.sleep(3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever, name="waiter")
            await trio.Event().wait()

    with pytest.raises(DeadlockError, match=r"seed 1: at 3 s of virtual time everybody waits") as caught:
        simulate(1, scenario)
    here = f"{Path(__file__).relative_to(Path.cwd())}:"
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("Who waits:")
    assert lines[0].startswith(f"  the scenario at {here}")
    assert lines[0].endswith("in scenario: await trio.Event().wait()")
    assert lines[1:] == ["  others: waiter"]


class Stuck:
    """A game whose actor bob waits for what never comes."""

    def __init__(self) -> None:
        self.never = trio.Event()

    async def environment(self, session: Any) -> None:
        await session.start([("*", b"")])
        async for event in session.all_events():
            if event.actions:
                await session.produce_observations([("*", b"")])

    async def ann(self, session: Any) -> None:
        async for event in session.all_events():
            if event.observation:
                await session.do_action(b"")

    async def bob(self, session: Any) -> None:
        await session.start()
        await self.think(session)

    async def think(self, session: Any) -> None:
        await self.never.wait()

    async def play(self, world: World, seconds: float) -> None:
        with trio.fail_after(seconds):
            async with world.open_platform() as platform:
                participants = platform.participants
                participants.register_environment(self.environment)
                participants.register_actor(self.ann, "ann")
                participants.register_actor(self.bob, "bob")
                actors = [actor_params(name, "player", implementation=name) for name in ("ann", "bob")]
                trial_id = await platform.controller.start_trial(trial_params(actors), trial_id="t")
                await platform.controller.wait_trial(trial_id)


BOB = "actor 'bob' of trial 't' at tests/testing/sim/test_simulate.py:"


@pytest.mark.parametrize(("seconds", "error"), [(500, trio.TooSlowError), (math.inf, LivelockError)])
def test_a_participant_that_waits_for_ever_is_named_with_its_line(
    seconds: float, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(error) as caught:
        simulate(1, Stuck().play, seconds, budget=20_000)
    lines = caught.value.__notes__[0].splitlines()
    found = lines[lines.index("who waited then:") :]
    (bob,) = (line.strip() for line in found if "'bob'" in line)
    assert bob.startswith(BOB)
    assert bob.endswith(" in Stuck.think: await self.never.wait()")
    assert any("actor 'ann' of trial 't' at " in line and " in Stuck.ann: async for event" in line for line in found)
    assert any("environment 'env' of trial 't' at " in line for line in found)
    assert any("the scenario at " in line and " in Stuck.play: await platform" in line for line in found)


def test_who_sleeps_is_shown_with_the_time_of_waking() -> None:
    async def sleeper() -> None:
        await trio.sleep(80_000)

    async def scenario(_world: World) -> None:
        with trio.fail_after(500):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sleeper)

    with pytest.raises(trio.TooSlowError) as caught:
        simulate(1, scenario)
    lines = caught.value.__notes__[0].splitlines()
    assert [line for line in lines if line.endswith("await trio.sleep(80_000), until 80000 s (in 79500 s)")]


def test_many_tasks_are_not_all_shown() -> None:
    async def wait() -> None:
        await trio.Event().wait()

    async def scenario(_world: World) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(80):
                nursery.start_soon(wait, name=f"task {number:02}")

    with pytest.raises(DeadlockError) as caught:
        simulate(1, scenario)
    lines = str(caught.value).splitlines()
    assert len(lines) == 52
    assert lines[1].startswith("  task 00 at ")
    assert lines[-1] == "  and 31 more"


def test_who_waits_is_not_looked_for_at_every_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look() -> list[str]:
        looks.append(1)
        return ["a", "b"]

    monkeypatch.setattr("trio_cogment.testing.sim._step_recorder.who_waits", look)

    async def scenario(_world: World) -> None:
        for _ in range(1000):
            with trio.move_on_after(1):
                await trio.sleep_forever()

    outcome = simulate(1, scenario)
    assert 0 < len(looks) <= outcome.steps / 40 + 1


@pytest.mark.parametrize("shielded", [False, True])
def test_a_thread_is_no_part_of_a_simulation_though_somebody_has_a_timer(shielded: bool) -> None:
    """The clock would jump from one deadline to the next as long as the thread takes."""
    go_on = threading.Event()
    sleeps = 0

    async def ticker() -> None:
        nonlocal sleeps
        while True:
            sleeps += 1
            try:
                await trio.sleep(60)
            finally:
                go_on.set()

    async def scenario(_world: World) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticker)
            with trio.CancelScope(shield=shielded):
                await trio.to_thread.run_sync(go_on.wait)
            nursery.cancel_scope.cancel()
        return "as if nothing had been"

    with pytest.raises(SimulationError, match=r"seed 3: .* threads are not simulated(?s:.*)ticker") as caught:
        simulate(3, scenario)
    assert type(caught.value) is SimulationError
    assert sleeps <= 2
    assert "simulated with seed 3" in caught.value.__notes__[0]


def test_a_thread_that_takes_no_virtual_time_passes() -> None:
    async def scenario(_world: World) -> int:
        await trio.sleep(1)
        # Nobody has a timer, and somebody always has a turn until it is done.
        done = trio.Event()

        async def look() -> None:
            while not done.is_set():
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await trio.to_thread.run_sync(time.sleep, 0.01)
            done.set()
        await trio.sleep(1)
        return 1

    assert simulate(1, scenario).seconds == 2


def test_waiting_for_everybody_is_no_deadlock() -> None:
    async def scenario(_world: World) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            await trio.testing.wait_all_tasks_blocked()
        return 1

    assert simulate(1, scenario).value == 1


def test_failure_is_reported_whole() -> None:
    async def scenario(world: World) -> None:
        for number in range(300):
            await trio.sleep(1)
            world.history.record("me", "counted", number=number)
        assert world.seed == 0, "as it should be"

    plan = FaultPlan((Fault("storm", at=2.5, target="sea"),))
    with pytest.raises(AssertionError, match="as it should be") as caught:
        simulate(11, scenario, plan=plan)
    (note,) = caught.value.__notes__
    assert "simulated with seed 11" in note
    assert str(plan) in note
    assert "number=299" in note
    assert "number=100" in note
    assert "number=99\n" not in note
    assert re.search(r"\d+ steps, 300 s of virtual time", note)


def test_self_check_finds_what_is_not_from_the_seed() -> None:
    calls: list[int] = []

    async def scenario(_world: World) -> None:
        calls.append(1)
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, len(calls), name="sleeper")

    with pytest.raises(NondeterminismError, match=r"seed 5 ran differently[^|]*\|[\s\S]*2\.0+ sleeper"):
        check_determinism(5, scenario)
    assert check_determinism(5, everything).fingerprint == simulate(5, everything).fingerprint


async def fails_as_pytest_does(world: World) -> None:
    world.history.record("me", "was here")
    await trio.sleep(1)
    pytest.fail("as it should")


async def fails_in_a_nursery(world: World) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(fails_as_pytest_does, world)


@pytest.mark.parametrize("scenario", [fails_as_pytest_does, fails_in_a_nursery])
def test_what_pytest_raises_is_reported_too(scenario: Callable[[World], Awaitable[None]]) -> None:
    with pytest.raises((pytest.fail.Exception, BaseExceptionGroup)) as caught:
        simulate(11, scenario, plan=FaultPlan((Fault("storm"),)))
    (note,) = caught.value.__notes__
    assert "simulated with seed 11" in note
    assert "plan: FaultPlan(Fault('storm'))" in note
    assert "me: was here" in note


def test_livelock_is_told_though_pytest_fails_on_the_way_out() -> None:
    async def scenario(world: World) -> None:
        try:
            await goes_round(world)
        finally:
            pytest.fail("no")

    with pytest.raises(LivelockError) as caught:
        simulate(7, scenario, budget=1000)
    assert isinstance(caught.value.__cause__, pytest.fail.Exception)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_who_ends_the_program_gets_no_report(ending: type[BaseException]) -> None:
    async def scenario(_world: World) -> None:
        raise ending

    with pytest.raises(ending) as caught:
        simulate(1, scenario)
    assert not hasattr(caught.value, "__notes__")


def test_a_budget_that_was_used_up_is_told_though_a_value_comes_back() -> None:
    async def shielded(_world: World) -> str:
        for _ in range(60_000):
            await trio.lowlevel.cancel_shielded_checkpoint()
        return "a value"

    with pytest.raises(LivelockError, match="1000 steps"):
        simulate(1, shielded, budget=1000)
    outcome = simulate(1, shielded)
    assert simulate(1, shielded, budget=outcome.steps - 1).value == "a value"  # Trio's own last steps are not counted


def test_a_deadlock_is_told_though_a_value_comes_back() -> None:
    async def careless(_world: World) -> str:
        with trio.CancelScope() as scope:
            await trio.sleep_forever()
        return "a value" if scope.cancelled_caught else "another"

    async def swallows(world: World) -> str:
        try:
            return await careless(world)
        except trio.Cancelled:
            return "a value"

    with pytest.raises(DeadlockError):
        simulate(1, swallows)


@pytest.mark.parametrize("budget", [0, -1, 1000.5, None])
def test_a_budget_is_some_steps(budget: Any) -> None:
    with pytest.raises(ValueError, match="budget: expected at least 1 step"):
        simulate(1, everything, budget=budget)


def test_a_scenario_is_a_function() -> None:
    world = World(1)
    runs: list[Callable[..., object]] = [simulate, check_determinism, cancel_at_every_step]
    for run in runs:
        with pytest.raises(TypeError, match=r"got a coroutine: give `everything`, not `everything\(\.\.\.\)`"):
            run(1, everything(world))
        with pytest.raises(TypeError, match="expected an async function, got None"):
            run(1, None)

    def not_async(_world: World) -> int:
        return 5

    for run in runs[:2]:
        with pytest.raises(TypeError, match=r"expected an async function, got <.*>, which returned 5"):
            run(1, not_async)
