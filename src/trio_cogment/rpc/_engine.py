"""HTTP/2 with gRPC's message framing, sans I/O: bytes in, events out; calls in, bytes out. Both roles.

The engine owns DATA, PING, GOAWAY and WINDOW_UPDATE; header blocks, settings and resets go through the control plane
(see `_control` for why). It knows nothing of Trio, of services or of deadlines: a shell feeds it and acts on what it
returns. Nothing a peer can send makes it raise: a fault on one stream is an event, one of the connection sets `fault`.

Invariants that the tests hold on to: the same bytes in any split give the same events and the same fault; every stream
is announced as ended at most once.
"""

from __future__ import annotations

import h2.exceptions

from trio_cogment.errors import StatusCode
from trio_cogment.rpc import _wire
from trio_cogment.rpc._control import HeadersArrived, StreamReset
from trio_cogment.rpc._frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_CONTROL_FRAME,
    MAX_WINDOW,
    PING,
    PUSH,
    WINDOW_UPDATE,
    ConnectionFaultError,
    ErrorCode,
    Event,
    Kind,
)
from trio_cogment.rpc._parser import Parser
from trio_cogment.rpc._streams import BadMessageError, Stream


class Engine(Parser):
    """One connection; see `Sender` for the attributes and for everything that sends, `Parser` for `receive_data`."""

    def _control_frame(self, frame: bytes, kind: int, flags: int, stream_id: int, events: list[Event]) -> None:
        if self._header_block and (kind != CONTINUATION or stream_id != self._header_block):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a header block is not finished")
        if kind == HEADERS:
            self._headers_frame(frame, flags, stream_id, events)
        elif kind == CONTINUATION:
            self._header_block_bytes += len(frame)
            if self._header_block_bytes > 4 * MAX_CONTROL_FRAME:
                raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "header block without end")
            if flags & END_HEADERS:
                self._header_block = 0
            self._feed_control(frame, events)
        elif kind == WINDOW_UPDATE:
            self._window_update(frame, stream_id, events)
        elif kind == PING:
            if len(frame) != 17 or stream_id:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed PING")
            if not flags & ACK:
                self._frame(PING, ACK, 0, frame[9:])
        elif kind == GOAWAY:
            self._goaway(frame, stream_id, events)
        elif kind == PUSH:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "push is disabled")
        elif kind < CONTINUATION:
            self._feed_control(frame, events)
        # Unknown types are ignored (RFC 9113, 5.5).

    def _headers_frame(self, frame: bytes, flags: int, stream_id: int, events: list[Event]) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None and stream.headers_seen and not flags & END_STREAM:
            # Trailers must end the stream; h2 would end the connection. It gets the flag, and the stream its due.
            self._bad_trailers = stream
            frame = frame[:4] + bytes((flags | END_STREAM,)) + frame[5:]
        if not flags & END_HEADERS:
            self._header_block = stream_id
            self._header_block_bytes = len(frame)
        self._feed_control(frame, events)

    def _feed_control(self, frame: bytes, events: list[Event]) -> None:
        try:
            happened = self._control.receive_data(frame)
        except h2.exceptions.ProtocolError as error:
            # h2's own text may hold addresses and what the peer sent; it stays in the cause.
            text = f"malformed frame or header block ({type(error).__name__})"
            raise ConnectionFaultError(int(error.error_code), text) from error
        data = self._control.data_to_send()
        if data:
            self._emit(data)
        for event in happened:
            if isinstance(event, HeadersArrived):
                self._headers_arrived(event, events)
            elif isinstance(event, StreamReset):
                stream = self.streams.get(event.stream_id)
                if stream is not None:
                    self._close(stream)
                    events.append((Kind.RESET, stream, event.code))
            else:
                self._settings_changed(events)

    def _headers_arrived(self, event: HeadersArrived, events: list[Event]) -> None:
        stream = self.streams.get(event.stream_id)
        bad_trailers, self._bad_trailers = self._bad_trailers, None
        if self.client_side:
            if stream is None:
                return  # answered after we gave up
            if stream is bad_trailers:
                self._stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM", events)
            else:
                self._response_headers(stream, event, events)
        elif stream is None:
            if event.stream_id > self._last_peer_stream:
                self._request_headers(event, events)
        elif stream is bad_trailers:
            self._stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM", events)
        else:
            self._remote_end(stream, events)  # a request's trailers mean nothing in gRPC

    def _request_headers(self, event: HeadersArrived, events: list[Event]) -> None:
        self._last_peer_stream = event.stream_id
        busy = len(self.streams) >= self.config.max_concurrent_streams
        stream = self._new_stream(event.stream_id)
        stream.headers_seen = True
        stream.remote_closed = event.ended
        if busy:
            stream.refused = True
            self.reset(stream, ErrorCode.REFUSED_STREAM)
            return
        try:
            head = _wire.parse_request(event.headers, self.config.max_header_list_bytes)
        except _wire.RefusedRequest as refusal:
            stream.refused = True
            headers = _wire.trailer_headers(refusal.code, refusal.message, (), alone=refusal.http_status)
            self.finish_now(stream, headers)
            return
        stream.encoding = head.encoding
        events.append((Kind.REQUEST, stream, head))
        if event.ended:
            events.append((Kind.HALF_CLOSED, stream, None))

    def _response_headers(self, stream: Stream, event: HeadersArrived, events: list[Event]) -> None:
        if event.ended:
            stream.remote_closed = True
            trailers = _wire.parse_trailers(event.headers)
            if stream.inside_message:
                trailers = _wire.Trailers(StatusCode.INTERNAL, "the response ended inside a message", trailers.metadata)
            events.append((Kind.STATUS, stream, trailers))
            self._close_after_end(stream)
            return
        stream.headers_seen = True
        response = _wire.parse_response(event.headers)
        if isinstance(response, _wire.Trailers):
            events.append((Kind.STATUS, stream, response))
            self.reset(stream, ErrorCode.CANCEL)
            return
        for name, value in event.headers:
            if name == b"grpc-encoding":
                stream.encoding = bytes(value)
        events.append((Kind.RESPONSE, stream, response))

    def _settings_changed(self, events: list[Event]) -> None:
        self._max_frame = min(self._control.remote_max_frame, self.config.max_frame_bytes)
        window = self._control.remote_initial_window
        change = window - self._peer_initial_window
        if change:
            self._peer_initial_window = window
            for stream in self.streams.values():
                stream.send_window += change  # may go below zero (RFC 9113, 6.9.2)
                if stream.send_window > MAX_WINDOW:
                    raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS make a window too large")
        if self._blocked:
            self._pump()

    def _window_update(self, frame: bytes, stream_id: int, events: list[Event]) -> None:
        if len(frame) != 13:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed WINDOW_UPDATE")
        increment = int.from_bytes(frame[9:], "big") & MAX_WINDOW
        if not stream_id:
            self._send_window += increment
            if not increment or self._send_window > MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                raise ConnectionFaultError(code, "bad WINDOW_UPDATE")
        else:
            if stream_id > self._highest_stream():
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
            stream = self.streams.get(stream_id)
            if stream is None:
                return  # an ordinary race (RFC 9113, 5.1)
            stream.send_window += increment
            if not increment or stream.send_window > MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                self._stream_fault(stream, code, "bad WINDOW_UPDATE", events)
        if self._blocked:
            self._pump()

    def _goaway(self, frame: bytes, stream_id: int, events: list[Event]) -> None:
        if len(frame) < 17 or stream_id:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed GOAWAY")
        last = int.from_bytes(frame[9:13], "big") & MAX_WINDOW
        self.goaway_received = True
        events.append((Kind.GOAWAY, None, last))
        if self.client_side:
            for stream in [stream for number, stream in self.streams.items() if number > last]:
                # Never processed by the peer: safe to repeat, hence REFUSED_STREAM (RFC 9113, 6.8).
                self._close(stream)
                events.append((Kind.RESET, stream, int(ErrorCode.REFUSED_STREAM)))

    # --- ends ---

    def _remote_end(self, stream: Stream, events: list[Event]) -> None:
        """END_STREAM on DATA or on request trailers."""
        if stream.remote_closed:
            return
        stream.remote_closed = True
        if self.client_side:
            # A response ends with trailers; without them there is no status.
            events.append((Kind.STATUS, stream, _wire.parse_trailers([])))
            self._close_after_end(stream)
        elif stream.local_closed:
            self._close(stream)
        elif stream.inside_message and not stream.refused:
            stream.refused = True
            error = BadMessageError(StatusCode.INTERNAL, "the stream ended inside a message")
            events.append((Kind.BROKEN, stream, error))
        elif not stream.refused:
            events.append((Kind.HALF_CLOSED, stream, None))

    def _close_after_end(self, stream: Stream) -> None:
        """Client: the response is complete, whatever we still wanted to send."""
        if stream.local_closed:
            self._close(stream)
        else:
            self.reset(stream, ErrorCode.NO_ERROR)
