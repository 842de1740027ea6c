"""A channel to a directory that finds it again soon, and outlives a cancellation by as long as saying goodbye takes."""

from __future__ import annotations

import dataclasses
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_cogment.config import DirectoryConfig, RpcConfig
from trio_cogment.discovery._grace import lingering
from trio_cogment.discovery.client import DirectoryClient
from trio_cogment.endpoints import GrpcEndpoint, parse_endpoint
from trio_cogment.errors import EndpointError
from trio_cogment.rpc import Channel, OwnNursery


@asynccontextmanager
async def open_directory(
    endpoint: GrpcEndpoint | str,
    *,
    token: str = "",
    tls: ssl.SSLContext | None = None,
    config: DirectoryConfig | None = None,
    rpc_config: RpcConfig | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[DirectoryClient]:
    """Connect to a directory, when it is needed and as often as it is, for the time of an `async with` block.

    When the block is cancelled, what it does on its way out can use the directory still, for as long as
    deregistrations may take.

    Args:
        endpoint: `grpc://host:port`.
        token: see `DirectoryClient`.
        tls: encrypt; for example from `trio_cogment.rpc.client_tls`.
        config: how long things may take.
        rpc_config: for the channel; some of its times are made shorter, so that a dead connection is noticed while an
            inquiry waits, and a directory that is back is found soon.
        rng: decides by how much the pauses between attempts to connect differ.

    Raises:
        EndpointError: the endpoint is something else.
        InvalidArgumentError: a token that cannot travel.
    """
    address = directory_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
    config = config or DirectoryConfig()
    channel = Channel(address.host, address.port, tls=tls, config=_hasty(rpc_config or RpcConfig(), config), rng=rng)
    client = DirectoryClient(channel, token=token, config=config, name=f"the directory at {address}")
    closing = trio.Event()
    async with OwnNursery() as nursery:
        await nursery.start(_hold, channel, closing, config.deregistration_timeout_seconds)
        try:
            yield client
        finally:
            closing.set()


def directory_endpoint(text: str, *, field_name: str = "directory_endpoint") -> GrpcEndpoint:
    """Return where a directory is.

    Raises:
        EndpointError: it is no `grpc://host:port`; who looks for services cannot be discovered.
    """
    endpoint = parse_endpoint(text, field_name=field_name)
    if not isinstance(endpoint, GrpcEndpoint):
        raise EndpointError(f"{field_name}: {text!r}: expected grpc://host:port")
    return endpoint


async def _hold(channel: Channel, closing: trio.Event, linger: float, *, task_status: trio.TaskStatus[None]) -> None:
    """Keep a channel open until it is not needed any more."""
    async with lingering(linger), channel:
        task_status.started()
        await closing.wait()


def _hasty(rpc_config: RpcConfig, config: DirectoryConfig) -> RpcConfig:
    # A host that vanished sends no RST: only a PING tells. A channel looks every ten seconds whether one is due; what
    # an inquiry has left then must do for the PING's answer, and for another try over a new connection.
    fifth = config.inquiry_timeout_seconds / 5
    reconnect = min(rpc_config.connect_backoff_max_seconds, config.reconnect_max_seconds)
    return dataclasses.replace(
        rpc_config,
        keepalive_seconds=min(rpc_config.keepalive_seconds or fifth, fifth),
        keepalive_timeout_seconds=min(rpc_config.keepalive_timeout_seconds, fifth),
        connect_backoff_initial_seconds=min(rpc_config.connect_backoff_initial_seconds, reconnect),
        connect_backoff_max_seconds=reconnect,
    )
