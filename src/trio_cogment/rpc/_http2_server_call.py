"""A call as a server sees it, over HTTP/2: the handler's task and its cancel scope.

The handler's outcome becomes the call's status. An orderly end (`_complete`) waits behind the messages that are still
queued for the peer; a failure (`_complete_now`) drops them and goes out at once. What happens on the connection while
the handler runs, such as the client's cancellation, cancels the handler's scope (`_abandon`).
"""

from __future__ import annotations

import math
from typing import Any

import trio
from purerpc import Cardinality

from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._call_protocols import ServerTransport
from trio_cogment.rpc._compression import IDENTITY, accepts, checked_encoding, decoder
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import ErrorCode
from trio_cogment.rpc._http2_call import Http2Call
from trio_cogment.rpc._status import outcome_of
from trio_cogment.rpc._streams import Stream
from trio_cogment.rpc.calls import MetadataLike, Method, ServerCall
from trio_cogment.rpc.metadata import Metadata


class Http2ServerCall(Http2Call, ServerCall):
    """See `ServerCall`. `run` is the handler's task."""

    _connection: ServerTransport
    _engine: Engine

    def __init__(
        self,
        connection: ServerTransport,
        stream: Stream,
        method: Method,
        function: Any,
        head: _grpc_headers.RequestHead,
    ) -> None:
        super().__init__(method, method.request_type, method.response_type)
        if head.encoding != b"identity":
            self._plain_decode = decoder(self._decode, head.encoding, connection.config.max_receive_message_bytes)
            self._decode = self._decode_any
            self._path.packs = self._unpacks_in_turns = True
        self._accept_encoding = head.accept_encoding
        self._web = head.web
        self._connection = connection
        self._engine = connection.engine
        self._stream = stream
        self._function = function
        self._hold = method.cardinality in (Cardinality.UNARY_UNARY, Cardinality.STREAM_UNARY)
        self._path.connect(stream, self._engine, connection.wake)
        self._initial: Metadata = Metadata()
        self._trailing: Metadata = Metadata()
        self.metadata = head.metadata
        self.peer = connection.peer
        self.identity = connection.identity
        self.deadline = math.inf if head.timeout is None else trio.current_time() + head.timeout
        self._scope = trio.CancelScope(deadline=self.deadline)

    @property
    def account(self) -> str:
        return self.identity.account

    # --- metadata ---

    def set_initial_metadata(self, metadata: MetadataLike) -> None:
        if self._stream.headers_sent:
            raise LocalProtocolError(f"{self.method.path}: the response headers have gone out")
        self._initial = Metadata(metadata)

    def set_trailing_metadata(self, metadata: MetadataLike) -> None:
        self._trailing = Metadata(metadata)

    def set_compression(self, compression: str) -> None:
        checked_encoding(compression)
        if self._stream.headers_sent:
            raise LocalProtocolError(f"{self.method.path}: the response headers have gone out")
        if compression == IDENTITY or not accepts(self._accept_encoding, compression):
            compression = ""
        self._compression = compression
        self._choose_path()

    async def send_initial_metadata(self) -> None:
        await self._connection.yield_sometimes()
        self._check_open()
        if not self._stream.headers_sent:
            self._send_headers()
            self._connection.wake()

    def _send_headers(self) -> None:
        web = self._web
        headers = _grpc_headers.RESPONSE_HEADERS if web is None else web.opening
        if self._compression:
            headers = [*headers, (b"grpc-encoding", self._compression.encode())]
        if self._initial:
            initial = _grpc_headers.encode_metadata(self._initial)
            headers = headers + (initial if web is None else web.initial(initial))
        self._engine.send_headers(self._stream, headers)
        self._choose_path()

    def _put(self, *payloads: bytes) -> None:
        if not self._stream.headers_sent:
            self._send_headers()
        super()._put(*payloads)

    def _put_shared(self, message: SharedMessage) -> None:
        if not self._stream.headers_sent:
            self._send_headers()
        super()._put_shared(message)

    @property
    def batch(self) -> int:
        return self._connection.batch

    def under_way(self) -> tuple[int, int]:
        return self._stream.held, self._stream.outbox_bytes

    # --- the task ---

    async def run(self) -> None:
        """Run the handler, and send the status it ends with."""
        try:
            with self._scope:
                await self._function(self, request=None)
                self._complete(StatusCode.OK, "", self._trailing)
                await self._flushed()
        except* Exception as group:  # noqa: BLE001  the boundary of a call: any failure becomes its status
            self._fail(group)
        finally:
            self._connection.handler_leaves()
        if self._scope.cancelled_caught and not self._stream.closed:
            self._complete_now(StatusCode.DEADLINE_EXCEEDED, "the deadline has passed", self._trailing)
        self._finish(RpcError(StatusCode.CANCELLED, "the call has ended"), drop=True)

    async def _flushed(self) -> None:
        """Wait, still under the deadline, until the peer has taken what the handler sent."""
        while self._stream.outbox:
            await self._wait_taken()

    def _fail(self, group: BaseExceptionGroup[Any]) -> None:
        """Turn what the handler raised into the call's status."""
        assert isinstance(group, Exception)
        error = outcome_of(group, self.method.path)
        if not self.over:  # or the peer is gone, or has got a status already
            trailing = Metadata.from_wire((*self._trailing, *error.trailing_metadata))
            self._complete_now(error.code, error.message, trailing)

    def _complete(self, code: StatusCode, message: str, trailing: Metadata) -> None:
        """Send the status after everything that is queued."""
        if self.over:
            return
        if code is StatusCode.OK and not self._stream.headers_sent:
            self._send_headers()  # some clients want headers before trailers even where nothing was sent
        self._end(self._trailers(code, message, trailing), now=False)
        self._sending_done = True
        self._choose_path()
        self._connection.flush_soon()

    def _complete_now(self, code: StatusCode, message: str, trailing: Metadata) -> None:
        """Send the status at once, and drop the messages that are queued: a failure matters more."""
        self._end(self._trailers(code, message, trailing), now=True)
        self._sending_done = True
        self._choose_path()
        self._connection.wake()

    def _end(self, trailers: _grpc_headers.RawHeaders, *, now: bool) -> None:
        """End the stream with a status: behind what is queued, or `now`, without that.

        The trailers of gRPC-Web are part of the body, and so are always behind what is queued: a message that is cut
        off would hide them. Who does not read so much as that is not told, the second time.
        """
        engine, stream = self._engine, self._stream
        if self._web is None:
            (engine.finish_now if now else engine.end)(stream, trailers)
        elif stream.end is None:
            engine.send_framed(stream, self._web.closing(trailers))
            engine.end(stream, [])
        elif now:
            engine.reset(stream, ErrorCode.CANCEL)

    def _trailers(self, code: StatusCode, message: str, trailing: Metadata) -> _grpc_headers.RawHeaders:
        if (self._initial or self._web is not None) and not self._stream.headers_sent:
            self._send_headers()
        alone = b"" if self._stream.headers_sent else b"200"
        return _grpc_headers.trailer_headers(code, message, trailing, alone=alone)

    # --- what the connection tells ---

    def on_half_closed(self) -> None:
        """The client has sent its last message."""
        self._inbox.finish(None)

    def on_reset(self, code: int) -> None:
        """The client has cancelled."""
        self._abandon(RpcError(StatusCode.CANCELLED, "the caller cancelled the call"))

    def on_lost(self, reason: RpcError) -> None:
        """The connection is gone, or the server is stopping; in that case the client can still be told."""
        self._end(self._trailers(StatusCode.UNAVAILABLE, "the server is stopping", Metadata()), now=True)
        self._abandon(RpcError(StatusCode.CANCELLED, "the connection to the caller is lost"))

    def on_broken(self, code: StatusCode, message: str) -> None:
        if not self.over:
            self._complete_now(code, message, self._trailing)
            self._abandon(RpcError(code, message))

    def _abandon(self, error: RpcError) -> None:
        if not self.over:
            self._finish(error, drop=True)
            self._scope.cancel()
