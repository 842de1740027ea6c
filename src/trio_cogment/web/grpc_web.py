"""gRPC-Web: one call as one request of HTTP/1.1.

The head of the answer is always that of a success: a page of another origin may not read much of it, and clients differ
in what they do with another status. How the call has ended stands at the end of the body.
"""

from __future__ import annotations

import base64
import math

import trio
from purerpc import Cardinality
from typing_extensions import override

from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc import Metadata
from trio_cogment.rpc.relay import RelayedCall, RelayRoute, encode_metadata
from trio_cogment.web.answering import Answering, relayed
from trio_cogment.web.frames import FrameReader, TextReader
from trio_cogment.web.hosting import Hosting, admitted, counted
from trio_cogment.web.http1 import BadRequestError, Http1, Sign
from trio_cogment.web.intake import BATCH_UNITS, MOST_AT_ONCE, units_of
from trio_cogment.web.replies import of_handler
from trio_cogment.web.requests import Request, call_head, is_text, reply_type, wants_text

_ONE_REQUEST = (Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM)


class WebAnswering(Answering):
    """An answer of HTTP/1.1.

    Attributes:
        text: it travels as base64.
    """

    http: Http1
    text = False

    @override
    def opening(self, metadata: Metadata) -> bytes:
        return self.http.head(200, [(b"content-type", reply_type(self.text)), *of_handler(encode_metadata(metadata))])

    @override
    def wrapped(self, frame: bytes) -> bytes:
        return self.http.data(base64.b64encode(frame) if self.text else frame)

    @override
    def closing(self) -> bytes:
        return self.http.end()


class _Body:
    """Passes the messages of a request's body on to a call."""

    def __init__(self, connection: Hosting, answering: Answering, route: RelayRoute, *, text: bool) -> None:
        self._connection = connection
        self._answering = answering
        self._route = route
        self._frames = FrameReader(connection.config.max_receive_message_bytes)
        self._text = TextReader() if text else None

    async def pass_on(self, call: RelayedCall) -> None:
        """Pass on what comes, and end the call if the client leaves."""
        try:
            with trio.CancelScope() as patience:
                if self._route.method.cardinality in _ONE_REQUEST:
                    seconds = self._connection.limits.body_timeout_seconds
                    patience.deadline = trio.current_time() + seconds
                await self._pass_on(call, patience)
            if patience.cancelled_caught:
                call.abort(RpcError(StatusCode.DEADLINE_EXCEEDED, "the request took too long to come"))
        except RpcError as error:
            call.refuse(error)
        except BadRequestError:
            call.refuse(RpcError(StatusCode.INTERNAL, "the body of the request is broken"))
        except trio.BrokenResourceError:
            call.abort(RpcError(StatusCode.CANCELLED, "the caller left"))
        finally:
            self._frames.discard()  # errors are in cycles with what has raised them, and may live for a while

    async def _pass_on(self, call: RelayedCall, patience: trio.CancelScope) -> None:
        connection = self._connection
        frames, intake = self._frames, connection.intake
        pieces = 0
        while True:
            event = connection.http.next_event()
            if isinstance(event, bytes):
                pieces += 1
                if not pieces % MOST_AT_ONCE:
                    await connection.turn(BATCH_UNITS)
                await self._messages(call, event)
            elif event is Sign.END:
                if self._text is not None:
                    self._text.end()
                frames.end()
                intake.release()
                call.done_sending_nowait()
                patience.deadline = math.inf
            elif event is Sign.GONE:
                raise RpcError(StatusCode.CANCELLED, "the caller left")
            elif pipelined := connection.http.pipelined:
                await intake.begin(pipelined, 0)
                return  # the next request: it waits, and that its client leaves is noticed when it is answered
            else:
                if frames.begun or intake.begun:
                    await intake.begin(frames.begun, frames.missing)
                connection.send_soon(connection.http.go_on())
                data = await connection.byte_stream.receive_some()
                if not data:
                    raise RpcError(StatusCode.CANCELLED, "the caller left")
                connection.http.receive(data)  # before the turn: it may be the next request, and the call may end now
                await connection.turn(units_of(data))

    async def _messages(self, call: RelayedCall, data: bytes) -> None:
        if self._text is not None:
            data = self._text.receive(data)
        for number, payload in enumerate(self._frames.receive(data), 1):
            if call.waits(payload):
                await call.large_turn()
            message = call.decode(payload)
            self._answering.prompt = True
            self._connection.intake.missing = 0  # the client is not waited for
            try:
                await call.pass_on(message, len(payload))
            except LocalProtocolError as error:
                raise RpcError(StatusCode.INTERNAL, str(error)) from None
            if not number % MOST_AT_ONCE:
                await self._connection.turn(BATCH_UNITS)


async def serve_call(connection: Hosting, request: Request, route: RelayRoute | None) -> None:
    """Answer a request of gRPC-Web.

    Args:
        connection: it came by.
        request: of which the body has not been read.
        route: what answers; None: nothing is served at its path.
    """
    asked_in_text = bool(is_text(request.first(b"content-type")))
    answering = WebAnswering(connection.output, connection.writer, route, connection.limits.write_high_water_bytes)
    answering.http = connection.http
    answering.text = wants_text(request.listed(b"accept"), asked_in_text)
    try:
        head = call_head(request.headers, connection.config.max_header_list_bytes)
        identity = admitted(connection, request, request.path, head.metadata)
        if route is None:
            raise RpcError(StatusCode.UNIMPLEMENTED, f"{request.path} is not implemented here")
        counted(connection, identity)
    except RpcError as error:
        connection.http.discard()
        answering.refuse(error)
        return
    body = _Body(connection, answering, route, text=asked_in_text)
    call = connection.relay.relay(route, head.metadata, head.timeout, connection.peer, identity)
    with connection.serving(call, identity):
        await relayed(call, route, answering, body.pass_on, connection.config.farewell_timeout_seconds)
