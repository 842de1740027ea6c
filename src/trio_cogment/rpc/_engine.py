"""HTTP/2 with gRPC's message framing, sans I/O: bytes in, events out; calls in, bytes out. Both roles.

The engine owns DATA, PING, GOAWAY and WINDOW_UPDATE; settings and the compression of headers are the control plane's
(see `_control` for why). It knows nothing of Trio, of services or of deadlines: a shell feeds it and acts on what it
returns. Nothing a peer can send makes it raise: a fault on one stream is an event, one of the connection sets `fault`.

Invariants that the tests hold on to: the same bytes in any split give the same events and the same fault; every stream
is announced as ended at most once.
"""

from __future__ import annotations

from trio_cogment.errors import StatusCode
from trio_cogment.rpc import _wire
from trio_cogment.rpc._frames import (
    ACK,
    CONTINUATION,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    PADDED,
    PING,
    PRIORITIZED,
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
from trio_cogment.rpc._parser import Parser
from trio_cogment.rpc._streams import BadMessageError, Stream

#: A WINDOW_UPDATE below this grants little.
_SMALL_INCREMENT = 1024
#: How many of those a piece of output may bring about: for the stream and for the connection, and the same again.
_UPDATES_PER_PIECE = 4


def _entries(frame: bytes) -> bytes:
    """Return the whole entries of a SETTINGS frame; a broken length is found by h2."""
    return frame[9 : len(frame) - (len(frame) - 9) % SETTING.size]


class Engine(Parser):
    """One connection; see `Sender` for the attributes and for everything that sends, `Parser` for `receive_data`."""

    def _control_frame(self, frame: bytes, kind: int, flags: int, stream_id: int, events: list[Event]) -> None:
        if self._header_block and (kind != CONTINUATION or stream_id != self._header_block):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a header block is not finished")
        if self._answer_bytes > self._max_answer_bytes:
            # What it makes us answer piles up; only control frames can do that (CVE-2019-9512 and its kin).
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "answers to control frames are not read")
        if kind == WINDOW_UPDATE:  # the most frequent: C cores send two for a message
            self._window_update(frame, stream_id, events)
        elif kind == HEADERS:
            self._headers_frame(frame, flags, stream_id, events)
        elif kind == CONTINUATION:
            if len(frame) == 9:
                self._floods.empty.count()
            self._continuation(frame, flags, events)
        elif kind == PING:
            if stream_id:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
            if len(frame) != 17:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed PING")
            if flags & ACK:
                self._floods.empty.count()
                events.append((Kind.PONG, None, frame[9:]))
            else:
                self._floods.count_ping(self.data_mark())
                self._answer(PING, ACK, 0, frame[9:])
        elif kind == GOAWAY:
            self._goaway(frame, stream_id, events)
        elif kind == RST_STREAM:
            self._reset_frame(frame, stream_id, events)
        elif kind == PUSH:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "push is disabled")
        elif kind < CONTINUATION:
            if kind == PRIORITY:
                self._floods.empty.count()
            elif kind == SETTINGS:
                self._check_settings(frame, flags)
            self._feed_control(frame, events)
        else:
            self._floods.empty.count()  # unknown types are ignored (RFC 9113, 5.5)

    # --- header blocks ---

    def _check_settings(self, frame: bytes, flags: int) -> None:
        """Check what h2 does not."""
        if not flags & ACK:
            self._floods.settings.count()
        elif len(frame) > 9:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS acknowledgement with payload")
        if self.client_side and any(entry == (ENABLE_PUSH, 1) for entry in SETTING.iter_unpack(_entries(frame))):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a server cannot enable push")  # RFC 9113, 6.5.2

    def _headers_frame(self, frame: bytes, flags: int, stream_id: int, events: list[Event]) -> None:
        if not stream_id & 1 or (self.client_side and self._is_idle(stream_id)):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
        start, stop = 9, len(frame)
        if flags & (PADDED | PRIORITIZED):
            fields = (1 if flags & PADDED else 0) + (5 if flags & PRIORITIZED else 0)
            if stop < start + fields:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed HEADERS")
            if flags & PADDED:
                stop -= frame[9]
            start += fields  # priorities mean nothing any more (RFC 9113, 5.3.2)
            if stop < start:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
        ended = bool(flags & END_STREAM)
        if flags & END_HEADERS:
            self._headers_arrived(stream_id, frame[start:stop], ended, events)
        else:
            self._header_block = stream_id
            self._header_pieces = [frame[start:stop]]
            self._header_block_bytes = stop - start
            self._header_ends_stream = ended

    def _continuation(self, frame: bytes, flags: int, events: list[Event]) -> None:
        if not self._header_block:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._header_pieces.append(frame[9:])
        self._header_block_bytes += len(frame) - 9
        if self._header_block_bytes > self._max_block_bytes:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "header block without end")
        if flags & END_HEADERS:
            stream_id, self._header_block = self._header_block, 0
            block = b"".join(self._header_pieces)
            self._header_pieces.clear()
            self._headers_arrived(stream_id, block, self._header_ends_stream, events)

    def _headers_arrived(self, stream_id: int, block: bytes, ended: bool, events: list[Event]) -> None:
        headers = self._control.decode(block)  # always: both ends' tables must stay the same
        stream = self.streams.get(stream_id)
        if stream is None:
            if self.client_side:
                return  # answered after we gave up
            if stream_id > self._last_peer_stream:
                self._request_headers(stream_id, headers, ended, events)
            elif any(stream_id in passed for passed in self._passed_over):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
            else:  # it is over, which the peer need not know yet
                self._answer(RST_STREAM, 0, stream_id, int(ErrorCode.STREAM_CLOSED).to_bytes(4, "big"))
                self._floods.resets.count()
        elif stream.remote_closed:
            self._stream_fault(stream, ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM", events)
        elif stream.headers_seen and not ended:
            self._stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM", events)
        elif self.client_side:
            self._response_headers(stream, headers, ended, events)
        elif _wire.is_malformed(headers):
            self._stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "malformed trailers", events)
        else:
            self._remote_end(stream, events)  # a request's trailers mean nothing in gRPC

    def _feed_control(self, frame: bytes, events: list[Event]) -> None:
        changed = self._control.receive_frame(frame)
        data = self._control.data_to_send()
        if data:
            self._emit(data)
            self._answer_bytes += len(data)
        if changed:
            self._settings_changed(events)

    def _reset_frame(self, frame: bytes, stream_id: int, events: list[Event]) -> None:
        if len(frame) != 13:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed RST_STREAM")
        if self._is_idle(stream_id):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._close(stream)
            if stream.refused:
                return  # its call has been ended and counted already, or will be with the event before this
            events.append((Kind.RESET, stream, int.from_bytes(frame[9:], "big")))
            if not stream.headers_sent:
                self._floods.resets.count()

    def _request_headers(self, stream_id: int, headers: _wire.RawHeaders, ended: bool, events: list[Event]) -> None:
        if stream_id > self._last_peer_stream + 2:  # those between are closed by that (RFC 9113, 5.1.1)
            self._passed_over.append(range(self._last_peer_stream + 2, stream_id, 2))
        self._last_peer_stream = stream_id
        busy = self.draining or len(self.streams) >= self.config.max_concurrent_streams
        stream = self._new_stream(stream_id)
        stream.headers_seen = True
        stream.remote_closed = ended
        if busy:
            stream.refused = True
            self.reset(stream, ErrorCode.REFUSED_STREAM)
            if not self.draining:  # else it may not have heard of that yet
                self._floods.resets.count()
            return
        if _wire.is_malformed(headers):
            stream.refused = True
            self._stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "malformed request", events)
            return
        try:
            head = _wire.parse_request(headers, self.config.max_header_list_bytes)
        except _wire.RefusedRequest as refusal:
            stream.refused = True
            status = _wire.trailer_headers(refusal.code, refusal.message, (), alone=refusal.http_status)
            self.finish_now(stream, [*status, *refusal.headers])
            if refusal.code is StatusCode.INTERNAL:  # malformed; others an honest caller may meet again and again
                self._floods.resets.count()
            return
        stream.encoding = head.encoding
        events.append((Kind.REQUEST, stream, head))
        if ended:
            events.append((Kind.HALF_CLOSED, stream, None))

    def _response_headers(self, stream: Stream, headers: _wire.RawHeaders, ended: bool, events: list[Event]) -> None:
        if _wire.is_malformed(headers):
            self._stream_fault(stream, ErrorCode.PROTOCOL_ERROR, "malformed response", events)
            return
        if not ended and _wire.is_informational(headers):
            self._floods.empty.count()
            return
        limit = self.config.max_header_list_bytes
        if sum(len(name) + len(value) + 32 for name, value in headers) > limit:
            stream.refused = True
            error = BadMessageError(StatusCode.RESOURCE_EXHAUSTED, f"response metadata is larger than {limit} bytes")
            events.append((Kind.BROKEN, stream, error))
            return
        if ended:
            stream.remote_closed = True
            trailers = _wire.parse_trailers(headers)
            if stream.inside_message and trailers.code is StatusCode.OK:
                # A failure says more than the message it has cut off.
                trailers = _wire.Trailers(StatusCode.INTERNAL, "the response ended inside a message", trailers.metadata)
            events.append((Kind.STATUS, stream, trailers))
            self._close_after_end(stream)
            return
        stream.headers_seen = True
        response = _wire.parse_response(headers)
        if isinstance(response, _wire.Trailers):
            events.append((Kind.STATUS, stream, response))
            self.reset(stream, ErrorCode.CANCEL)
            return
        for name, value in headers:
            if name == b"grpc-encoding":
                stream.encoding = value
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
                self._unblock(stream)
        if self._blocked:
            self._pump()
        if self._starved:
            self._wake_starved()
        events.append((Kind.SETTINGS, None, None))

    def _window_update(self, frame: bytes, stream_id: int, events: list[Event]) -> None:
        if len(frame) != 13:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed WINDOW_UPDATE")
        increment = int.from_bytes(frame[9:], "big") & MAX_WINDOW
        if 0 < increment < _SMALL_INCREMENT:
            self._count_update()
        if not stream_id:
            self._send_window += increment
            if not increment or self._send_window > MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                raise ConnectionFaultError(code, "bad WINDOW_UPDATE")
        else:
            if self._is_idle(stream_id):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
            stream = self.streams.get(stream_id)
            if stream is None:  # an ordinary race (RFC 9113, 5.1)
                if increment >= _SMALL_INCREMENT:
                    self._count_update()
                return
            stream.send_window += increment
            if not increment or stream.send_window > MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                self._stream_fault(stream, code, "bad WINDOW_UPDATE", events)
            elif stream.outbox:
                self._unblock(stream)
        if self._blocked:
            self._pump()
        if self._starved:
            self._wake_starved()

    def _count_update(self) -> None:
        """Count a WINDOW_UPDATE that grants little, or on a stream that is over.

        A peer that reads small messages sends many, but in proportion to what it has got.
        """
        self._updates += 1
        if self._updates > _UPDATES_PER_PIECE * self._written:
            self._updates -= 1
            self._floods.empty.count()

    def _goaway(self, frame: bytes, stream_id: int, events: list[Event]) -> None:
        if stream_id:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(frame) < 17:
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
            error = BadMessageError(StatusCode.INTERNAL, "the stream ended inside a message")
            self._broken(stream, error, events)
        elif not stream.refused:
            events.append((Kind.HALF_CLOSED, stream, None))

    def _close_after_end(self, stream: Stream) -> None:
        """Client: the response is complete, whatever we still wanted to send."""
        if stream.local_closed:
            self._close(stream)
        else:
            self.reset(stream, ErrorCode.NO_ERROR)
