"""`open_platform` beside its orchestrator: a model registry, and a directory of the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue

from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
from trio_cogment.api.directory_pb2 import ServiceEndpoint, ServiceType
from trio_cogment.base.config import ModelRegistryConfig, OrchestratorConfig, PlatformConfig
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, RpcError, UnavailableError
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.platform import OpenedExtension, Platform, open_platform
from trio_cogment.rpc import Method, ServerCall, bind, methods_of
from trio_cogment.sdk import (
    ActorSession,
    DatalogSession,
    EnvironmentSession,
    ModelRegistryClient,
    Participants,
    actor_params,
    serve_participants,
    trial_params,
)
from trio_cogment.sdk.spec import ActorClass, Spec
from trio_cogment.servers.directory import DirectoryServer, Service
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.servers.model_registry import ModelRegistry


async def test_a_model_registry_in_a_folder(tmp_path: Path) -> None:
    config = ModelRegistryConfig(cache_max_items=3)
    settings = PlatformConfig(model_registry=config)
    async with open_platform(model_registry=tmp_path / "models", config=settings) as platform:
        assert platform.model_registry is not None
        assert platform.model_registry.config is config
        assert "cogmentAPI.ModelRegistrySP" in [service.name for service in platform.services]
        info = await ModelRegistryClient(platform.channel).store("m", b"weights")
        with pytest.raises(FailedPreconditionError):
            async with open_platform(model_registry=str(tmp_path / "models")):
                pass
    assert info.version_number == 1
    with pytest.raises(UnavailableError):
        await platform.model_registry.delete("m")
    async with open_platform(model_registry=tmp_path / "models") as platform:
        assert (await ModelRegistryClient(platform.channel).retrieve("m"))[1] == b"weights"


async def test_a_model_registry_of_somebody_else_stays_open(tmp_path: Path) -> None:
    async with ModelRegistry(tmp_path) as registry:
        async with open_platform(model_registry=registry) as platform:
            assert platform.model_registry is registry
            await ModelRegistryClient(platform.channel).publish("m", b"")
        await registry.delete("m")
    async with open_platform() as platform:
        assert platform.model_registry is None
        with pytest.raises(RpcError, match="UNIMPLEMENTED"):
            await ModelRegistryClient(platform.channel).model_info("m")


async def test_a_directory_of_this_process_is_asked_and_served() -> None:
    """Participants that are served over a socket, and registered in it, take part in a trial that names nobody."""
    played = trio.Event()

    async def world(session: EnvironmentSession) -> None:
        await session.start([("*", b"hello")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.end([("*", b"goodbye")])

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")
        played.set()

    elsewhere = Participants()
    elsewhere.register_environment(world)
    elsewhere.register_actor(actor, "talker")
    with trio.fail_after(60):
        async with (
            DirectoryServer() as directory,
            open_platform(directory=directory) as platform,
            trio.open_nursery() as nursery,
        ):
            assert "cogmentAPI.DirectorySP" in [service.name for service in platform.services]
            client = DirectoryClient(platform.channel)
            serving = await nursery.start(
                lambda task_status: serve_participants(elsewhere, address="127.0.0.1", task_status=task_status)
            )
            there = GrpcEndpoint("127.0.0.1", serving.port)
            await client.register(ServiceKind.ENVIRONMENT, there, {"__implementation": ""})
            await client.register(ServiceKind.ACTOR, there, {"__actor_class": "c", "__implementation": "talker"})
            params = trial_params([actor_params("a", "c", implementation="talker")])
            trial_id = await platform.controller.start_trial(params)
            await platform.controller.wait_trial(trial_id)
            await played.wait()
            nursery.cancel_scope.cancel()
        assert directory.stopping


async def test_the_directory_outlives_the_platform() -> None:
    service = Service(kind=ServiceType.OTHER_SERVICE, protocol=ServiceEndpoint.COGMENT, host="client", port=0)
    async with DirectoryServer() as directory:
        async with open_platform(directory=directory):
            pass
        await directory.register(service)
        assert directory.count == 1


class _Versions:
    """An extension that serves the `Version` of a kind, and notes what happens to it."""

    def __init__(self, kind: ServiceKind, happened: list[str]) -> None:
        self._name = kind.value
        self._happened = happened
        self._descriptor = SERVICES[kind].descriptor()
        self.services = [bind(self._descriptor, self)]

    @property
    def version(self) -> Method:
        return methods_of(self._descriptor)["Version"]

    async def Version(self, _request: VersionRequest, _call: ServerCall) -> VersionInfo:
        return VersionInfo(versions=[VersionInfo.Version(name=self._name, version="1")])

    def open(self, platform: Platform) -> AbstractAsyncContextManager[OpenedExtension]:
        return self._open(platform)

    @asynccontextmanager
    async def _open(self, platform: Platform) -> AsyncIterator[OpenedExtension]:
        running = await platform.controller.trial_infos()
        self._happened.append(f"{self._name}: open, {len(running)} trials")
        yield self
        self._happened.append(f"{self._name}: closed")

    async def stop(self) -> None:
        self._happened.append(f"{self._name}: stopped")


async def test_extensions_are_served_and_stop_before_the_trials() -> None:
    happened: list[str] = []
    first, last = (_Versions(kind, happened) for kind in (ServiceKind.DATASTORE, ServiceKind.MODEL_REGISTRY))
    async with open_platform(extensions=[first, last]) as platform:
        for extension in first, last:
            assert extension.services[0] in platform.services
            answer = await platform.channel.unary(extension.version, VersionRequest())
            assert answer.versions[0].name in ("datastore", "modelregistry")
        assert await platform.controller.trial_infos() == []
        assert happened == ["datastore: open, 0 trials", "modelregistry: open, 0 trials"]
    assert happened[2:] == [
        "modelregistry: stopped",
        "datastore: stopped",
        "modelregistry: closed",
        "datastore: closed",
    ]


async def test_an_extension_that_cannot_open_ends_the_platform() -> None:
    happened: list[str] = []

    class Broken(_Versions):
        def open(self, platform: Platform) -> AbstractAsyncContextManager[OpenedExtension]:
            raise UnavailableError("nowhere to be found")

    opened, broken = _Versions(ServiceKind.DATASTORE, happened), Broken(ServiceKind.MODEL_REGISTRY, happened)
    with pytest.raises(UnavailableError, match=r"^nowhere to be found$"):
        async with open_platform(extensions=[opened, broken]):
            raise AssertionError("the platform opened")
    assert happened == ["datastore: open, 0 trials"]


async def test_who_changes_what_it_was_given_changes_it_for_nobody_else() -> None:
    """Participants of one process may share the bytes of an observation, but no object that can be changed."""
    acted: list[str] = []
    seen: list[str] = []
    logged: list[str] = []

    async def world(session: EnvironmentSession[Any, Any, Any]) -> None:
        await session.start([("*", StringValue(value="true"))])
        async for event in session.all_events():
            if event.actions is not None:
                for action in event.actions:
                    acted.append(action.payload.value)
                    action.payload.value = "forged"
                send = session.end if len(acted) > 8 else session.produce_observations
                await send([("*", StringValue(value="true"))])

    async def player(session: ActorSession[Any, Any, Any]) -> None:
        action = StringValue()
        async for event in session.all_events():
            if event.observation is not None:
                seen.append(event.observation.payload.value)
                event.observation.payload.value = "forged"
                await trio.sleep(0.01)
                action.value = "done"
                await session.do_action(action)
                action.value = "forged"

    async def log(session: DatalogSession) -> None:
        async for sample in session:
            for name in sample.actor_names:
                for found in (sample.observation(name), sample.action(name)):
                    if found is not None and found.payload is not None:
                        logged.append(found.payload.value)
                        found.payload.value = "forged"

    spec = Spec.of(ActorClass("player", observation=StringValue, action=StringValue))
    async with open_platform(spec) as platform:
        platform.participants.register_environment(world, "world")
        platform.participants.register_actor(player, "player")
        platform.participants.register_datalog(log)
        actors = [actor_params(name, "player", implementation="player") for name in ("ann", "bob", "eve")]
        params = trial_params(actors, environment="world", datalog_endpoint="cogment://discover")
        await platform.controller.start_trial(params, trial_id="t")
        await platform.controller.wait_trial("t")
    assert set(acted) == {"done"}
    assert set(seen) == {"true"}
    assert set(logged) - {""} == {"true", "done"}  # in the last tick nobody acts


async def test_a_datastore_elsewhere_beside_a_storage_is_refused() -> None:
    """Nothing would be stored there: the setting is refused, never ignored."""
    config = PlatformConfig(orchestrator=OrchestratorConfig(datastore="grpc://store:9003"))
    with pytest.raises(InvalidArgumentError, match="datastore: expected none where there is a storage"):
        async with open_platform(store="memory:", config=config):
            pass
