"""`connect`: clients by endpoint and by directory, with TLS, metadata and variables."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import UInt32Value

from tests.cli.process import listening
from tests.rpc.tls_files import Party, make_party
from trio_cogment import (
    ActorClass,
    ActorSession,
    EnvironmentSession,
    Participants,
    Platform,
    PlatformConfig,
    Spec,
    actor_params,
    connect,
    open_platform,
    serve_participants,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfoReply, TrialInfoRequest
from trio_cogment.base.about import About
from trio_cogment.base.config import DirectoryServerConfig, RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.errors import EndpointError, FailedPreconditionError, InvalidArgumentError, RpcError, StatusCode
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import (
    ServerCall,
    basic_auth,
    bind,
    client_tls,
    methods_of,
    open_listeners,
    serve,
    server_tls,
)
from trio_cogment.sdk import Controller, apply_log_level, join_trial
from trio_cogment.servers.directory import DirectoryServer
from trio_cogment.servers.discovery import DirectoryClient

SPEC = Spec.of(ActorClass("number", observation=UInt32Value, action=UInt32Value))
#: Of a directory that does not wait for services that are not there.
AT_ONCE = DirectoryServerConfig(startup_lag_seconds=0)


async def environment(session: EnvironmentSession) -> None:
    await session.start([("*", UInt32Value(value=1))])
    async for event in session.all_events():
        if event.actions is not None:
            await session.end([("*", UInt32Value(value=2))])


async def actor(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(UInt32Value(value=event.observation.payload.value + 1))


@asynccontextmanager
async def whole_platform(tmp_path: Path) -> AsyncIterator[tuple[Platform, str]]:
    """Everything on one port, with the directory in which it is registered; gives its endpoint too."""
    participants = Participants(SPEC)
    participants.register_environment(environment)
    participants.register_actor(actor, "actor", ["number"])
    async with (
        DirectoryServer() as directory,
        open_platform(
            participants, store="memory:", model_registry=tmp_path / "models", directory=directory
        ) as platform,
        listening(*platform.services) as endpoint,
    ):
        client = DirectoryClient(platform.channel)
        for kind in (
            *(ServiceKind.LIFECYCLE, ServiceKind.CLIENT_ACTOR),
            *(ServiceKind.DATASTORE, ServiceKind.MODEL_REGISTRY),
        ):
            await client.register(kind, parse_server_endpoint(endpoint), permanent=True)
        yield platform, endpoint


@pytest.mark.parametrize("way", ["endpoint", "directory", "variable", "client"])
async def test_every_service_is_reached(way: str, tmp_path: Path) -> None:
    async with whole_platform(tmp_path) as (platform, endpoint):
        ways: dict[str, dict[str, Any]] = {
            "endpoint": {"endpoint": endpoint},
            "directory": {"directory": endpoint},
            "variable": {"variables": {"COGMENT_DIRECTORY_ENDPOINT": endpoint}},
            "client": {"directory": DirectoryClient(platform.channel)},
        }
        async with connect(spec=SPEC, user_id="me", **ways[way]) as client:
            controller = await client.controller()
            params = trial_params(
                [actor_params("nora", "number"), actor_params("human", "number", endpoint="cogment://client")],
                datalog_endpoint="cogment://discover",
            )
            trial_id = await controller.start_trial(params)
            await client.join_trial(trial_id, actor, actor_name="human")
            await controller.wait_trial(trial_id)
            datastore = await client.datastore()
            async with datastore.samples(trial_id, follow=True) as samples:
                actions = [sample.actors["human"].action async for sample in samples]
            assert actions == [UInt32Value(value=2), None]
            (trial,) = await datastore.trials([trial_id])
            assert trial.user_id == "me"
            lifecycle = await client.service(ServiceKind.LIFECYCLE)
            assert (await Controller(lifecycle).trial_infos([trial_id]))[0].state == TrialState.ENDED
            registry = await client.model_registry()
            await registry.publish("model", b"weights")
            assert (await registry.retrieve("model"))[1] == b"weights"
            assert (client.directory is None) == (way == "endpoint")
            assert client.spec is SPEC


async def test_the_parts_of_an_orchestrator_may_be_at_different_places() -> None:
    participants = Participants(SPEC)
    participants.register_environment(environment)
    async with (
        DirectoryServer() as directory,
        open_platform(participants, directory=directory) as platform,
        listening(platform.services[0]) as lifecycle,
        listening(platform.services[1]) as actors,
    ):
        client = DirectoryClient(platform.channel)
        await client.register(ServiceKind.LIFECYCLE, parse_server_endpoint(lifecycle), permanent=True)
        await client.register(ServiceKind.CLIENT_ACTOR, parse_server_endpoint(actors), permanent=True)
        async with connect(spec=SPEC, directory=client, variables={}) as found:
            opener = await found.orchestrator()
            params = trial_params([actor_params("ann", "number", endpoint="cogment://client")])
            trial_id = await Controller(opener).start_trial(params)
            await join_trial(opener, trial_id, actor, actor_name="ann", spec=SPEC)
            assert opener.call_nowait(methods_of(SERVICES[ServiceKind.LIFECYCLE].descriptor())["Version"]) is None
        async with connect(lifecycle, variables={}) as found:
            assert await found.orchestrator() is await found.orchestrator()


async def test_clients_of_one_address_share_a_channel_and_end_with_the_block(tmp_path: Path) -> None:
    async with whole_platform(tmp_path) as (_, endpoint):
        async with connect(endpoint) as client, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.controller)
            controller = await client.controller()
            assert await controller.trial_infos() == []
            assert len(client._openers) == 1
        with pytest.raises(RpcError) as caught:
            await controller.trial_infos()
        assert caught.value.code is not StatusCode.OK


async def test_connecting_does_not_need_a_server() -> None:
    async with connect("grpc://127.0.0.1:1", config=RpcConfig(await_server_seconds=0)) as client:
        controller = await client.controller()
        with pytest.raises(RpcError) as caught:
            await controller.trial_infos()
    assert caught.value.code is StatusCode.UNAVAILABLE


async def test_exception_of_the_block_comes_out_as_it_is() -> None:
    async def fails() -> None:
        async with connect("grpc://127.0.0.1:1") as client:
            await client.controller()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()


class _Lifecycle(About):
    """Tells in an error what metadata came with a call."""

    async def GetTrialInfo(self, request: TrialInfoRequest, call: ServerCall) -> TrialInfoReply:
        raise InvalidArgumentError(
            " ".join(f"{name}={value!r}" for name, value in call.metadata if name != "user-agent")
        )


async def test_metadata_goes_with_every_call() -> None:
    service = bind(SERVICES[ServiceKind.LIFECYCLE].descriptor(), _Lifecycle())
    metadata: list[tuple[str, str | bytes]] = [basic_auth("ann", "secret"), ("team", "blue"), ("key-bin", b"\0\xff")]
    async with listening(service) as endpoint, connect(endpoint, metadata=metadata) as client:
        with pytest.raises(RpcError) as caught:
            await (await client.controller()).trial_infos(["t"])
    assert caught.value.message == (
        "trial-id='t' authorization='Basic YW5uOnNlY3JldA==' team='blue' key-bin=b'\\x00\\xff'"
    )
    for bad in ({"grpc-encoding": "x"}, {"key-bin": "text"}, {"key": b"bytes"}, {"key": "ü"}):
        with pytest.raises(InvalidArgumentError, match="metadata"):
            async with connect("grpc://127.0.0.1:1", metadata=bad):
                raise AssertionError
    with pytest.raises(InvalidArgumentError, match="username: expected no colon"):
        basic_auth("a:b", "c")


async def test_token_goes_to_the_directory() -> None:
    async with (
        DirectoryServer(config=AT_ONCE) as directory,
        open_platform(directory=directory) as platform,
        listening(*platform.services) as endpoint,
    ):
        mine = DirectoryClient(platform.channel, token="mine")
        await mine.register(ServiceKind.LIFECYCLE, parse_server_endpoint(endpoint), permanent=True)
        variables = {"COGMENT_DIRECTORY_AUTHENTICATION_TOKEN": "mine"}
        for given in ({"token": "mine", "variables": {}}, {"variables": variables}):
            async with connect(directory=endpoint, **given) as client:
                assert await (await client.controller()).trial_infos() == []
        async with connect(directory=endpoint, token="other", variables=variables) as client:
            with pytest.raises(FailedPreconditionError, match="knows no lifecycle with any properties"):
                await client.controller()


# Errors


async def test_missing_directory_variable() -> None:
    async with connect(variables={}) as client:
        with pytest.raises(FailedPreconditionError) as caught:
            await client.controller()
        with pytest.raises(FailedPreconditionError) as joining:
            await client.join_trial("t", actor, actor_name="nora")
    rest = (
        "endpoint 'cogment://discover': expected a directory to ask, and none is given; set COGMENT_DIRECTORY_ENDPOINT "
        "to its grpc://host:port, pass directory=, or pass the service's own grpc://host:port"
    )
    assert str(caught.value) == f"controller: {rest}"
    assert str(joining.value) == f"trial 't': join_trial: {rest}"


async def test_service_that_is_not_registered() -> None:
    async with (
        DirectoryServer(config=AT_ONCE) as directory,
        open_platform(directory=directory) as platform,
        listening(*platform.services) as endpoint,
        connect(directory=endpoint) as client,
    ):
        with pytest.raises(FailedPreconditionError) as caught:
            await client.datastore()
    assert str(caught.value) == (
        f"datastore: endpoint: the directory at {endpoint} knows no datastore with any properties. Start it, or "
        "register it there with the same authentication token"
    )


async def test_bad_endpoint() -> None:
    with pytest.raises(EndpointError) as refused:
        async with connect("cogment://client"):
            raise AssertionError("it is refused at once")
    async with connect("cogment://discover") as client:
        with pytest.raises(EndpointError) as caught:
            await client.controller("cogment://client")
        with pytest.raises(EndpointError, match="model_registry: endpoint: 'localhost:9000'"):
            await client.model_registry("localhost:9000")
    for error, what in ((refused, "connect"), (caught, "controller")):
        assert str(error.value) == (
            f"{what}: endpoint: 'cogment://client': expected grpc://host:port or cogment://discover; cogment://client "
            "is for actors only"
        )


def test_log_level_variable() -> None:
    logger = logging.getLogger("trio_cogment")
    before = logger.level
    try:
        for text, level in (("DEBUG", logging.DEBUG), ("off", 51), ("trace", 5), ("error", logging.ERROR)):
            apply_log_level({"COGMENT_LOG_LEVEL": text})
            assert logger.level == level
        apply_log_level({})
        assert logger.level == logging.ERROR
        with pytest.raises(InvalidArgumentError) as caught:
            apply_log_level({"COGMENT_LOG_LEVEL": "loud"})
    finally:
        logger.setLevel(before)
    assert str(caught.value) == (
        "COGMENT_LOG_LEVEL: expected one of off, error, warning, info, debug, trace, got 'loud'"
    )


async def test_log_level_variable_applies_to_clients_and_participants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGMENT_LOG_LEVEL", "loud")
    with pytest.raises(InvalidArgumentError, match="COGMENT_LOG_LEVEL"):
        await serve_participants(Participants())
    with pytest.raises(InvalidArgumentError, match="COGMENT_LOG_LEVEL"):
        async with connect():
            raise AssertionError


# TLS


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("tls"), "one", "127.0.0.1", "localhost")


@asynccontextmanager
async def secured_platform(party: Party) -> AsyncIterator[tuple[Platform, str]]:
    """A server that asks clients for their certificates; gives its endpoint too."""
    async with (
        DirectoryServer() as directory,
        open_platform(directory=directory) as platform,
        trio.open_nursery() as nursery,
    ):
        tls = server_tls(party.chain, party.key, client_roots=party.roots)
        listeners = await open_listeners("127.0.0.1", tls=tls)
        serving = await nursery.start(serve, platform.services, listeners)
        yield platform, f"grpc://127.0.0.1:{serving.port}"
        nursery.cancel_scope.cancel()


async def test_mutual_tls(one: Party) -> None:
    known = client_tls(one.roots, certificate=one.chain, key=one.key)
    async with secured_platform(one) as (platform, endpoint):
        async with connect(endpoint, tls=known) as client:
            assert await (await client.controller()).trial_infos() == []
        for stranger in (None, client_tls(one.roots)):
            async with connect(endpoint, tls=stranger) as client:
                with pytest.raises(RpcError):
                    await (await client.controller()).trial_infos()
        # Of a service in a directory it is known whether it expects TLS.
        address = parse_server_endpoint(endpoint)
        await DirectoryClient(platform.channel).register(ServiceKind.LIFECYCLE, address, ssl=True, permanent=True)
        async with connect(directory=endpoint, tls=known) as client:
            assert await (await client.controller()).trial_infos() == []


async def test_participants_are_served_with_mutual_tls_and_registered_so(one: Party) -> None:
    known = client_tls(one.roots, certificate=one.chain, key=one.key)
    participants = Participants(SPEC)
    participants.register_environment(environment)
    participants.register_actor(actor, "actor", ["number"])
    async with (
        DirectoryServer() as directory,
        open_platform(config=PlatformConfig(client_tls=known), directory=directory) as platform,
        trio.open_nursery() as nursery,
    ):
        client = DirectoryClient(platform.channel)
        tls = server_tls(one.chain, one.key, client_roots=one.roots)
        run = partial(serve_participants, participants, address="127.0.0.1", tls=tls)
        serving = await nursery.start(run)
        endpoint = GrpcEndpoint("127.0.0.1", serving.port)
        for offer in participants.offers(serving.port):
            await client.register(offer.kind, endpoint, offer.properties, ssl=True, permanent=True)
        trial_id = await platform.controller.start_trial(trial_params([actor_params("nora", "number")]))
        with trio.fail_after(30):
            await platform.controller.wait_trial(trial_id)
        (info,) = await platform.controller.trial_infos([trial_id])
        assert info.tick_id == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("endpoint", ["localhost:9000", "cogment://client", "http://localhost:9000"])
async def test_an_endpoint_that_is_none_of_a_server_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(EndpointError, match=r"^connect: endpoint: .*expected grpc://host:port"):
        async with connect(endpoint, variables={}):
            raise AssertionError("it was taken")


def test_outside_of_trio_it_says_what_is_missing() -> None:
    opening = connect("grpc://localhost:9000", variables={}).__aenter__()
    with pytest.raises(RuntimeError, match="connect"):
        opening.send(None)  # it is a coroutine
