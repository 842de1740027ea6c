"""A day of a trial with a human who does nothing, over bytes, with keepalive on: virtual time makes it seconds."""

from __future__ import annotations

import trio

from trio_cogment.rpc import serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.testing import (
    Behaviour,
    FakeActor,
    FakeEnvironment,
    Misbehaviour,
    World,
    check_history,
    record_states,
    simulate,
)

HOUR = 3600.0
RESPONSE_SECONDS = 600.0
TICKS = 150


def behave(_trial_id: str, name: str) -> Behaviour:
    return Behaviour(misbehaviour=Misbehaviour.SILENT) if name == "human" else Behaviour()


async def a_day(world: World) -> None:
    actor, environment = FakeActor(world, behave), FakeEnvironment(world, ticks=TICKS)
    services = [actor.service(), environment.service()]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, services, [world.network.host("participants").listen(9000)])
        async with (
            world.serve_orchestrator(),
            world.network.host("desk").channel("orchestrator", 9000) as channel,
            trio.open_nursery() as watching,
        ):
            controller = Controller(channel)
            watching.start_soon(record_states, controller, world.history)
            await trio.sleep(1)
            there = "grpc://participants:9000"
            machine = actor_params("machine", "player", endpoint=there, response_timeout_seconds=RESPONSE_SECONDS)
            human = actor_params(
                "human",
                "player",
                endpoint="cogment://client",
                optional=True,
                response_timeout_seconds=RESPONSE_SECONDS,
            )
            params = trial_params([machine, human], environment_endpoint=there)
            assert await controller.start_trial(params, trial_id="t") == "t"
            watching.start_soon(actor.join, channel, "t", "human")
            await controller.wait_trial_state("t")
            await trio.sleep(60)
            watching.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


def test_a_day_of_silence() -> None:
    outcome = simulate(24, a_day)
    check_history(outcome.history)
    assert outcome.seconds > 24 * HOUR
    absences = [event for event in outcome.history if event.what == "actions" and event.details["unavailable"] == [1]]
    assert len(absences) >= 140
    ends = [event.details["details"] for event in outcome.history if event.what == "end"]
    assert ends == ["", "", ""]
    # Nobody but the human is waited for, and so the others are asked whether they are there.
    assert outcome.counters["actor: heartbeat"] > 4000
    assert outcome.counters["environment: heartbeat"] > 4000
