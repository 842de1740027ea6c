"""A trial that has ended waits for nobody longer than `farewell_seconds`: who is out of reach, or does not read."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.helpers import (
    END,
    NORMAL,
    Everything,
    Script,
    actor_that_acts,
    bench,
    environment_of,
    params_of,
    wait_ended,
)
from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.rpc import InProcessChannel, RpcConfig, ServerCall, serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator
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


@pytest.mark.parametrize("held", [False, True])
async def test_who_stays_after_the_end_in_process(
    held: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call needs no task, unless the channel has no room; either way it is left after the farewell."""
    if held:
        monkeypatch.setattr(InProcessChannel, "call_nowait", lambda *_arguments, **_named: None)
    left: list[float] = []

    async def stays(call: ServerCall) -> None:
        await actor_that_acts()(call)
        try:
            await trio.sleep_forever()
        finally:
            left.append(trio.current_time())

    services = Script(environment_of(2)).environment(), Script(stays).actor()
    async with bench(*services, config=CONFIG) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await wait_ended(table.orchestrator, "t")
        await trio.testing.wait_all_tasks_blocked()
        (trial,), (run,) = table.orchestrator.trials, table.orchestrator.runs
        assert run.task_names == ["trial t: a"]
        await trio.sleep(CONFIG.farewell_seconds + 1)
        assert left == [trial.ended_at + CONFIG.farewell_seconds]
        assert table.orchestrator.running_trials == 0


async def test_who_reads_late_in_process_hears_of_the_end(autojump_clock: MockClock) -> None:
    """What its call cannot take waits in an outbox; END comes behind it, and then the end of the stream."""
    heard: list[int] = []

    async def reads_late(call: ServerCall) -> None:
        await call.receive()
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        await trio.sleep(1)
        heard.extend([message.state async for message in call])

    services = Script(environment_of(None)).environment(), Script(reads_late).actor()
    narrow = RpcConfig(call_outbox_messages=1)
    async with (
        InProcessChannel(services, config=narrow) as local,
        Orchestrator(config=CONFIG, local=Everything(local)) as orchestrator,
    ):
        await orchestrator.start_trial(params=params_of("a"), trial_id="t")
        await trio.testing.wait_all_tasks_blocked()
        (trial,) = orchestrator.trials
        trial.hard_end("enough")
        assert trial.queues.messages == 1
        await trio.sleep(CONFIG.farewell_seconds + 1)
        assert orchestrator.running_trials == 0
    assert heard == [NORMAL, END]
