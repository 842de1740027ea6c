"""A gateway over HTTP/2: pipelining with bounded memory, and clients that hang up."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.gateways.dm_env_rpc.gateway.games import Game, playing, step
from tests.gateways.dm_env_rpc.gateway.test_connection import ConnectionState
from tests.gateways.dm_env_rpc.gateway.test_requests import REQUESTS, asked, bring
from tests.helpers import wire_channel
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import UnavailableError
from trio_cogment.gateways.dm_env_rpc import open_connection
from trio_cogment.gateways.dm_env_rpc.client.connection import PROCESS
from trio_cogment.gateways.dm_env_rpc.gateway.connection import Request
from trio_cogment.rpc import open_listeners, serve

KILOBYTE = 1024


@pytest.mark.parametrize("wire", [True, False])
async def test_who_sends_ahead_is_held_back(wire: bool) -> None:
    """While a step waits, what comes after it waits with its sender; later all is answered, in order."""
    count = 3000
    game = Game(length=0)
    async with playing(game, ("ann", "ben")) as platform, wire_channel(platform.services) as over_http:
        channel = over_http if wire else platform.channel
        async with channel.call(PROCESS) as call, trio.open_nursery() as nursery:
            setting = pb.Tensor(strings=pb.Tensor.StringArray(array=["ann"]))
            await bring(call, ConnectionState.NOT_JOINED)
            join = pb.JoinWorldRequest(world_name="w", settings={"actor_name": setting})
            assert (await asked(call, pb.EnvironmentRequest(join_world=join))).HasField("join_world")
            sent = 0

            async def send_ahead() -> None:
                nonlocal sent
                await call.send(REQUESTS[Request.STEP]())
                for number in range(count):
                    name = str(number).ljust(KILOBYTE)
                    await call.send(pb.EnvironmentRequest(reset_world=pb.ResetWorldRequest(world_name=name)))
                    sent += 1
                await call.done_sending()

            nursery.start_soon(send_ahead)
            await wait_all_tasks_blocked(0.05)
            assert 0 < sent < 1000  # of 3000
            async with open_connection(platform.channel) as ben:
                await ben.join_world("w", {"actor_name": "ben"})
                await ben.step()
                assert (await call.receive()).step.state == pb.RUNNING
                for number in range(count):
                    assert f"no world '{number} " in (await call.receive()).error.message
                assert await call.receive() is None


async def test_a_thousand_requests_over_a_socket_and_a_client_that_hangs_up() -> None:
    game = Game(length=7)
    async with playing(game) as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running: Any = await nursery.start(serve, platform.services, listeners)
        url = f"grpc://127.0.0.1:{running.port}"
        async with open_connection(url) as ann, open_connection(url) as other:
            await ann.create_world({"world_name": "w"})
            await ann.join_world("w")
            replies = [await ann.begin_step({"action": number % 10}) for number in range(1000)]
            steps = [await reply for reply in replies]
            assert [int(each.observations["observation"]) for each in steps] == [number % 8 for number in range(1000)]
            ann.close()
            while not (await other.read_property("worlds.w")).size:  # the reset of the stream is on its way
                await trio.lowlevel.checkpoint()
            await other.join_world("w")
            await step(other)
            await platform.stop()
            with pytest.raises(UnavailableError, match="the gateway is stopping"):
                await other.step()
        nursery.cancel_scope.cancel()
