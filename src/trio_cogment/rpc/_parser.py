"""The frame parser of the engine: bytes into frames, DATA into messages.

A DATA frame is delivered as it arrives, in pieces; every other frame is collected whole and handed on. Many small
messages in one read are handled in one loop: this is where a busy connection spends its time.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable

from trio_cogment.config import RpcConfig
from trio_cogment.errors import RemoteProtocolError, StatusCode
from trio_cogment.rpc._floods import Floods
from trio_cogment.rpc._frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_STREAM,
    HEADER,
    MAX_CONTROL_FRAME,
    MESSAGE_HEADER,
    PADDED,
    PREFACE,
    SETTINGS,
    ConnectionFaultError,
    ErrorCode,
    Event,
    Kind,
)
from trio_cogment.rpc._sender import Sender
from trio_cogment.rpc._streams import BadMessageError, Stream

_MESSAGE = Kind.MESSAGE


class Parser(Sender, abc.ABC):
    """See the module. `Engine` says what frames other than DATA mean.

    Args:
        client_side: the role.
        config: limits.
        clock: the time in seconds, for rates; without one everything happens at once.
    """

    def __init__(self, *, client_side: bool, config: RpcConfig, clock: Callable[[], float] = float) -> None:
        super().__init__(client_side=client_side, config=config)
        self._floods = Floods(config, clock)
        self._updates = 0  # WINDOW_UPDATEs that called for no more notice
        self._max_answer_bytes = config.max_control_output_bytes
        self._max_control_frame = min(MAX_CONTROL_FRAME, config.max_frame_bytes)
        # The parser: bytes of an unfinished frame, or a DATA frame that is being delivered in pieces.
        self._tail = bytearray()
        self._need = 0  # bytes the tail must have before another look is worth while
        self._preface_done = client_side
        self._settings_seen = False
        self._header_block = 0  # the stream whose CONTINUATION must come next
        self._header_block_bytes = 0
        self._header_pieces: list[bytes] = []
        self._header_ends_stream = False
        self._passed_over: deque[range] = deque(maxlen=16)  # numbers that the peer has not used and cannot use any more
        self._data_left = 0  # of the current DATA frame, padding excluded
        self._pad_left = 0
        self._data_stream: Stream | None = None
        self._data_ends = False

    @property
    def opened(self) -> bool:
        """Whether the peer has sent what it must send first."""
        return self._settings_seen

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes from the peer; return what they mean.

        When the peer has broken the connection, `fault` is set and the GOAWAY that says so is in the output; what came
        before the fault is returned still, and nothing after it.
        """
        events: list[Event] = []
        if self.fault is not None:
            return events
        if self._tail:
            self._tail += data
            if len(self._tail) < self._need:
                return events
            data = bytes(self._tail)
            self._tail.clear()
        self._need = 0
        try:
            rest = self._parse(data, events)
        except ConnectionFaultError as fault:
            self.go_away(fault.code, str(fault))
            self._control.broken = True
            self.fault = RemoteProtocolError(str(fault))
            self.fault.__cause__ = fault.__cause__
            return events
        if rest < len(data):
            self._tail += data[rest:] if rest else data
        return events

    def _parse(self, data: bytes, events: list[Event]) -> int:
        """Handle all whole frames; return where the unfinished one begins."""
        position = 0
        if not self._settings_seen:
            position = self._parse_opening(data, events)
            if not self._settings_seen:
                return position
        total = len(data)
        if self._data_left or self._pad_left or self._data_ends:
            position = self._continue_data(data, position, events)
        unpack = HEADER.unpack_from
        unpack_message = MESSAGE_HEADER.unpack_from
        streams = self.streams
        while total - position >= 9:
            if total - position >= 14:
                high, low, kind, flags, stream_id, flag, length = unpack_message(data, position)
                size = high << 8 | low
                # The fast path: a whole frame with exactly one whole message on an open stream.
                if (
                    kind == 0
                    and flags == 0
                    and not flag
                    and length == size - 5
                    and position + 9 + size <= total
                    and not self._header_block
                ):
                    stream = streams.get(stream_id)
                    if (
                        stream is not None
                        and not stream.missing
                        and not stream.have
                        and size <= stream.recv_window
                        and size <= self._recv_window
                        and length <= stream.max_message
                        and stream.headers_seen
                        and not stream.refused
                        and not stream.remote_closed
                    ):
                        stream.recv_window -= size
                        stream.held += size
                        self._recv_window -= size
                        start = position + 14
                        position += 9 + size
                        events.append((_MESSAGE, stream, data[start:position]))
                        continue
            else:
                high, low, kind, flags, stream_id = unpack(data, position)
                size = high << 8 | low
            stream_id &= 0x7FFFFFFF
            if kind == DATA:
                position = self._begin_data(data, position, size, flags, stream_id, events)
                if position < 0:  # the padding length has not arrived
                    position = -position - 1
                    break
                continue
            if size > self._max_control_frame:
                position = self._skip_unknown(position, size, kind)
                position = self._continue_data(data, position, events)
                continue
            if total - position < 9 + size:
                self._need = 9 + size
                break
            self._control_frame(data[position : position + 9 + size], kind, flags, stream_id, events)
            position += 9 + size
        if self._recv_window < self._window_size >> 1:
            self._credit_connection()
        return position

    def _parse_opening(self, data: bytes, events: list[Event]) -> int:
        """The preface (server), then a SETTINGS frame before anything else (RFC 9113, 3.4)."""
        position = 0
        if not self._preface_done:
            start = data[: len(PREFACE)]
            if start != PREFACE[: len(start)]:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
            if len(data) < len(PREFACE):
                return 0
            self._preface_done = True
            self._feed_control(PREFACE, events)
            position = len(PREFACE)
        if len(data) - position < 9:
            return position
        high, low, kind, flags, stream_id = HEADER.unpack_from(data, position)
        size: int = high << 8 | low
        if kind != SETTINGS or flags & ACK or size > self._max_control_frame:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "expected SETTINGS first")
        if len(data) - position < 9 + size:
            return position
        self._settings_seen = True
        self._control_frame(data[position : position + 9 + size], kind, flags, stream_id, events)
        return position + 9 + size

    def _skip_unknown(self, position: int, size: int, kind: int) -> int:
        """Let a large frame pass by unseen if its type is unknown (RFC 9113, 5.5); else it is too large (4.2)."""
        if kind <= CONTINUATION or size > self.config.max_frame_bytes or self._header_block:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"frame of {size} bytes, type {kind}")
        self._floods.empty.count()
        self._pad_left = size
        return position + 9

    # --- DATA ---

    def _begin_data(
        self, data: bytes, position: int, size: int, flags: int, stream_id: int, events: list[Event]
    ) -> int:
        """Handle the header of a DATA frame; return the next position, or ``-position - 1`` to wait for more."""
        if self._header_block:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "DATA inside a header block")
        if self._is_idle(stream_id):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream")
        if size > self.config.max_frame_bytes:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"DATA frame of {size} bytes")
        start = position + 9
        padding = 0
        if flags & PADDED:
            if not size:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "padded DATA without a pad length")
            if len(data) <= start:
                return -position - 1
            padding = data[start]
            start += 1
            if padding >= size:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
            padding += 1  # the length byte counts as padding for flow control
        if size > self._recv_window:
            raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is exceeded")
        self._recv_window -= size
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream = self._admit_data(stream, size, padding, events)
        self._data_stream = stream
        if size == padding and not flags & END_STREAM:
            self._floods.empty.count()
        self._data_left = size - padding
        self._pad_left = max(padding - 1, 0)
        self._data_ends = bool(flags & END_STREAM)
        return self._continue_data(data, start, events)

    def _admit_data(self, stream: Stream, size: int, padding: int, events: list[Event]) -> Stream | None:
        if stream.remote_closed or not stream.headers_seen:
            self._stream_fault(stream, ErrorCode.STREAM_CLOSED, "DATA outside the body", events)
            return None
        if size > stream.recv_window:
            self._stream_fault(stream, ErrorCode.FLOW_CONTROL_ERROR, "the stream's window is exceeded", events)
            return None
        stream.recv_window -= size
        if not stream.refused:
            stream.held += size - padding
        return stream

    def _continue_data(self, data: bytes, position: int, events: list[Event]) -> int:
        """Deliver what is there of the current DATA frame."""
        total = len(data)
        stream = self._data_stream
        if self._data_left:
            stop = min(total, position + self._data_left)
            if stream is not None and not stream.refused and not stream.closed:
                self._feed_stream(stream, data, position, stop, events)
            self._data_left -= stop - position
            position = stop
        if self._pad_left and not self._data_left:
            skip = min(total - position, self._pad_left)
            self._pad_left -= skip
            position += skip
        if not self._data_left and not self._pad_left:
            self._data_stream = None
            if self._data_ends:
                self._data_ends = False
                if stream is not None and not stream.closed:
                    self._remote_end(stream, events)
            elif stream is not None and not stream.closed and not stream.refused:
                self._top_up(stream)
        return position

    def _feed_stream(self, stream: Stream, data: bytes, position: int, stop: int, events: list[Event]) -> None:
        messages: list[bytes] = []
        fault: BadMessageError | None = None
        try:
            stream.feed(data, position, stop, messages)
        except BadMessageError as error:
            fault = error
        for message in messages:
            events.append((_MESSAGE, stream, message))
        if fault is not None:
            self._broken(stream, fault, events)

    def _broken(self, stream: Stream, error: BadMessageError, events: list[Event]) -> None:
        """The peer broke gRPC's framing, or a limit of ours: its call ends with this status."""
        stream.refused = True
        events.append((Kind.BROKEN, stream, error))
        if not stream.headers_sent:  # as if it had been reset: it cost a handler, and freed its place at once
            self._floods.resets.count()

    def _is_idle(self, stream_id: int) -> bool:
        """Whether no stream has had this number; ours are odd or even by role, and pushes there are none."""
        return not stream_id & 1 or stream_id > (self._next_stream - 2 if self.client_side else self._last_peer_stream)

    def _stream_fault(self, stream: Stream, code: ErrorCode, text: str, events: list[Event]) -> None:
        """The peer broke HTTP/2 on one stream (RFC 9113, 5.4.2)."""
        unanswered = not stream.headers_sent and not stream.closed and not self.client_side
        self.reset(stream, code)
        if not stream.refused:
            stream.refused = True
            events.append((Kind.BROKEN, stream, BadMessageError(StatusCode.INTERNAL, text)))
        if unanswered:
            self._floods.resets.count()

    # --- for the engine ---

    @abc.abstractmethod
    def _control_frame(self, frame: bytes, kind: int, flags: int, stream_id: int, events: list[Event]) -> None:
        """Handle a whole frame that is not DATA."""

    @abc.abstractmethod
    def _feed_control(self, frame: bytes, events: list[Event]) -> None:
        """Pass bytes to the control plane and handle what comes of it."""

    @abc.abstractmethod
    def _remote_end(self, stream: Stream, events: list[Event]) -> None:
        """Handle END_STREAM on DATA or on request trailers."""
