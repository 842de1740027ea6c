"""`LegacyGateway`: a platform whose trials have participants of the legacy API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from purerpc import Service

from trio_cogment.access import AccessControl
from trio_cogment.api.legacy import data_pb2
from trio_cogment.api.legacy import orchestrator_pb2 as pb
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.host import Host
from trio_cogment.gateways.callers import callers_elsewhere, callers_in_process
from trio_cogment.gateways.legacy.client_service import ClientService
from trio_cogment.gateways.legacy.client_trials import ClientTrials
from trio_cogment.gateways.legacy.data_log import LogService
from trio_cogment.gateways.legacy.old_servers import OldServers, open_old_servers
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import asking, owner_within, within
from trio_cogment.platform import Platform
from trio_cogment.rpc import CallOpener, OwnNursery, bind
from trio_cogment.sdk import Controller


class LegacyGateway:
    """What a platform needs for the legacy API: `open_platform(participants, extensions=[LegacyGateway(profile)])`.

    Trials may then have old servers of agents, environments, hooks and data logs: their endpoints are
    `legacy://host:port`. Old clients call its service `cogment.Trial`, which is served with those of the platform; with
    a datastore there is `cogment.LogExporter`, too, for old orchestrators.

    Args:
        profile: the project. Its parameters are those of the trials that old clients start; without any, these get the
            platform's default parameters, through its hooks.
        rpc_config: limits and timeouts of the connections to old servers.
    """

    def __init__(self, profile: LegacyProfile, *, rpc_config: RpcConfig | None = None) -> None:
        self._profile = profile
        self._rpc_config = rpc_config or RpcConfig()

    @asynccontextmanager
    async def open(self, platform: Platform) -> AsyncIterator[OpenedLegacyGateway]:
        """See `trio_cogment.platform.Extension`."""
        profile, host, source = self._profile, platform.participants.host, within(platform)
        async with open_old_servers(profile, source, host, self._rpc_config) as servers, OwnNursery() as nursery:
            trials = ClientTrials(nursery, profile, source, host, owner_within(platform))
            default_params = profile.params or platform.orchestrator.default_params
            callers = callers_in_process(platform.channel)
            clients = ClientService(callers, trials, default_params, profile.params)
            services = [bind(pb.DESCRIPTOR.services_by_name["Trial"], clients)]
            if platform.datastore is not None:
                log = LogService(callers, profile)
                services.append(bind(data_pb2.DESCRIPTOR.services_by_name["LogExporter"], log))
            platform.orchestrator.call_old_servers(servers.find)
            try:
                yield OpenedLegacyGateway(services, servers, trials, clients)
            finally:
                platform.orchestrator.call_old_servers(None)
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def opened(
        self, opener: CallOpener, *, host: Host | None = None, access: AccessControl | None = None
    ) -> AsyncIterator[OpenedLegacyGateway]:
        """Open it in front of an orchestrator elsewhere, for the time of a block.

        That orchestrator calls the gateway instead of old servers: the endpoint of an environment or an actor is the
        gateway's, and its implementation is `legacy://host:port`. Where a hook or a data log is the gateway, the old
        servers are those of the profile. Old clients call the gateway, too. The orchestrator
        tells less than a platform: which actors are for old clients has to be in the profile (`clients`) or in its
        parameters, and the trial's configuration comes from the latter.

        Args:
            opener: a channel to the orchestrator's services for the lifecycle of trials and for client actors.
            host: gives the clock, and connects; by default the system.
            access: makes the tokens with which the orchestrator is called in the names of old clients, whose trials
                these are then; None: all calls are the gateway's.
        """
        profile, host = self._profile, host or Host()
        source = asking(Controller(opener), profile)
        async with open_old_servers(profile, source, host, self._rpc_config) as servers, OwnNursery() as nursery:
            trials = ClientTrials(nursery, profile, source, host)
            clients = ClientService(callers_elsewhere(opener, access), trials, profile.params, profile.params)
            services = [bind(pb.DESCRIPTOR.services_by_name["Trial"], clients), *servers.services]
            opened = OpenedLegacyGateway(services, servers, trials, clients)
            try:
                yield opened
            finally:
                nursery.cancel_scope.cancel()


class OpenedLegacyGateway:
    """A gateway that is open.

    Attributes:
        services: what is served to old clients, and with a datastore to old orchestrators that log.
        servers: the old servers in trials.
        trials: those of old clients.
    """

    def __init__(
        self, services: Sequence[Service], servers: OldServers, trials: ClientTrials, clients: ClientService
    ) -> None:
        self.services = services
        self.servers = servers
        self.trials = trials
        self._clients = clients

    async def stop(self) -> None:
        """See `trio_cogment.platform.OpenedExtension`: the trials' end answers the calls that wait."""
        self._clients.stop()
