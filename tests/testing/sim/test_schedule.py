"""Uses of Trio's internals: the order of tasks, the clock, and that other versions are refused."""

from __future__ import annotations

import math
import random
import re
import threading
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trio
import trio.testing
from trio._core import _run as trio_run

from trio_cogment.testing import World, check_determinism, simulate
from trio_cogment.testing.sim.schedule import check_trio, seeded_schedule
from trio_cogment.testing.sim.simulate import run_seeded

ROOT = Path(__file__).resolve().parents[3]


def test_this_trio_can_be_seeded() -> None:
    """When this fails, Trio has changed: `testing/sim/schedule.py` is the file to mend."""
    check_trio()


@pytest.mark.parametrize("names", [{}, {"_r": random.Random()}, {"_ALLOW_DETERMINISTIC_SCHEDULING": False, "_r": 1}])
def test_another_trio_is_refused_with_what_is_missing(names: dict[str, Any]) -> None:
    module = types.ModuleType("trio._core._run")
    vars(module).update(names)
    with pytest.raises(RuntimeError, match=r"has no _ALLOW_DETERMINISTIC_SCHEDULING .* or no _r "):
        check_trio(module)


@pytest.mark.parametrize("names", [{}, {"CancelStatus": trio_run.CancelStatus}, {"Task": trio_run.Task}])
def test_a_trio_whose_scopes_cannot_be_seen_is_refused(names: dict[str, Any]) -> None:
    module = types.ModuleType("trio._core._run")
    vars(module).update({"_ALLOW_DETERMINISTIC_SCHEDULING": False, "_r": random.Random(), **names})
    with pytest.raises(RuntimeError, match=r"has no Task\._cancel_status, or no CancelStatus with _scope and _parent"):
        check_trio(module)


OLDER = type("Runner", (), {"waiting_for_idle": None})


@pytest.mark.parametrize(
    "names",
    [
        {"Runner": trio_run.Runner},
        {"GLOBAL_RUN_CONTEXT": trio_run.GLOBAL_RUN_CONTEXT},
        {"Runner": OLDER, "GLOBAL_RUN_CONTEXT": trio_run.GLOBAL_RUN_CONTEXT},
    ],
)
def test_a_trio_that_does_not_tell_who_waits_for_idleness_is_refused(names: dict[str, Any]) -> None:
    module = types.ModuleType("trio._core._run")
    known = "_ALLOW_DETERMINISTIC_SCHEDULING", "_r", "CancelStatus", "Task"
    vars(module).update({name: getattr(trio_run, name) for name in known}, **names)
    with pytest.raises(RuntimeError, match="has no GLOBAL_RUN_CONTEXT, or no Runner with waiting_for_idle and"):
        check_trio(module)


def test_no_turn_of_the_loop_is_lost_to_a_jump() -> None:
    class Turns(trio.abc.Instrument):
        count = 0

        def before_io_wait(self, timeout: float) -> None:
            self.count += 1

    async def scenario(_world: World) -> None:
        for _ in range(100):
            await trio.sleep(1)

    turns = Turns()
    outcome, recorder = run_seeded(1, scenario, (), 1000, None, instruments=[turns])
    assert outcome.seconds == 100
    assert turns.count <= recorder.steps


def test_who_waits_for_idleness_goes_before_a_jump_of_the_clock() -> None:
    async def scenario(_world: World) -> tuple[float, float]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 10)
            await trio.testing.wait_all_tasks_blocked()
            before = trio.current_time()
        return before, trio.current_time()

    assert simulate(1, scenario).value == (0, 10)


def test_what_is_to_be_done_now_is_done_before_a_jump() -> None:
    async def scenario(_world: World) -> list[float]:
        seen: list[float] = []
        await trio.sleep(1)
        trio.lowlevel.current_trio_token().run_sync_soon(lambda: seen.append(trio.current_time()))
        await trio.sleep(3600)
        return seen

    assert simulate(1, scenario).value == [1]


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # which is right, and not what is tested
def test_a_generator_that_was_left_early_is_closed_before_a_jump() -> None:
    async def scenario(_world: World) -> list[float]:
        closed: list[float] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                closed.append(trio.current_time())

        async def leaves_early() -> None:
            async for _ in numbers():
                break

        await leaves_early()
        await trio.sleep(600)
        return closed

    assert simulate(1, scenario).value == [0]


def test_a_scenario_may_let_the_clock_wait_for_threads() -> None:
    async def scenario(_world: World) -> float:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.autojump_threshold = 60  # of real time, which the thread does not need
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 10)
            await trio.to_thread.run_sync(lambda: None)
            seconds = trio.current_time()
            clock.autojump_threshold = 0
        return seconds

    assert simulate(1, scenario).value == 0


def test_a_scenario_may_stop_the_clock() -> None:
    async def scenario(_world: World) -> float:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.autojump_threshold = math.inf
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 10)
            await trio.testing.wait_all_tasks_blocked(0.001)
            clock.jump(3)
            await trio.testing.wait_all_tasks_blocked(0.001)
            seconds = trio.current_time()
            clock.autojump_threshold = 0
        return seconds

    assert simulate(1, scenario).value == 3


def test_only_one_file_touches_the_internals_of_trio() -> None:
    sources = [path for path in (ROOT / "src").rglob("*.py") if "_pb2" not in path.name]
    touching = [path.name for path in sources if re.search(r"\btrio\._[a-z]|from trio import _", path.read_text())]
    assert touching == ["schedule.py"]


def test_schedules_differ_without_any_randomness_of_the_scenario() -> None:
    async def scenario(_world: World) -> list[int]:
        order: list[int] = []

        async def one(number: int) -> None:
            order.append(number)
            await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(one, number)
        return order

    assert len({tuple(simulate(seed, scenario).value) for seed in range(50)}) == 50


def test_others_do_not_change_the_order_among_a_few() -> None:
    async def scenario(world: World, others: int) -> list[str]:
        order: list[str] = []

        async def one(name: str) -> None:
            for turn in range(5):
                order.append(f"{name}{turn}")
                await trio.lowlevel.checkpoint()

        async def idle() -> None:
            await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(one, name, name=name)
            for _ in range(others):
                nursery.start_soon(idle, name="idle")
        return order

    for seed in range(10):
        assert simulate(seed, scenario, 0).value == simulate(seed, scenario, 7).value


def test_a_block_is_seeded_by_hand_as_well() -> None:
    async def order() -> list[int]:
        seen: list[int] = []
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(checkpoint_and_append, seen, number)
        return seen

    async def checkpoint_and_append(seen: list[int], number: int) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(number)

    runs = []
    for _ in range(2):
        with seeded_schedule(9):
            runs.append(trio.run(order))
    assert runs[0] == runs[1]


async def sleeps(_world: World) -> None:
    for _ in range(200):
        await trio.sleep(1)


def test_another_threads_loop_is_no_part_of_the_run() -> None:
    ready, over = threading.Event(), threading.Event()

    async def spin() -> None:
        ready.set()
        while not over.is_set():
            await trio.lowlevel.checkpoint()

    alone = simulate(1, sleeps)
    thread = threading.Thread(target=trio.run, args=(spin,))
    thread.start()
    try:
        ready.wait()
        beside = simulate(1, sleeps, budget=alone.steps)
    finally:
        over.set()
        thread.join()
    assert (beside.steps, beside.fingerprint) == (alone.steps, alone.fingerprint)


def test_one_simulation_at_a_time() -> None:
    before = vars(trio_run)["_ALLOW_DETERMINISTIC_SCHEDULING"]
    no_seed: Any = [1]
    with pytest.raises(TypeError), seeded_schedule(no_seed):
        pass
    with seeded_schedule(1), pytest.raises(RuntimeError, match="another simulation runs in this process"):
        simulate(2, sleeps)
    assert type(vars(trio_run)["_r"]) is random.Random
    assert vars(trio_run)["_ALLOW_DETERMINISTIC_SCHEDULING"] == before

    async def nested(_world: World) -> None:
        simulate(2, sleeps)

    with pytest.raises(RuntimeError, match="this is a run of Trio already"):
        simulate(1, nested)
    simulate(1, sleeps)


class Nameless:
    async def __call__(self) -> None:
        await trio.sleep(1)


def test_where_something_is_in_memory_does_not_matter() -> None:
    kept: list[Nameless] = []

    async def scenario(world: World) -> list[str]:
        order: list[str] = []

        async def named(name: str) -> None:
            await trio.lowlevel.checkpoint()
            order.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                kept.append(Nameless())
                nursery.start_soon(kept[-1])
                nursery.start_soon(AsyncMock(side_effect=named), f"mock {number}")
                nursery.start_soon(named, str(number), name=f"\ud800 {number}")
        world.history.record("order", " ".join(order))
        return order

    value = check_determinism(1, scenario).value
    assert len(value) == 10
    assert simulate(1, scenario).value == value


def test_nothing_is_held_when_a_block_is_over() -> None:
    seen: list[int] = []
    with seeded_schedule(1, lambda batch: seen.append(len(batch))):
        order = vars(trio_run)["_r"]
        trio.run(trio.sleep, 0)
        assert order._tasks
    assert seen
    assert not order._tasks
