"""Old servers in trials by their endpoints, `legacy://host:port`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import trio

from tests.gateways.legacy.clients import CLIENT, OldClient
from tests.gateways.legacy.playing import ACTORS, Field, Newcomer, parameters
from tests.gateways.legacy.servers import PROFILE, AgentServer, EnvironmentServer, channel, served
from trio_cogment.api.common_pb2 import SerializedMessage, TrialParams
from trio_cogment.api.legacy.common_pb2 import Feedback
from trio_cogment.api.legacy.environment_pb2 import EnvUpdateReply
from trio_cogment.api.legacy.orchestrator_pb2 import TrialActionReply
from trio_cogment.base.config import PlatformConfig, RpcConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.legacy import LegacyGateway, LegacyProfile
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import CallHost, CallOpener
from trio_cogment.sdk import Participants


@dataclass
class Town:
    """Old servers by their names, each at port 1; it counts the connections to each."""

    servers: dict[str, AgentServer | EnvironmentServer]
    connections: dict[str, int] = field(default_factory=dict)

    @asynccontextmanager
    async def connect(
        self, address: str, port: int, *, config: RpcConfig | None = None, **_options: Any
    ) -> AsyncIterator[CallOpener]:
        self.connections[address] = self.connections.get(address, 0) + 1
        async with channel(self.servers[address], config=config) as opener:
            yield opener

    def host(self) -> CallHost:
        return CallHost(channel=self.connect)


@asynccontextmanager
async def platform_with(
    town: Town | None = None, profile: LegacyProfile = PROFILE, rpc_config: RpcConfig | None = None, store: str = ""
) -> AsyncIterator[tuple[Platform, Newcomer, Field]]:
    newcomer, ground = Newcomer(), Field()
    found = Participants() if town is None else Participants(host=town.host())
    found.register_actor(newcomer.play, "today")
    found.register_environment(ground.play, "today")
    gateway = LegacyGateway(profile, rpc_config=rpc_config)
    host = None if town is None else town.host()
    async with open_platform(found, host=host, extensions=[gateway], store=store or None) as platform:
        yield platform, newcomer, ground


def at(params: TrialParams, *, environment: str = "", **actors: str) -> TrialParams:
    """Return parameters with old participants at these endpoints."""
    if environment:
        params.environment.endpoint = environment
    for actor in params.actors:
        actor.endpoint = actors.get(actor.name, actor.endpoint)
    return params


async def play(platform: Platform, params: TrialParams, *, trial_id: str = "trial", check: bool = True) -> Any:
    with trio.fail_after(60):
        await platform.controller.start_trial(params, trial_id=trial_id)
        return await platform.controller.wait_trial(trial_id, check=check)


async def test_an_old_environment_an_old_agent_and_actors_of_today() -> None:
    agents, environments = AgentServer(), EnvironmentServer(ends_at=3)
    town = Town({"agents": agents, "worlds": environments})
    async with platform_with(town) as (platform, newcomer, _):
        params = at(parameters(), environment="legacy://worlds:1", d1="legacy://agents:1")
        params.trial_config.CopyFrom(SerializedMessage(content=b"of the trial"))
        await play(platform, params)
    # The ids are those of the classes' order, plane before drone: p, d1, d2.
    assert newcomer.observations("p") == [b"seen by 0 at %d" % tick_id for tick_id in range(4)]
    assert newcomer.observations("d2") == [b"seen by 2 at %d" % tick_id for tick_id in range(4)]
    (told,) = agents.requests("Start")
    assert (told.actor_id, list(told.actor_counts), told.trial_config.content) == (1, [1, 2], b"of the trial")
    (told,) = environments.requests("Start")
    assert (list(told.actor_counts), told.trial_config.content) == ([1, 2], b"of the trial")
    assert [list(each.action_set.actions) for each in environments.requests("Update")] == [
        [b"p at %d" % tick_id, b"SEEN BY 1 AT %d" % tick_id, b"d2 at %d" % tick_id] for tick_id in range(3)
    ]
    assert not agents.playing
    assert not environments.playing


async def test_the_sender_of_a_feedback_is_lost_to_old_agents_and_kept_in_the_data_log() -> None:
    given = [Feedback(actor_id=0, tick_id=-1, value=2, confidence=1)]
    critics, praised = AgentServer(feedbacks=given), AgentServer()
    town = Town({"critics": critics, "praised": praised})
    async with platform_with(town, store="memory:") as (platform, _, _):
        everywhere = {"d1": "legacy://critics:1", "d2": "legacy://critics:1", "p": "legacy://praised:1"}
        await play(platform, at(parameters(datalog_endpoint="cogment://discover"), **everywhere))
        with trio.fail_after(60):
            async with platform.datastore_client().samples(["trial"]) as samples:
                logged = [sample.actors["p"].received_rewards async for sample in samples]
    for told in praised.requests("Reward"):
        assert told.reward.value == 2
        one, other = told.reward.feedbacks
        assert one == other
    assert [sorted(each.sender for each in rewards) for rewards in logged[:3]] == [["d1", "d2"]] * 3


async def test_feedback_for_an_older_tick_changes_only_the_data_log() -> None:
    """Old agents and clients are not told: what they have got for that tick stands."""
    worlds, agents = EnvironmentServer(ends_at=4), AgentServer()

    def alter(reply: Any, _trial_id: str) -> None:
        if isinstance(reply, EnvUpdateReply):
            # The latest step for both, and again the first one.
            tick_id = reply.observation_set.tick_id - 1
            for actor_id in (0, 1):
                reply.feedbacks.add(actor_id=actor_id, tick_id=tick_id, value=1, confidence=1)
                if tick_id == 2:
                    reply.feedbacks.add(actor_id=actor_id, tick_id=0, value=9, confidence=1)

    worlds.alter = alter
    town = Town({"worlds": worlds, "agents": agents})
    async with platform_with(town, store="memory:") as (platform, _, _):
        params = at(parameters(datalog_endpoint="cogment://discover"), d1="legacy://agents:1", p=CLIENT)
        params.environment.endpoint = "legacy://worlds:1"
        params.actors[1].implementation = ""
        client = OldClient(platform.channel)
        replies: list[TrialActionReply] = []
        with trio.fail_after(60):
            await platform.controller.start_trial(params, trial_id="trial")
            await client.join("trial", 0)
            while not replies or not replies[-1].trial_is_over:
                replies.append(await client.act(b"x"))
            await platform.controller.wait_trial("trial")
            async with platform.datastore_client().samples(["trial"]) as samples:
                logged = [sample.actors async for sample in samples]
    assert [reply.reward.value for reply in replies] == [1, 1, 1, 1]
    assert [(told.tick_id, told.reward.value) for told in agents.requests("Reward")][:3] == [(0, 1), (1, 1), (2, 1)]
    assert all(told.reward.value == 1 for told in agents.requests("Reward"))
    for name in ("p", "d1"):
        assert [logged[tick_id][name].reward for tick_id in range(4)] == [5, 1, 1, 1]


async def test_messages_are_as_large_as_the_connection_to_the_server_allows() -> None:
    """Between the gateway and the orchestrator, which are in one process, there is no limit of its own."""
    size = RpcConfig().max_receive_message_bytes + 1
    worlds = EnvironmentServer(ends_at=1)

    def alter(reply: Any, _trial_id: str) -> None:
        reply.observation_set.observations[0].content = bytes(size)

    worlds.alter = alter
    larger = RpcConfig(max_receive_message_bytes=2 * size)
    async with platform_with(Town({"worlds": worlds}), rpc_config=larger) as (platform, newcomer, _):
        await play(platform, at(parameters(), environment="legacy://worlds:1"))
    assert [len(seen) for seen in newcomer.observations("p")] == [size, size]


async def test_trials_share_the_connection_to_a_server() -> None:
    agents = AgentServer()
    town = Town({"agents": agents})
    async with platform_with(town) as (platform, _, _):
        everywhere = {name: "legacy://agents:1" for name, _ in ACTORS}
        async with trio.open_nursery() as nursery:
            for number in range(3):
                trial = at(parameters(), **everywhere)
                nursery.start_soon(partial(play, platform, trial, trial_id=f"t{number}"))
    assert town.connections == {"agents": 1}
    assert len(agents.requests("End")) == 9


async def test_the_parameters_of_a_file_lead_to_old_servers() -> None:
    agents, environments = AgentServer(), EnvironmentServer(ends_at=1)
    town = Town({"agents": agents, "worlds": environments})
    defaults = at(parameters(), environment="legacy://worlds:1", **{name: "legacy://agents:1" for name, _ in ACTORS})
    gateway = LegacyGateway(PROFILE)
    async with open_platform(
        host=town.host(), config=PlatformConfig(default_params=defaults), extensions=[gateway]
    ) as platform:
        with trio.fail_after(60):
            await platform.controller.start_trial(config=b"given", trial_id="trial")
            await platform.controller.wait_trial("trial")
    assert environments.requests("Start")[0].trial_config.content == b"given"


async def test_both_are_told_of_the_end_when_the_platform_is_cancelled() -> None:
    agents, environments = AgentServer(), EnvironmentServer()
    reached = trio.Event()

    async def before(method: str, request: Any) -> None:
        if method == "Decide" and request.observation.tick_id == 5:
            reached.set()

    agents.before = before
    town = Town({"agents": agents, "worlds": environments})
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            async with platform_with(town) as (platform, _, _):
                await play(platform, at(parameters(), environment="legacy://worlds:1", p="legacy://agents:1"))

        nursery.start_soon(run)
        with trio.fail_after(60):
            await reached.wait()
        nursery.cancel_scope.cancel()
    assert not agents.playing
    assert not environments.playing


# Bad input


async def test_without_a_gateway() -> None:
    async with open_platform() as platform:
        params = at(parameters(), environment="legacy://worlds:1")
        with pytest.raises(RpcError, match="speaks the legacy API") as caught:
            await platform.controller.start_trial(params)
    assert caught.value.code.name == "FAILED_PRECONDITION"
    assert "environment.endpoint: legacy://worlds:1: " in caught.value.message


async def test_a_gateway_that_is_closed() -> None:
    async with open_platform() as platform:
        async with LegacyGateway(PROFILE).open(platform):
            pass
        with pytest.raises(RpcError, match="speaks the legacy API"):
            await platform.controller.start_trial(at(parameters(), environment="legacy://worlds:1"))


@pytest.mark.parametrize("endpoint", ["legacy://", "legacy://host", "legacy://host:0", "legacy://host:1/x"])
async def test_an_endpoint_that_is_none(endpoint: str) -> None:
    async with platform_with() as (platform, _, _):
        with pytest.raises(RpcError, match="expected legacy://host:port with a port from 1 to 65535") as caught:
            await platform.controller.start_trial(at(parameters(), p=endpoint))
    assert caught.value.code.name == "INVALID_ARGUMENT"
    assert "actors[1].endpoint (actor 'p')" in caught.value.message


async def test_a_server_that_is_not_there() -> None:
    config = RpcConfig(await_server_seconds=0)
    async with platform_with(rpc_config=config) as (platform, _, _):
        for where in ("p", "environment"):
            params = at(parameters(), **{where: "legacy://127.0.0.1:1"})
            outcome = await play(platform, params, trial_id=f"without {where}", check=False)
            assert outcome.cause is EndCause.PARTICIPANT_FAILED
            assert "legacy://127.0.0.1:1: Start: UNAVAILABLE: " in outcome.reason


@pytest.mark.parametrize("who", ["agents", "worlds"])
async def test_a_server_that_dies_ends_its_trial_and_no_other(who: str) -> None:
    agents, environments = AgentServer(), EnvironmentServer()
    reached = trio.Event()

    async def before(method: str, request: Any) -> None:
        if method in ("Decide", "Update"):
            reached.set()

    dying: AgentServer | EnvironmentServer = agents if who == "agents" else environments
    dying.before = before
    async with platform_with() as (platform, _, ground), trio.open_nursery() as nursery:
        ground.ends_at = 200

        async def without() -> None:
            await play(platform, parameters(), trial_id="of today")

        nursery.start_soon(without)
        async with served(dying) as (port, alive):
            key = {"agents": "p", "worlds": "environment"}[who]
            params = at(parameters(), **{key: f"legacy://127.0.0.1:{port}"})
            with trio.fail_after(60):
                await platform.controller.start_trial(params, trial_id="trial")
                await reached.wait()
                alive.cancel()
        with trio.fail_after(60):
            outcome = await platform.controller.wait_trial("trial", check=False)
    assert outcome.cause is EndCause.PARTICIPANT_FAILED
    assert f"legacy://127.0.0.1:{port}: " in outcome.reason


async def test_a_server_that_hangs(autojump_clock: trio.testing.MockClock) -> None:
    agents, environments = AgentServer(), EnvironmentServer()

    async def before(method: str, request: Any) -> None:
        if method in ("Decide", "Update"):
            await trio.sleep_forever()

    agents.before = environments.before = before
    town = Town({"agents": agents, "worlds": environments})
    async with platform_with(town, replace(PROFILE, call_timeout_seconds=3)) as (platform, _, _):
        outcome = await play(platform, at(parameters(), p="legacy://agents:1"), trial_id="agent", check=False)
        assert "legacy://agents:1: Decide: DEADLINE_EXCEEDED" in outcome.reason
        params = at(parameters(), environment="legacy://worlds:1")
        outcome = await play(platform, params, trial_id="environment", check=False)
        assert "legacy://worlds:1: Update: DEADLINE_EXCEEDED" in outcome.reason
    assert not agents.playing
    assert not environments.playing


async def test_a_server_that_answers_nonsense() -> None:
    def forget_an_actor(reply: Any, _trial_id: str) -> None:
        del reply.observation_set.actors_map[-1]

    town = Town({"worlds": EnvironmentServer(alter=forget_an_actor)})
    async with platform_with(town) as (platform, _, _):
        outcome = await play(platform, at(parameters(), environment="legacy://worlds:1"), check=False)
    assert "legacy://worlds:1: actors_map: expected one entry for each of 3 actors, got 2" in outcome.reason


async def test_a_server_without_the_service() -> None:
    async with served(EnvironmentServer()) as (port, _), platform_with() as (platform, _, _):
        outcome = await play(platform, at(parameters(), p=f"legacy://127.0.0.1:{port}"), check=False)
    assert f"legacy://127.0.0.1:{port}: Start: UNIMPLEMENTED" in outcome.reason


async def test_a_class_that_the_project_does_not_have() -> None:
    town = Town({"worlds": EnvironmentServer()})
    async with platform_with(town) as (platform, _, _):
        params = at(parameters(actors=[*ACTORS, ("s", "ship")]), environment="legacy://worlds:1")
        outcome = await play(platform, params, check=False)
    assert "expected an actor class of the legacy project ('plane', 'drone'), got 'ship'" in outcome.reason
