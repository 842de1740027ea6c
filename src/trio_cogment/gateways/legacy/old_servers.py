"""The old servers that a platform's trials name as `legacy://host:port`, as participants of today's API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio

from trio_cogment.config import RpcConfig
from trio_cogment.endpoints import LegacyEndpoint, parse_endpoint
from trio_cogment.errors import EndpointError, FailedPreconditionError
from trio_cogment.gateways.legacy.agent import LegacyAgent
from trio_cogment.gateways.legacy.environment import LegacyEnvironment
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import TrialSource
from trio_cogment.host import Host
from trio_cogment.rpc import CallOpener, OwnNursery, SharedChannels, open_channel, open_in_process
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.sdk import ActorSession, EnvironmentSession, LocalParticipants, Participants
from trio_cogment.services import ServiceKind

_KINDS = (ServiceKind.ACTOR, ServiceKind.ENVIRONMENT)
_NAME = "legacy"


class OldServers:
    """Plays the parts of old servers in trials; each trial's parameters say where they are.

    One connection to a server is for all trials. They are never encrypted: old servers know no TLS.

    Args:
        nursery: where the connections are.
        profile: the project.
        trials: tells the parameters of trials.
        host: connects.
        config: limits and timeouts of the connections.
    """

    def __init__(
        self, nursery: trio.Nursery, profile: LegacyProfile, trials: TrialSource, host: Host, config: RpcConfig
    ) -> None:
        self._profile = profile
        self._trials = trials
        self._host = host
        self._config = config
        self._channels = SharedChannels(nursery, self._make_channel)
        self._local: LocalParticipants | None = None

    def _make_channel(self, endpoint: LegacyEndpoint) -> AbstractAsyncContextManager[CallOpener]:
        return open_channel(self._host, endpoint.host, endpoint.port, config=self._config)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Answer what `find` has returned, for the time of the block."""
        participants = Participants(host=self._host)
        participants.register_actor(self._play_agent, _NAME)
        participants.register_environment(self._play_environment, _NAME)
        inside = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
        try:
            async with open_in_process(self._host, participants.services(), config=inside) as channel:
                self._local = LocalParticipants(participants, channel)
                yield
        finally:
            # Everybody has been told of the end.
            self._channels.abandon(trio.current_time())

    def find(self, endpoint: LegacyEndpoint, kind: ServiceKind) -> CallOpener:
        """Return what answers for a server; see `Orchestrator.call_old_servers`.

        Raises:
            EndpointError: a server of the legacy API cannot be of this kind.
        """
        if kind not in _KINDS or self._local is None:
            raise EndpointError(f"{endpoint}: a server of the legacy API can be an actor or an environment")
        found = self._local.find(kind, {})
        assert found is not None
        return found

    async def _play_agent(self, session: ActorSession[Any, Any, Any]) -> None:
        params = await self._trials(session.trial_id)
        texts = [actor.endpoint for actor in params.actors if actor.name == session.name]
        endpoint = _endpoint(texts[0] if texts else "")
        async with self._channels.open(endpoint, str(endpoint)) as channel:
            await LegacyAgent(channel, self._profile, self._trials, name=str(endpoint))(session)

    async def _play_environment(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        params = await self._trials(session.trial_id)
        endpoint = _endpoint(params.environment.endpoint)
        async with self._channels.open(endpoint, str(endpoint)) as channel:
            await LegacyEnvironment(channel, self._profile, self._trials, name=str(endpoint))(session)


def _endpoint(text: str) -> LegacyEndpoint:
    endpoint = parse_endpoint(text)
    if not isinstance(endpoint, LegacyEndpoint):
        raise FailedPreconditionError(f"expected legacy://host:port as the endpoint, got {text!r}")
    return endpoint


@asynccontextmanager
async def open_old_servers(
    profile: LegacyProfile, trials: TrialSource, host: Host, config: RpcConfig
) -> AsyncIterator[OldServers]:
    """Have old servers in trials, for the time of the block; see `OldServers` for the arguments."""
    async with OwnNursery() as nursery:
        servers = OldServers(nursery, profile, trials, host, config)
        async with servers.opened():
            yield servers
