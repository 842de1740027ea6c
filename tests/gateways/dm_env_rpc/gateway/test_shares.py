"""Worlds and connections of several clients: nobody takes them all, and what nobody has any more goes."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock

from tests.access.keys import grant
from tests.gateways.dm_env_rpc.gateway.games import Game, params_of, playing, step
from tests.gateways.test_callers import Place, placed
from trio_cogment.access import Role
from trio_cogment.base.config import DmEnvRpcConfig
from trio_cogment.base.errors import CogmentError, StatusCode
from trio_cogment.gateways.dm_env_rpc import Connection, DmEnvRpcError, DmEnvRpcGateway, Profile, open_connection
from trio_cogment.rpc import Channel


async def alice_and_bob(place: Place) -> tuple[Channel, Channel]:
    return (
        await place.channel(grant(Role.OPERATOR, name="alice")),
        await place.channel(grant(Role.OPERATOR, name="bob")),
    )


async def worlds_of(connection: Connection) -> list[str]:
    return list((await connection.read_property("worlds")).tolist())


async def test_an_account_has_its_share_of_the_worlds() -> None:
    config = DmEnvRpcConfig(max_worlds=4, max_peer_worlds=2)
    async with (
        playing(Game(), config=config) as platform,
        placed(platform, None) as place,
        AsyncExitStack() as stack,
    ):
        alice, bob = await alice_and_bob(place)
        # Over all her connections.
        first, second = [await stack.enter_async_context(open_connection(alice)) for _ in range(2)]
        worlds = [await first.create_world(), await second.create_world()]
        for hers in (first, second):
            with pytest.raises(DmEnvRpcError, match=r"too many worlds: max_peer_worlds is 2;.* of yours") as caught:
                await hers.create_world()
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        his = await stack.enter_async_context(open_connection(bob))
        await his.create_world()
        await second.destroy_world(worlds[0])
        await second.create_world()


async def test_an_account_has_its_share_of_the_connections() -> None:
    config = DmEnvRpcConfig(max_connections=4, max_peer_connections=2)
    async with playing(Game(), config=config) as platform, placed(platform, None) as place:
        alice, bob = await alice_and_bob(place)
        async with open_connection(alice) as one, open_connection(alice) as two:
            for each in (one, two):
                await each.leave_world()
            with pytest.raises(CogmentError, match="too many connections: max_peer_connections is 2"):
                async with open_connection(alice) as three:
                    await three.leave_world()
            async with open_connection(bob) as his:
                await his.leave_world()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_what_a_client_leaves_behind_goes(elsewhere: bool) -> None:
    """Its worlds go soon after its last connection, whatever they say about their idle time."""
    config = DmEnvRpcConfig(abandoned_seconds=0.05)
    async with playing(Game(), config=config) as platform:
        profile = Profile.of(params_of("ann"))
        gateway = DmEnvRpcGateway(profile, config=config) if elsewhere else None
        async with placed(platform, gateway, platform.participants.spec) as place:
            alice, _ = await alice_and_bob(place)
            watcher = await place.channel(grant(Role.ADMIN, name="root"))
            async with open_connection(watcher) as root:
                async with open_connection(alice) as other:
                    await other.leave_world()
                    async with open_connection(alice) as hers:
                        for name in "abc":
                            await hers.create_world({"world_name": name, "world_idle_seconds": 0})
                        await hers.join_world("a")
                        await step(hers)
                    await place.ended()
                    assert await worlds_of(root) == ["a", "b", "c"]  # she is still there
                while await worlds_of(root):
                    pass
                with pytest.raises(DmEnvRpcError, match="there is no world 'a'"):
                    await root.join_world("a")


async def test_a_world_in_which_somebody_plays_outlives_its_maker(autojump_clock: MockClock) -> None:
    config = DmEnvRpcConfig(abandoned_seconds=5)
    async with playing(Game(), ("ann",), config=config) as platform:
        async with open_connection(platform.channel) as maker, open_connection(platform.channel) as ann:
            await maker.create_world({"world_name": "w"})
            await ann.join_world("w")
        async with open_connection(platform.channel) as ann:
            await trio.sleep(4)  # a client that connects again in time finds it
            await ann.join_world("w")
            await trio.sleep(60)
            assert await worlds_of(ann) == ["w"]
        await trio.sleep(6)
        async with open_connection(platform.channel) as ann:
            assert await worlds_of(ann) == []
