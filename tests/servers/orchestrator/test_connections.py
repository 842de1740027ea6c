"""Endpoints to channels: found here, shared by address, closed when idle."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import pytest
import trio

from tests.access.keys import KEYS, NOW, Clock, control
from tests.helpers import wait_ended
from trio_cogment.access import AccessControl, Grant, Quotas, Role, Rules, bearer_token, unverified
from trio_cogment.base.config import OrchestratorConfig, RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint, LegacyEndpoint
from trio_cogment.base.errors import CogmentError, EndpointError, FailedPreconditionError
from trio_cogment.base.host import Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import IDLE_CHANNEL_SECONDS, CallOpener, InProcessChannel
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._connections import (
    OWN_TOKEN_SECONDS,
    TRIAL_TOKEN_SECONDS,
    Connections,
    PeersEndpoint,
)
from trio_cogment.servers.orchestrator._room import Room


class Local:
    def __init__(self, channel: CallOpener | None) -> None:
        self.channel = channel
        self.asked: list[tuple[ServiceKind, dict[str, str]]] = []

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener | None:
        self.asked.append((kind, dict(properties)))
        return self.channel

    def registered(self, _kind: ServiceKind) -> str:
        return ""


async def test_channels_are_shared_while_used_and_kept_for_a_while(autojump_clock: trio.testing.MockClock) -> None:
    endpoint = GrpcEndpoint("127.0.0.1", 9)
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, None, RpcConfig())
        async with connections.open(endpoint) as first, connections.open(endpoint) as second:
            assert first is second
        await trio.sleep(IDLE_CHANNEL_SECONDS / 2)
        async with connections.open(endpoint) as third:
            assert third is first
            await trio.sleep(IDLE_CHANNEL_SECONDS * 2)
        await trio.sleep(IDLE_CHANNEL_SECONDS + 1)
        async with connections.open(endpoint) as fourth:
            assert fourth is not first
        nursery.cancel_scope.cancel()


async def test_channels_outlast_cancellation_while_they_are_used(autojump_clock: trio.testing.MockClock) -> None:
    """What is said in a farewell leaves through them; nobody else keeps them, and nobody beyond the deadline."""
    used, idle, late = (GrpcEndpoint("127.0.0.1", port) for port in (9, 10, 11))
    left: list[float] = []
    async with trio.open_nursery() as outer:

        async def host(task_status: trio.TaskStatus[tuple[trio.Nursery, Connections]]) -> None:
            async with trio.open_nursery() as nursery:
                task_status.started((nursery, Connections(nursery, None, RpcConfig())))
                await trio.Event().wait()
            left.append(trio.current_time())

        for keeps_seconds, expected in ((0.0, 0.0), (1.0, 1.0), (50.0, 2.0)):
            began = trio.current_time()
            nursery, connections = await outer.start(host)
            async with connections.open(idle):
                pass
            async with connections.open(used):
                nursery.cancel_scope.cancel()
                connections.abandon(began + 2)
                async with connections.open(late):
                    await trio.sleep(keeps_seconds)
            await trio.testing.wait_all_tasks_blocked()
            assert left.pop() - began == expected


async def test_discovery_by_context_and_by_path() -> None:
    async with InProcessChannel() as channel, trio.open_nursery() as nursery:
        local = Local(channel)
        connections = Connections(nursery, local, RpcConfig())
        context = {"__implementation": "x"}
        for text, kind, properties in (
            ("", ServiceKind.ACTOR, context),
            ("cogment://discover?a=b", ServiceKind.ACTOR, {**context, "a": "b"}),
            ("cogment://discover?__implementation=y", ServiceKind.ACTOR, {"__implementation": "y"}),
            ("cogment://discover/environment?a=b", ServiceKind.ENVIRONMENT, {"a": "b"}),
        ):
            assert await connections.resolve(text, ServiceKind.ACTOR, "f", context) is channel
            assert local.asked.pop() == (kind, properties)
        assert await connections.resolve("cogment://client", ServiceKind.ACTOR, "f") is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("cogment://client", EndpointError),
        ("x", EndpointError),
        *[
            (f"cogment://discover/{path}", EndpointError)
            for path in ("lifecycle", "actservice", "datastore", "modelregistry", "directory", "other", "bogus")
        ],
        ("cogment://discover/service?__id=3", FailedPreconditionError),
        ("cogment://discover", FailedPreconditionError),
        ("", FailedPreconditionError),
    ],
)
async def test_what_leads_nowhere_is_refused_by_field(text: str, kind: type[CogmentError]) -> None:
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, Local(None), RpcConfig())
        with pytest.raises(kind, match=r"^environment\.endpoint: "):
            await connections.resolve(text, ServiceKind.ENVIRONMENT, "environment.endpoint")
        nursery.cancel_scope.cancel()


async def test_a_server_of_the_legacy_api_is_for_whoever_answers_for_it() -> None:
    async with InProcessChannel() as channel, trio.open_nursery() as nursery:
        connections = Connections(nursery, None, RpcConfig())
        asked: list[tuple[str, ServiceKind]] = []

        def find(endpoint: LegacyEndpoint, kind: ServiceKind) -> CallOpener:
            asked.append((str(endpoint), kind))
            return channel

        async def resolve(reach: str | None = None) -> object:
            return await connections.resolve("legacy://old:9000", ServiceKind.ACTOR, "actors[0].endpoint", reach=reach)

        with pytest.raises(FailedPreconditionError, match=r"^actors\[0\]\.endpoint: legacy://old:9000: nothing"):
            await resolve()
        connections.find_legacy = find
        assert await resolve() is channel
        assert asked == [("legacy://old:9000", ServiceKind.ACTOR)]
        with pytest.raises(FailedPreconditionError, match="only callers on the orchestrator's machine"):
            await resolve(reach="public")
        assert len(asked) == 1
        nursery.cancel_scope.cancel()


async def test_where_a_peer_leads_is_marked_with_its_reach() -> None:
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, None, RpcConfig())
        plain = await connections.resolve("grpc://h:1", ServiceKind.ACTOR, "f")
        assert plain == GrpcEndpoint("h", 1)
        marked = await connections.resolve("grpc://h:1", ServiceKind.ACTOR, "f", reach="public")
        assert marked == PeersEndpoint("h", 1, "public")
        assert str(marked) == str(plain) == "grpc://h:1"
        nursery.cancel_scope.cancel()


async def test_the_calls_of_a_trial_share_a_token_while_it_is_young() -> None:
    clock, numbers = Clock(), iter("abcdef")
    access = AccessControl(Rules(keys=KEYS), wall_clock=clock, new_id=numbers.__next__)
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, None, RpcConfig(), access=access)
        of_one, of_other = connections.authorizations("one"), connections.authorizations("other")
        first = of_one()
        assert of_one() == first
        assert of_other() != first
        token = bearer_token(first)
        assert token is not None
        assert access.verified(token, local=False).grant.trials == ("=one",)
        clock.seconds += TRIAL_TOKEN_SECONDS / 2
        second = of_one()
        assert second != first
        access.adopt(Rules(keys=KEYS))
        assert of_one() != second  # the keys may have changed


async def test_the_token_for_all_trials_is_short_lived() -> None:
    clock, numbers = Clock(), iter("abcdef")
    access = AccessControl(Rules(keys=KEYS), wall_clock=clock, new_id=numbers.__next__)
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, None, RpcConfig(), access=access)
        first, token = connections.own_authorization(), bearer_token(connections.own_authorization())
        assert token is not None
        identity = access.verified(token, local=False)
        assert (identity.grant.trials, identity.grant.owner) == ((), "")
        assert identity.expires_at - clock.seconds <= OWN_TOKEN_SECONDS == 86400
        clock.seconds += OWN_TOKEN_SECONDS / 2
        assert connections.own_authorization() != first


async def test_without_tokens_calls_have_none() -> None:
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, None, RpcConfig())
        assert connections.authorizations("one")() == connections.authorization("one") == ()


@pytest.mark.parametrize(("account", "owner"), [("token:alice", "token:alice"), ("1.2.3.4", ""), ("", ""), (None, "")])
async def test_others_are_shown_for_which_trial_and_for_whom_they_are_called(account: str | None, owner: str) -> None:
    quotas = Quotas(trials=3)
    holding = None if account is None else Room(OrchestratorConfig()).enter(account, quotas)
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, None, RpcConfig(), access=control())
        ((name, value),) = connections.authorization("t", holding)
        token = unverified(value.removeprefix("Bearer "))
        assert (name, token.token_id) == ("authorization", "1122")
        assert token.grant == Grant(
            name="server:orchestrator",
            roles=frozenset([Role.ORCHESTRATOR]),
            trials=("=t",),
            quotas=Quotas() if account is None else quotas,
            owner=owner,
        )
        assert token.expires_at == NOW + 30 * 86400
        assert Connections(nursery, None, RpcConfig()).authorization("t", holding) == ()
        nursery.cancel_scope.cancel()


async def test_one_account_opens_fewer_streams_at_a_time_than_all_together() -> None:
    async with Orchestrator(config=OrchestratorConfig(max_connecting=3, max_peer_connecting=2)) as orchestrator:
        turns = [orchestrator._connections.turn(account) for account in ("a", "a", "a", "b", "c")]
        assert [turn.begin_nowait() for turn in turns] == [True, True, False, True, False]
        for turn in turns:
            turn.end()


async def test_streams_elsewhere_are_opened_in_turn_and_none_is_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began: list[str] = []

    async def connect(host: str, _port: int) -> trio.abc.Stream:
        began.append(host)
        await trio.sleep(1)
        raise OSError("there is nobody")

    names = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]
    actors = [actor_params(name, "player", endpoint=f"grpc://{name}:9000", optional=True) for name in names]
    params = trial_params(actors, environment_endpoint="grpc://127.0.0.5:9000")
    config, host = OrchestratorConfig(max_connecting=1), Host(connect=connect)
    async with Orchestrator(config=config, host=host) as orchestrator:
        trial_id = await orchestrator.start_trial(params=params)
        with trio.fail_after(300):
            await wait_ended(orchestrator, trial_id)
    # Each is tried for a while, and the next one only then.
    assert [name for name, _ in groupby(began)] == [*names, "127.0.0.5"]
