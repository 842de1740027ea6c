"""From endpoints to channels: what is served in this process first, then the directory; sockets shared by address."""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol, TypeAlias

import trio
from trio_util import AsyncValue

from trio_cogment.config import RpcConfig
from trio_cogment.discovery import DirectoryClient
from trio_cogment.endpoints import (
    ClientEndpoint,
    DiscoverEndpoint,
    Endpoint,
    GrpcEndpoint,
    parse_endpoint,
    parse_server_endpoint,
)
from trio_cogment.errors import EndpointError, FailedPreconditionError
from trio_cogment.host import Host
from trio_cogment.rpc import CallOpener, open_channel
from trio_cogment.services import TRIAL_KINDS, ServiceKind

#: A channel nobody uses is kept this long: the next trial usually goes to the same place.
IDLE_CHANNEL_SECONDS = 30.0

#: The pause between attempts to connect where the caller makes pauses of its own: just enough that a crowd of trials
#: with one data log does not try all at once.
SELF_PACED_BACKOFF_SECONDS = 0.25

Target: TypeAlias = GrpcEndpoint | CallOpener


class LocalServices(Protocol):
    """What is served in this process."""

    def find(self, kind: ServiceKind, properties: Mapping[str, str]) -> CallOpener | None:
        """Return where a service of this kind with all these properties is called, None if there is none here."""

    def registered(self, kind: ServiceKind) -> str:
        """Return the names of what there is of a kind, for errors; empty if there is nothing."""


class Connections:
    """Resolves endpoints and lends channels. Its channels live in `nursery`, shielded: `abandon` must follow a cancel.

    Args:
        nursery: where the channels' tasks run.
        local: what is served in this process.
        config: for the channels.
        directory: who is asked for what is not served here.
        client_tls: encrypts every channel; without it none is encrypted.
        host: makes the connections.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        local: LocalServices | None,
        config: RpcConfig,
        *,
        directory: DirectoryClient | None = None,
        client_tls: ssl.SSLContext | None = None,
        host: Host | None = None,
    ) -> None:
        self._nursery = nursery
        self._local = local
        self._config = config
        self._directory = directory
        self._client_tls = client_tls
        self._host = host or Host()
        self._self_paced_config = replace(
            config,
            connect_backoff_initial_seconds=min(config.connect_backoff_initial_seconds, SELF_PACED_BACKOFF_SECONDS),
            connect_backoff_max_seconds=min(config.connect_backoff_max_seconds, SELF_PACED_BACKOFF_SECONDS),
            await_server_seconds=0.0,
        )
        self._channels: dict[tuple[GrpcEndpoint, bool], _SharedChannel] = {}
        self._abandoned_at = math.inf

    async def resolve(
        self, text: str, kind: ServiceKind, field_name: str, properties: Mapping[str, str] | None = None
    ) -> Target | None:
        """Return what an endpoint leads to, None for a client actor.

        Args:
            text: the endpoint; empty means discovery by context.
            kind: what is looked for.
            field_name: named in errors.
            properties: what the context adds to a discovery.

        Raises:
            EndpointError: a bad endpoint, or one that has no place here.
            FailedPreconditionError: nobody serves what it describes, or what is registered cannot be used.
            UnavailableError: the directory does not answer.
        """
        endpoint: Endpoint
        if kind is ServiceKind.ACTOR:
            endpoint = parse_endpoint(text, field_name=field_name)
        else:
            endpoint = parse_server_endpoint(text, discovery=True, field_name=field_name)
        if isinstance(endpoint, DiscoverEndpoint):
            return await self._discover(endpoint.in_context(kind, properties or {}), kind, field_name)
        if isinstance(endpoint, ClientEndpoint):
            return None
        return endpoint

    async def _discover(self, wanted: DiscoverEndpoint, kind: ServiceKind, field_name: str) -> Target | None:
        assert wanted.kind is not None
        if wanted.kind not in TRIAL_KINDS:
            expected = ", ".join(kind.value for kind in TRIAL_KINDS)
            raise EndpointError(f"{field_name}: {wanted}: expected a path among {expected}, service")
        if self._local is not None and not wanted.service_id:
            opener = self._local.find(wanted.kind, wanted.properties)
            if opener is not None:
                return opener
        if self._directory is None:
            have = "" if self._local is None else self._local.registered(wanted.kind)
            raise FailedPreconditionError(
                f"{field_name}: {wanted}: nothing like that is registered in this process "
                f"(registered: {have or 'none'}), and no directory is configured to look further "
                "(--directory_endpoint). Register it, or correct the parameters"
            )
        found = await self._directory.find(wanted, kind, field_name=field_name)
        if isinstance(found.endpoint, ClientEndpoint):
            if kind is not ServiceKind.ACTOR:
                raise FailedPreconditionError(
                    f"{field_name}: {wanted}: service {found.service_id} is registered as cogment://client, which is "
                    "for actors only"
                )
            return None
        if found.ssl and self._client_tls is None:
            raise FailedPreconditionError(
                f"{field_name}: {wanted}: service {found.service_id} at {found.endpoint} expects TLS, and none is "
                "configured here for outgoing calls"
            )
        # The other way round is no error, as with the reference: one that is registered without TLS is called with it.
        return found.endpoint

    @asynccontextmanager
    async def open(self, target: Target, *, self_paced: bool = False) -> AsyncIterator[CallOpener]:
        """Lend the channel to a target for the time of an `async with` block.

        Args:
            target: where to.
            self_paced: the caller makes growing pauses between its tries. The channel's own on top of them would let
                most tries fail without one: until its next attempt is due, a channel repeats its last error.
        """
        if isinstance(target, CallOpener):
            yield target
            return
        shared = self._channels.get((target, self_paced))
        if shared is None:
            shared = self._channels[target, self_paced] = _SharedChannel()
            if self._abandoned_at < math.inf:
                shared.abandon(self._abandoned_at)
            self._nursery.start_soon(self._keep, target, self_paced, shared, name=f"channel to {target}")
        shared.users.value += 1
        try:
            await shared.ready.wait()
            assert shared.channel is not None
            yield shared.channel
        finally:
            shared.users.value -= 1

    async def _keep(self, target: GrpcEndpoint, self_paced: bool, shared: _SharedChannel) -> None:
        config = self._self_paced_config if self_paced else self._config
        # Shielded, so that END can leave when the host cancels.
        with shared.shield:
            opened = open_channel(self._host, target.host, target.port, tls=self._client_tls, config=config)
            async with opened as channel:
                shared.channel = channel
                shared.ready.set()
                idle = False
                while not idle:
                    kept = IDLE_CHANNEL_SECONDS if self._abandoned_at == math.inf else 0
                    with trio.CancelScope() as shared.patience:
                        await shared.users.wait_value(0, held_for=kept)
                        # Somebody may have come in the very turn in which the wait was over.
                        idle = shared.users.value == 0
                del self._channels[target, self_paced]

    def abandon(self, deadline: float) -> None:
        """The host cancels: channels are closed when nobody uses them any more, and at the deadline at the latest."""
        self._abandoned_at = min(self._abandoned_at, deadline)
        for shared in self._channels.values():
            shared.abandon(self._abandoned_at)


class _SharedChannel:
    def __init__(self) -> None:
        self.shield = trio.CancelScope(shield=True)
        self.patience = trio.CancelScope()  # of the wait for somebody to use it again
        self.channel: CallOpener | None = None
        self.ready = trio.Event()
        self.users = AsyncValue(0)

    def abandon(self, deadline: float) -> None:
        self.shield.deadline = deadline
        self.patience.cancel()
