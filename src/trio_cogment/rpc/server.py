"""The server: any listeners, one connection object per stream, and a boundary around each."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import trio
from purerpc import Service

from trio_cogment.config import RpcConfig
from trio_cogment.rpc._connection import Connection, routes_of
from trio_cogment.rpc._pipe import format_address, peer_name, pipe_over

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_ACCEPT_PAUSE_SECONDS = 0.1
#: `accept` fails with these when descriptors or memory run out; the connection stays in the kernel's queue.
_ACCEPT_EXHAUSTED = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])


@dataclass(frozen=True, slots=True)
class Serving:
    """What `serve` reports once it accepts connections.

    Attributes:
        addresses: where, in gRPC's notation (``ipv4:127.0.0.1:9000``); empty for listeners that are no sockets.
        ports: the TCP ports among them.
    """

    addresses: tuple[str, ...]
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        """The first TCP port."""
        return self.ports[0]


async def open_listeners(host: str = "0.0.0.0", port: int = 0) -> list[trio.SocketListener]:
    """Bind and listen on TCP.

    Args:
        host: a name or an address; every address it resolves to is bound, on the same port.
        port: 0 lets the system choose.

    Raises:
        OSError: the port is taken, also by another server of this kind: SO_REUSEPORT is not set, on purpose.

    After `Cancelled` nothing is left open.
    """
    found = await trio.socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG * (not host[:1].isdigit())
    )
    listeners: list[trio.SocketListener] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            chosen = (address[0], port, *address[2:])
            listener = _bind(family, kind, protocol, chosen)
            listeners.append(listener)
            if not port:
                port = listener.socket.getsockname()[1]
    except OSError:
        for listener in listeners:
            listener.socket.close()
        raise
    return listeners


def _bind(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> trio.SocketListener:
    plain = socket.socket(family, kind, protocol)
    try:
        # A restart must not wait for TIME_WAIT; SO_REUSEADDR does not let two listeners share a port on Linux.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            plain.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        plain.bind(address)
        plain.listen(_BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(plain))
    except OSError as error:
        plain.close()
        where = format_address(family, address)
        raise OSError(error.errno, f"cannot listen on {where}: {os.strerror(error.errno or 0)}") from error


async def serve(
    services: Iterable[Service],
    listeners: Sequence[trio.abc.Listener[Any]],
    *,
    config: RpcConfig | None = None,
    task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled.

    Args:
        services: as made by `trio_cogment.rpc.bind`.
        listeners: for example from `open_listeners`; they belong to the server from now on.
        config: limits and windows.
        task_status: learns a `Serving` when connections are accepted.

    Raises:
        ValueError: two services have the same name.

    On cancellation every handler is cancelled, callers are told UNAVAILABLE as far as that is possible within
    `RpcConfig.farewell_timeout_seconds`, and all sockets are closed. A failing handler or connection harms no other.
    """
    routes = routes_of(list(services))
    config = config or RpcConfig()
    try:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(_accept, listener, routes, config)
            task_status.started(_serving(listeners))
    finally:
        # Shielded, or the first one would end with Cancelled and leave the others open.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + config.farewell_timeout_seconds):
            for listener in listeners:
                await listener.aclose()


async def serve_stream(
    services: Iterable[Service],
    stream: trio.abc.Stream,
    *,
    config: RpcConfig | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one connection over a stream that is there already, until either end closes it."""
    await _run_connection(stream, routes_of(list(services)), config or RpcConfig(), task_status)


async def _accept(listener: trio.abc.Listener[Any], routes: dict[str, Any], config: RpcConfig) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in _ACCEPT_EXHAUSTED:
                    raise
                logger.warning("cannot accept a connection: %s", os.strerror(error.errno or 0))
                await trio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            nursery.start_soon(_run_connection, stream, routes, config, name="connection")


async def _run_connection(
    stream: trio.abc.Stream,
    routes: dict[str, Any],
    config: RpcConfig,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    peer = peer_name(stream)
    connection = Connection(pipe_over(stream), client_side=False, config=config, peer=peer, routes=routes)
    await connection.run(task_status)


def _serving(listeners: Sequence[trio.abc.Listener[Any]]) -> Serving:
    addresses: list[str] = []
    ports: list[int] = []
    for listener in listeners:
        if isinstance(listener, trio.SocketListener):
            address = listener.socket.getsockname()
            addresses.append(format_address(listener.socket.family, address))
            if isinstance(address, tuple):
                ports.append(address[1])
    return Serving(tuple(addresses), tuple(ports))
