"""A channel to a directory that reconnects quickly, and stays open for deregistering after a cancellation."""

from __future__ import annotations

import dataclasses
import math
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_cogment.access import TokenSource
from trio_cogment.base.config import DirectoryConfig, RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.host import Host
from trio_cogment.rpc import Channel, OwnNursery
from trio_cogment.servers.discovery.client import DirectoryClient

# A grace period: a block that may finish although it is being cancelled.


class GracePeriod:
    """The state of a block with a grace period.

    Attributes:
        cancelled_at: when the block was cancelled from outside; infinite before that.
    """

    def __init__(self, seconds: float) -> None:
        self.cancelled_at = math.inf
        self.shield = trio.CancelScope(shield=True)
        self.done = False
        self._seconds = seconds

    async def watch(self) -> None:
        """Wait for the cancellation that the shield keeps from the block, and set the deadline of the block."""
        try:
            await trio.sleep_forever()
        finally:
            if not self.done:
                self.cancelled_at = trio.current_time()
                self.shield.deadline = self.cancelled_at + self._seconds


@asynccontextmanager
async def grace_period(seconds: float) -> AsyncIterator[GracePeriod]:
    """When the block is cancelled from outside, let it go on for at most `seconds` from then."""
    state = GracePeriod(seconds)
    async with OwnNursery() as nursery:
        nursery.start_soon(state.watch)
        try:
            with state.shield:
                yield state
        finally:
            state.done = True
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_directory(
    endpoint: GrpcEndpoint | str,
    *,
    token: str = "",
    access_token: str | TokenSource = "",
    tls: ssl.SSLContext | None = None,
    config: DirectoryConfig | None = None,
    rpc_config: RpcConfig | None = None,
    host: Host | None = None,
) -> AsyncIterator[DirectoryClient]:
    """Open a channel to a directory for an `async with` block; it connects, and reconnects, when it is used.

    When the block is cancelled, its cleanup can still use the directory for `deregistration_timeout_seconds`.

    Args:
        endpoint: `grpc://host:port`.
        token: see `DirectoryClient`.
        access_token: says who registers and asks, to a directory that wants to know; see `rpc.Channel`.
        tls: the TLS context, for example from `trio_cogment.rpc.client_tls`; None for no encryption.
        config: timeouts.
        rpc_config: the settings of the channel. Some of its times are shortened, so that a dead connection is noticed
            during an inquiry, and a directory that has restarted is found soon.
        host: makes the connections; by default the system.

    Raises:
        EndpointError: the endpoint is not `grpc://host:port`.
        InvalidArgumentError: the token is not printable ASCII.
    """
    address = directory_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
    config = config or DirectoryConfig()
    channel = Channel(
        address.host,
        address.port,
        tls=tls,
        config=_fast_reconnect(rpc_config or RpcConfig(), config),
        host=host,
        token=access_token,
    )
    client = DirectoryClient(channel, token=token, config=config, name=f"the directory at {address}")
    closing = trio.Event()
    async with OwnNursery() as nursery:
        await nursery.start(_hold, channel, closing, config.deregistration_timeout_seconds)
        try:
            yield client
        finally:
            closing.set()


def directory_endpoint(text: str, *, field_name: str = "directory_endpoint") -> GrpcEndpoint:
    """Parse the endpoint of a directory.

    Raises:
        EndpointError: it is not `grpc://host:port`; a directory cannot itself be discovered.
    """
    return parse_server_endpoint(text, field_name=field_name)


async def _hold(channel: Channel, closing: trio.Event, grace: float, *, task_status: trio.TaskStatus[None]) -> None:
    """Keep the channel open until `closing` is set, and for the grace period after a cancellation."""
    async with grace_period(grace), channel:
        task_status.started()
        await closing.wait()


def _fast_reconnect(rpc_config: RpcConfig, config: DirectoryConfig) -> RpcConfig:
    # A host that vanished sends no RST: only a PING finds out. A channel checks every ten seconds whether one is due;
    # the rest of the inquiry's time must suffice for the PING's answer and for another attempt on a new connection.
    fifth = config.inquiry_timeout_seconds / 5
    reconnect = min(rpc_config.connect_backoff_max_seconds, config.reconnect_max_seconds)
    return dataclasses.replace(
        rpc_config,
        keepalive_seconds=min(rpc_config.keepalive_seconds or fifth, fifth),
        keepalive_timeout_seconds=min(rpc_config.keepalive_timeout_seconds, fifth),
        connect_backoff_initial_seconds=min(rpc_config.connect_backoff_initial_seconds, reconnect),
        connect_backoff_max_seconds=reconnect,
    )
