"""The server: any listeners, one connection object per stream, and a boundary around each.

Each connection runs in a task of its own from the moment it is accepted. The TLS handshake runs there too, with a time
limit, so a client that is slow to shake hands delays nobody else. `Connection.run` lets no `Exception` out: one
connection cannot end the others.

Which connections are taken is decided in `_admission`, which also says what happens when descriptors or memory run out.
Other errors of `accept` end the server.

A drain closes the listeners first and leaves the connections to end in order (`_drain`). New clients are refused by
the kernel meanwhile and can go to another server.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import trio
from purerpc import Service

from trio_cogment.access import AccessControl, anonymous
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RemoteProtocolError, ResourceExhaustedError
from trio_cogment.base.host.binding import format_address
from trio_cogment.base.tracing import tracing_of_run
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.budget.refusals import refusals
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run
from trio_cogment.rpc._admission import Admission, ReserveDescriptor
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._byte_stream_over import byte_stream_over, peer_name
from trio_cogment.rpc._call_protocols import Route
from trio_cogment.rpc._connection import Connection
from trio_cogment.rpc._first_bytes import look
from trio_cogment.rpc._observer import ServerObserver
from trio_cogment.rpc._routes import routes_of
from trio_cogment.rpc._server_group import ServerGroup
from trio_cogment.rpc.health import HealthService
from trio_cogment.rpc.listeners import socket_of
from trio_cogment.rpc.relay import Accepted, RelayRoute, Served, ServerSide, relay_routes
from trio_cogment.rpc.tls import certificate_names, left_without_a_word, shake_hands

logger = logging.getLogger(__name__)

_ACCEPT_PAUSE_SECONDS = 0.1
#: `accept` fails with these when descriptors or memory run out; the connection stays in the kernel's queue.
_ACCEPT_EXHAUSTED = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
#: What a connection's tasks and tables, and a handshake, cost in units; see `budget.turn_order`.
_CONNECTION_UNITS = 5
_HANDSHAKE_UNITS = 10


@dataclass(frozen=True, slots=True)
class RunningServer:
    """What `serve` reports once it accepts connections.

    Attributes:
        addresses: where, in gRPC's notation (``ipv4:127.0.0.1:9000``); empty for listeners that are not sockets.
        ports: the TCP ports among them.
    """

    addresses: tuple[str, ...]
    ports: tuple[int, ...]
    _group: ServerGroup = field(default_factory=ServerGroup, repr=False, compare=False)
    _config: RpcConfig = field(default_factory=RpcConfig, repr=False, compare=False)

    async def drain(self, grace_seconds: float | None = None) -> None:
        """Stop in order; return when `serve` has ended.

        Nothing more is accepted. Every client is told to open no more calls here (GOAWAY); calls that are on their way
        are still served, later ones refused so that they can be repeated elsewhere. Calls that have not ended after
        the grace are cancelled, and their callers told UNAVAILABLE. After `Cancelled` the drain goes on by itself.

        Args:
            grace_seconds: how long running calls may go on; `RpcConfig.drain_grace_seconds` when left out.
        """
        self._group.drain(self._config.drain_grace_seconds if grace_seconds is None else grace_seconds)
        await self._group.done.wait()

    @property
    def port(self) -> int:
        """The first TCP port."""
        return self.ports[0]


async def serve(
    services: Iterable[Service],
    listeners: Sequence[trio.abc.Listener[Any]],
    *,
    config: RpcConfig | None = None,
    health: HealthService | None = None,
    observer: ServerObserver | None = None,
    access: AccessControl | None = None,
    web: ServerSide | None = None,
    task_status: trio.TaskStatus[RunningServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, or drained by `RunningServer.drain`.

    Args:
        services: as made by `trio_cogment.rpc.bind`.
        listeners: from `open_listeners`, `open_unix_listener`, or any others, also mixed; they belong to the server
            from now on.
        config: limits and windows.
        health: is stopped when the server drains or ends. It is served only if it is among the services, for example
            those of `trio_cogment.rpc.standard_services`.
        observer: learns of every call, for example a `metrics.calls.CallMetrics`.
        access: decides about every call before its handler starts; None: every call is let in.
        web: gets the connections that do not speak HTTP/2, and judges the requests of gRPC-Web that come by the others,
            for example a `trio_cogment.web.WebSide`; None: both are refused.
        task_status: gets a `RunningServer` when connections are accepted.

    Raises:
        ValueError: two services have the same name.

    On cancellation every handler is cancelled, callers are told UNAVAILABLE as far as that is possible within
    `RpcConfig.farewell_timeout_seconds`, and all sockets are closed. What a handler sends on its way out, shielded for
    half that time at most, reaches its caller first. A failing handler or connection harms no other.
    """
    config = config or RpcConfig()
    services = _traced(services)
    group = ServerGroup(None if health is None else health.stop)
    try:
        routes = routes_of(services, observer)
        door = None if web is None else _Door(web, relay_routes(routes, observer))
        server = _Server(routes, config, group, access, door, Admission(config))
        with memory_of_run().lent_by(config):
            async with trio.open_nursery() as nursery:
                if access is not None:
                    nursery.start_soon(_recheck, access, group, config.access_recheck_seconds)
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(_accept, listener, server)
                    task_status.started(_running_server(listeners, group, config))
                nursery.cancel_scope.cancel()  # drained: there are no callers to look at again
    finally:
        if health is not None:
            health.stop()
        # Shielded, or the first one would end with Cancelled and leave the others open.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + config.farewell_timeout_seconds):
            for listener in listeners:
                await listener.aclose()
        group.done.set()


async def serve_stream(
    services: Iterable[Service],
    stream: trio.abc.Stream,
    *,
    config: RpcConfig | None = None,
    access: AccessControl | None = None,
    web: ServerSide | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one connection over a stream that is there already, until either end closes it."""
    routes = routes_of(_traced(services))
    config = config or RpcConfig()
    door = None if web is None else _Door(web, relay_routes(routes, None))
    server = _Server(routes, config, ServerGroup(), access, door, Admission(config))
    await _run_connection(stream, server, task_status)


def _traced(services: Iterable[Service]) -> Iterable[Service]:
    tracing = tracing_of_run()
    if tracing is None:
        return services
    from trio_cogment.rpc._tracing import traced_services

    return traced_services(services, tracing)


@dataclass(frozen=True, slots=True)
class _Door:
    """Where connections go that do not speak HTTP/2, and what can be called there; the others may bring gRPC-Web."""

    side: ServerSide
    routes: dict[str, RelayRoute]


@dataclass(frozen=True, slots=True)
class _Server:
    """What all connections of one server share."""

    routes: dict[str, Route]
    config: RpcConfig
    group: ServerGroup
    access: AccessControl | None
    door: _Door | None
    admission: Admission


async def _accept(listener: trio.abc.Listener[Any], server: _Server) -> None:
    reserve = ReserveDescriptor()
    try:
        async with trio.open_nursery() as nursery:
            with server.group.accepting():
                while True:
                    stream = await _accept_one(listener, server.admission, reserve)
                    if stream is not None:
                        nursery.start_soon(_run_guarded, stream, server, name="connection")
            await listener.aclose()  # draining: who connects now is refused and goes elsewhere
    finally:
        reserve.close()


async def _accept_one(
    listener: trio.abc.Listener[Any], admission: Admission, reserve: ReserveDescriptor
) -> trio.abc.Stream | None:
    """Return the next connection; None if there was nothing to take it with."""
    try:
        stream: trio.abc.Stream = await listener.accept()
        return stream
    except OSError as error:
        if error.errno not in _ACCEPT_EXHAUSTED:
            raise
        admission.out_of(os.strerror(error.errno or 0))
    with reserve.given_up():
        try:
            with trio.move_on_after(_ACCEPT_PAUSE_SECONDS):
                await trio.aclose_forcefully(await listener.accept())
                return None
        except OSError as error:
            if error.errno not in _ACCEPT_EXHAUSTED:
                raise
    await trio.sleep(_ACCEPT_PAUSE_SECONDS)
    return None


async def _run_guarded(stream: trio.abc.Stream, server: _Server) -> None:
    """Serve a connection: what nobody has expected ends this one, and no other."""
    peer = peer_name(stream)
    try:
        await _run_connection(stream, server)
    except* Exception:
        logger.exception("connection with %s failed", peer)


async def _run_connection(
    stream: trio.abc.Stream,
    server: _Server,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    peer = peer_name(stream)
    turns = turns_of_run()
    config, access, door = server.config, server.access, server.door

    async def handshakes_turn() -> None:
        await turns.turn(Lane.OTHERS, _HANDSHAKE_UNITS)

    async def first_turn() -> None:
        await turns.turn(Lane.OTHERS, _CONNECTION_UNITS)

    async with AsyncExitStack() as on_failure:
        on_failure.push_async_callback(trio.aclose_forcefully, stream)
        await first_turn()
        try:
            account = server.admission.admit(stream, anonymous(peer))
        except ResourceExhaustedError as reason:
            on_failure.pop_all()
            await server.admission.refuse(stream, reason)
            task_status.started()
            return
        on_failure.callback(account.close)
        try:
            await shake_hands(stream, config.handshake_timeout_seconds, http1=door is not None, turn=handshakes_turn)
            visitor = None if access is None else access.visitor(peer, certificate_names(stream))
            looked: tuple[ByteStream, bool] | None = None
            if door is not None:
                with server.group.beginning():
                    looked = await look(stream, config.handshake_timeout_seconds, first_turn)
            # While the server drains nobody waits for what comes: the engine says GOAWAY.
            byte_stream, speaks_http2 = looked or (byte_stream_over(stream), True)
        except RemoteProtocolError as error:
            if left_without_a_word(error):
                logger.debug("connection with %s: %s", peer, error)
            else:
                refusals().add("failed handshakes", logger, "connection with %s: %s", peer, error)
            task_status.started()
            return
        on_failure.pop_all()
    connection: Served
    secure = isinstance(stream, trio.SSLStream)
    if door is None or speaks_http2:
        connection = Connection(
            byte_stream,
            client_side=False,
            config=config,
            peer=peer,
            routes=server.routes,
            visitor=visitor,
            account=account,
            web=None if door is None else door.side.grpc_web(secure=secure),
        )
    else:
        accepted = Accepted(byte_stream, peer, secure, door.routes, config, visitor, account)
        try:
            connection = door.side.connection(accepted)
        except OSError as error:  # what it needs could not be imported: no descriptor was left
            account.close()
            await byte_stream.aclose()
            server.admission.out_of(f"connections of browsers: {error.strerror}")
            task_status.started()
            return
        except BaseException:
            account.close()
            await byte_stream.aclose()
            raise
    try:
        with server.group.connected(connection):
            await connection.run(task_status)
    finally:
        account.close()


async def _recheck(access: AccessControl, group: ServerGroup, seconds: float) -> None:
    """End calls whose token has expired or was revoked while they run."""
    while True:
        await trio.sleep(seconds)
        for connection in group.connections():
            connection.end_calls_of_others(access.valid)


def _running_server(
    listeners: Sequence[trio.abc.Listener[Any]], group: ServerGroup, config: RpcConfig
) -> RunningServer:
    addresses: list[str] = []
    ports: list[int] = []
    for listener in listeners:
        listening = socket_of(listener)
        if listening is not None:
            address = listening.getsockname()
            addresses.append(format_address(listening.family, address))
            if isinstance(address, tuple):
                ports.append(address[1])
    return RunningServer(tuple(addresses), tuple(ports), group, config)
