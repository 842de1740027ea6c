"""A call as its caller sees it, over HTTP/2.

Its state is changed by the caller, and by what happens on the connection:

* The connection's reader brings the response (`on_response`), messages (`MessagePath.on_payload`) and the status
  (`on_status`), or tells that the stream or the connection is lost (`on_reset`, `on_lost`).
* The connection's deadlines end the call when its own timeout has passed (`on_deadline`). The deadlines of the cancel
  scopes around it are Trio's affair; the server is told the nearest of them all.
* A stream that the server has not processed is replaced, once, by one on another connection; see `_retry`.
"""

from __future__ import annotations

import math
from types import TracebackType

import trio
from purerpc import Cardinality

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._call_protocols import ClientTransport, TransportSource
from trio_cogment.rpc._compressed_message import CompressedMessage
from trio_cogment.rpc._compression import IDENTITY, checked_encoding, decoder
from trio_cogment.rpc._frames import ErrorCode
from trio_cogment.rpc._http2_call import Http2Call
from trio_cogment.rpc._peer_statuses import status_of_reset
from trio_cogment.rpc._retry import BufferOnlyEngine, ReplayBuffer
from trio_cogment.rpc.calls import ClientCall, MetadataLike, Method, checked_method, checked_timeout
from trio_cogment.rpc.metadata import Metadata


class Http2ClientCall(Http2Call, ClientCall):
    """See `ClientCall`. It has no task of its own, except while it is made again."""

    _connection: ClientTransport

    def __init__(
        self,
        channel: TransportSource,
        method: Method,
        metadata: MetadataLike,
        timeout: float | None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> None:
        checked_method(method)
        super().__init__(method, method.response_type, method.request_type)
        if compression and checked_encoding(compression) != IDENTITY:
            self._compression = compression
        self._channel = channel
        self._metadata = Metadata(metadata)
        self._timeout = checked_timeout(timeout)
        self._wait_for_ready = wait_for_ready
        self._hold = method.cardinality in (Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM)
        self._entered = False
        self._own_deadline: float | None = None
        self._deadline = math.inf  # the nearest of its own and those of the scopes around it
        self._again: trio.CancelScope | None = None  # of the task that makes the call again
        self._newest = 0  # number of the channel's newest connection when it was refused for the first time
        self._initial: Metadata | None = None
        self._trailing: Metadata | None = None
        self._waiters = trio.lowlevel.ParkingLot()

    @property
    def account(self) -> str:
        return self._connection.identity.account

    async def __aenter__(self) -> Http2ClientCall:
        """Connect if need be and send the request's headers; after `Cancelled` nothing of the call is left.

        The headers of a call with a single request leave together with it (at the latest when the call is waited for).
        """
        if self._entered:
            raise RuntimeError("a call can be entered once")
        self._entered = True
        if self._timeout is not None:
            self._own_deadline = trio.current_time() + self._timeout
        connection = await self._connect(self._own_deadline)
        await trio.lowlevel.checkpoint_if_cancelled()  # or a deadline that has passed would be sent
        self._deadline = trio.current_effective_deadline()
        if self._own_deadline is not None:
            self._deadline = min(self._deadline, self._own_deadline)
        self._begin(connection)
        return self

    def enter_nowait(self, connection: ClientTransport) -> None:
        """Enter it on a connection that takes a call; the scopes around the caller are not those of the call."""
        self._entered = True
        if self._timeout is not None:
            self._deadline = self._own_deadline = trio.current_time() + self._timeout
        self._begin(connection)

    def _begin(self, connection: ClientTransport) -> None:
        self._replay = ReplayBuffer(self._channel.sent_budget, connection.config)
        self._open(connection)
        if not self._hold:
            connection.wake()

    def _open(self, connection: ClientTransport) -> None:
        self._connection = connection
        engine = connection.engine
        self._engine = engine
        headers = _grpc_headers.request_headers(
            self.method.path,
            scheme=self._channel.scheme,
            authority=self._channel.authority,
            timeout=None if self._deadline == math.inf else self._deadline - trio.current_time(),
            metadata=self._metadata,
            encoding=self._compression,
        )
        self._stream = engine.open_request(headers)
        self._stream.call = self
        self._path.connect(self._stream, engine, connection.wake)
        self._choose_path()
        if self._own_deadline is not None:
            connection.arm(self._own_deadline, self)

    async def _connect(self, deadline: float | None) -> ClientTransport:
        if deadline is None:
            return await self._channel.connection(self._wait_for_ready)
        with trio.move_on_at(deadline):
            return await self._channel.connection(self._wait_for_ready)
        trouble = f": {self._channel.trouble}" if self._channel.trouble else ""
        raise RpcError(StatusCode.DEADLINE_EXCEEDED, f"the deadline passed while connecting{trouble}")

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    # --- making the call again ---

    def _try_again(self, replay: ReplayBuffer) -> None:
        """Make the call again, in a task of the channel: the caller need not be waiting for anything now."""
        connection = self._connection
        self._newest = self._newest or self._channel.connections_made
        self._again = trio.CancelScope(deadline=math.inf if self._own_deadline is None else self._own_deadline)
        self._engine = BufferOnlyEngine(replay)
        self._channel.start_soon(self._open_again, self._again, replay)
        connection.retire_if_idle()

    async def _open_again(self, scope: trio.CancelScope, replay: ReplayBuffer) -> None:
        failure: RpcError | None = RpcError(StatusCode.UNAVAILABLE, "the channel is closed")
        try:
            with scope:
                connection = await self._channel.connection(self._wait_for_ready)
                failure = None
                if not self.over:
                    self._send_again(connection, replay)
            if scope.cancelled_caught:
                failure = RpcError(StatusCode.DEADLINE_EXCEEDED, "the deadline passed while connecting again")
        except RpcError as error:
            failure = error
        finally:
            if failure is not None:
                self._finish_client(failure, drop=False)

    def _send_again(self, connection: ClientTransport, replay: ReplayBuffer) -> None:
        self._open(connection)
        for payload in replay.payloads:
            if type(payload) is CompressedMessage:
                connection.engine.send_compressed(self._stream, payload)
            else:
                connection.engine.send_message(self._stream, payload)
        if self._sending_done:
            connection.engine.end(self._stream, [])
        if connection.number > self._newest:
            self._keep_nothing()  # the one attempt; see `_retry` for why an older connection does not count
        connection.wake()
        self.on_room()

    # --- metadata ---

    @property
    def initial_metadata(self) -> Metadata | None:
        return self._initial

    @property
    def trailing_metadata(self) -> Metadata | None:
        return self._trailing

    async def wait_initial_metadata(self) -> Metadata:
        await self._connection.yield_sometimes()
        self._connection.wake()
        while self._initial is None:
            if self.over:
                self._raise_status()
                return Metadata()
            await self._waiters.park()
        return self._initial

    # --- sending and ending ---

    async def done_sending(self) -> None:
        await self._connection.yield_sometimes()
        self.done_sending_nowait()

    def done_sending_nowait(self) -> None:
        """As `done_sending`."""
        if self._sending_done:
            return
        if self.over:
            self._check_open()
        self._sending_done = True
        self._choose_path()
        self._engine.end(self._stream, [])
        self._connection.flush_soon()

    def cancel(self) -> None:
        if not self.over:
            self._give_up(RpcError(StatusCode.CANCELLED, "cancelled by the caller"))
        elif not self._inbox.is_over():  # the call had ended, but its last messages are not read
            self._drop_unread(RpcError(StatusCode.CANCELLED, "cancelled by the caller"))
            if self._engine.output.out_size:
                self._connection.wake()

    def _give_up(self, error: RpcError) -> None:
        self._engine.reset(self._stream, ErrorCode.CANCEL)
        self._finish_client(error, drop=True)
        self._connection.wake()

    def _finish_client(self, error: RpcError | None, *, drop: bool) -> None:
        if self.over:
            return
        if self._trailing is None:
            self._trailing = Metadata()
        self._keep_nothing()
        if self._again is not None:
            self._again.cancel()
        self._finish(error, drop=drop)
        unread = self._inbox.items
        if unread:
            self._engine.keep(self._stream, [len(payload) for payload in unread])
        if self._waiters:
            self._waiters.unpark_all()
        self._connection.retire_if_idle()

    # --- what the connection tells ---

    def on_response(self, metadata: Metadata) -> None:
        """The response's headers have come."""
        self._keep_nothing()
        encoding = self._stream.encoding
        if encoding != b"identity":
            limit = self._connection.config.max_receive_message_bytes
            self._plain_decode = decoder(self._plain_decode, encoding, limit)
            self._decode = self._decode_any
            self._path.packs = True
        self._initial = metadata
        if self._waiters:
            self._waiters.unpark_all()

    def on_status(self, trailers: _grpc_headers.Trailers) -> None:
        """The server has ended the call."""
        self._trailing = trailers.metadata
        if self._initial is None:
            self._initial = Metadata()
        error = None
        if trailers.code is not StatusCode.OK:
            error = RpcError(trailers.code, trailers.message, trailers.metadata)
        self._finish_client(error, drop=False)

    def on_reset(self, code: int) -> None:
        """The server (or its GOAWAY) has ended the stream without a status."""
        refused = code == ErrorCode.REFUSED_STREAM
        if refused and self._replay is not None and (self._again is None or self._connection.engine.exhausted()):
            self._try_again(self._replay)
            return
        status, message = status_of_reset(code)
        self._finish_client(RpcError(status, message), drop=False)

    def on_broken(self, code: StatusCode, message: str) -> None:
        self._give_up(RpcError(code, message))

    def on_deadline(self) -> None:
        """The call's own timeout has passed."""
        if not self.over:
            self._give_up(RpcError(StatusCode.DEADLINE_EXCEEDED, "the deadline has passed"))

    def on_lost(self, reason: RpcError) -> None:
        """The connection is gone."""
        self._engine.reset(self._stream, ErrorCode.CANCEL)
        self._finish_client(RpcError(reason.code, reason.message), drop=False)
