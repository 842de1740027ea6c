"""Lost servers: trials, and a gateway's clients, when the server behind the bridge dies or hangs in the middle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trio

from tests.gateways.dm_env_rpc.bridge.test_served_server import Player, playing
from tests.gateways.dm_env_rpc.gateway.worlds import game_params, gateway_over_games
from tests.gateways.dm_env_rpc.servers import Catch, Server, served
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import StatusCode, TrialFailedError
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.dm_env_rpc import (
    Connection,
    DmEnvRpcError,
    State,
    dm_env_rpc_environment,
    open_connection,
)
from trio_cogment.rpc import InProcessChannel, bind
from trio_cogment.spaces import Observation


def begin_anew(server: Server) -> None:
    """Let the server be as if it had died, and had been started again at once."""
    server.worlds.clear()
    server.hang_up()


async def play_to_the_end(connection: Connection) -> int:
    step, count = await connection.step(), 1
    while not step.last:
        step, count = await connection.step({"paddle": 0}), count + 1
    assert step.state is State.TERMINATED
    return count


async def test_a_server_that_dies_in_the_middle_of_a_trial_and_comes_back() -> None:
    player = Player()

    async with served() as (url, server, _), playing(dm_env_rpc_environment(url), player) as play:

        def hit(name: str, _observation: Observation) -> Any:
            if len(player.seen[name]) == 2:
                begin_anew(server)
            return {"paddle": np.int8(0)}

        player.act = hit
        with pytest.raises(TrialFailedError, match=f"environment '{url}', actor 'player_0': .*connection was lost"):
            await play()
        assert len(player.seen["player_0"]) == 2
        player.forget()
        player.act = lambda _name, _observation: {"paddle": np.int8(0)}
        await play()
        assert len(player.seen["player_0"]) == Catch.ROWS
        assert server.log.count("create_world") == 2


async def test_a_server_that_hangs_in_the_middle_of_a_trial(autojump_clock: trio.testing.MockClock) -> None:
    server, player = Server(), Player()
    async with InProcessChannel([bind(pb.DESCRIPTOR.services_by_name["Environment"], server)]) as channel:
        environment = dm_env_rpc_environment(channel, step_timeout_seconds=7)

        def hold(name: str, _observation: Observation) -> Any:
            if len(player.seen[name]) == 3:
                server.hold = trio.Event()
            return {"paddle": np.int8(0)}

        player.act = hold
        async with playing(environment, player) as play:
            with pytest.raises(TrialFailedError, match="step: expected answers within 7 s"):
                await play()
            held, server.hold = server.hold, None
            assert held is not None
            held.set()
            player.forget()
            player.act = lambda _name, _observation: {"paddle": np.int8(0)}
            await play()
            assert len(player.seen["player_0"]) == Catch.ROWS


async def test_the_client_of_a_gateway_is_told_and_goes_on() -> None:
    async with gateway_over_games(game_params()) as (platform, server), open_connection(platform.channel) as connection:
        world = await connection.create_world({"world_name": "catch"})
        await connection.join_world(world)
        await connection.step()
        last = await connection.step({"paddle": 1})
        begin_anew(server)
        step = await connection.step({"paddle": 1})
        assert step.state is State.INTERRUPTED
        assert step.observations["board"].tolist() == last.observations["board"].tolist()
        assert "the connection was lost" in (await connection.read_property("trial.last_error")).item()
        outcome = await platform.controller.wait_trial("catch.1", check=False)
        assert (outcome.cause, outcome.participant) == (EndCause.PARTICIPANT_FAILED, "env")
        # The server is there again, without the world that it had.
        assert await play_to_the_end(connection) == Catch.ROWS
        await connection.leave_world()
        await connection.destroy_world(world)


async def test_the_client_of_a_gateway_is_told_that_nobody_is_there_any_more() -> None:
    async with gateway_over_games(game_params()) as (platform, server), open_connection(platform.channel) as connection:
        await connection.join_world(await connection.create_world())
        assert await play_to_the_end(connection) == Catch.ROWS

        def refuse(response: pb.EnvironmentResponse) -> None:
            response.error.code, response.error.message = StatusCode.UNAVAILABLE, "closed for today"

        server.mangle = refuse
        begin_anew(server)
        for _ in range(2):
            with pytest.raises(DmEnvRpcError, match="closed for today") as refused:
                await connection.step()
            assert refused.value.code is StatusCode.UNAVAILABLE
            assert connection.state is State.TERMINATED
        async with open_connection(platform.channel) as other:
            world = await other.create_world()
            with pytest.raises(DmEnvRpcError, match=r"ended before its first observation: .*closed for today"):
                await other.join_world(world)
        server.mangle = lambda _: None
        assert await play_to_the_end(connection) == Catch.ROWS
