"""`LegacyGateway`: a platform whose trials have participants of the legacy API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from purerpc import Service

from trio_cogment.config import RpcConfig
from trio_cogment.gateways.legacy.old_servers import OldServers, open_old_servers
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import within
from trio_cogment.platform import Platform


class LegacyGateway:
    """What a platform needs for the legacy API: `open_platform(participants, extensions=[LegacyGateway(profile)])`.

    Trials may then have old servers of agents and environments: their endpoints are `legacy://host:port`.

    Args:
        profile: the project.
        rpc_config: limits and timeouts of the connections to old servers.
    """

    def __init__(self, profile: LegacyProfile, *, rpc_config: RpcConfig | None = None) -> None:
        self._profile = profile
        self._rpc_config = rpc_config or RpcConfig()

    @asynccontextmanager
    async def open(self, platform: Platform) -> AsyncIterator[OpenedLegacyGateway]:
        """See `trio_cogment.platform.Extension`."""
        host = platform.participants.host
        async with open_old_servers(self._profile, within(platform), host, self._rpc_config) as servers:
            platform.orchestrator.call_old_servers(servers.find)
            try:
                yield OpenedLegacyGateway(servers)
            finally:
                platform.orchestrator.call_old_servers(None)


class OpenedLegacyGateway:
    """A gateway that is open.

    Attributes:
        services: what is served to old clients.
        servers: the old servers in trials.
    """

    def __init__(self, servers: OldServers) -> None:
        self.services: Sequence[Service] = ()
        self.servers = servers

    async def stop(self) -> None:
        """See `trio_cogment.platform.OpenedExtension`."""
