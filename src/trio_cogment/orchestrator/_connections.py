"""From endpoints to channels: what is served in this process first, sockets shared by address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeAlias

import trio
from trio_util import AsyncValue

from trio_cogment.config import RpcConfig
from trio_cogment.directory import (
    ClientEndpoint,
    DiscoverEndpoint,
    Endpoint,
    GrpcEndpoint,
    ServiceKind,
    parse_endpoint,
)
from trio_cogment.errors import EndpointError
from trio_cogment.rpc import CallOpener, Channel

#: A channel nobody uses is kept this long: the next trial usually goes to the same place.
IDLE_CHANNEL_SECONDS = 30.0

Target: TypeAlias = GrpcEndpoint | CallOpener


#: Makes a channel to a host's port: over sockets, or over a simulated network.
MakeChannel: TypeAlias = Callable[[str, int, RpcConfig], Channel]


def _socket_channel(host: str, port: int, config: RpcConfig) -> Channel:
    return Channel(host, port, config=config)


class LocalServices(Protocol):
    """What is served in this process."""

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener | None:
        """Return where a service of this kind with all these properties is called, None if there is none here."""


class Connections:
    """Resolves endpoints and lends channels. Its channels live in `nursery`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        local: LocalServices | None,
        config: RpcConfig,
        make_channel: MakeChannel | None = None,
    ) -> None:
        self._nursery = nursery
        self._local = local
        self._config = config
        self._make_channel = make_channel or _socket_channel
        self._channels: dict[GrpcEndpoint, _SharedChannel] = {}

    def resolve(
        self, text: str, kind: ServiceKind, field_name: str, properties: Mapping[str, str] | None = None
    ) -> Target | None:
        """Return what an endpoint leads to, None for a client actor.

        Args:
            text: the endpoint; empty means discovery by context.
            kind: what is looked for.
            field_name: named in errors.
            properties: what the context adds to a discovery.

        Raises:
            EndpointError: a bad endpoint, one that has no place here, or nobody serves what it describes.
        """
        endpoint: Endpoint = parse_endpoint(text, field_name=field_name)
        if isinstance(endpoint, GrpcEndpoint):
            return endpoint
        if isinstance(endpoint, ClientEndpoint):
            if kind is not ServiceKind.ACTOR:
                raise EndpointError(f"{field_name}: cogment://client is for actors only")
            return None
        return self._discover(endpoint, kind, field_name, properties or {})

    def _discover(
        self, endpoint: DiscoverEndpoint, kind: ServiceKind, field_name: str, context: Mapping[str, str]
    ) -> CallOpener:
        explicit = endpoint.kind is not None or endpoint.service_id
        # The user's own properties win over the context's, and an explicit kind takes nothing from the context.
        properties = dict(endpoint.properties) if explicit else {**context, **endpoint.properties}
        opener = None
        if self._local is not None and not endpoint.service_id:
            opener = self._local.find(endpoint.kind or kind, properties)
        if opener is None:
            wanted = ", ".join(f"{name}={value}" for name, value in properties.items())
            raise EndpointError(
                f"{field_name}: no {(endpoint.kind or kind).value} with {wanted or 'any properties'} is registered in "
                "this process, and no directory is configured to look further"
            )
        return opener

    def open(self, target: Target) -> AbstractAsyncContextManager[CallOpener]:
        """Lend the channel to a target for the time of an `async with` block."""
        return self._lend(target)

    @asynccontextmanager
    async def _lend(self, target: Target) -> AsyncIterator[CallOpener]:
        if isinstance(target, CallOpener):
            yield target
            return
        shared = self._channels.get(target)
        if shared is None:
            shared = self._channels[target] = _SharedChannel()
            self._nursery.start_soon(self._keep, target, shared, name=f"channel to {target}")
        shared.users.value += 1
        try:
            await shared.ready.wait()
            assert shared.channel is not None
            yield shared.channel
        finally:
            shared.users.value -= 1

    async def _keep(self, target: GrpcEndpoint, shared: _SharedChannel) -> None:
        async with self._make_channel(target.host, target.port, self._config) as channel:
            shared.channel = channel
            shared.ready.set()
            idle = False
            while not idle:
                await shared.users.wait_value(0, held_for=IDLE_CHANNEL_SECONDS)
                # Somebody may have come in the very turn in which the wait was over.
                idle = shared.users.value == 0
            del self._channels[target]


class _SharedChannel:
    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.ready = trio.Event()
        self.users = AsyncValue(0)
