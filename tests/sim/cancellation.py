"""A small trial, in process and over the wire, whose host is cancelled."""

from __future__ import annotations

import trio

from trio_cogment.errors import RpcError
from trio_cogment.rpc import serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.testing import (
    Doomed,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    Link,
    World,
    check_history,
    record_states,
)

PORT = 9000
TRIAL = "t"
TICKS = 2


async def over_the_wire(world: World, doomed: Doomed) -> None:
    """The orchestrator's host is cancelled; participants, data log and starter live elsewhere."""
    network = world.network
    # Little room on the way, so that writers wait for readers as they do over lockstep streams.
    network.set_default_link(Link(latency_seconds=0.005))
    fakes = FakeActor(world), FakeEnvironment(world, ticks=TICKS), FakeDatalog(world)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, [fake.service() for fake in fakes], [network.host("fakes").listen(PORT)])
        nursery.start_soon(desk, world, fakes[0])
        with doomed:
            async with world.serve_orchestrator(port=PORT):
                await trio.sleep(5)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    check_history(world.history)
    check_told(world)


async def desk(world: World, actor: FakeActor) -> None:
    async with world.network.host("desk").channel("orchestrator", PORT) as channel:
        there = f"grpc://fakes:{PORT}"
        params = trial_params(
            [
                actor_params("ann", "player", endpoint=there),
                actor_params("cat", "player", endpoint="cogment://client"),
            ],
            environment_endpoint=there,
            datalog_endpoint=there,
        )
        controller = Controller(channel)
        try:
            await controller.start_trial(params, trial_id=TRIAL)
        except RpcError as error:
            world.history.record("desk", "refused", TRIAL, code=error.code.name)
        else:
            await actor.join(channel, TRIAL, "cat")


def check_told(world: World) -> None:
    """Everybody whose session began has been told END."""
    opened = [e.who for e in world.history if e.what == "opened" and e.who != "datalog datalog"]
    ended = [e.who for e in world.history if e.what == "end"]
    left=sorted(set(opened)-set(ended))
    assert sorted(opened) == sorted(ended), (left,[str(e.details) for e in world.history if e.who in left and e.what=="closed"],[str(e.details) for e in world.history if e.who=="desk"])
