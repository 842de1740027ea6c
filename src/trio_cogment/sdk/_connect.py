"""`connect`: clients of the services of a platform that runs elsewhere, found by endpoint or by a directory."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from trio_cogment.access import TokenSource
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.endpoints import DISCOVER, ClientEndpoint, DiscoverEndpoint, GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host import Host
from trio_cogment.base.host.running import require_trio
from trio_cogment.base.metrics import ModelMetrics
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import (
    ByService,
    CallOpener,
    Channel,
    Metadata,
    MetadataLike,
    OwnNursery,
    WithMetadata,
    client_tls,
)
from trio_cogment.sdk._actor import ActorImplementation
from trio_cogment.sdk._controller import Controller, join_trial
from trio_cogment.sdk._datastore import DatastoreClient
from trio_cogment.sdk._finding import FoundTrial, Informants, TrialFinder
from trio_cogment.sdk._log_level import apply_log_level
from trio_cogment.sdk._model_registry import ModelRegistryClient
from trio_cogment.sdk.access_token import access_token_of
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.discovery import DirectoryClient, open_directory

DIRECTORY_VARIABLE = "COGMENT_DIRECTORY_ENDPOINT"
TOKEN_VARIABLE = "COGMENT_DIRECTORY_AUTHENTICATION_TOKEN"


class Client:
    """Clients of a platform's services; made by `connect`.

    Each method takes an endpoint, `grpc://host:port` or `cogment://discover...`; without one it uses that of `connect`.
    Clients with the same address share one channel, which connects when it is used, and reconnects. They can be used
    until the block of `connect` is left.

    Attributes:
        spec: the types of the project.
        directory: the client of the directory; None without one.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        endpoint: str,
        *,
        spec: Spec,
        user_id: str,
        directory: DirectoryClient | None,
        tls: ssl.SSLContext | None,
        metadata: Metadata,
        access_token: str | TokenSource,
        config: RpcConfig | None,
        metrics: ModelMetrics | None,
        host: Host,
    ) -> None:
        self.spec = spec
        self.directory = directory
        self._nursery = nursery
        self._endpoint = endpoint
        self._user_id = user_id
        self._tls = tls
        self._metadata = metadata
        self._access_token = access_token
        self._config = config
        self._metrics = metrics
        self._host = host
        self._openers: dict[tuple[GrpcEndpoint, bool], CallOpener] = {}
        self._opening = trio.Lock()
        self._finder = TrialFinder(self._informants)

    async def controller(self, endpoint: str = "") -> Controller:
        """Return a client of the orchestrator.

        After `Cancelled` nothing has changed; so it is with the other methods.

        Raises:
            EndpointError: the endpoint is not one of a server.
            FailedPreconditionError: the endpoint is to be discovered, and there is no directory, or it knows no such
                service.
            UnavailableError: the directory cannot be reached.
        """
        opener = await self._find(ServiceKind.LIFECYCLE, endpoint, "controller")
        return Controller(opener, spec=self.spec, user_id=self._user_id, find=self.find_trial)

    async def find_trial(self, trial_id: str) -> FoundTrial:
        """Return where a trial is, whichever orchestrator of the platform runs it.

        The datastore is asked, which keeps the endpoint of a trial's orchestrator if that has said it
        (`Platform.reached_at`; servers of the command line with a directory do). If it does not know, all orchestrators
        of the directory are asked at once; without a directory, the one at the endpoint of `connect`. Who that is, is
        remembered for some seconds, and asked of the directory again when none of them knows the trial.

        `await client.controller(found.endpoint)` is a client of the orchestrator, then.

        Raises:
            NotFoundError: nobody knows such a trial; orchestrators forget trials some time after their end.
            UnavailableError: nobody who has answered knows it, and somebody has not answered.
            RpcError: somebody refuses to say.
        """
        return await self._finder.find(trial_id)

    async def _informants(self) -> Informants:
        try:
            datastore = await self.datastore()
        except FailedPreconditionError:
            datastore = None  # the directory knows none
        return Informants(datastore, await self._orchestrators())

    async def _orchestrators(self) -> dict[str, CallOpener]:
        """Return what calls each orchestrator of the directory, or else the only one, by endpoint."""
        if self.directory is None:
            return {self._endpoint: await self._find(ServiceKind.LIFECYCLE, "", "find_trial")}
        found = await self.directory.find_all(ServiceKind.LIFECYCLE)
        openers = {}
        for service in found:
            assert isinstance(service.endpoint, GrpcEndpoint)
            openers[str(service.endpoint)] = await self._opener(service.endpoint, secure=service.ssl)
        return openers

    async def orchestrator(self, endpoint: str = "") -> CallOpener:
        """Return what calls an orchestrator: the control of trials, and its service for client actors.

        Where they are discovered they may be at different places. See `controller` for the errors.
        """
        kinds = (ServiceKind.LIFECYCLE, ServiceKind.CLIENT_ACTOR)
        openers = [await self._find(kind, endpoint, "orchestrator") for kind in kinds]
        if openers[0] is openers[1]:
            return openers[0]
        return ByService({SERVICES[kind].full_name: opener for kind, opener in zip(kinds, openers, strict=True)})

    async def datastore(self, endpoint: str = "") -> DatastoreClient:
        """Return a client of the trial datastore. See `controller` for the errors."""
        return DatastoreClient(await self._find(ServiceKind.DATASTORE, endpoint, "datastore"), spec=self.spec)

    async def model_registry(self, endpoint: str = "") -> ModelRegistryClient:
        """Return a client of the model registry. See `controller` for the errors."""
        opener = await self._find(ServiceKind.MODEL_REGISTRY, endpoint, "model_registry")
        return ModelRegistryClient(opener, metrics=self._metrics)

    async def service(self, kind: ServiceKind, endpoint: str = "") -> CallOpener:
        """Return what calls a service of a kind. See `controller` for the errors."""
        return await self._find(kind, endpoint, kind.value)

    async def join_trial(
        self,
        trial_id: str,
        implementation: ActorImplementation,
        *,
        actor_name: str = "",
        actor_class: str = "",
        endpoint: str = "",
    ) -> None:
        """Take part in a trial as a client actor, by name or by class; return when it is over.

        Raises:
            RpcError: the trial does not exist or has no such actor that is free, or the connection was lost.
            EndpointError, FailedPreconditionError, UnavailableError: as `controller`.
        """
        doing = f"trial {trial_id!r}: join_trial"
        await join_trial(
            await self._find(ServiceKind.CLIENT_ACTOR, endpoint, doing),
            trial_id,
            implementation,
            actor_name=actor_name,
            actor_class=actor_class,
            spec=self.spec,
            host=self._host,
        )

    async def _find(self, kind: ServiceKind, endpoint: str, doing: str) -> CallOpener:
        text = endpoint or self._endpoint or DISCOVER
        address = parse_server_endpoint(text, discovery=True, field_name=f"{doing}: endpoint")
        secure = self._tls is not None
        if isinstance(address, DiscoverEndpoint):
            if self.directory is None:
                raise FailedPreconditionError(
                    f"{doing}: endpoint {text!r}: expected a directory to ask, and none is given; set "
                    f"{DIRECTORY_VARIABLE} to its grpc://host:port, pass directory=, or pass the service's own "
                    "grpc://host:port"
                )
            found = await self.directory.find(address, kind, field_name=f"{doing}: endpoint")
            if isinstance(found.endpoint, ClientEndpoint):
                raise FailedPreconditionError(
                    f"{doing}: endpoint {text!r}: the service found is a client, not a server"
                )
            address, secure = found.endpoint, found.ssl
        return await self._opener(address, secure=secure)

    async def _opener(self, address: GrpcEndpoint, *, secure: bool) -> CallOpener:
        async with self._opening:
            opener = self._openers.get((address, secure))
            if opener is None:
                tls = (self._tls or client_tls()) if secure else None
                channel = Channel(
                    address.host,
                    address.port,
                    tls=tls,
                    config=self._config,
                    host=self._host,
                    token=self._access_token,
                )
                await self._nursery.start(_hold, channel, name=f"channel to {address}")
                opener = self._openers[address, secure] = WithMetadata(channel, self._metadata)
            return opener


async def _hold(channel: Channel, *, task_status: trio.TaskStatus[None]) -> None:
    async with channel:
        task_status.started()
        await trio.sleep_forever()


@asynccontextmanager
async def connect(
    endpoint: str = "",
    *,
    spec: Spec | None = None,
    user_id: str = "trio-cogment",
    directory: DirectoryClient | str = "",
    token: str = "",
    access_token: str | TokenSource = "",
    tls: ssl.SSLContext | None = None,
    metadata: MetadataLike = (),
    config: RpcConfig | None = None,
    metrics: ModelMetrics | None = None,
    host: Host | None = None,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[Client]:
    """Connect to a platform for the time of an `async with` block.

    Nothing is connected before it is used, so this does not fail when a server is down. Leaving the block, also by a
    cancellation, ends the calls that still run and closes the connections. If `COGMENT_LOG_LEVEL` is set, it becomes
    the level of the logger `trio_cogment`.

    Args:
        endpoint: where the services are, `grpc://host:port`; by default each is discovered.
        spec: the types of the project; without a spec all payloads are bytes.
        user_id: the user id of the trials that are started.
        directory: the directory, or its endpoint; by default that of `COGMENT_DIRECTORY_ENDPOINT`, if it is set.
        token: the authentication token for the directory; by default that of `COGMENT_DIRECTORY_AUTHENTICATION_TOKEN`.
        access_token: says who calls (see `rpc.Channel`), to services and a directory that ask for tokens; by default
            that of `COGMENT_TOKEN`, or in the file that `COGMENT_TOKEN_FILE` names. Services that are discovered get
            it too.
        tls: the TLS context for everything, for example from `trio_cogment.rpc.client_tls`. Services that are
            discovered use it if they are registered with TLS.
        metadata: added to every call to a service (not to the directory); see `trio_cogment.rpc.basic_auth`.
        config: limits and timeouts of the connections.
        metrics: takes measurements of the model registry's client.
        host: makes the connections; by default the system.
        variables: the environment variables; the process's unless given.

    Raises:
        EndpointError: the endpoint is none of a server, or the directory's is not `grpc://host:port`.
        InvalidArgumentError: the metadata or a token cannot be sent, or a variable is invalid.
        FailedPreconditionError: the file with the token cannot be read.
        RuntimeError: Trio does not run.
    """
    require_trio("connect")
    parse_server_endpoint(endpoint, discovery=True, field_name="connect: endpoint")
    variables = os.environ if variables is None else variables
    apply_log_level(variables)
    checked = Metadata(metadata)
    if isinstance(access_token, str):
        access_token = await access_token_of(access_token, variables)
    host = host or Host()
    async with AsyncExitStack() as stack:
        if isinstance(directory, str):
            address = directory or variables.get(DIRECTORY_VARIABLE, "")
            opened = None
            if address:
                token = token or variables.get(TOKEN_VARIABLE, "")
                opened = await stack.enter_async_context(
                    open_directory(
                        address, token=token, access_token=access_token, tls=tls, rpc_config=config, host=host
                    )
                )
        else:
            opened = directory
        nursery = await stack.enter_async_context(OwnNursery())
        stack.callback(nursery.cancel_scope.cancel)
        yield Client(
            nursery,
            endpoint,
            spec=spec or Spec(),
            user_id=user_id,
            directory=opened,
            tls=tls,
            metadata=checked,
            access_token=access_token,
            config=config,
            metrics=metrics,
            host=host,
        )
