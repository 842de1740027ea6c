"""Worlds of a gateway, as their clients see them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trio

from tests.gateways.dm_env_rpc.gateway.worlds import game_params, gateway_over_games
from tests.gateways.dm_env_rpc.servers import served
from trio_cogment.base.errors import StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.gateways.dm_env_rpc import (
    Connection,
    DmEnvRpcError,
    DmEnvRpcGateway,
    Profile,
    State,
    open_connection,
)
from trio_cogment.platform import open_platform
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.sdk.spec import Spec


async def episodes(connection: Connection, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Play sequences; return the states and observations."""
    found = []
    for number in range(count):
        step = await connection.step()
        found.append(step)
        while step.state is State.RUNNING:
            step = await connection.step({"paddle": (number % 3) - 1})
            found.append(step)
    return [(step.state.value, {name: each.tolist() for name, each in step.observations.items()}) for step in found]


@pytest.mark.parametrize("seed", range(3))
async def test_it_gives_what_the_server_behind_it_gives(seed: int) -> None:
    async with served() as (url, _, _), open_connection(url) as connection:
        world = await connection.create_world({"seed": seed})
        specs = await connection.join_world(world)
        alone = await episodes(connection, 5)
    async with gateway_over_games(game_params(seed=seed)) as (platform, _), open_connection(platform.channel) as behind:
        world = await behind.create_world({"world_name": "catch"})
        assert world == "catch"
        joined = await behind.join_world(world)
        assert [spec.message() for spec in joined.actions.specs.values()] == [
            spec.message() for spec in specs.actions.specs.values()
        ]
        assert list(joined.observations.specs) == ["board", "ball.column", "reward"]
        through = await episodes(behind, 5)
        infos = await platform.controller.trial_infos()
    assert [info.trial_id for info in infos][:5] == [f"catch.{number}" for number in range(1, 6)]
    assert [state for state, _ in through] == [state for state, _ in alone]
    for (_, there), (_, here) in zip(alone, through, strict=True):
        assert np.float32(there.pop("reward")) == np.float32(here.pop("reward"))
        assert there == here


async def test_a_reset_cuts_the_sequence() -> None:
    async with gateway_over_games(game_params()) as (platform, _), open_connection(platform.channel) as connection:
        world = await connection.create_world()
        specs = await connection.join_world(world)
        assert (await connection.reset()) == specs
        await connection.step()
        await connection.step({"paddle": 1})
        assert (await connection.reset()) == specs
        assert connection.state is State.INTERRUPTED
        assert (await connection.step()).state is State.RUNNING
        await connection.leave_world()
        await connection.join_world(world)
        assert (await connection.step()).first
        await connection.leave_world()
        await connection.destroy_world(world)
        with pytest.raises(DmEnvRpcError, match="there is no world") as caught:
            await connection.join_world(world)
        assert caught.value.code is StatusCode.NOT_FOUND
        with trio.fail_after(10):
            for number in (1, 2, 3):
                outcome = await platform.controller.wait_trial(f"{world}.{number}", check=False)
                assert outcome.cause in (EndCause.SOFT_TERMINATION, EndCause.HARD_TERMINATION)


@pytest.mark.parametrize(("spec", "told"), [(Spec(), True), (RL_SPEC, False)])
async def test_a_profile_without_types_is_noted(caplog: pytest.LogCaptureFixture, spec: Spec, told: bool) -> None:
    caplog.set_level("INFO")
    profile = Profile.of(trial_params([actor_params("ann", "player", endpoint="cogment://client")]), spec=spec)
    async with open_platform(extensions=[DmEnvRpcGateway(profile)]):
        assert ("the profile names no spec" in caplog.text) is told
