"""Bytes into frames, and DATA into messages.

DATA is delivered as it arrives, in pieces: a frame may be larger than what one read brings, and flow control counts
what has arrived and not what is whole. Every other frame is small; it is collected whole and handed on.

The fast path of `FrameParser._parse_frames` is where a busy connection spends its time: a DATA frame that holds exactly
one whole message, for an open stream, within both windows. All that it needs is read in one `unpack` and tested in
two `if`; whatever is unusual takes the long way, which has every check of the RFC. WINDOW_UPDATEs have a short way as
well: of grpcio's C core two or three come for each message, and the same `unpack` has read them. Small ones for which
nothing waits, nearly all, are credited here, and counted when the bytes have been handled. All ways do the same
accounting, and tests hold the parser to it: the same bytes in any split come to the same events.

The order of the bytes is the order of everything: a handler may close a stream that the next frame is for. So frames
are handled one by one, in the middle of parsing, and not first collected in a list.

A request costs a hundred times what its bytes cost to send. So the parser can be told to stop after some
(`limit_requests`); the rest of the bytes then waits, as if it had come later.
"""

from __future__ import annotations

import abc
import sys
from typing import Final

from trio_cogment.base.compiling import mypyc_attr
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.shared_message import LOCATED_BYTES
from trio_cogment.rpc._floods import Floods
from trio_cogment.rpc._frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADER,
    HEADERS,
    MAX_CONTROL_FRAME,
    MAX_WINDOW,
    MESSAGE_HEADER,
    PADDED,
    PREFACE,
    SETTINGS,
    TLS_ALERT,
    TLS_HANDSHAKE,
    WINDOW_UPDATE_FRAME,
    WINDOW_UPDATE_WORD,
    ConnectionFaultError,
    ErrorCode,
    Event,
    Kind,
)
from trio_cogment.rpc._header_blocks import HeaderBlocks
from trio_cogment.rpc._receive_window import ReceiveWindow
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._streams import PREFIX_BYTES, BadMessageError, Stream

_MESSAGE: Final = Kind.MESSAGE
_MAX_REASON: Final = 200
#: A WINDOW_UPDATE below this grants little.
SMALL_INCREMENT: Final = 1024
#: A larger one is left to the handler, so that the sum of those that one read brings stays far from the limit.
_USUAL_INCREMENT: Final = 1 << 24
#: Stands for a message's prefix where what was received ends before it.
_NO_PREFIX: Final = bytes(PREFIX_BYTES)


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(abc.ABC):
    """What a frame parser needs to hear from, and tell, the rest of the engine."""

    @abc.abstractmethod
    def control_frame(self, frame: bytes, kind: int, flags: int, stream_id: int, events: list[Event]) -> None:
        """Handle a whole frame that is not DATA."""

    @abc.abstractmethod
    def window_update(self, stream_id: int, increment: int, events: list[Event]) -> None:
        """Handle a WINDOW_UPDATE; the same as `control_frame` with one of the right size."""

    @abc.abstractmethod
    def count_updates(self, number: int) -> None:
        """Count small WINDOW_UPDATEs that have been credited, and that the output does not explain."""

    @abc.abstractmethod
    def is_idle(self, stream_id: int) -> bool:
        """Whether no stream has had this number."""

    @abc.abstractmethod
    def end_of_stream(self, stream: Stream, events: list[Event]) -> None:
        """Handle END_STREAM on DATA."""

    @abc.abstractmethod
    def bad_message(self, stream: Stream, error: BadMessageError, events: list[Event]) -> None:
        """Handle a message that cannot be accepted; the parser drops the rest of the stream once it is refused."""

    @abc.abstractmethod
    def stream_fault(self, stream: Stream, code: ErrorCode, text: str, events: list[Event]) -> None:
        """Handle an error that concerns one stream only (RFC 9113, 5.4.2)."""


class FrameParser:
    """The parser of one connection.

    Args:
        client_side: the role; only a client sends the preface.
        config: limits.
        streams: those that are open, by number; only read.
        window: what may arrive; the parser subtracts what does.
        blocks: whether a header block is unfinished.
        floods: rates of frames without content.
        queue: what is credited by WINDOW_UPDATEs.
        handler: of everything but messages.

    Attributes:
        opened: the peer has sent what it must send first.
        paused: as many requests as are allowed at once have been handled, and there are more bytes. `feed` must be
            called with none to go on.
    """

    def __init__(
        self,
        *,
        client_side: bool,
        config: RpcConfig,
        streams: dict[int, Stream],
        window: ReceiveWindow,
        blocks: HeaderBlocks,
        floods: Floods,
        queue: SendQueue,
        handler: Handler,
    ) -> None:
        self.opened = False
        self.paused = False
        self._max_requests = sys.maxsize
        self._unread = b""  # while paused: what came, and where to go on
        self._unread_at = 0
        self._max_frame = config.max_frame_bytes
        self._max_control_frame = min(MAX_CONTROL_FRAME, config.max_frame_bytes)
        self._streams = streams
        self._window = window
        self._blocks = blocks
        self._floods = floods
        self._queue = queue
        self._max_answer_bytes = config.max_control_output_bytes
        self._handler = handler
        self._client_side = client_side
        self._preface_done = client_side
        self._tail = bytearray()  # of a frame that is not whole
        self._need = 0  # bytes the tail must have before another look is worth while
        # A DATA frame that is being delivered in pieces:
        self._data_stream: Stream | None = None  # None: its bytes are counted and dropped
        self._data_left = 0  # without padding
        self._pad_left = 0  # also the rest of a large frame of an unknown type
        self._data_ends = False

    def limit_requests(self, number: int) -> None:
        """Pause after this many header blocks in one `feed`."""
        self._max_requests = number

    def feed(self, data: bytes, events: list[Event]) -> None:
        """Handle all frames that are whole with these bytes; add the messages to `events`.

        Raises:
            ConnectionFaultError: the peer has broken the connection. What came before that is in `events`. The parser
                cannot be used any more.
        """
        position = 0
        if self.paused:
            assert not data
            self.paused = False
            data, self._unread, position = self._unread, b"", self._unread_at
        elif self._tail:
            self._tail += data
            # A large control frame that comes byte by byte would otherwise be copied for each byte.
            if len(self._tail) < self._need:
                return
            data = bytes(self._tail)
            self._tail.clear()
        self._need = 0
        if not self.opened:
            position = self._parse_opening(data, events)
        if self.opened:
            position = self._parse_frames(data, position, events)
        if self.paused:
            self._unread, self._unread_at = data, position
        elif position < len(data):
            self._tail += data[position:] if position else data

    def _parse_opening(self, data: bytes, events: list[Event]) -> int:
        """Handle the preface (server), then a SETTINGS frame, before anything else (RFC 9113, 3.4)."""
        position = 0
        if not self._preface_done:
            start = data[: len(PREFACE)]
            if start != PREFACE[: len(start)]:
                if len(data) < len(TLS_HANDSHAKE) and TLS_HANDSHAKE.startswith(data):
                    return 0  # what it is cannot be said yet
                hint = "; the client may speak TLS" if data[: len(TLS_HANDSHAKE)] == TLS_HANDSHAKE else ""
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"this is not HTTP/2{hint}")
            if len(data) < len(PREFACE):
                return 0
            self._preface_done = True
            position = len(PREFACE)
        if self._client_side and data[: len(TLS_ALERT)] == TLS_ALERT:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2; the server may speak TLS")
        if len(data) - position < 9:
            return position
        high, low, kind, flags, stream_id = HEADER.unpack_from(data, position)
        size: int = high << 8 | low
        if kind == GOAWAY and self._client_side and size <= self._max_control_frame:
            if len(data) - position < 9 + size:
                return position
            # The reason of a server that takes no connections (`_admission`).
            reason = data[position + 17 : position + 9 + size][:_MAX_REASON].decode("ascii", "backslashreplace")
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, f"the server refuses the connection: {reason!r}")
        if kind != SETTINGS or flags & ACK or size > self._max_control_frame:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "expected SETTINGS first")
        if len(data) - position < 9 + size:
            return position
        self.opened = True
        self._handler.control_frame(data[position : position + 9 + size], kind, flags, stream_id, events)
        return position + 9 + size

    def _parse_frames(self, data: bytes, position: int, events: list[Event]) -> int:
        """Handle all whole frames; return where the unfinished one begins."""
        total = len(data)
        if self._data_left or self._pad_left or self._data_ends:
            position = self._continue_data(data, position, events)
        # Attributes that do not change are looked up once for each read, not once for each frame.
        unpack = MESSAGE_HEADER.unpack_from
        streams = self._streams
        window = self._window
        blocks = self._blocks
        handler = self._handler
        queue = self._queue
        requests = self._max_requests
        # `unpack` returns whatever it is asked for; said once, compiled code counts with these as numbers.
        word: int
        flags: int
        stream_id: int
        flag: int
        length: int
        last, last_update, last_message = total - 9, total - 13, total - 14
        updates = 0  # small WINDOW_UPDATEs that were credited here
        credit = 0  # what those of the connection have brought
        # As `_is_usual`.
        usual = not (queue.starved or blocks.unfinished or queue.answer_bytes > self._max_answer_bytes)
        while position <= last:
            # One `unpack` reads the frame's header and the message's prefix that most likely follows it.
            if position <= last_message:
                word, flags, stream_id, flag, length = unpack(data, position)
            elif position == last_update:  # most reads end with one
                word, flags, stream_id, length = WINDOW_UPDATE_FRAME.unpack_from(data, position)
                flag, length = 0, length << 8
            else:
                word, flags, stream_id, flag, length = unpack(data[position:] + _NO_PREFIX, 0)
                if word == WINDOW_UPDATE_WORD and position > last_update:
                    self._need = 13
                    break
            if word == WINDOW_UPDATE_WORD:
                # The shorter way. The increment has been read with the header: its first byte is where a message's flag
                # would be.
                increment = flag << 24 | length >> 8
                if usual and 0 < increment < _USUAL_INCREMENT:
                    # As `SendQueue.credit` and `SendQueue.credit_stream`, where nothing waits for it.
                    if not stream_id:
                        credit += increment
                        if increment < SMALL_INCREMENT:
                            updates += 1
                        position += 13
                        continue
                    stream = streams.get(stream_id)
                    if stream is not None and not stream.outbox:
                        stream.send_window = grown = stream.send_window + increment
                        if grown <= MAX_WINDOW:
                            if increment < SMALL_INCREMENT:
                                updates += 1
                            position += 13
                            continue
                        stream.send_window = grown - increment
                if not blocks.unfinished:
                    handler.window_update(stream_id & 0x7FFFFFFF, increment & MAX_WINDOW, events)
                    position += 13
                    usual = self._is_usual()
                    continue
            size = length + PREFIX_BYTES
            # The fast path: a whole frame with exactly one whole message on an open stream. The first test is about the
            # frame alone and lets most others fail early. A compressed message takes the long way, and so does
            # END_STREAM, which is a flag; a reserved bit in `stream_id` makes the look-up fail.
            end = position + 9 + size
            if word == size << 8 and not flags and not flag and end <= total and not blocks.unfinished:
                stream = streams.get(stream_id)
                if (
                    stream is not None
                    and not stream.missing
                    and not stream.have
                    and size <= stream.recv_window
                    and size <= window.size
                    and length <= stream.max_message
                    and stream.headers_seen
                    and not stream.refused
                    and not stream.remote_closed
                ):
                    stream.recv_window -= size
                    stream.held += size
                    window.size -= size
                    start, position = position + 14, end
                    if length >= LOCATED_BYTES and stream.views:
                        events.append((_MESSAGE, stream, memoryview(data)[start:end]))
                    else:
                        events.append((_MESSAGE, stream, data[start:end]))
                    continue
            size = word >> 8
            kind = word & 0xFF
            stream_id &= 0x7FFFFFFF  # the first bit is reserved (RFC 9113, 4.1)
            if kind == DATA:
                position = self._begin_data(data, position, size, flags, stream_id, events)
                if position < 0:  # the padding length has not arrived
                    position = -position - 1
                    break
                usual = self._is_usual()
                continue
            if size > self._max_control_frame:  # too large to be collected
                position = self._skip_unknown(position, size, kind)
                position = self._continue_data(data, position, events)
                continue
            if total - position < 9 + size:
                self._need = 9 + size
                break
            if blocks.unfinished and (kind != CONTINUATION or stream_id != blocks.unfinished):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "a header block is not finished")
            if kind == HEADERS:
                if not requests:
                    self.paused = True
                    break
                requests -= 1
            handler.control_frame(data[position : position + 9 + size], kind, flags, stream_id, events)
            position += 9 + size
            usual = self._is_usual()
        if credit:
            queue.credit(credit)
        if updates:
            # As `FrameHandler.count_updates`, where the output explains them all.
            if updates <= queue.updates_due:
                queue.updates_due -= updates
            else:
                handler.count_updates(updates)
        # Once for all that one read brought, and only below half: see `_receive_window`.
        if window.size < window.low:
            window.credit_connection()
        return position

    def _is_usual(self) -> bool:
        """Whether a usual WINDOW_UPDATE is no more than credit: the handler has nothing else to do for it."""
        queue = self._queue
        return not queue.starved and not self._blocks.unfinished and queue.answer_bytes <= self._max_answer_bytes

    def _skip_unknown(self, position: int, size: int, kind: int) -> int:
        """Let a large frame pass by unseen if its type is unknown (RFC 9113, 5.5); else it is too large (4.2)."""
        if kind <= CONTINUATION or size > self._max_frame or self._blocks.unfinished:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, f"frame of {size} bytes, type {kind}")
        self._floods.empty.count()
        self._pad_left = size
        return position + 9

    # --- DATA, the long way ---

    def _begin_data(
        self, data: bytes, position: int, size: int, flags: int, stream_id: int, events: list[Event]
    ) -> int:
        """Handle the header of a DATA frame; return the next position, or ``-position - 1`` to wait for more."""
        if self._blocks.unfinished:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "DATA inside a header block")
        if self._handler.is_idle(stream_id):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream")
        if size > self._max_frame:
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
            self._window.padded()
        # Counted for the connection whether or not the stream is still there: the peer has counted it as well, and if
        # the two ends disagreed the window would shrink for good (RFC 9113, 6.9).
        self._window.received(size)
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream = self._admit_data(stream, size, padding, events)
        self._data_stream = stream
        if size == padding and not flags & END_STREAM:
            self._floods.empty.count()  # it brings nothing: no message, no end
        self._data_left = size - padding
        self._pad_left = max(padding - 1, 0)
        self._data_ends = bool(flags & END_STREAM)
        return self._continue_data(data, start, events)

    def _admit_data(self, stream: Stream, size: int, padding: int, events: list[Event]) -> Stream | None:
        if stream.remote_closed or not stream.headers_seen:
            self._handler.stream_fault(stream, ErrorCode.STREAM_CLOSED, "DATA outside the body", events)
            return None
        if size > stream.recv_window:
            text = "the stream's window is exceeded"
            self._handler.stream_fault(stream, ErrorCode.FLOW_CONTROL_ERROR, text, events)
            return None
        stream.recv_window -= size
        if not stream.refused:
            stream.held += size - padding  # padding is free at once: no message has it, so nobody would take it
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
                    self._handler.end_of_stream(stream, events)
            elif stream is not None and not stream.closed and not stream.refused:
                self._window.update_stream_window(stream)  # a message larger than the window may have begun
        return position

    def _feed_stream(self, stream: Stream, data: bytes, position: int, stop: int, events: list[Event]) -> None:
        # Messages before a bad one are good: they are announced first, wherever the bytes were cut.
        messages: list[bytes] = []
        fault: BadMessageError | None = None
        try:
            stream.feed(data, position, stop, messages)
        except BadMessageError as error:
            fault = error
        for message in messages:
            events.append((_MESSAGE, stream, message))
        if fault is not None:
            self._handler.bad_message(stream, fault, events)
