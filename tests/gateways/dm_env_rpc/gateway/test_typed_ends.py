"""Ends where observations say nothing of them: the cause of the trial's end decides, and what the environment sends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import Int32Value
from trio.testing import wait_all_tasks_blocked

from trio_cogment.base.errors import StatusCode
from trio_cogment.gateways.dm_env_rpc import (
    Connection,
    DmEnvRpcError,
    DmEnvRpcGateway,
    Profile,
    State,
    open_connection,
)
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import EnvironmentSession, Participants, actor_params, trial_params
from trio_cogment.sdk.spec import ActorClass, Spec

RUNNING, TERMINATED, INTERRUPTED = State.RUNNING, State.TERMINATED, State.INTERRUPTED
SPEC = Spec.of(ActorClass("counter", observation=Int32Value, action=Int32Value))
Play = Callable[[EnvironmentSession], Awaitable[None]]


def counting(length: int, before_end: Play | None = None) -> Play:
    """Return an environment that counts, ends at a number, and does something right before."""

    async def play(session: EnvironmentSession) -> None:
        await session.start([("*", Int32Value())])
        async for event in session.all_events():
            if event.actions is None:
                continue
            number = event.tick_id + 1
            if number < length or not length:
                await session.produce_observations([("*", Int32Value(value=number))])
                continue
            if before_end is not None:
                await before_end(session)
            await session.end([("*", Int32Value(value=number))])

    return play


@asynccontextmanager
async def playing(play: Play, *, max_steps: int = 0, **policies: Any) -> AsyncIterator[tuple[Platform, Connection]]:
    """Run a platform with one client, who has joined the world `w`."""
    participants = Participants(SPEC)
    participants.register_environment(play)
    params = trial_params([actor_params("ann", "counter", endpoint="cogment://client")], max_steps=max_steps)
    gateway = DmEnvRpcGateway(Profile.of(params, **policies))
    async with (
        open_platform(participants, extensions=[gateway]) as platform,
        open_connection(platform.channel) as connection,
    ):
        await connection.create_world({"world_name": "w"})
        await connection.join_world("w")
        yield platform, connection


async def sequence(connection: Connection) -> list[tuple[State, int]]:
    steps = [await connection.step()]
    while steps[-1].state is RUNNING:
        steps.append(await connection.step({"value": 1}))
    return [(each.state, int(each.observations["value"])) for each in steps]


async def test_the_environment_ends_it() -> None:
    async with playing(counting(2)) as (_, connection):
        for _ in range(2):
            assert await sequence(connection) == [(RUNNING, 0), (RUNNING, 1), (TERMINATED, 2)]


async def test_the_environment_cuts_it() -> None:
    async def say_so(session: EnvironmentSession) -> None:
        struct = Struct()
        struct.update({"truncated": True})
        await session.send_message(struct, "ann")

    async with playing(counting(2, say_so), expose_discount=True) as (_, connection):
        assert await sequence(connection) == [(RUNNING, 0), (RUNNING, 1), (INTERRUPTED, 2)]


async def test_the_limit_of_steps_cuts_it() -> None:
    async with playing(counting(0), max_steps=1) as (_, connection):
        assert await sequence(connection) == [(RUNNING, 0), (RUNNING, 1), (INTERRUPTED, 2)]


@pytest.mark.parametrize("hard", [True, False])
async def test_somebody_else_ends_it(hard: bool) -> None:
    async with playing(counting(0)) as (platform, connection):
        await connection.step()
        await platform.controller.terminate_trial("w.1", hard=hard)
        await wait_all_tasks_blocked()
        step = await connection.step({"value": 1})
        assert (step.state, int(step.observations["value"])) == (INTERRUPTED, 0 if hard else 1)


async def test_the_environment_returns_too_early() -> None:
    async def leave(session: EnvironmentSession) -> None:
        await session.start([("*", Int32Value())])

    async with playing(leave) as (_, connection):
        assert await sequence(connection) == [(RUNNING, 0), (INTERRUPTED, 0)]
        assert "env" in (await connection.read_property("trial.last_error")).item()


async def test_no_trial_is_started_to_join() -> None:
    """The specifications are known from the types."""
    async with playing(counting(1)) as (platform, connection):
        assert await platform.controller.trial_infos() == []
        assert await sequence(connection) == [(RUNNING, 0), (TERMINATED, 1)]
        assert [info.trial_id for info in await platform.controller.trial_infos()] == ["w.1"]


async def test_observations_that_are_none() -> None:
    async def garbage(session: EnvironmentSession) -> None:
        await session.start([("*", b"\xff")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.produce_observations([("*", Int32Value(value=1))])

    async with playing(garbage) as (_, connection):
        with pytest.raises(DmEnvRpcError, match="the environment's observation is not a message of its type") as caught:
            await connection.step()
        assert caught.value.code is StatusCode.INTERNAL
        assert (await connection.step({"value": 1})).state is RUNNING
