"""The old servers that a platform's trials name as `legacy://host:port`, as participants of today's API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio
from purerpc import Service
from typing_extensions import override

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.endpoints import LegacyEndpoint, parse_endpoint
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host import Host
from trio_cogment.base.services import IMPLEMENTATION, SERVICES, ServiceKind
from trio_cogment.gateways.legacy.data_log import OldDataLogs
from trio_cogment.gateways.legacy.hook import OLD_SERVER, HookService
from trio_cogment.gateways.legacy.participants import LegacyAgent, LegacyEnvironment
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.gateways.legacy.trials import TrialSource
from trio_cogment.rpc import (
    CallOpener,
    OwnNursery,
    SharedChannels,
    WithMetadata,
    bind,
    open_channel,
    open_in_process,
)
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.sdk import ActorSession, EnvironmentSession, LocalParticipants, Participants

_NAME = "legacy"
_SCHEME = "legacy://"


class _Participants(Participants):
    """Participants that know every old server by its endpoint, as the name of an implementation."""

    @override
    def choose(self, kind: ServiceKind, properties: Mapping[str, str]) -> str | None:
        if properties.get(IMPLEMENTATION, "").startswith(_SCHEME):
            properties = {**properties, IMPLEMENTATION: _NAME}
        return super().choose(kind, properties)


class OldServers:
    """Plays the parts of old servers in trials. Where they are is said by the name of the implementation that is asked
    for, if that is `legacy://host:port`, or else by the trial's parameters.

    One connection to a server is for all trials. They are never encrypted: old servers know no TLS.

    Args:
        nursery: where the connections are.
        profile: the project.
        trials: tells the parameters of trials.
        host: connects.
        config: limits and timeouts of the connections.

    Attributes:
        services: those of environments, actors, data logs and hooks.
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
        self._channel: CallOpener | None = None
        self._participants = _Participants(host=host)
        self._participants.register_actor(self._play_agent, _NAME)
        self._participants.register_environment(self._play_environment, _NAME)
        self._participants.register_datalog(OldDataLogs(profile, self).keep, _NAME)
        service = HookService(self, profile.call_timeout_seconds, profile.pre_trial_hooks)
        hooks = bind(SERVICES[ServiceKind.PRE_TRIAL_HOOK].descriptor(), service)
        # The participants have a service for hooks too, without any.
        others = (each for each in self._participants.services() if each.name != hooks.name)
        self.services: Sequence[Service] = [*others, hooks]

    def _make_channel(self, endpoint: LegacyEndpoint) -> AbstractAsyncContextManager[CallOpener]:
        return open_channel(self._host, endpoint.host, endpoint.port, config=self._config)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Answer what `find` has returned, for the time of the block."""
        inside = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
        try:
            async with open_in_process(self._host, self.services, config=inside) as channel:
                self._local, self._channel = LocalParticipants(self._participants, channel), channel
                yield
        finally:
            # Everybody has been told of the end.
            self._channels.abandon(trio.current_time())

    def find(self, endpoint: LegacyEndpoint, kind: ServiceKind) -> CallOpener:
        """Return what answers for a server; see `Orchestrator.call_old_servers`.

        Raises:
            FailedPreconditionError: this is not open.
        """
        if self._local is None or self._channel is None:
            raise FailedPreconditionError(f"{endpoint}: the gateway is closed")
        if kind is ServiceKind.PRE_TRIAL_HOOK:  # the others find it in the parameters
            return WithMetadata(self._channel, {OLD_SERVER: str(endpoint)})
        found = self._local.find(kind, {})
        assert found is not None
        return found

    def channel(self, endpoint: LegacyEndpoint) -> AbstractAsyncContextManager[CallOpener]:
        """Lend the channel to an old server for the time of a block."""
        return self._channels.open(endpoint, str(endpoint))

    async def _play_agent(self, session: ActorSession[Any, Any, Any]) -> None:
        text = session.implementation
        if not text.startswith(_SCHEME):
            params = await self._trials(session.trial_id)
            text = next((actor.endpoint for actor in params.actors if actor.name == session.name), "")
        endpoint = _endpoint(text)
        async with self.channel(endpoint) as channel:
            await LegacyAgent(channel, self._profile, self._trials, name=str(endpoint))(session)

    async def _play_environment(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        text = session.implementation
        if not text.startswith(_SCHEME):
            text = (await self._trials(session.trial_id)).environment.endpoint
        endpoint = _endpoint(text)
        async with self.channel(endpoint) as channel:
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
