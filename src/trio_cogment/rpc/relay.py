"""For other protocols than gRPC's own: how their calls reach the handlers of a server, and what carries their bytes.

A server can be given a `ServerSide`, which gets the connections that do not speak HTTP/2 (of those that do, it judges
the requests of gRPC-Web). Such a connection has a
`CallRelay`: what it has received as a call becomes a call within the process, so the rules for sending, receiving,
deadlines and the end are those of `calls`, and a handler sees no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import trio
from google.protobuf.message import DecodeError, Message

from trio_cogment.access import Identity, Visitor
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import PermissionDeniedError, RpcError, StatusCode
from trio_cogment.budget.peer_limits import PeerConnection
from trio_cogment.budget.turns import LARGE_BYTES, turns_of_run
from trio_cogment.budget.waiting_bytes import WaitingBytes
from trio_cogment.rpc._byte_stream import ByteStream as ByteStream
from trio_cogment.rpc._byte_stream_over import byte_stream_over as byte_stream_over
from trio_cogment.rpc._call_protocols import Route
from trio_cogment.rpc._entries import check_entries
from trio_cogment.rpc._grpc_headers import BadMetadataError as BadMetadataError
from trio_cogment.rpc._grpc_headers import RawHeaders as RawHeaders
from trio_cogment.rpc._grpc_headers import RefusedRequest as RefusedRequest
from trio_cogment.rpc._grpc_headers import decode_metadata as decode_metadata
from trio_cogment.rpc._grpc_headers import decode_timeout as decode_timeout
from trio_cogment.rpc._grpc_headers import encode_metadata as encode_metadata
from trio_cogment.rpc._grpc_headers import encode_timeout as encode_timeout
from trio_cogment.rpc._grpc_headers import parse_trailers as parse_trailers
from trio_cogment.rpc._grpc_headers import trailer_headers as trailer_headers
from trio_cogment.rpc._grpc_web import WebRequest as WebRequest
from trio_cogment.rpc._grpc_web import WebRules as WebRules
from trio_cogment.rpc._in_process_call import Exchange
from trio_cogment.rpc._lingering_close import LingeringClose as LingeringClose
from trio_cogment.rpc._observer import MethodObserver, ServerObserver
from trio_cogment.rpc._routes import shape_of
from trio_cogment.rpc._streams import BadMessageError
from trio_cogment.rpc._writer import Output as Output
from trio_cogment.rpc._writer import Writer as Writer
from trio_cogment.rpc.calls import CallOpener, Handler, MetadataLike, Method, ServerCall
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES, InProcessChannel, InProcessClientCall
from trio_cogment.rpc.metadata import Metadata


@dataclass(frozen=True, slots=True)
class RelayRoute:
    """What answers at a path.

    Attributes:
        method: its cardinality and its types.
        function: of the service.
        observer: learns of its calls.
    """

    method: Method
    function: Any
    observer: MethodObserver | None


def relay_routes(routes: Mapping[str, Route], observer: ServerObserver | None) -> dict[str, RelayRoute]:
    """Return what answers at each path of a server."""
    return {
        path: RelayRoute(
            method, function, None if observer is None else observer.method(path, shape_of(method.cardinality))
        )
        for path, (_, method, function) in routes.items()
    }


class RelayedCall(InProcessClientCall):
    """A call that another protocol has brought, as that protocol's side sees it."""

    def __init__(
        self,
        relay: CallRelay,
        route: RelayRoute,
        metadata: Metadata,
        timeout: float | None,
        peer: str,
        identity: Identity,
    ) -> None:
        super().__init__(relay, route.method, metadata, timeout)
        self._waiting = relay.waiting
        self._route = route
        self._caller = peer, identity
        self._most_entries = relay.most_entries

    def _begin(self, handler: Handler | None, deadline: float) -> Exchange:
        exchange = super()._begin(self._handler, deadline)
        # What it sends was limited where it came in, and a server's limit on what it sends is not meant for this.
        self._measured, self._plain = False, not exchange.borrows
        return exchange

    async def _handler(self, call: ServerCall) -> None:
        call.peer, call.identity = self._caller
        await self._route.function(call, None)

    def decode(self, payload: bytes) -> Any:
        """Return a message of the caller.

        Raises:
            RpcError: it is none.
        """
        decode = self.method.request_type.FromString
        try:
            if len(payload) < LARGE_BYTES:
                return decode(payload)
            message = turns_of_run().decode_large(payload, decode, self._caller[1].account)
            check_entries(message, self._most_entries)
            return message
        except DecodeError:
            text = f"{self.method.path}: undecodable message"
            raise RpcError(StatusCode.INTERNAL, text) from None
        except BadMessageError as bad:
            raise RpcError(bad.code, f"{self.method.path}: {bad.message}") from None

    def waits(self, payload: bytes) -> bool:
        """Whether a message must not be decoded before `large_turn`."""
        return turns_of_run().waits(payload, self._caller[1].account)

    async def large_turn(self) -> None:
        """Return when a message may be decoded that `waits`; that must be done before the next checkpoint."""
        await turns_of_run().large_turn()

    def abort(self, error: RpcError) -> None:
        """End the call with this error for both of its sides, unless it has ended; the handler is cancelled."""
        self._exchange.cancel(error)

    def refuse(self, error: RpcError) -> None:
        """End the call for what its caller has sent, unless the handler has returned: its answer is on its way then."""
        if not self._exchange.over:
            self.abort(error)

    async def pass_on(self, message: Message, size: int) -> None:
        """Send a message that nobody else uses; wait for room only if there is none."""
        try:
            self.hand_over_nowait(message, size)
        except trio.WouldBlock:
            await self.send_together([message])


class CallRelay(InProcessChannel):
    """The calls of one connection: `async with CallRelay(config) as relay`.

    Args:
        config: of the server; what limits the messages that come in is left to the protocol.
        incoming: to which what waits for handlers belongs.
        outgoing: to which what handlers have sent belongs, until the connection takes it; None for both: nobody's.

    Attributes:
        waiting: both.
        most_entries: see `RpcConfig.max_message_entries`.
    """

    def __init__(
        self, config: RpcConfig, incoming: WaitingBytes | None = None, outgoing: WaitingBytes | None = None
    ) -> None:
        super().__init__(config=replace(config, max_receive_message_bytes=UNLIMITED_BYTES))
        self.most_entries = config.max_message_entries
        self.waiting = None if incoming is None or outgoing is None else (incoming, outgoing)

    def relay(
        self, route: RelayRoute, metadata: Metadata, timeout: float | None, peer: str, identity: Identity
    ) -> RelayedCall:
        """Return a call to be entered.

        Args:
            route: what is called.
            metadata: what the caller has sent.
            timeout: in seconds; None: as long as it takes.
            peer: the caller, as the handler sees it.
            identity: who that is.
        """
        return RelayedCall(self, route, metadata, timeout, peer, identity)


class Served(Protocol):
    """A connection of a server, whatever it speaks."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until either end closes; raises no `Exception`."""

    def drain(self, deadline: float) -> None:
        """End in order, its calls at `deadline` at the latest."""

    def end_calls_of_others(self, valid: Callable[[Identity], bool]) -> None:
        """End the calls whose callers may not make them any more."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A connection that does not speak HTTP/2, and what it may use of the server.

    Attributes:
        byte_stream: what it came by.
        peer: the other end.
        secure: it is encrypted.
        routes: what can be called.
        config: of the server.
        visitor: decides about its calls; None: all are let in.
        account: counts them; None: nobody does.
    """

    byte_stream: ByteStream
    peer: str
    secure: bool
    routes: Mapping[str, RelayRoute]
    config: RpcConfig
    visitor: Visitor | None
    account: PeerConnection | None = None


class ServerSide(Protocol):
    """Serves what does not speak HTTP/2, and says which requests of gRPC-Web are served that do."""

    def connection(self, accepted: Accepted) -> Served:
        """Return a connection to be run; the byte stream belongs to it."""

    def grpc_web(self, *, secure: bool) -> WebRules | None:
        """Return what judges the requests of gRPC-Web of one connection of HTTP/2; None: they are refused.

        Args:
            secure: it is encrypted.
        """


class OnBehalf(CallOpener):
    """Calls to services of this process in the name of somebody else, with the rights of that one and no others.

    Args:
        channel: to the services.
        peer: the other end, as handlers see it.
        identity: who that is.
    """

    def __init__(self, channel: InProcessChannel, peer: str, identity: Identity) -> None:
        self._channel = channel
        self._caller = peer, identity

    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> InProcessClientCall:
        """See `CallOpener.call`; there is nothing to wait for, and nothing is compressed."""
        return _CallOnBehalf(self._channel, method, Metadata(metadata), timeout, self._caller)

    def call_nowait(self, method: Method, *, metadata: MetadataLike = (), first: Message | None = None) -> None:
        """See `CallOpener.call_nowait`: these calls have their turn."""
        return


class _CallOnBehalf(InProcessClientCall):
    def __init__(
        self,
        channel: InProcessChannel,
        method: Method,
        metadata: Metadata,
        timeout: float | None,
        caller: tuple[str, Identity],
    ) -> None:
        super().__init__(channel, method, metadata, timeout)
        self._caller = caller

    def _begin(self, handler: Handler | None, deadline: float) -> Exchange:
        peer, identity = self._caller

        async def in_their_name(call: ServerCall) -> None:
            assert handler is not None
            if identity.scope(call.method.path) is None:
                raise PermissionDeniedError(f"{call.method.path}: not allowed for the caller's roles")
            call.peer, call.identity = peer, identity
            await handler(call)

        return super()._begin(None if handler is None else in_their_name, deadline)
