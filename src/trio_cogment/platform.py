"""`open_platform`: the whole platform in somebody's nursery, without sockets."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from purerpc import Service

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.config import DatastoreConfig, ModelRegistryConfig, OrchestratorConfig, RpcConfig
from trio_cogment.datastore import Datastore, TrialStore, datastore_services, open_store
from trio_cogment.directory import DirectoryServer, directory_services
from trio_cogment.discovery import DirectoryClient
from trio_cogment.host import Host
from trio_cogment.metrics import OrchestratorMetrics
from trio_cogment.model_registry import ModelRegistry, model_registry_services
from trio_cogment.orchestrator import LocalSink, Orchestrator, SampleSink, orchestrator_services
from trio_cogment.rpc import CallOpener, open_in_process
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.sdk import ActorImplementation, Controller, LocalParticipants, Participants, join_trial
from trio_cogment.services import ServiceKind
from trio_cogment.spec import Spec
from trio_cogment.trial import TrialMachine


class _Local:
    """What is found in this process: participants, and a sink for samples where no data log is registered."""

    def __init__(self, participants: LocalParticipants, sink: SampleSink | None) -> None:
        self._participants = participants
        self._sink = None if sink is None else LocalSink(sink)

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener | None:
        found = self._participants.find(kind, properties)
        return self._sink if found is None and kind is ServiceKind.DATALOG and not properties else found


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
    """

    def __init__(
        self,
        participants: Participants,
        orchestrator: Orchestrator,
        channel: CallOpener,
        services: Sequence[Service],
        datastore: Datastore | None = None,
        model_registry: ModelRegistry | None = None,
    ) -> None:
        self.participants = participants
        self.orchestrator = orchestrator
        self.datastore = datastore
        self.model_registry = model_registry
        self.channel = channel
        self.services = services
        self.controller = Controller(channel, spec=participants.spec)

    async def join_trial(
        self, trial_id: str, implementation: ActorImplementation, *, actor_name: str = "", actor_class: str = ""
    ) -> None:
        """Take part in a trial as a client actor; see `sdk.join_trial`."""
        await join_trial(
            self.channel,
            trial_id,
            implementation,
            actor_name=actor_name,
            actor_class=actor_class,
            spec=self.participants.spec,
            host=self.participants.host,
        )


@asynccontextmanager
async def open_platform(
    spec: Spec | None = None,
    *,
    participants: Participants | None = None,
    config: OrchestratorConfig | None = None,
    rpc_config: RpcConfig | None = None,
    default_params: TrialParams | None = None,
    pre_trial_hooks: Sequence[str] = (),
    directory: DirectoryClient | DirectoryServer | None = None,
    client_tls: ssl.SSLContext | None = None,
    metrics: OrchestratorMetrics | None = None,
    host: Host | None = None,
    sample_sink: SampleSink | None = None,
    store: TrialStore | str | None = None,
    datastore_config: DatastoreConfig | None = None,
    model_registry: ModelRegistry | str | os.PathLike[str] | None = None,
    model_registry_config: ModelRegistryConfig | None = None,
    make_machine: Callable[..., TrialMachine] | None = None,
) -> AsyncIterator[Platform]:
    """Run the platform for the time of an `async with` block.

    Leaving the block ends the trials that still run, with END and details to everybody. Being cancelled does the same,
    within `config.farewell_seconds`, except that participants in this process are simply cancelled too.

    Args:
        spec: the types of the project; without one payloads are bytes.
        participants: a registry made before, instead of `spec`.
        config: limits and timeouts of trials.
        rpc_config: for the channels to participants elsewhere.
        default_params: what a trial gets whose starter gave no parameters.
        pre_trial_hooks: endpoints; `cogment://discover` means the hooks registered here.
        directory: who is asked for what is not registered here: a client of one elsewhere (see
            `trio_cogment.discovery.open_directory`), or a directory of this process, which is served too. It stays
            open here.
        client_tls: encrypts every connection to participants elsewhere; see `rpc.client_tls`.
        metrics: what measurements are handed to, for example a `metrics.prometheus.PrometheusMetrics`.
        host: what all of it takes from outside: the clock, ids, randomness, connections, files; the system unless
            given.
        sample_sink: takes the samples of trials whose data log is `cogment://discover`, as the objects they are (see
            `docs/data-logs.md`); a data log registered with the participants comes first.
        store: runs a datastore, which takes those samples and serves them. Either its storage, or the address of one
            that is opened here: `memory:` or `sqlite:PATH`.
        datastore_config: limits and times of the datastore.
        model_registry: is served too: one that is open, and stays so here, or the folder of one that is opened here.
        model_registry_config: limits of one that is opened here.
        make_machine: makes the machines of trials; see `recording.TrialRecorder`.

    Raises:
        ValueError: there is a `sample_sink` and a `store`, and only one can take the samples.
        CogmentError: a storage cannot be opened.
    """
    if store is not None and sample_sink is not None:
        raise ValueError("store: expected None where there is a sample_sink")
    config = config or OrchestratorConfig()
    host = host or Host()
    participants = participants or Participants(spec, host=host)
    # Whoever is in the process may fill its memory anyway.
    inside = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
    async with (
        _datastore(store, datastore_config, host) as datastore,
        _model_registry(model_registry, model_registry_config, host) as registry,
        _directory(directory, host, inside) as directory_client,
        open_in_process(host, participants.services(), config=inside) as participants_channel,
    ):
        if datastore is not None:
            sample_sink = datastore.sink(max_unconfirmed=config.max_queued_samples)
        orchestrator = Orchestrator(
            wall_clock=host.wall_clock,
            new_trial_id=host.new_id,
            config=config,
            rpc_config=rpc_config,
            default_params=default_params,
            pre_trial_hooks=pre_trial_hooks,
            directory=directory_client,
            client_tls=client_tls,
            metrics=metrics,
            local=_Local(LocalParticipants(participants, participants_channel), sample_sink),
            rng=host.random("orchestrator"),
            make_machine=make_machine,
        )
        services = orchestrator_services(orchestrator)
        if datastore is not None:
            services += datastore_services(datastore)
        if registry is not None:
            services += model_registry_services(registry)
        if isinstance(directory, DirectoryServer):
            services += directory_services(directory)
        async with orchestrator, open_in_process(host, services, config=inside) as channel:
            yield Platform(participants, orchestrator, channel, services, datastore, registry)
            await orchestrator.stop()


@asynccontextmanager
async def _datastore(
    store: TrialStore | str | None, config: DatastoreConfig | None, host: Host
) -> AsyncIterator[Datastore | None]:
    """Run a datastore for the time of the block, if there is a storage for it."""
    async with AsyncExitStack() as opened:
        if store is None:
            yield None
            return
        if isinstance(store, str):
            store = await opened.enter_async_context(open_store(store, host=host))
        yield await opened.enter_async_context(Datastore(store, config=config))


@asynccontextmanager
async def _model_registry(
    registry: ModelRegistry | str | os.PathLike[str] | None,
    config: ModelRegistryConfig | None,
    host: Host,
) -> AsyncIterator[ModelRegistry | None]:
    """Run a model registry for the time of the block, if there is a folder for it."""
    if registry is None or isinstance(registry, ModelRegistry):
        yield registry
        return
    async with ModelRegistry(registry, config=config, host=host) as opened:
        yield opened


@asynccontextmanager
async def _directory(
    directory: DirectoryClient | DirectoryServer | None,
    host: Host,
    config: RpcConfig,
) -> AsyncIterator[DirectoryClient | None]:
    """Return who asks the directory, for the time of the block."""
    if not isinstance(directory, DirectoryServer):
        yield directory
        return
    async with open_in_process(host, directory_services(directory), config=config) as channel:
        yield DirectoryClient(channel, name="the directory of this process")
