"""Interfaces between a connection and its calls.

A call over HTTP/2 needs little of its connection, and a connection little of its calls. These protocols say what, so
that calls and connections are layers of their own: a call is written against a `Transport`, a connection against a
`TransportCall`, and neither imports the other. A client's call sees its channel as a `TransportSource`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from trio_cogment.access import Identity
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._retry import Budget
from trio_cogment.rpc.calls import Method
from trio_cogment.rpc.metadata import Metadata


class Transport(Protocol):
    """A connection as its calls see it."""

    @property
    def engine(self) -> Engine:
        """Takes what is to be sent. Whoever puts something in calls `wake` or `flush_soon` afterwards."""

    @property
    def config(self) -> RpcConfig:
        """Limits and timeouts."""

    @property
    def peer(self) -> str:
        """The other end, for logs."""

    @property
    def identity(self) -> Identity:
        """Who the peer is as far as the connection says."""

    def wake(self) -> None:
        """Send the engine's output soon, together with what other calls add until then."""

    def flush_soon(self) -> None:
        """As `wake`, for output that nothing will follow: with a single call it is sent at once."""

    def turn_is_over(self) -> bool:
        """Whether an operation that need not wait owes the other tasks a full checkpoint; see `_fairness`."""

    async def yield_sometimes(self) -> None:
        """A checkpoint for operations that need not wait: always for cancellation, now and then for fairness."""


class ClientTransport(Transport, Protocol):
    """A client's connection."""

    @property
    def number(self) -> int:
        """Which connection of its channel it is, from 1 on."""

    def arm(self, deadline: float, call: ClientTransportCall) -> None:
        """Have `call.on_deadline` called at this time, unless the call has ended by then."""

    def retire_if_idle(self) -> None:
        """Learn that a call has ended, after which the connection may close."""


class ServerTransport(Transport, Protocol):
    """A server's connection."""

    @property
    def batch(self) -> int:
        """See `ServerCall.batch`."""

    def handler_leaves(self) -> None:
        """Learn that a handler is about to end, in this very turn."""


class TransportCall(Protocol):
    """A call as its connection sees it. Nothing here waits: the connection's reader calls most of it.

    Its messages go to the `_message_path.MessagePath` that it has connected to its stream.
    """

    @property
    def over(self) -> bool:
        """The call has its status; nothing can be sent any more."""

    def on_room(self) -> None:
        """The outbox has shrunk."""

    def on_reset(self, code: int) -> None:
        """The peer, or its GOAWAY, has ended the stream without a status."""

    def on_broken(self, code: StatusCode, message: str) -> None:
        """End the call: what the peer sent, or what was made of it, cannot be used."""

    def on_lost(self, reason: RpcError) -> None:
        """The connection is gone, or about to be closed."""


class ClientTransportCall(TransportCall, Protocol):
    """A client's call."""

    def on_response(self, metadata: Metadata) -> None:
        """The response's headers have come."""

    def on_status(self, trailers: _grpc_headers.Trailers) -> None:
        """The server has ended the call."""

    def on_deadline(self) -> None:
        """The time of `ClientTransport.arm` has come."""


class ServerTransportCall(TransportCall, Protocol):
    """A server's call.

    Attributes:
        identity: who makes it; the connection sets it before `run`.
    """

    identity: Identity

    def on_half_closed(self) -> None:
        """The client has sent its last message."""

    async def run(self) -> None:
        """Run the handler, and send the status it ends with."""


class TransportSource(Protocol):
    """A channel as its calls see it."""

    @property
    def authority(self) -> str:
        """What calls name as their server."""

    @property
    def scheme(self) -> str:
        """What calls name as their scheme."""

    @property
    def sent_budget(self) -> Budget:
        """What all calls may keep of what they have sent, in case they have to be made again."""

    @property
    def trouble(self) -> str:
        """Why the last attempt to connect failed; empty when it did not."""

    @property
    def connections_made(self) -> int:
        """How many connections there have been."""

    def connection(self, wait_for_ready: bool = False) -> Awaitable[ClientTransport]:
        """Await this for a connection that can take one more call.

        Raises:
            RpcError: UNAVAILABLE, the server cannot be reached or the channel is closed.
        """

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task of a call in the channel's block."""


#: What makes a server's call (of a transport, a stream, the two that follow, and the request's head), its method, and
#: the function that handles it.
Route: TypeAlias = tuple[Callable[..., ServerTransportCall], Method, Any]
