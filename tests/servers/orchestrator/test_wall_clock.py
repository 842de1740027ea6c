"""The time of day may jump as it likes: what is timed in trials follows another clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio
import trio.testing

from tests.helpers import NORMAL, Everything, Script, actor_that_acts, environment_of, wait_ended
from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.host import Host
from trio_cogment.rpc import InProcessChannel, ServerCall
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator

YEAR = 365 * 24 * 3600 * 10**9
NOON = 1_700_000_000 * 10**9

CLOCKS: dict[str, Callable[[], Iterator[int]]] = {
    "steady": lambda: itertools.count(NOON, 1000),
    "stopped": lambda: itertools.repeat(NOON),
    "backwards": lambda: itertools.count(NOON, -YEAR // 100),
    "to and fro": lambda: itertools.cycle([NOON, NOON + YEAR, NOON - YEAR]),
}


async def mute(call: ServerCall) -> None:
    await call.receive()
    await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
    async for _ in call:
        pass


async def timed_life(ticks: Iterator[int]) -> list[tuple[float, str, int]]:
    """Return when what happened in three trials that end by three different timers, and in their registry."""
    began = trio.current_time()
    happened: list[tuple[float, str, int]] = []
    services = [Script(environment_of()).environment(), Script(mute).actor()]
    async with InProcessChannel(services) as local:
        orchestrator = Orchestrator(
            host=Host(wall_clock=lambda: next(ticks), new_id=lambda: "t"),
            local=Everything(local),
            config=OrchestratorConfig(soft_end_patience_seconds=7, ended_trial_age_seconds=50),
        )
        async with orchestrator:

            async def play(name: str, *, response_timeout: float = 0, max_inactivity: int = 0) -> None:
                params = trial_params([actor_params("a", "c")])
                params.actors[0].response_timeout = response_timeout
                params.max_inactivity = max_inactivity
                await orchestrator.start_trial(trial_id=name, params=params)
                trial = orchestrator.trials.get(name)
                assert trial is not None
                if name == "patience":
                    trial.soft_end()
                await wait_ended(orchestrator, name)
                happened.append((round(trio.current_time() - began, 6), name, trial.state))
                # Told in ns: its length is not a matter of the time of day either.
                assert trial.info().trial_duration == round((trio.current_time() - began) * 1e9)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(play, "response", response_timeout=2.5))
                nursery.start_soon(partial(play, "inactivity", max_inactivity=11))
                nursery.start_soon(play, "patience")
            await trio.sleep(51)
            happened.append((trio.current_time() - began, "remembered", len(list(orchestrator.trials))))
    return happened


@pytest.mark.parametrize("clock", CLOCKS)
async def test_no_jump_of_the_wall_clock_moves_a_timer(clock: str, autojump_clock: trio.testing.MockClock) -> None:
    happened = await timed_life(CLOCKS[clock]())
    assert happened == [
        (2.5, "response", TrialState.ENDED),
        (7, "patience", TrialState.ENDED),
        (11, "inactivity", TrialState.ENDED),
        (62, "remembered", 0),
    ]


async def test_ticks_go_on_while_it_jumps(autojump_clock: trio.testing.MockClock) -> None:
    services = [Script(environment_of(ticks=20)).environment(), Script(actor_that_acts()).actor()]
    clock = CLOCKS["to and fro"]()
    async with InProcessChannel(services) as local:
        orchestrator = Orchestrator(
            host=Host(wall_clock=lambda: next(clock), new_id=lambda: "t"), local=Everything(local)
        )
        async with orchestrator:
            await orchestrator.start_trial(params=trial_params([actor_params("a", "c")]))
            trial = orchestrator.trials.get("t")
            assert trial is not None
            await wait_ended(orchestrator, "t")
            assert trial.machine.tick_id == 20
