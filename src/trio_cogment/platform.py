"""`open_platform`: the whole platform in somebody's nursery, without sockets."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from purerpc import Service
from typing_extensions import TypeIs

from trio_cogment._old_places import warn_of_old_name
from trio_cogment.access import AccessControl
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig, RpcConfig
from trio_cogment.base.endpoints import DISCOVER, DiscoverEndpoint, GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, StatusCode, status_of
from trio_cogment.base.host import Host
from trio_cogment.base.host.running import require_trio
from trio_cogment.base.metrics import OrchestratorMetrics
from trio_cogment.base.services import ServiceKind
from trio_cogment.resuming import DatastoreElsewhere, Resuming
from trio_cogment.rpc import CallOpener, OwnNursery, open_in_process
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.sdk import Controller, LocalParticipants, Participants
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.datastore import Datastore, TrialStore, datastore_services, open_store
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.discovery import DirectoryClient, open_directory
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services
from trio_cogment.servers.orchestrator import LocalSink, Orchestrator, SampleSink, orchestrator_services

if TYPE_CHECKING:
    from trio_cogment.sdk import ActorImplementation, DatastoreClient, ModelRegistryClient

_P = ParamSpec("_P")
_R = TypeVar("_R")


_log = logging.getLogger(__name__)


class _Local:
    """What is found in this process: participants, and a sink for samples where no data log is registered."""

    def __init__(self, participants: LocalParticipants, sink: SampleSink | None) -> None:
        self._participants = participants
        self._sink = None if sink is None else LocalSink(sink)

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener | None:
        found = self._participants.find(kind, properties)
        return self._sink if found is None and kind is ServiceKind.DATALOG and not properties else found

    def registered(self, kind: ServiceKind) -> str:
        """Return the names of the participants of a kind."""
        return self._participants.registered(kind)


class OpenedExtension(Protocol):
    """An extension that is open."""

    @property
    def services(self) -> Sequence[Service]:
        """Its gRPC services, which are served with those of the platform."""

    async def stop(self) -> None:
        """Answer what is being answered, and take nothing new: the platform is about to end its trials."""


class Extension(Protocol):
    """What a platform serves besides its own services: a gateway to another protocol, for example."""

    def open(self, platform: Platform) -> AbstractAsyncContextManager[OpenedExtension]:
        """Open it for the time of a block, within that of the platform.

        Args:
            platform: it runs; its `channel` and `services` have those of the platform itself, without extensions.
        """


class Platform:
    """What `open_platform` gives: one orchestrator, the participants of this process, and control.

    Attributes:
        participants: register environments, actors, hooks and data logs here, before or after the first trial.
        controller: start, watch, describe and terminate trials.
        orchestrator: the orchestrator itself.
        datastore: keeps the trials' samples, if there is one.
        model_registry: keeps versions of models, if there is one.
        channel: in-process calls to the services.
        services: all of it that is to be served.
        is_stopping: it ends its trials, and starts no more.
    """

    def __init__(
        self,
        participants: Participants,
        orchestrator: Orchestrator,
        channel: CallOpener,
        services: Sequence[Service],
        datastore: Datastore | None = None,
        model_registry: ModelRegistry | None = None,
        reached_at: Callable[[str], None] | None = None,
        resuming: Resuming | None = None,
    ) -> None:
        self.participants = participants
        self.orchestrator = orchestrator
        self.datastore = datastore
        self.model_registry = model_registry
        self.channel = channel
        self.services = services
        self.controller = Controller(channel, spec=participants.spec)
        self._extensions: Sequence[OpenedExtension] = ()
        self._say_reached_at = reached_at
        self._resuming = resuming
        self.is_stopping = False

    async def stop(self) -> None:
        """Stop the extensions, the last one first, and end the trials, with END and details to everybody.

        Leaving the block of `open_platform` does it too. A server calls it before it closes its connections.
        """
        self.is_stopping = True
        for extension in reversed(self._extensions):
            await extension.stop()
        if self._resuming is not None:
            await self._resuming.stop()
            await self.orchestrator.hand_over()
        await self.orchestrator.stop()

    @asynccontextmanager
    async def _extended(self, extensions: Sequence[Extension], host: Host, config: RpcConfig) -> AsyncIterator[None]:
        """Have extensions open for the time of the block."""
        if not extensions:
            yield
            return
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(extension.open(self)) for extension in extensions]
            services = [*self.services, *(service for extension in opened for service in extension.services)]
            self.channel = await stack.enter_async_context(open_in_process(host, services, config=config))
            self.services, self._extensions = services, opened
            yield

    def datastore_client(self) -> DatastoreClient:
        """Return a client of the platform's datastore.

        Raises:
            FailedPreconditionError: it has none.
        """
        if self.datastore is None:
            raise FailedPreconditionError("the platform has no datastore: open_platform(store=...) gives it one")
        from trio_cogment.sdk import DatastoreClient

        return DatastoreClient(self.channel, spec=self.participants.spec)

    def model_registry_client(self) -> ModelRegistryClient:
        """Return a client of the platform's model registry.

        Raises:
            FailedPreconditionError: it has none.
        """
        if self.model_registry is None:
            text = "the platform has no model registry: open_platform(model_registry=...) gives it one"
            raise FailedPreconditionError(text)
        from trio_cogment.sdk import ModelRegistryClient

        return ModelRegistryClient(self.channel)

    def reached_at(self, endpoint: str) -> None:
        """Say where others reach this platform, `grpc://host:port`: so they find its trials (`Client.find_trial`)."""
        self.orchestrator.reached_at(endpoint)
        if self._say_reached_at is not None:
            self._say_reached_at(endpoint)
        if self._resuming is not None:
            self._resuming.begin(endpoint)

    @property
    def resumes(self) -> bool:
        """Whether it goes on with stored trials whose orchestrator is gone."""
        return self._resuming is not None

    @property
    def resuming(self) -> Resuming | None:
        """Goes on with them; None: nobody does."""
        return self._resuming

    def on_resumed(self, tell: Callable[[str, TrialParams], None]) -> None:
        """Set who is told of each trial that goes on here, with its parameters, as soon as its actors can come."""
        if self._resuming is not None:
            self._resuming.on_resumed = tell

    def resume(self) -> None:
        """Go on with stored trials whose orchestrator is gone, from now on; `reached_at` does it, too.

        Raises:
            FailedPreconditionError: `OrchestratorConfig.resume` is off, or there is no datastore.
        """
        if self._resuming is None:
            raise FailedPreconditionError("resume: expected OrchestratorConfig(resume=True) and a datastore")
        self._resuming.begin()

    async def join_trial(
        self, trial_id: str, implementation: ActorImplementation, *, actor_name: str = "", actor_class: str = ""
    ) -> None:
        """Take part in a trial as a client actor; see `sdk.join_trial`."""
        from trio_cogment.sdk import join_trial

        await join_trial(
            self.channel,
            trial_id,
            implementation,
            actor_name=actor_name,
            actor_class=actor_class,
            spec=self.participants.spec,
            host=self.participants.host,
        )


def _with_old_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Take the keywords that 0.2.0 had; this goes with the release after 0.3.0."""

    @wraps(function)
    def opened(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given: dict[str, Any] = kwargs
        if "default_params" in given:
            warn_of_old_name("open_platform(default_params=)", "PlatformConfig(default_params=)")
            config = given.get("config") or PlatformConfig()
            given["config"] = replace(config, default_params=given.pop("default_params"))
        if "sample_sink" in given:
            warn_of_old_name("open_platform(sample_sink=)", "open_platform(store=)")
            sink = given.pop("sample_sink")
            if sink is not None and given.get("store") is not None:
                raise ValueError("store: expected None where there is a sample_sink")
            given["store"] = given.get("store") if sink is None else sink
        return function(*args, **kwargs)

    return opened


@_with_old_keywords
@asynccontextmanager
async def open_platform(
    participants: Spec | Participants | None = None,
    *,
    config: PlatformConfig | None = None,
    host: Host | None = None,
    store: TrialStore | SampleSink | str | None = None,
    model_registry: ModelRegistry | str | os.PathLike[str] | None = None,
    directory: DirectoryClient | DirectoryServer | GrpcEndpoint | str | None = None,
    metrics: OrchestratorMetrics | None = None,
    extensions: Sequence[Extension] = (),
    access: AccessControl | None = None,
) -> AsyncIterator[Platform]:
    """Run the platform for the time of an `async with` block.

    Leaving the block ends the trials that still run, with END and details to everybody. Being cancelled does the same,
    within `OrchestratorConfig.farewell_seconds`, except that participants in this process are simply cancelled too.

    The participants, the store, the model registry and the directory follow one rule: what only describes such an
    object (a spec, an address, a folder, an endpoint) is opened here and closed with the block; the object itself is
    used, and stays open.

    Args:
        participants: the types of the project, or the participants themselves; by default payloads are bytes.
        config: limits, timeouts, default parameters of trials, pre-trial hooks and TLS.
        host: the clock, ids, randomness, connections and files; by default the system's.
        store: takes the samples of trials whose data log is `cogment://discover`, unless a data log is registered with
            the participants. It is the storage of a datastore, which serves them, too, or its address (`memory:`,
            `sqlite:PATH`, `postgresql://...`); then `cogment://discover` is also the data log of trials whose
            parameters have no `datalog`, and one with an empty endpoint says that a trial is not stored. Or it is a
            sink, which gets them as the objects they are (see `docs/data-logs.md`). A datastore in another process is
            `OrchestratorConfig.datastore`; both are refused.
        model_registry: the model registry to serve, or its folder, or the address of its bucket (`s3://bucket/prefix`).
        directory: finds what is not registered here: a client, the endpoint of a directory (see
            `trio_cogment.servers.discovery.open_directory`), or a directory of this process, which is served too.
        metrics: takes measurements, for example a `metrics.prometheus.PrometheusMetrics`.
        extensions: what is served besides: gateways to other protocols, for example.
        access: signs the tokens with which participants, hooks and data logs elsewhere are called. Who may call the
            platform itself is said where it is served: `rpc.serve(platform.services, ..., access=...)`.

    Raises:
        CogmentError: a storage cannot be opened, or an endpoint is invalid.
        RuntimeError: Trio does not run.
    """
    require_trio("open_platform")
    config = config or PlatformConfig()
    if config.orchestrator.datastore:
        if store is not None and not _is_sink(store):
            raise InvalidArgumentError(
                "datastore: expected none where there is a storage (store): trials are stored there, got "
                f"{config.orchestrator.datastore!r}"
            )
        named = parse_server_endpoint(config.orchestrator.datastore, discovery=True, field_name="datastore")
        if config.orchestrator.resume and access is not None and isinstance(named, DiscoverEndpoint):
            # It is shown a token for all trials: that is for no one whom a directory has named.
            raise InvalidArgumentError(
                "datastore: with resume, where tokens are asked for, expected its address, grpc://host:port, "
                f"got {config.orchestrator.datastore!r}"
            )
    host = host or Host()
    if not isinstance(participants, Participants):
        participants = Participants(participants, host=host)
    # Whoever is in the process may fill its memory anyway.
    inside = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
    sink: SampleSink | None = None
    if _is_sink(store):
        sink, store = store, None
    async with (
        _datastore(store, config, host) as datastore,
        _model_registry(model_registry, config, host) as registry,
        _directory(directory, config, host, inside) as directory_client,
        open_in_process(host, participants.services(), config=inside) as participants_channel,
    ):
        reached_at: Callable[[str], None] | None = None
        if datastore is not None:
            settings = config.orchestrator
            sink = intake = datastore.sink(max_unconfirmed=settings.max_queued_samples, resumes=settings.resume)
            reached_at = intake.reached_at
        orchestrator = Orchestrator(
            config=config.orchestrator,
            rpc_config=config.rpc,
            default_params=config.default_params,
            default_datalog=config.orchestrator.datastore if datastore is None else DISCOVER,
            pre_trial_hooks=config.pre_trial_hooks,
            directory=directory_client,
            client_tls=config.client_tls,
            metrics=metrics,
            local=_Local(LocalParticipants(participants, participants_channel), sink),
            host=host,
            access=access,
            outgoing=config.outgoing,
        )
        services = orchestrator_services(orchestrator)
        if datastore is not None:
            services += datastore_services(datastore)
        if registry is not None:
            services += model_registry_services(registry)
        if isinstance(directory, DirectoryServer):
            services += directory_services(directory)
        async with orchestrator, open_in_process(host, services, config=inside) as channel:
            resuming = await _resuming(config.orchestrator, orchestrator, datastore)
            platform = Platform(
                participants, orchestrator, channel, services, datastore, registry, reached_at, resuming
            )
            async with platform._extended(extensions, host, inside), _going_on(resuming):
                yield platform
                await platform.stop()


async def _resuming(
    config: OrchestratorConfig, orchestrator: Orchestrator, datastore: Datastore | None
) -> Resuming | None:
    """Return what goes on with stored trials, if there is a datastore that has them.

    Raises:
        CogmentError: that datastore is elsewhere, and answers that it cannot.
    """
    if not config.resume or not (datastore or config.datastore):
        return None
    orchestrator.resumes = True
    if datastore is not None:
        return Resuming(orchestrator, datastore)
    orchestrator.resumes_at = config.datastore
    elsewhere = DatastoreElsewhere(orchestrator)
    try:
        await elsewhere.check()
    except CogmentError as error:
        if status_of(error)[0] is not StatusCode.UNAVAILABLE:
            raise
        _log.warning("trials go on as soon as their datastore can be reached: %s", error)
    return Resuming(orchestrator, elsewhere)


@asynccontextmanager
async def _going_on(resuming: Resuming | None) -> AsyncIterator[None]:
    """Go on with trials for the time of the block."""
    if resuming is None:
        yield
        return
    async with OwnNursery() as nursery:
        nursery.start_soon(resuming.run)
        yield
        nursery.cancel_scope.cancel()


def _is_sink(store: TrialStore | SampleSink | str | None) -> TypeIs[SampleSink]:
    return hasattr(store, "open") and not hasattr(store, "apply")


@asynccontextmanager
async def _datastore(
    store: TrialStore | str | None, config: PlatformConfig, host: Host
) -> AsyncIterator[Datastore | None]:
    """Run a datastore for the time of the block, if there is a storage for it."""
    async with AsyncExitStack() as opened:
        if store is None:
            yield None
            return
        if isinstance(store, str):
            store = await opened.enter_async_context(open_store(store, host=host))
        yield await opened.enter_async_context(Datastore(store, config=config.datastore))


@asynccontextmanager
async def _model_registry(
    registry: ModelRegistry | str | os.PathLike[str] | None, config: PlatformConfig, host: Host
) -> AsyncIterator[ModelRegistry | None]:
    """Run a model registry for the time of the block, if there is a folder for it."""
    if registry is None or isinstance(registry, ModelRegistry):
        yield registry
        return
    async with ModelRegistry(registry, config=config.model_registry, host=host) as opened:
        yield opened


@asynccontextmanager
async def _directory(
    directory: DirectoryClient | DirectoryServer | GrpcEndpoint | str | None,
    config: PlatformConfig,
    host: Host,
    inside: RpcConfig,
) -> AsyncIterator[DirectoryClient | None]:
    """Return the directory's client for the time of the block, if there is a directory."""
    if directory is None or isinstance(directory, DirectoryClient):
        yield directory
    elif isinstance(directory, DirectoryServer):
        async with open_in_process(host, directory_services(directory), config=inside) as channel:
            yield DirectoryClient(channel, name="the directory of this process")
    else:
        async with open_directory(
            directory, tls=config.client_tls, config=config.directory, rpc_config=config.rpc, host=host
        ) as client:
            yield client
