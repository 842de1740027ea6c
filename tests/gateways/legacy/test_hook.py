"""Old pre-trial hooks, and parameters on their way to them and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from tests.gateways.legacy.clients import with_clients
from tests.gateways.legacy.playing import Field, Newcomer, parameters
from tests.gateways.legacy.servers import PROFILE
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import hooks_pb2 as pb
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import EndpointError, InvalidArgumentError, RpcError
from trio_cogment.gateways.legacy import LegacyGateway
from trio_cogment.gateways.legacy.old_endpoints import old_endpoint, todays_actor, todays_server
from trio_cogment.gateways.legacy.old_params import changed_params, old_params
from trio_cogment.platform import open_platform
from trio_cogment.rpc import ServerCall, bind, open_listeners, serve
from trio_cogment.sdk import EnvironmentSession, Participants


@dataclass
class HookServer:
    """Changes parameters."""

    change: Callable[[legacy.TrialParams], Any]
    asked: list[pb.TrialContext] = field(default_factory=list)

    async def PreTrial(self, request: pb.TrialContext, _: ServerCall) -> pb.TrialContext:
        self.asked.append(request)
        reply = pb.TrialContext()
        reply.CopyFrom(request)
        self.change(reply.params)
        return reply


@asynccontextmanager
async def hooked(server: HookServer) -> AsyncIterator[str]:
    """Serve on a port of this machine; yield the endpoint."""
    async with trio.open_nursery() as nursery:
        services = [bind(pb.DESCRIPTOR.services_by_name["TrialHooks"], server)]
        running: Any = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        yield f"legacy://127.0.0.1:{running.port}"
        nursery.cancel_scope.cancel()


async def started(server: HookServer, defaults: TrialParams) -> TrialParams:
    """Start a trial through an old hook on a socket; return its parameters."""
    found, field_of_play = Participants(), Field()
    seen: list[TrialParams] = []

    async def play(session: EnvironmentSession[Any, Any, Any]) -> None:
        # A trial that has ended has dropped most of them.
        trial = platform.orchestrator.trials.get("trial")
        assert trial is not None
        assert trial.machine.params is not None
        seen.append(TrialParams.FromString(trial.machine.params.SerializeToString()))
        await field_of_play.play(session)

    found.register_actor(Newcomer().play, "today")
    found.register_environment(play, "today")
    async with hooked(server) as endpoint:
        config = PlatformConfig(default_params=defaults, pre_trial_hooks=(endpoint,))
        gateway = LegacyGateway(PROFILE)
        async with open_platform(found, config=config, extensions=[gateway]) as platform:
            with trio.fail_after(60):
                trial_id = await platform.controller.start_trial(config=b"config", trial_id="trial")
                await platform.controller.wait_trial(trial_id)
    (params,) = seen
    return params


async def test_an_old_hook_changes_parameters() -> None:
    def change(params: legacy.TrialParams) -> None:
        params.max_steps = 2
        params.environment.config.content = b"made by the hook"
        params.actors[0].config.content = b"first"

    server = HookServer(change)
    params = await started(server, parameters())
    (asked,) = server.asked
    assert asked.trial_id == "trial"
    assert asked.user_id
    assert asked.params.trial_config.content == b"config"
    assert [actor.actor_class for actor in asked.params.actors] == ["drone", "plane", "drone"]
    assert (params.max_steps, params.environment.config.content) == (2, b"made by the hook")
    assert [(actor.name, actor.implementation) for actor in params.actors] == [
        ("d1", "today"),
        ("p", "today"),
        ("d2", "today"),
    ]
    assert params.actors[0].config.content == b"first"


async def test_a_hook_that_answers_nonsense() -> None:
    def change(params: legacy.TrialParams) -> None:
        params.actors[1].endpoint = "no://where"

    with pytest.raises(RpcError, match=r"actors\[1\]\.endpoint: expected human or host:port") as caught:
        await _refused(HookServer(change))
    assert caught.value.code.name == "UNAVAILABLE"
    assert "legacy://127.0.0.1:" in caught.value.message


async def test_a_hook_that_fails() -> None:
    def change(params: legacy.TrialParams) -> None:
        raise InvalidArgumentError("not on Sundays")

    with pytest.raises(RpcError, match=r"PreTrial: INVALID_ARGUMENT: not on Sundays"):
        await _refused(HookServer(change))


async def _refused(server: HookServer) -> None:
    try:
        await started(server, parameters())
    except* RpcError as group:
        errors: Any = group
        while isinstance(errors, ExceptionGroup):
            (errors,) = errors.exceptions
    raise errors


# Parameters


def test_what_a_hook_does_not_change_stays() -> None:
    params = with_clients("p", max_steps=3)
    params.properties["a"] = "b"
    params.datalog.endpoint = "cogment://discover"
    params.actors[0].response_timeout = 2.5
    params.actors[2].endpoint = "grpc://today:1"
    params.environment.endpoint = "legacy://env:1"
    assert changed_params(params, old_params(params)) == params


def test_actors_that_a_hook_moves_removes_and_adds() -> None:
    params = parameters()
    old = old_params(params)
    del old.actors[:]
    old.actors.add(actor_class="plane", endpoint="human")
    old.actors.add(actor_class="drone", endpoint="agents:9000")
    old.actors.add(actor_class="ship", endpoint="legacy://agents:1").config.content = b"new"
    old.actors.add(actor_class="plane", endpoint="[::1]:1")
    changed = changed_params(params, old)
    assert [(each.name, each.actor_class, each.endpoint) for each in changed.actors] == [
        ("p", "plane", "cogment://client"),
        ("d1", "drone", "legacy://agents:9000"),
        ("ship_0", "ship", "legacy://agents:1"),
        ("plane_0", "plane", "legacy://[::1]:1"),
    ]
    assert changed.actors[2].config.content == b"new"


def test_configurations_that_a_hook_removes() -> None:
    params = parameters()
    params.trial_config.content = b"t"
    params.environment.config.content = b"e"
    params.actors[0].config.content = b"a"
    old = old_params(params)
    old.ClearField("trial_config")
    old.environment.ClearField("config")
    old.actors[0].ClearField("config")
    changed = changed_params(params, old)
    assert not changed.HasField("trial_config")
    assert not changed.environment.HasField("config")
    assert not changed.actors[0].HasField("config")


@pytest.mark.parametrize(
    ("old", "today"),
    [
        ("human", "cogment://client"),
        (" human ", "cogment://client"),
        ("host:1", "legacy://host:1"),
        ("grpc://host:1", "legacy://host:1"),
        ("[::1]:1", "legacy://[::1]:1"),
        ("cogment://discover", "cogment://discover"),
        ("legacy://host:1", "legacy://host:1"),
    ],
)
def test_endpoints_of_that_time(old: str, today: str) -> None:
    assert todays_actor(old, "f") == today


@pytest.mark.parametrize(("today", "old"), [("cogment://client", "human"), ("legacy://h:1", "h:1"), ("x", "x")])
def test_endpoints_as_old_participants_know_them(today: str, old: str) -> None:
    assert old_endpoint(today) == old


@pytest.mark.parametrize("text", ["", "human", "host", "http://host:1", "cogment://client"])
def test_endpoints_that_are_none_of_a_server(text: str) -> None:
    with pytest.raises(EndpointError, match="f: expected host:port, got "):
        todays_server(text, "f")
