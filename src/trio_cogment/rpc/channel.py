"""The client: calls over one shared connection, made when the first call needs it and again after it was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio

from trio_cogment.config import RpcConfig
from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc._client_call import WireClientCall
from trio_cogment.rpc._connection import Connection
from trio_cogment.rpc._pipe import peer_name, pipe_over
from trio_cogment.rpc.calls import CallOpener, ClientCall, MetadataLike, Method

#: Makes a stream to the server; what it raises becomes UNAVAILABLE.
Connect = Callable[[], Awaitable[trio.abc.Stream]]


class Channel(CallOpener, AbstractAsyncContextManager["Channel"]):
    """Calls to one server, plaintext HTTP/2.

    Use it as ``async with Channel(host, port) as channel``; its tasks live in that block. Connecting waits for the
    first call. When the connection is lost, running calls end with UNAVAILABLE at once and the next call connects
    anew; when the server sends GOAWAY, running calls go on and new ones use a new connection.

    Leaving the block cancels the calls that still run and closes the connection, telling the server why if that takes
    no longer than `RpcConfig.farewell_timeout_seconds`.
    """

    def __init__(self, host: str, port: int, *, config: RpcConfig | None = None) -> None:
        async def connect() -> trio.abc.Stream:
            return await trio.open_tcp_stream(host, port)

        literal = f"[{host}]" if ":" in host else host
        self._setup(connect, f"{literal}:{port}", config)

    @classmethod
    def over(cls, connect: Connect, *, authority: str = "localhost", config: RpcConfig | None = None) -> Channel:
        """Return a channel over streams from `connect`, which is called for every connection it needs."""
        channel = cls.__new__(cls)
        channel._setup(connect, authority, config)
        return channel

    def _setup(self, connect: Connect, authority: str, config: RpcConfig | None) -> None:
        self.authority = authority
        self._config = config or RpcConfig()
        self._connect = connect
        self._connection: Connection | None = None
        self._lock = trio.Lock()
        self._nursery: trio.Nursery | None = None
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None

    async def __aenter__(self) -> Channel:
        if self._manager is not None:
            raise RuntimeError("a channel can be entered once")
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._nursery is not None
        assert self._manager is not None
        nursery, self._nursery = self._nursery, None
        nursery.cancel_scope.cancel()
        # The block's exception is not the nursery's business: it leaves as it is, without a group around it.
        await self._manager.__aexit__(None, None, None)

    def call(self, method: Method, *, metadata: MetadataLike = (), timeout: float | None = None) -> ClientCall:
        """See `CallOpener.call`."""
        return WireClientCall(self, method, metadata, timeout)

    async def connection(self) -> Connection:
        """Return a connection that can take one more call, waiting for one if need be.

        Raises:
            RpcError: UNAVAILABLE, the server cannot be reached or the channel is closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            connection = self._connection
            if connection is None or connection.closed or connection.engine.exhausted():
                connection = await self._reconnect()
            if connection.engine.can_open():
                return connection
            await connection.lot.park()  # until one of its calls ends, or all do

    async def _reconnect(self) -> Connection:
        async with self._lock:
            connection = self._connection
            if connection is not None and not connection.closed and not connection.engine.exhausted():
                return connection  # made while we waited
            if self._nursery is None:
                raise RpcError(StatusCode.UNAVAILABLE, "the channel is not open")
            stream = await self._open_stream()
            connection = Connection(pipe_over(stream), client_side=True, config=self._config, peer=self._peer(stream))
            try:
                await self._nursery.start(connection.run)
            except RuntimeError as error:  # the nursery has closed meanwhile
                await trio.aclose_forcefully(stream)
                raise RpcError(StatusCode.UNAVAILABLE, "the channel is closed") from error
            self._connection = connection
            return connection

    def _peer(self, stream: trio.abc.Stream) -> str:
        name = peer_name(stream)
        return self.authority if name == "stream" else name

    async def _open_stream(self) -> trio.abc.Stream:
        timeout = self._config.connect_timeout_seconds
        try:
            with trio.move_on_after(timeout):
                return await self._connect()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise RpcError(StatusCode.UNAVAILABLE, f"cannot connect to {self.authority}: {error}") from error
        raise RpcError(StatusCode.UNAVAILABLE, f"cannot connect to {self.authority} within {timeout:g} s")
