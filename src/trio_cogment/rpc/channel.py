"""The client: calls over connections that are made when calls need them, and again after they were lost.

This module has the public side and the making of streams. `_pool` decides which connection a call gets and when to
connect again; `_http2_client_call` repeats a call that the server has not processed (RFC 9113, 8.7).

Entering a channel connects to nothing, so it cannot fail because the server is down, and processes may start in any
order. Connections run in the channel's nursery and not in the calls', because they outlive the calls that made them.
"""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import trio
from google.protobuf.message import Message
from typing_extensions import override

from trio_cogment.access import AUTHORIZATION, TokenSource, authorization
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.host import Host
from trio_cogment.base.tracing import tracing_of_run
from trio_cogment.rpc._compression import checked_encoding
from trio_cogment.rpc._connection import Connection
from trio_cogment.rpc._http2_client_call import Http2ClientCall
from trio_cogment.rpc._pool import Pool
from trio_cogment.rpc._retry import Budget
from trio_cogment.rpc.calls import CallOpener, ClientCall, MetadataLike, Method, OnReply, ReplyConsumer
from trio_cogment.rpc.metadata import Metadata
from trio_cogment.rpc.tls import FilePath, client_stream, shake_hands

if TYPE_CHECKING:
    from trio_cogment.base.tracing.spans import Tracing

#: Makes a stream to the server; what it raises becomes UNAVAILABLE.
Connect = Callable[[], Awaitable[trio.abc.Stream]]


class Channel(CallOpener, AbstractAsyncContextManager["Channel"]):
    """Calls to one server over HTTP/2.

    Use it as ``async with Channel(address, port) as channel``; its tasks live in that block. Connecting waits for the
    first call. When a connection is lost, its calls end with UNAVAILABLE at once and the next call connects again; when
    the server sends GOAWAY, running calls go on and new ones use a new connection. A call that the server says it has
    not looked at is made again, once on a new connection, unless it has sent too much to be kept for that. Calls beyond
    the server's limit for one connection go to another one, which closes when it has been idle for
    `RpcConfig.surplus_idle_seconds`.

    When the server cannot be reached, calls end with UNAVAILABLE, and so do those that follow, with the same text,
    until the next attempt is due: after `RpcConfig.connect_backoff_initial_seconds`, growing with each failure in a
    row. Calls with ``wait_for_ready=True`` wait instead until there is a connection or their deadline has passed. A
    server that has never been reached may not listen yet: until the first connection, all calls wait for it, for
    `RpcConfig.await_server_seconds` at most, counted from the first call.

    Leaving the block cancels the calls that still run and closes the connections, telling the server why if that takes
    no longer than `RpcConfig.farewell_timeout_seconds`.

    Args:
        address: of the server, or its name.
        port: its TCP port.
        tls: encrypt; for example from `trio_cogment.rpc.client_tls`. ALPN is set on the context.
        server_name: whom the server's certificate must name, if not `address`; also what the server is told
            (:authority).
        config: limits and timeouts.
        host: makes the connections, and decides by how much the pauses between attempts differ; the system unless
            given.
        compression: what requests are compressed with unless a call says otherwise: "gzip", "deflate" or nothing.
        token: says to the server who calls; or what gives one for each call, so that it can be renewed. Who listens
            where the channel leads gets it.

    Attributes:
        authority: what calls name as their server.
        scheme: what calls name as their scheme.
        compression: see above.
        sent_budget: what calls may keep of what they have sent, in case they have to be made again.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        config: RpcConfig | None = None,
        host: Host | None = None,
        compression: str | None = None,
        token: str | TokenSource = "",
    ) -> None:
        host = host or Host()
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        connect = partial(host.connect, address, port)
        rng = host.random(f"channel to {target}")
        self._setup(connect, target, server_name or target, config, rng, tls, server_name or address)
        self._describe_calls(compression, token)

    @classmethod
    def unix(
        cls,
        path: FilePath,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        config: RpcConfig | None = None,
        host: Host | None = None,
        compression: str | None = None,
        token: str | TokenSource = "",
    ) -> Channel:
        """Return a channel to a UNIX socket; the server's name is ``localhost`` unless given.

        `host` decides by how much the pauses between attempts differ; the connections are always the system's.
        """
        path = os.fspath(path)

        async def connect() -> trio.abc.Stream:
            return await trio.open_unix_socket(path)

        channel = cls.__new__(cls)
        name = server_name or "localhost"
        target = f"unix:{path}"
        rng = (host or Host()).random(f"channel to {target}")
        channel._setup(connect, target, name, config, rng, tls, name)
        channel._describe_calls(compression, token)
        return channel

    @classmethod
    def over(
        cls,
        connect: Connect,
        *,
        authority: str = "localhost",
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        config: RpcConfig | None = None,
        rng: random.Random | None = None,
        compression: str | None = None,
        token: str | TokenSource = "",
    ) -> Channel:
        """Return a channel over streams from `connect`, which is called for every connection it needs.

        With `tls` they are encrypted here; `server_name` is `authority` unless given.
        """
        channel = cls.__new__(cls)
        rng = rng or Host().random(f"channel to {authority}")
        channel._setup(connect, authority, authority, config, rng, tls, server_name or authority)
        channel._describe_calls(compression, token)
        return channel

    def _setup(
        self,
        connect: Connect,
        target: str,
        authority: str,
        config: RpcConfig | None,
        rng: random.Random,
        tls: ssl.SSLContext | None,
        server_name: str,
    ) -> None:
        config = config or RpcConfig()

        async def connect_securely() -> trio.abc.Stream:
            if self._tracing is not None:
                from trio_cogment.base.tracing.spans import leave_spans

                leave_spans()  # the connection is for all calls, not for the one that needs it first
            stream = await connect()

            async def close() -> None:
                await trio.aclose_forcefully(stream)  # whichever it is by then

            async with AsyncExitStack() as on_failure:
                on_failure.push_async_callback(close)
                if tls is not None:
                    stream = client_stream(stream, tls, server_name)
                await shake_hands(stream, config.handshake_timeout_seconds)
                if isinstance(stream, trio.SSLStream):  # also one that `connect` has made
                    self.scheme = "https"
                on_failure.pop_all()
            return stream

        self.authority = authority
        self.scheme = "http" if tls is None else "https"
        self.sent_budget = Budget(config.connection_memory_bytes)
        self._pool = Pool(connect_securely, target, config, rng)
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None
        self._tracing: Tracing | None = None

    def _describe_calls(self, compression: str | None, token: str | TokenSource) -> None:
        """Take what goes with every call, unless the call says otherwise."""
        self.compression = checked_encoding(compression)
        self._token: TokenSource = (lambda: token) if isinstance(token, str) else token
        self._sent_token = ""
        self._sent_authorization = Metadata()
        self._authorization()  # a text that cannot be sent is seen here

    def _authorization(self) -> Metadata:
        """Return what says to the server who calls; nothing without a token."""
        text = self._token()
        if text != self._sent_token:
            self._sent_token, self._sent_authorization = text, Metadata(authorization(text))
        return self._sent_authorization

    async def __aenter__(self) -> Channel:
        if self._manager is not None:
            raise RuntimeError("a channel can be entered once")
        self._tracing = tracing_of_run()
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._pool.start(self._nursery)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._nursery is not None
        assert self._manager is not None
        self._pool.stop()
        self._nursery.cancel_scope.cancel()
        # The block's exception is not the nursery's business: it leaves as it is, without a group around it.
        await self._manager.__aexit__(None, None, None)

    @override
    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall:
        return self._make_call(method, self._authorized(metadata), timeout, wait_for_ready, compression)

    def _make_call(
        self,
        method: Method,
        metadata: MetadataLike,
        timeout: float | None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> Http2ClientCall:
        compression = compression or self.compression
        if self._tracing is None:
            return Http2ClientCall(self, method, metadata, timeout, wait_for_ready, compression)
        from trio_cogment.rpc._tracing import TracedClientCall

        return TracedClientCall(self._tracing, self, method, metadata, timeout, wait_for_ready, compression)

    def _authorized(self, metadata: MetadataLike) -> MetadataLike:
        who = self._authorization()
        if not who:
            return metadata
        given = Metadata(metadata)
        # Whoever calls in somebody's name has said so.
        return who if not given else given if given.texts(AUTHORIZATION) else Metadata.from_wire((*given, *who))

    @override
    def unary_nowait(
        self,
        method: Method,
        request: Message,
        on_reply: OnReply,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
    ) -> ClientCall | None:
        connection = self._pool.acquire_nowait()
        if connection is None:
            return None
        call = self._make_call(method, self._authorized(metadata), timeout)
        call.enter_nowait(connection)
        try:
            call.send_nowait(request)
        except trio.WouldBlock:
            call.cancel()
            return None
        except RpcError:
            call.cancel()
            raise
        call.done_sending_nowait()
        call.set_consumer(ReplyConsumer(method, on_reply))
        return call

    @property
    def trouble(self) -> str:
        """Why the last attempt to connect failed; empty when it did not."""
        return self._pool.trouble

    @property
    def connections_made(self) -> int:
        """How many connections there have been."""
        return self._pool.made

    def connection(self, wait_for_ready: bool = False) -> Awaitable[Connection]:
        """Await this for a connection that can take one more call, waiting for one if need be.

        Raises:
            RpcError: UNAVAILABLE, the server cannot be reached or the channel is closed.
        """
        return self._pool.acquire(wait_for_ready)

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task of a call in the channel's block."""
        assert self._nursery is not None
        self._nursery.start_soon(function, *args)
