"""A trial that has ended waits for nobody longer than `farewell_seconds`: who is out of reach, or does not read."""

from __future__ import annotations

import pytest
import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.config import OrchestratorConfig
from trio_cogment.rpc import RpcConfig, serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.testing import Behaviour, FakeActor, FakeEnvironment, Misbehaviour, World, simulate

CONFIG = OrchestratorConfig(farewell_seconds=2, max_outbox_messages=64)
#: So that what one does not read is soon in the way.
NARROW = RpcConfig(call_outbox_messages=2, stream_window_bytes=64)
THERE = "grpc://env:9001"


def behave(trial_id: str, name: str) -> Behaviour:
    return Behaviour(misbehaviour=Misbehaviour.DEAF, from_tick=0) if name == "deaf" else Behaviour()


async def play(world: World, endpoint: str, *, cut_off: bool, hard_end_at: float | None) -> float:
    """Run a trial whose optional actor is at an endpoint; return how long after its end it still has tasks."""
    actor, environment = FakeActor(world, behave), FakeEnvironment(world, behave, ticks=40)
    async with trio.open_nursery() as nursery:
        for host in ("env", "far"):
            listener = world.network.host(host).listen(9001)
            await nursery.start(serve, [actor.service(), environment.service()], [listener])
        async with (
            world.serve_orchestrator(config=CONFIG, rpc_config=NARROW) as orchestrator,
            world.network.host("desk").channel("orchestrator", 9000, config=NARROW) as channel,
        ):
            if cut_off:
                world.network.partition(["far"])
            deaf = actor_params("deaf", "player", endpoint=endpoint, optional=True, response_timeout_seconds=1)
            params = trial_params([deaf], environment_endpoint=THERE)
            controller = Controller(channel)
            assert await controller.start_trial(params, trial_id="t") == "t"
            if endpoint == "cogment://client":
                nursery.start_soon(actor.join, channel, "t", "deaf")
            (trial,) = orchestrator.trials
            if hard_end_at is not None:
                await trio.sleep(hard_end_at)
                trial.hard_end("enough")
            await controller.wait_trial_state("t")
            assert trial.state == TrialState.ENDED
            with trio.move_on_after(60):
                while orchestrator.running_trials:  # noqa: ASYNC110  there is no event for it
                    await trio.sleep(0.01)
            seconds = trio.current_time() - trial.ended_at
            nursery.cancel_scope.cancel()
    return seconds


@pytest.mark.parametrize("seed", range(3))
def test_who_cannot_be_reached_yet(seed: int) -> None:
    async def scenario(world: World) -> float:
        return await play(world, "grpc://far:9001", cut_off=True, hard_end_at=5.0)

    assert simulate(seed, scenario).value < 2.1


@pytest.mark.parametrize("endpoint", ["cogment://client", "grpc://far:9001"])
@pytest.mark.parametrize("hard", [True, False])
def test_who_does_not_read(hard: bool, endpoint: str) -> None:
    async def scenario(world: World) -> float:
        return await play(world, endpoint, cut_off=False, hard_end_at=8.0 if hard else None)

    assert simulate(1, scenario).value < 2.1
