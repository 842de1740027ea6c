"""Handling of the peer's frames: a table by frame type, and what becomes of each.

A fault on one stream ends that stream, a fault of the connection raises `ConnectionFaultError`, and which is which
follows RFC 9113 (5.4, 6). Everything else becomes an event or an answer.

Three rules hold throughout:

* A stream is announced as ended at most once.
* Frames for a stream that is over are an ordinary race (RFC 9113, 5.1): the peer may not know yet. They are dropped.
  Frames for a stream that has never been are an error of the connection; the stream table tells the two apart.
* Whatever costs this end more than the peer is counted, before the work is done; see `_floods` for the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._control import ControlPlane
from trio_cogment.rpc._floods import Floods
from trio_cogment.rpc._frame_parser import SMALL_INCREMENT, Handler
from trio_cogment.rpc._frames import (
    ACK,
    CONTINUATION,
    ENABLE_PUSH,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    PING,
    PRIORITY,
    PUSH,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFaultError,
    ErrorCode,
    Event,
    Kind,
)
from trio_cogment.rpc._grpc_web import WebRules
from trio_cogment.rpc._header_blocks import HeaderBlocks
from trio_cogment.rpc._receive_window import ReceiveWindow
from trio_cogment.rpc._request_heads import RequestHeads
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._stream_table import StreamTable
from trio_cogment.rpc._streams import BadMessageError, Stream


def _entries(frame: bytes) -> bytes:
    """Return the whole entries of a SETTINGS frame; a broken length is found by h2."""
    return frame[9 : len(frame) - (len(frame) - 9) % SETTING.size]


class FrameHandler(Handler):
    """Gives the frames of one connection their meaning; see `_frame_parser.Handler`.

    Attributes:
        goaway_received: the peer takes no new streams.
    """

    def __init__(
        self,
        *,
        client_side: bool,
        config: RpcConfig,
        control: ControlPlane,
        table: StreamTable,
        queue: SendQueue,
        window: ReceiveWindow,
        blocks: HeaderBlocks,
        floods: Floods,
        web: WebRules | None,
    ) -> None:
        self.goaway_received = False
        self._client_side = client_side
        self._max_streams = config.max_concurrent_streams
        self._max_header_list_bytes = config.max_header_list_bytes
        self._max_answer_bytes = config.max_control_output_bytes
        self._control = control
        self._table = table
        self._open = table.open
        self._queue = queue
        self._window = window
        self._blocks = blocks
        self._floods = floods
        self._heads = RequestHeads(config.max_header_list_bytes, web)

    def control_frame(self, frame: bytes, kind: int, flags: int, stream_id: int, events: list[Event]) -> None:
        """Handle a whole frame that is not DATA.

        Raises:
            ConnectionFaultError: the peer has broken the connection.
        """
        if self._queue.answer_bytes > self._max_answer_bytes:
            self._refuse_to_answer()
        if kind <= CONTINUATION:
            _HANDLERS[kind](self, frame, flags, stream_id, events)
        else:
            self._floods.empty.count()  # unknown types are ignored (RFC 9113, 5.5)

    def is_idle(self, stream_id: int) -> bool:
        """See `Handler.is_idle`."""
        return self._table.is_idle(stream_id)

    def _refuse_to_answer(self) -> NoReturn:
        # The peer sends frames that call for an answer, and reads none (PING, RST_STREAM and SETTINGS floods,
        # CVE-2019-9512, 9514, 9515). Windows do not bound such answers, so this does. It is tested with each frame, and
        # not where answers are written, as only a frame of the peer can be what exceeds it.
        raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "answers to control frames are not read")

    # --- header blocks ---

    def _headers(self, frame: bytes, flags: int, stream_id: int, events: list[Event]) -> None:
        if not stream_id & 1 or (self._client_side and self._table.is_idle(stream_id)):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
        block = self._blocks.begin(frame, flags, stream_id)
        if block is not None:
            self._headers_arrived(stream_id, block, bool(flags & END_STREAM), events)

    def _continuation(self, frame: bytes, flags: int, stream_id: int, events: list[Event]) -> None:
        if len(frame) == 9:
            self._floods.empty.count()
        block = self._blocks.go_on(frame, flags)
        if block is not None:
            self._headers_arrived(stream_id, block, self._blocks.ends_stream, events)

    def _headers_arrived(self, stream_id: int, block: bytes, ended: bool, events: list[Event]) -> None:
        # A block is decoded whatever becomes of it: if one were left out, HPACK's tables of the two ends would differ
        # and all later blocks with them (RFC 9113, 4.3).
        headers = self._control.decode(block)
        stream = self._open.get(stream_id)
        if stream is None:
            if self._client_side:
                return  # the response to a call that has been cancelled
            if stream_id > self._table.newest:
                self._request_headers(stream_id, headers, ended, events)
            elif self._table.was_skipped(stream_id):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
            else:  # it is over, which the peer need not know yet
                self._queue.write_answer(RST_STREAM, 0, stream_id, int(ErrorCode.STREAM_CLOSED).to_bytes(4, "big"))
                self._floods.count_reset()
        elif stream.remote_closed:
            self.stream_fault(stream, ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM", events)
        elif stream.headers_seen and not ended:
            self.stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM", events)
        elif self._client_side:
            self._response_headers(stream, headers, ended, events)
        elif _grpc_headers.is_malformed(headers):
            self.stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "malformed trailers", events)
        else:
            self.end_of_stream(stream, events)  # a request's trailers mean nothing in gRPC

    def _request_headers(
        self, stream_id: int, headers: _grpc_headers.RawHeaders, ended: bool, events: list[Event]
    ) -> None:
        table = self._table
        # A stream is over, and no longer counted here, as soon as either end has reset it: that this is
        # no way around the limit is what `Floods.count_reset` is for (CVE-2023-44487, CVE-2025-8671).
        busy = table.draining or len(table.open) >= self._max_streams
        # A stream is made even for a request that is refused: the answer needs one, and its number is now used.
        stream = table.accept(stream_id)
        stream.headers_seen = True
        stream.remote_closed = ended
        if busy:
            table.reset(stream, ErrorCode.REFUSED_STREAM)
            if not table.draining:  # else it may not have heard of that yet
                self._floods.count_reset()
            return
        try:
            head = self._heads.read(headers)
        except _grpc_headers.RefusedRequest as refusal:
            # HTTP/2 is satisfied. What gRPC does not accept gets a status, so that its caller learns why.
            table.finish_now(stream, refusal.response())
            if refusal.code is StatusCode.INTERNAL:  # malformed; others an honest caller may meet again and again
                self._floods.count_reset()
            return
        if head is None:
            stream.refused = True
            self.stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "malformed request", events)
            return
        stream.encoding = head.encoding
        events.append((Kind.REQUEST, stream, head))
        if ended:
            events.append((Kind.HALF_CLOSED, stream, None))

    def _response_headers(
        self, stream: Stream, headers: _grpc_headers.RawHeaders, ended: bool, events: list[Event]
    ) -> None:
        found = _grpc_headers.examine_response(headers, ended=ended)
        if found.is_malformed:
            self.stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "malformed response", events)
            return
        if found.is_informational:
            self._floods.empty.count()  # any number of them may come before the response (RFC 9113, 8.1)
            return
        limit = self._max_header_list_bytes
        if found.size > limit:
            # The shell ends the call with this status, and resets the stream.
            stream.refused = True
            error = BadMessageError(StatusCode.RESOURCE_EXHAUSTED, f"response metadata is larger than {limit} bytes")
            events.append((Kind.BROKEN, stream, error))
            return
        if ended:
            stream.remote_closed = True
            trailers = found.parsed
            assert isinstance(trailers, _grpc_headers.Trailers)
            if stream.inside_message and trailers.code is StatusCode.OK:
                # A failure says more than the message it has cut off.
                trailers = _grpc_headers.Trailers(
                    StatusCode.INTERNAL, "the response ended inside a message", trailers.metadata
                )
            events.append((Kind.STATUS, stream, trailers))
            self._close_after_response(stream)
            return
        stream.headers_seen = True
        if isinstance(found.parsed, _grpc_headers.Trailers):
            events.append((Kind.STATUS, stream, found.parsed))
            self._table.reset(stream, ErrorCode.CANCEL)
            return
        if found.encoding is not None:
            stream.encoding = found.encoding
        events.append((Kind.RESPONSE, stream, found.parsed))

    # --- other frames ---

    def _malformed_window_update(self, _frame: bytes, _flags: int, _stream_id: int, _events: list[Event]) -> None:
        # Those of the right size, the parser has read in passing: see its short ways.
        raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed WINDOW_UPDATE")

    def window_update(self, stream_id: int, increment: int, events: list[Event]) -> None:
        """Handle a WINDOW_UPDATE of the right size, which the parser has read in passing: see its short ways.

        Raises:
            ConnectionFaultError: the peer has broken the connection.
        """
        queue = self._queue
        if queue.answer_bytes > self._max_answer_bytes:
            self._refuse_to_answer()
        if 0 < increment < SMALL_INCREMENT:
            self.count_updates(1)
        if not stream_id:
            queue.credit(increment)
            return
        stream = self._open.get(stream_id)
        if stream is None:
            if self._table.is_idle(stream_id):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
            if increment >= SMALL_INCREMENT:  # a smaller one has been counted
                self.count_updates(1)
        elif not increment or not queue.credit_stream(stream, increment):
            code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
            self.stream_fault(stream, code, "bad WINDOW_UPDATE", events)  # for one stream only (RFC 9113, 6.9.1)
            queue.resume()

    def count_updates(self, number: int) -> None:
        """Count WINDOW_UPDATEs that grant little, or grant it to nobody.

        Peers that read small messages send several for each, so only what exceeds the output so far is counted.
        """
        queue = self._queue
        excess = number - queue.updates_due
        queue.updates_due = max(-excess, 0)
        for _ in range(excess):
            self._floods.empty.count()

    def _settings(self, frame: bytes, flags: int, _: int, events: list[Event]) -> None:
        if not flags & ACK:
            self._floods.settings.count()
        elif len(frame) > 9:  # this and the next, h2 does not check
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS acknowledgement with payload")
        if self._client_side and any(entry == (ENABLE_PUSH, 1) for entry in SETTING.iter_unpack(_entries(frame))):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a server cannot enable push")  # RFC 9113, 6.5.2
        self._feed_control(frame, events)

    def _priority(self, frame: bytes, _: int, __: int, events: list[Event]) -> None:
        self._floods.empty.count()
        self._feed_control(frame, events)

    def _feed_control(self, frame: bytes, events: list[Event]) -> None:
        """Have h2 check the frame, and handle what comes of it."""
        control = self._control
        changed = control.receive_frame(frame)
        data = control.data_to_send()  # the acknowledgement
        if data:
            self._queue.write(data)
            self._queue.answer_bytes += len(data)
        if changed:
            self._queue.apply_settings(
                control.remote_initial_window, control.remote_max_frame, self._table.open.values()
            )
            events.append((Kind.SETTINGS, None, None))

    def _ping(self, frame: bytes, flags: int, stream_id: int, events: list[Event]) -> None:
        if stream_id:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(frame) != 17:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed PING")
        if flags & ACK:
            self._floods.empty.count()
            events.append((Kind.PONG, None, frame[9:]))
        else:
            self._floods.count_ping((self._window.size, self._queue.window))
            self._queue.write_answer(PING, ACK, 0, frame[9:])

    def _rst_stream(self, frame: bytes, _: int, stream_id: int, events: list[Event]) -> None:
        if len(frame) != 13:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed RST_STREAM")
        if self._table.is_idle(stream_id):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
        stream = self._open.get(stream_id)
        if stream is not None:
            self._table.close(stream)
            if stream.refused:
                return  # its call has been ended and counted already, or will be with an event before this one
            events.append((Kind.RESET, stream, int.from_bytes(frame[9:], "big")))
            if not stream.headers_sent:
                # Opened and reset before anything was answered: a handler was started for nothing, and the limit of
                # concurrent streams did not notice (rapid reset, CVE-2023-44487).
                self._floods.count_reset()

    def _goaway(self, frame: bytes, _: int, stream_id: int, events: list[Event]) -> None:
        if stream_id:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(frame) < 17:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed GOAWAY")
        # May come twice: first with the highest number, when a peer begins to drain, then with the last stream it
        # serves (RFC 9113, 6.8). Open streams up to that go on.
        last = int.from_bytes(frame[9:13], "big") & MAX_WINDOW
        self.goaway_received = True
        events.append((Kind.GOAWAY, None, last))
        if self._client_side:
            for stream in [stream for number, stream in self._table.open.items() if number > last]:
                # Never processed by the peer: safe to repeat, hence REFUSED_STREAM (RFC 9113, 6.8).
                self._table.close(stream)
                events.append((Kind.RESET, stream, int(ErrorCode.REFUSED_STREAM)))

    def _push_promise(self, _: bytes, __: int, ___: int, ____: list[Event]) -> None:
        raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "push is disabled")

    # --- ends ---

    def end_of_stream(self, stream: Stream, events: list[Event]) -> None:
        """Handle the first END_STREAM of a stream, on DATA or on request trailers."""
        stream.remote_closed = True
        if self._client_side:
            # A response ends with trailers; without them there is no status.
            events.append((Kind.STATUS, stream, _grpc_headers.parse_trailers([])))
            self._close_after_response(stream)
        elif stream.refused:
            pass  # its call has been ended already, and its status closes this stream
        elif stream.inside_message:
            error = BadMessageError(StatusCode.INTERNAL, "the stream ended inside a message")
            self.bad_message(stream, error, events)
        else:
            events.append((Kind.HALF_CLOSED, stream, None))

    def _close_after_response(self, stream: Stream) -> None:
        """Client: the response is complete, whatever was still to be sent."""
        if stream.local_closed:
            self._table.close(stream)
        else:
            self._table.reset(stream, ErrorCode.NO_ERROR)  # the server has said all it will (RFC 9113, 8.1)

    def bad_message(self, stream: Stream, error: BadMessageError, events: list[Event]) -> None:
        """The peer broke gRPC's framing, or sent a message that is too large: its call ends with this status."""
        # The stream is not reset here: the shell answers with a status, which the peer understands better.
        stream.refused = True
        events.append((Kind.BROKEN, stream, error))
        if not stream.headers_sent:  # as if it had been reset: it cost a handler, and will free its place at once
            self._floods.count_reset()

    def stream_fault(self, stream: Stream, code: ErrorCode, text: str, events: list[Event]) -> None:
        """The peer broke HTTP/2 on one stream (RFC 9113, 5.4.2)."""
        unanswered = not stream.headers_sent and not stream.closed and not self._client_side
        self._table.reset(stream, code)
        if not stream.refused:
            stream.refused = True
            events.append((Kind.BROKEN, stream, BadMessageError(StatusCode.INTERNAL, text)))
        if unanswered:
            self._floods.count_reset()


#: By frame type (RFC 9113, 6); DATA is the frame parser's.
_HANDLERS: Final[dict[int, Callable[[FrameHandler, bytes, int, int, list[Event]], None]]] = {
    HEADERS: FrameHandler._headers,
    PRIORITY: FrameHandler._priority,
    RST_STREAM: FrameHandler._rst_stream,
    SETTINGS: FrameHandler._settings,
    PUSH: FrameHandler._push_promise,
    PING: FrameHandler._ping,
    GOAWAY: FrameHandler._goaway,
    WINDOW_UPDATE: FrameHandler._malformed_window_update,
    CONTINUATION: FrameHandler._continuation,
}
