"""Owners of trials that clients of gateways start: with a platform, and in front of one elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
import trio

from tests.access.keys import KEYS, control, grant, token_text
from tests.gateways.dm_env_rpc.gateway.games import Game, params_of, playing, seat, step
from tests.gateways.legacy.clients import OldClient, theatre, with_clients
from tests.gateways.legacy.servers import PROFILE
from trio_cogment.access import Grant, Quotas, Revoked, Role, Rules
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import data_pb2
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode
from trio_cogment.environments.spec import PLAYER
from trio_cogment.gateways.dm_env_rpc import DmEnvRpcError, DmEnvRpcGateway, Profile, open_connection
from trio_cogment.gateways.legacy import LegacyGateway, LegacyProfile
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import Channel, methods_of, open_listeners, serve
from trio_cogment.sdk import ActorSession, Controller, actor_params
from trio_cogment.sdk.spec import Spec
from trio_cogment.spaces import Discrete

PATIENCE_SECONDS = 20
ACCESS = control(Rules(keys=KEYS))


class Place:
    """Where the gateway and the orchestrator are reached, maybe at the same port."""

    def __init__(self, platform: Platform, gateway_port: int, stack: AsyncExitStack) -> None:
        self.platform = platform
        self._port = gateway_port
        self._stack = stack

    async def channel(self, held: Grant | None) -> Channel:
        """Return a channel to the gateway for a holder of a token, or for somebody without."""
        token = "" if held is None else token_text(held, token_id=held.name)
        return await self._stack.enter_async_context(Channel("127.0.0.1", self._port, token=token))

    def running(self) -> dict[str, str]:
        """Return the owners of the trials that run, by their ids."""
        trials = self.platform.orchestrator.trials
        return {trial.trial_id: trial.owner for trial in trials if trial.state != TrialState.ENDED}

    async def ended(self) -> None:
        while self.running():
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def placed(
    platform: Platform, gateway: DmEnvRpcGateway | LegacyGateway | None, spec: Spec | None = None
) -> AsyncIterator[Place]:
    """Serve a platform to holders of tokens; with a gateway, that in front of it, in a server of its own."""
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            serve_them = partial(serve, platform.services, await open_listeners("127.0.0.1"), access=ACCESS)
            port = (await nursery.start(serve_them)).port
            if gateway is not None:
                own = token_text(grant(Role.OPERATOR, Role.OBSERVER, name="gateway"))
                opener = await stack.enter_async_context(Channel("127.0.0.1", port, token=own))
                if isinstance(gateway, DmEnvRpcGateway):
                    services = (
                        await stack.enter_async_context(gateway.opened(opener, spec=spec, access=ACCESS))
                    ).services
                else:
                    services = (await stack.enter_async_context(gateway.opened(opener, access=ACCESS))).services
                serve_it = partial(serve, services, await open_listeners("127.0.0.1"), access=ACCESS)
                port = (await nursery.start(serve_it)).port
            yield Place(platform, port, stack)
            nursery.cancel_scope.cancel()


def operator(name: str, **quotas: int) -> Grant:
    return grant(Role.OPERATOR, name=name, quotas=Quotas(**quotas))


# Worlds


@asynccontextmanager
async def worlds(elsewhere: bool) -> AsyncIterator[Place]:
    game = Game(length=0)
    async with playing(game, ("ann", "ben"), start_when="first") as platform:
        gateway = DmEnvRpcGateway(Profile.of(params_of("ann", "ben"), start_when="first")) if elsewhere else None
        async with placed(platform, gateway, platform.participants.spec) as place:
            yield place


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_worlds_trials_are_those_of_whoever_has_created_it(elsewhere: bool) -> None:
    async with worlds(elsewhere) as place:
        alice, bob = await place.channel(operator("alice")), await place.channel(operator("bob"))
        pilot = Grant(name="pilot", roles=frozenset([Role.PARTICIPANT]), trials=("w",), actors=("ben",))
        guest = await place.channel(pilot)
        async with open_connection(alice) as hers, open_connection(bob) as his, open_connection(guest) as its:
            await hers.create_world({"world_name": "w"})
            await hers.join_world("w", {"actor_name": "ann"})
            await step(hers)
            assert place.running() == {"w.1": "token:alice"}
            for refused in (
                his.join_world("w", {"actor_name": "ben"}),
                his.destroy_world("w"),
                his.reset_world("w"),
                its.destroy_world("w"),
            ):
                with pytest.raises(DmEnvRpcError) as caught:
                    await refused
                assert caught.value.code is StatusCode.PERMISSION_DENIED
            # Nor do others see that it is there.
            assert (await his.read_property("worlds")).size == 0
            # Whom a token names may play.
            await its.join_world("w")
            await its.leave_world()
            await his.create_world({"world_name": "v"})
            await his.join_world("v", {"actor_name": "ann"})
            await step(his)
            assert set(place.running().values()) == {"token:alice", "token:bob"}
        await place.ended()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_the_trials_of_a_workers_world_are_of_its_run(elsewhere: bool) -> None:
    worker = Grant(name="runs", roles=frozenset([Role.WORKER, Role.OPERATOR]), trials=("=r",))
    async with worlds(elsewhere) as place:
        for held, world, run_id in ((worker, "a", "r"), (operator("bob"), "b", "")):
            async with open_connection(await place.channel(held)) as connection:
                await connection.create_world({"world_name": world})
                await connection.join_world(world, {"actor_name": "ann"})
                await step(connection)
                (info,) = [
                    trial.info() for trial in place.platform.orchestrator.trials if trial.trial_id == f"{world}.1"
                ]
                assert (info.owner, info.run_id) == (f"token:{held.name}", run_id)
        await place.ended()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_worlds_count_for_the_quota_of_trials(elsewhere: bool) -> None:
    async with worlds(elsewhere) as place:
        alice = await place.channel(operator("alice", trials=1))
        async with open_connection(alice) as first, open_connection(alice) as second:
            for connection, world in ((first, "a"), (second, "b")):
                await connection.create_world({"world_name": world})
                if connection is first:
                    await connection.join_world(world, {"actor_name": "ann"})
                    await step(connection)
            with pytest.raises(DmEnvRpcError, match="the quota of 1 trials of this account is used up"):
                await second.join_world("b", {"actor_name": "ann"})
            assert place.running() == {"a.1": "token:alice"}
        await place.ended()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_revoked_clients_trial_ends(elsewhere: bool) -> None:
    """Also where the orchestrator does not take the client's word for that any more, and does not miss its actor."""

    async def bot(session: ActorSession) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")

    params = params_of(seat("ann", optional=True), actor_params("bot", PLAYER, implementation="bot"))
    async with playing(Game(length=0, seen=Discrete(2**31)), params) as platform:
        platform.participants.register_actor(bot, "bot")
        gateway = DmEnvRpcGateway(Profile.of(params)) if elsewhere else None
        async with placed(platform, gateway, platform.participants.spec) as place:
            alice = await place.channel(operator("alice"))
            try:
                async with open_connection(alice) as hers:
                    await hers.create_world({"world_name": "w"})
                    await hers.join_world("w")
                    await step(hers)
                    assert place.running() == {"w.1": "token:alice"}
                    ACCESS.adopt(Rules(keys=KEYS, revoked=Revoked(names=frozenset(["alice"]))))
                await place.ended()
            finally:
                ACCESS.adopt(Rules(keys=KEYS))


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_without_a_token_there_is_no_world(elsewhere: bool) -> None:
    async with worlds(elsewhere) as place:
        for held, code in (
            (None, StatusCode.UNAUTHENTICATED),
            (grant(Role.OBSERVER, name="eve"), StatusCode.PERMISSION_DENIED),
        ):
            channel = await place.channel(held)
            async with open_connection(channel) as nobody:
                with pytest.raises(CogmentError, match=code.name):
                    await nobody.create_world()
        assert place.running() == {}


# Old clients


def profile() -> LegacyProfile:
    return replace(PROFILE, params=with_clients("p"))


@asynccontextmanager
async def stage(elsewhere: bool) -> AsyncIterator[Place]:
    async with (
        theatre(with_clients("p"), ends_at=1000) as found,
        placed(found.platform, LegacyGateway(profile()) if elsewhere else None) as place,
    ):
        yield place


async def code_of(doing: object) -> StatusCode:
    try:
        await doing  # type: ignore[misc]  # whatever awaitable it is
    except RpcError as error:
        return error.code
    return StatusCode.OK


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_old_clients_trials_are_its_own(elsewhere: bool) -> None:
    async with stage(elsewhere) as place:
        hers = OldClient(await place.channel(operator("alice", trials=1)))
        await hers.start()
        assert place.running() == {hers.trial_id: "token:alice"}
        assert await code_of(OldClient(hers.channel).start()) is StatusCode.RESOURCE_EXHAUSTED
        his = OldClient(await place.channel(operator("bob")), trial_id=hers.trial_id, actor_id=hers.actor_id)
        for refused in (
            his.join(hers.trial_id, hers.actor_id),
            his.act(b"forged"),
            his.heartbeat(),
            his.feed_back(legacy.Feedback(actor_id=0, value=1.0)),
            his.send(),
            his.end(),
        ):
            assert await code_of(refused) is StatusCode.PERMISSION_DENIED
        assert place.running() == {hers.trial_id: "token:alice"}
        nobody = OldClient(await place.channel(None), trial_id=hers.trial_id, actor_id=hers.actor_id)
        for refused in (nobody.start(), nobody.act(b"forged"), nobody.end()):
            assert await code_of(refused) is StatusCode.UNAUTHENTICATED
        await hers.act(b"own")
        await hers.end()
        await hers.act(b"")
        await place.ended()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_old_client_does_not_find_the_trials_of_others(elsewhere: bool) -> None:
    async with stage(elsewhere) as place:
        controller = Controller(place.platform.channel)
        ours = await controller.start_trial(with_clients("p"))
        his = OldClient(await place.channel(operator("bob")))
        expected = {StatusCode.PERMISSION_DENIED, StatusCode.NOT_FOUND}
        assert await code_of(his.join(ours, 0)) in expected
        his.trial_id = ours
        assert await code_of(his.end()) in expected
        assert set(place.running()) == {ours}
        await controller.terminate_trial(ours, hard=True)
        await place.ended()


async def test_an_old_orchestrator_logs_what_its_token_names() -> None:
    log = methods_of(data_pb2.DESCRIPTOR.services_by_name["LogExporter"])["Log"]

    async def logged(channel: Channel, trial_id: str) -> None:
        async with channel.call(log) as call:
            try:
                await call.send(data_pb2.DatalogMsg(trial_params=legacy.TrialParams()))
                await call.send(data_pb2.DatalogMsg(sample=data_pb2.DatalogSample(trial_id=trial_id)))
                await call.done_sending()
            except RpcError:
                pass
            await call.receive()

    async with (
        open_platform(store="memory:", extensions=[LegacyGateway(profile())]) as platform,
        placed(platform, None) as place,
    ):
        one = await place.channel(grant(Role.ORCHESTRATOR, name="old", trials=("=t",)))
        other = await place.channel(grant(Role.ORCHESTRATOR, name="other"))
        assert await code_of(logged(one, "u")) is StatusCode.PERMISSION_DENIED
        assert await code_of(logged(one, "t")) is StatusCode.OK
        assert await code_of(logged(other, "t")) is StatusCode.PERMISSION_DENIED
        assert platform.datastore is not None
        stored = await platform.datastore.store.trials(after=0, limit=10)
        assert [(trial.trial_id, trial.owner) for trial in stored] == [("t", "token:old")]
