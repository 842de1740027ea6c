"""Worlds of a project with types of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.gateways.dm_env_rpc.gateway.mappings.types import kind, kinds
from trio_cogment.base.errors import StatusCode
from trio_cogment.gateways.dm_env_rpc import DmEnvRpcError, DmEnvRpcGateway, Profile, State, open_connection
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import ClassMapping, FieldAnnotation
from trio_cogment.platform import open_platform
from trio_cogment.sdk import EnvironmentSession, Participants, actor_params, trial_params

TICKS = 3


def packed(message: Any) -> Any:
    content = AnyMessage()
    content.Pack(message)
    holder = np.empty((), object)
    holder[()] = content
    return holder


async def echo(session: EnvironmentSession[Any, Any, Any]) -> None:
    """Return to every actor what it has done, and a reward of the tick's number."""
    await session.start([("*", kind("All")(a_string="begin"))])
    async for event in session.all_events():
        if not event.actions:
            continue
        done = [(action.actor_index, action.payload) for action in event.actions]
        await session.add_reward(float(session.tick_id), 1.0, "*")
        if session.tick_id + 1 < TICKS:
            await session.produce_observations(done)
        else:
            await session.end(done)


def participants() -> Participants:
    found = Participants(kinds())
    found.register_environment(echo, "echo")
    return found


@pytest.mark.parametrize("layer", ["reflection", "raw"])
async def test_actions_come_back_as_observations(layer: Any) -> None:
    params = trial_params([actor_params("one", "all", endpoint="cogment://client")])
    gateway = DmEnvRpcGateway(Profile.of(params, classes={"all": ClassMapping(layer=layer)}))
    async with (
        open_platform(participants(), extensions=[gateway]) as platform,
        open_connection(platform.channel) as connection,
    ):
        await connection.join_world(await connection.create_world())
        steps = [await connection.step()]
        message = kind("All")(an_int32=5, doubles=[1.5], mood=2)
        action: dict[str, Any] = {"an_int32": 5, "doubles": np.array([1.5]), "mood": 2}
        if layer == "raw":
            action = {"action": packed(message)}
        while steps[-1].state is State.RUNNING:
            steps.append(await connection.step(action))
    assert steps[-1].state is State.TERMINATED
    assert [float(step.observations["reward"]) for step in steps] == [0.0, *map(float, range(TICKS))]
    if layer == "raw":
        found: Any = steps[1].observations["observation"].item()
        assert kind("All").FromString(found.value) == message
    else:
        assert steps[0].observations["a_string"] == "begin"
        assert [int(steps[1].observations[name]) for name in ("an_int32", "mood")] == [5, 2]
        assert steps[1].observations["doubles"].tolist() == [1.5]


async def test_a_refused_action_changes_nothing() -> None:
    params = trial_params([actor_params("one", "all", endpoint="cogment://client")])
    notes = {"an_int32": FieldAnnotation(minimum=0, maximum=9)}
    gateway = DmEnvRpcGateway(Profile.of(params, classes={"all": ClassMapping(actions=notes)}))
    async with (
        open_platform(participants(), extensions=[gateway]) as platform,
        open_connection(platform.channel) as connection,
    ):
        await connection.join_world(await connection.create_world())
        await connection.step()
        with pytest.raises(DmEnvRpcError, match="UID 3: an_int32: expected at most 9, got 10") as caught:
            await connection.step({"an_int32": 10})
        assert caught.value.code is StatusCode.OUT_OF_RANGE
        step = await connection.step({"an_int32": 9})
        assert (step.state, int(step.observations["an_int32"])) == (State.RUNNING, 9)
