"""Runs over several orchestrators, which are reached over sockets and may vanish."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import trio

from tests.cli.process import server
from tests.rl.runner.worlds import REWARD, answering, countdown, gated, participants
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rl.runner import open_run, run_trials_async
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import Participants, actor_params, connect, serve_participants

SEATS: dict[str, Any] = {"player_0": answering}
HERE = "cogment://discover"


@dataclass
class Served:
    """An orchestrator with an environment, on a port."""

    platform: Platform
    endpoint: str
    scope: trio.CancelScope

    def vanish(self) -> None:
        """Close its port and its connections."""
        self.scope.cancel()


@asynccontextmanager
async def orchestrator(ticks: int = 3, *, store: str | None = None) -> AsyncIterator[Served]:
    async with open_platform(participants(ticks), store=store) as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[Any]) -> None:
            with scope:
                await serve(platform.services, listeners, task_status=task_status)

        running = await nursery.start(run)
        yield Served(platform, f"grpc://127.0.0.1:{running.port}", scope)
        nursery.cancel_scope.cancel()


async def test_trials_are_spread_over_orchestrators() -> None:
    async with orchestrator() as one, orchestrator() as two:
        on = {"one": one.endpoint, "two": two.endpoint}
        results = await run_trials_async(8, on=on, environment=HERE, seats=SEATS, parallel=4, seeds=0)
    assert not results.failures
    assert Counter(results.orchestrators.tolist()) == {"one": 4, "two": 4}
    # The actor of this process has seen the rewards as they were.
    expected = [REWARD + REWARD + (REWARD + seed) for seed in range(8)]
    assert results.returns_of("player_0").tolist() == expected


async def test_clients_and_platforms_together() -> None:
    async with (
        orchestrator() as one,
        connect(one.endpoint, spec=RL_SPEC) as client,
        open_platform(participants()) as platform,
    ):
        results = await run_trials_async(4, on=[client, platform], environment=HERE, seats=SEATS, parallel=1)
    assert not results.failures
    assert Counter(results.orchestrators.tolist()) == {"0": 2, "1": 2}


async def test_returns_come_from_a_datastore_elsewhere() -> None:
    elsewhere: dict[str, Any] = {"player_0": actor_params("player_0", PLAYER, implementation="answering")}
    async with orchestrator(store="memory:") as one:
        results = await run_trials_async(
            2, on=one.endpoint, environment=HERE, seats=elsewhere, seeds=0, store=one.endpoint
        )
    assert not results.failures
    assert results.returns_of("player_0").tolist() == [REWARD + REWARD + REWARD, REWARD + REWARD + (REWARD + 1)]


@pytest.mark.usefixtures("quiet")
async def test_an_orchestrator_that_vanishes_loses_only_its_own_trials() -> None:
    gate = trio.Event()
    async with orchestrator() as one, orchestrator() as two:
        on = {"one": one.endpoint, "two": two.endpoint}
        async with open_run(12, on=on, environment=HERE, seats={"player_0": gated(gate)}, parallel=4, seeds=0) as run:
            await all_running(one, two)
            one.vanish()
            gate.set()
            results = await run.wait()
    assert len(results) == 12
    assert {failure.orchestrator for failure in results.failures} == {"one"}
    assert len(results.failures) == 2
    assert all("the trial was lost" in failure.error for failure in results.failures)
    well = [trial for trial in results.trials if not trial.failed]
    assert {trial.orchestrator for trial in well} == {"two"}
    assert all(trial.ticks == 4 for trial in well)


@pytest.mark.usefixtures("quiet")
async def test_lost_trials_are_repeated_elsewhere() -> None:
    gate = trio.Event()
    async with orchestrator() as one, orchestrator() as two:
        on = {"one": one.endpoint, "two": two.endpoint}
        async with open_run(
            12, on=on, environment=HERE, seats={"player_0": gated(gate)}, parallel=4, seeds=0, retries=1
        ) as run:
            await all_running(one, two)
            one.vanish()
            gate.set()
            results = await run.wait()
    assert not results.failures
    assert len(results.lost) == 2
    assert {trial.index for trial in results.lost} == {trial.index for trial in results.trials if trial.attempts == 2}
    assert set(results.orchestrators.tolist()) == {"two"}
    assert results.returns_of("player_0")[7] == REWARD + REWARD + (REWARD + 7)


@pytest.mark.usefixtures("quiet")
async def test_nobody_can_be_reached(autojump_clock: trio.testing.MockClock) -> None:
    async with orchestrator() as gone:
        pass
    results = await run_trials_async(3, on=gone.endpoint, environment=HERE, seats=SEATS, unreachable_seconds=5)
    assert len(results.failures) == 3
    assert all("UNAVAILABLE" in failure.error for failure in results.failures)
    assert results.trial_ids.tolist() == [""] * 3


@pytest.mark.usefixtures("quiet")
async def test_an_orchestrator_that_stops_in_good_order() -> None:
    """Its trials end with `server_stopped`, and are repeated at the other."""
    gate = trio.Event()
    seats: dict[str, Any] = {"player_0": gated(gate)}
    async with orchestrator() as one, orchestrator() as two, trio.open_nursery() as nursery:
        on = {"one": one.endpoint, "two": two.endpoint}
        async with open_run(4, on=on, environment=HERE, seats=seats, parallel=2, retries=1) as run:
            await all_running(one, two, trials=1)
            nursery.start_soon(one.platform.orchestrator.stop)
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
            results = await run.wait()
    assert not results.failures
    assert {trial.orchestrator for trial in results.lost} == {"one"}


async def test_a_process_that_is_killed() -> None:
    """Two orchestrators in processes of their own; one gets SIGKILL in the middle of its trials."""
    gate = trio.Event()
    world = Participants(RL_SPEC)
    world.register_environment(countdown())
    async with trio.open_nursery() as nursery, server("serve", "--port=0") as one, server("serve", "--port=0") as two:
        served = await nursery.start(partial(serve_participants, world, address="127.0.0.1"))
        async with open_run(
            8,
            on={"one": f"grpc://127.0.0.1:{one.port}", "two": f"grpc://127.0.0.1:{two.port}"},
            environment=f"grpc://127.0.0.1:{served.port}",
            seats={"player_0": gated(gate)},
            parallel=4,
            retries=2,
            seeds=0,
        ) as run:
            while run.progress.running < 4:
                await trio.lowlevel.checkpoint()
            one.process.kill()
            gate.set()
            results = await run.wait()
        nursery.cancel_scope.cancel()
    assert not results.failures
    assert results.returns_of("player_0").tolist() == [REWARD + REWARD + (REWARD + seed) for seed in range(8)]


async def all_running(*served: Served, trials: int = 2) -> None:
    """Wait until each orchestrator runs this many trials, whose actors have their first observation."""
    with trio.fail_after(30):
        for one in served:
            while sum(info.tick_id >= 0 for info in await one.platform.controller.trial_infos()) < trials:
                await trio.testing.wait_all_tasks_blocked(0.01)
