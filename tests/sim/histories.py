"""The recorded trials of tests/trial/histories: small trials of every sort, simulated, as their machines saw them.

`python -m tests.sim.histories` gives the recorded inputs to the machine of today and writes down what it does with
them: run it when its behaviour has changed on purpose, and look at the diff. With `--record` the trials are simulated
again.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from purerpc import Service

from trio_cogment.api import environment_pb2
from trio_cogment.api.common_pb2 import CommunicationState, Reward, RewardSource
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import ServerCall, bind, serve
from trio_cogment.sdk import Controller, actor_params, trial_params
from trio_cogment.testing import (
    Behaviour,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    Misbehaviour,
    World,
    simulate,
)
from trio_cogment.trial.recording import TrialRecorder, replay

FOLDER = Path(__file__).resolve().parents[1] / "trial" / "histories"
PORT = 9000
SERVICE = f"grpc://participants:{PORT}"
TRIAL = "t"

After = Callable[[World, Controller], Awaitable[None]]


async def let_it_be(_world: World, _controller: Controller) -> None:
    """Nobody interferes."""


def terminate(at: float, *, hard: bool) -> After:
    async def act(_world: World, controller: Controller) -> None:
        await trio.sleep_until(at)
        await controller.terminate_trial(TRIAL, hard=hard)

    return act


async def lose_the_client(world: World, _controller: Controller) -> None:
    await trio.sleep_until(0.2)
    for connection in world.network.connections("client"):
        connection.reset()


class LateRewards:
    """An environment that rewards ticks long past, the one that there is, and one to come; and talks to everybody."""

    def service(self) -> Service:
        return bind(environment_pb2.DESCRIPTOR.services_by_name["EnvironmentSP"], self)

    async def RunTrial(self, call: ServerCall) -> None:
        await call.receive()
        await call.send(self.output(init_output=EnvInitialOutput()))
        await self.show(call, 0)
        async for message in call:
            if message.HasField("action_set"):
                tick_id = message.action_set.tick_id + 1
                for rewarded in (0, tick_id - 1, -1, tick_id + 3):
                    source = RewardSource(value=float(rewarded), confidence=1.0)
                    reward = Reward(tick_id=rewarded, receiver_name="player.*", sources=[source])
                    await call.send(self.output(reward=reward))
                if tick_id == 3:
                    await call.send(EnvRunTrialOutput(state=CommunicationState.LAST))
                await self.show(call, tick_id)
                if tick_id == 3:
                    await call.send(EnvRunTrialOutput(state=CommunicationState.LAST_ACK))

    async def show(self, call: ServerCall, tick_id: int) -> None:
        shown = ObservationSet(tick_id=tick_id, timestamp=1, observations=[b"%d" % tick_id], actors_map=[0] * 3)
        await call.send(self.output(observation_set=shown))

    def output(self, **data: Any) -> EnvRunTrialOutput:
        return EnvRunTrialOutput(state=CommunicationState.NORMAL, **data)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One trial to record.

    Attributes:
        ticks: after which the environment ends it; None: never.
        behaviour: of those who misbehave, by name.
        changes: to the trial's parameters.
        joins: the client actor comes.
        after: what else happens.
        environment: instead of the fake one.
    """

    ticks: int | None = 3
    behaviour: Mapping[str, Behaviour] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    joins: bool = True
    after: After = let_it_be
    environment: type[LateRewards] | None = None


def does(misbehaviour: Misbehaviour, from_tick: int = 1, **more: Any) -> Behaviour:
    return Behaviour(misbehaviour=misbehaviour, from_tick=from_tick, **more)


CASES = {
    "soft-end-by-environment": Case(),
    "soft-end-by-controller": Case(ticks=None, after=terminate(0.2, hard=False)),
    "hard-end": Case(ticks=None, after=terminate(0.2, hard=True)),
    "optional-actor-lost": Case(behaviour={"bob": does(Misbehaviour.VANISH)}),
    "optional-actor-silent": Case(behaviour={"bob": does(Misbehaviour.SILENT)}),
    "required-actor-silent": Case(behaviour={"ann": does(Misbehaviour.SILENT)}),
    "required-actor-lost": Case(behaviour={"ann": does(Misbehaviour.CRASH)}),
    "client-lost": Case(ticks=None, after=lose_the_client, changes={"max_steps": 8}),
    "client-never-comes": Case(joins=False),
    "rewards-out-of-sync": Case(environment=LateRewards),
    "max-steps": Case(ticks=None, changes={"max_steps": 3}),
    "nobody-acknowledges": Case(
        behaviour={name: does(Misbehaviour.NEVER_ACK, 0) for name in ("ann", "cat", "env")},
    ),
    "wrong-ticks-and-duplicates": Case(
        behaviour={
            "ann": does(Misbehaviour.WRONG_TICK, 0),
            "bob": does(Misbehaviour.DUPLICATE, 0),
            "env": does(Misbehaviour.WRONG_TICK, 1),
        },
    ),
    "slow-environment-heartbeats": Case(behaviour={"env": does(Misbehaviour.SLOW, seconds=45.0)}),
    "environment-silent-at-the-end": Case(
        ticks=None, behaviour={"env": does(Misbehaviour.SILENT)}, after=terminate(1.0, hard=False)
    ),
    "environment-lost": Case(behaviour={"env": does(Misbehaviour.VANISH)}),
    "environment-never-ready": Case(behaviour={"env": does(Misbehaviour.SILENT, -1)}),
    "inactive": Case(behaviour={"env": does(Misbehaviour.SILENT)}, changes={"max_inactivity_seconds": 30}),
    "failed-start": Case(changes={"datalog_endpoint": f"grpc://nobody:{PORT}"}),
}


async def play(world: World, case: Case) -> str:
    """Play a trial and return its record."""
    recorder = TrialRecorder()

    def behave(_trial_id: str, name: str) -> Behaviour:
        return case.behaviour.get(name, Behaviour())

    actor = FakeActor(world, behave)
    environment = case.environment() if case.environment else FakeEnvironment(world, behave, ticks=case.ticks)
    services = [actor.service(), environment.service(), FakeDatalog(world).service()]
    waits: dict[str, Any] = {"initial_connection_timeout_seconds": 8.0, "response_timeout_seconds": 5.0}
    actors = [
        actor_params("ann", "player", endpoint=SERVICE, **waits),
        actor_params("bob", "player", endpoint=SERVICE, optional=True, default_action=b"default", **waits),
        actor_params("cat", "player", endpoint="cogment://client", optional=True, **waits),
    ]
    places = {"environment_endpoint": SERVICE, "datalog_endpoint": SERVICE}
    params = trial_params(actors, environment_name="env", **{**places, **case.changes})
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, services, [world.network.host("participants").listen(PORT)])
        client = world.network.host("client").channel("orchestrator", PORT)
        desk = world.network.host("desk").channel("orchestrator", PORT)
        async with (
            world.serve_orchestrator(port=PORT) as orchestrator,
            desk as starting,
            client as joining,
        ):
            orchestrator.make_machine = recorder.machine
            controller = Controller(starting)
            try:
                await controller.start_trial(params, trial_id=TRIAL)
            except RpcError as error:
                world.history.record("desk", "refused", TRIAL, code=error.code.name)
            else:
                if case.joins:
                    nursery.start_soon(actor.join, joining, TRIAL, "cat")
                await case.after(world, controller)
                await controller.wait_trial_state(TRIAL)
                await trio.sleep(5)
        nursery.cancel_scope.cancel()
    return recorder.trials[TRIAL].text()


def record(name: str) -> str:
    """Simulate a case and return its record."""
    return simulate(5, play, CASES[name]).value


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.histories", description=__doc__)
    parser.add_argument("--record", action="store_true", help="simulate the trials again")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # what fakes do on purpose is logged as what it would be
    FOLDER.mkdir(exist_ok=True)
    for name in options.names or CASES:
        path = path_of(name)
        text = record(name) if options.record or not path.exists() else replay(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
