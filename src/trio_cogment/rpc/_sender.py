"""The sending half of the engine: frames, windows and queues of one connection, and the life of its streams.

A message goes straight into the output while windows and the high-water mark allow; else it waits in its stream's
outbox, and waiting streams take turns, a frame each. So the output stays small, a large message does not block small
ones, and what a slow reader holds up is its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from trio_cogment.config import RpcConfig
from trio_cogment.errors import RemoteProtocolError
from trio_cogment.rpc import _wire
from trio_cogment.rpc._control import ControlPlane, max_block_bytes
from trio_cogment.rpc._frames import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADER,
    INITIAL_WINDOW,
    MAX_WINDOW,
    MESSAGE_HEADER,
    PING,
    PREFACE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
)
from trio_cogment.rpc._streams import PREFIX_BYTES, Stream
from trio_cogment.rpc._windows import Windows, nothing

_DEFAULT_MAX_FRAME = 16384
#: Tells the PING that goes with a drain from those that look for life.
DRAIN_PING = b"draining"


class Sender(Windows):
    """See the module. `Engine` adds the receiving half.

    Attributes:
        goaway_received: the peer takes no new streams.
        draining: we take none.
        on_drained: called then, when the last stream is over.
        fault: why the connection cannot go on.
    """

    def __init__(self, *, client_side: bool, config: RpcConfig) -> None:
        super().__init__(config)
        self.client_side = client_side
        self.goaway_received = False
        self.draining = False
        self.on_drained: Callable[[], None] = nothing
        self.fault: RemoteProtocolError | None = None
        self._max_block_bytes = max_block_bytes(config.max_header_list_bytes)
        self._control = ControlPlane(client_side=client_side, max_block_bytes=self._max_block_bytes)
        self._high_water = config.write_high_water_bytes
        self._send_window = INITIAL_WINDOW
        self._peer_initial_window = INITIAL_WINDOW
        self._max_frame = _DEFAULT_MAX_FRAME  # what we send at most
        # An ordered set: whose outbox waits although its own window is open. Those whose window is shut are not in it,
        # or each frame that opens some window would cost a look at all of them.
        self._blocked: dict[Stream, None] = {}
        self._rooms: list[Stream] = []
        self._answer_bytes = 0  # in the output, that the peer has made us add
        self._blocks = 0  # header blocks in the output
        self._free_blocks = math.inf if client_side else 2 * config.max_concurrent_streams
        self._written = 0  # pieces of output so far, at least one for each message and for every 256 bytes
        self._queued = 0  # bytes in all outboxes
        self._starved: dict[Stream, None] = {}  # an ordered set: refused because of that
        self._last_peer_stream = 0
        self._next_stream = 1
        self._say_hello()

    def _say_hello(self) -> None:
        config = self.config
        settings = {
            0x3: config.max_concurrent_streams,
            0x4: config.stream_window_bytes,
            0x5: config.max_frame_bytes,
            0x6: config.max_header_list_bytes,
        }
        if self.client_side:
            self._emit(PREFACE)
            settings = {0x2: 0} | settings  # no push
            del settings[0x3]
        self._frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*item) for item in settings.items()))
        more = config.connection_window_bytes - INITIAL_WINDOW
        if more > 0:
            self._frame(WINDOW_UPDATE, 0, 0, more.to_bytes(4, "big"))

    # --- output ---

    def take_output(self) -> bytes:
        """Return everything there is to send, and let waiting streams produce more."""
        data = b"".join(self._out)
        self._written += len(self._out) + (len(data) >> 8)
        self._out.clear()
        self.out_size = self._answer_bytes = self._blocks = 0
        if self._blocked:
            self._pump()
        return data

    def take_rooms(self) -> list[Stream]:
        """Return the watched streams whose outbox has shrunk since the last call."""
        rooms = self._rooms
        if rooms:
            self._rooms = []
        return rooms

    def _answer(self, kind: int, flags: int, stream_id: int, payload: bytes = b"") -> None:
        """Send a frame that a frame of the peer calls for; `_control_frame` bounds how many wait."""
        self._answer_bytes += len(payload) + 9
        self._frame(kind, flags, stream_id, payload)

    def _emit_block(self, block: bytes) -> None:
        """Send a header block.

        A peer knows of no more calls than it may open until it reads how they ended, so two blocks for each can be
        waiting. More of them wait only for one that opens calls and does not read.
        """
        self._emit(block)
        self._blocks += 1
        if self._blocks > self._free_blocks:
            self._answer_bytes += len(block)

    # --- calls ---

    def can_open(self) -> bool:
        """Whether another request may be sent now (the peer's MAX_CONCURRENT_STREAMS)."""
        return len(self.streams) < self._control.remote_max_streams

    def exhausted(self) -> bool:
        """Whether no request can be sent on this connection ever again."""
        return self.goaway_received or self.fault is not None or self._next_stream > 2**31 - 1

    def open_request(self, headers: _wire.RawHeaders) -> Stream:
        """Send a request's headers and return its stream."""
        stream = self._new_stream(self._next_stream)
        self._next_stream += 2
        stream.headers_sent = True
        self._emit_block(self._control.send_headers(stream.id, headers, end_stream=False))
        return stream

    def send_headers(self, stream: Stream, headers: _wire.RawHeaders) -> None:
        """Send the headers of a response."""
        if not stream.closed:
            stream.headers_sent = True
            self._emit_block(self._control.send_headers(stream.id, headers, end_stream=False))

    def has_room(self, stream: Stream, size: int) -> bool:
        """Whether a message of `size` bytes may be given to `send_message` now."""
        if not stream.outbox:
            return self._queued < self._budget or self._has_room_in_a_full_house(stream, size)
        return (
            len(stream.outbox) < self.config.call_outbox_messages
            and stream.outbox_bytes + size <= self.config.call_outbox_bytes
            and self._queued < self._budget
        )

    def _has_room_in_a_full_house(self, stream: Stream, size: int) -> bool:
        """The calls of a peer that does not read fill the connection's memory; one that it does read may go on."""
        if stream.closed or size + PREFIX_BYTES <= min(stream.send_window, self._send_window):
            return True
        self._starved[stream] = None
        return False

    def _wake_starved(self) -> None:
        self._rooms += self._starved
        self._starved.clear()

    def send_message(self, stream: Stream, payload: bytes) -> None:
        """Send a message, or queue it on its stream if windows or the high-water mark say so."""
        size = len(payload) + PREFIX_BYTES
        if (
            size <= stream.send_window
            and size <= self._send_window
            and size <= self._max_frame
            and not stream.outbox
            and self.out_size < self._high_water
        ):
            stream.send_window -= size
            self._send_window -= size
            self._out.append(
                MESSAGE_HEADER.pack(size >> 8, size & 0xFF, DATA, 0, stream.id, 0, size - PREFIX_BYTES) + payload
            )
            self.out_size += size + 9
        elif not stream.closed:
            self._queue(stream, b"\0" + (size - PREFIX_BYTES).to_bytes(4, "big") + payload)

    def send_compressed(self, stream: Stream, payload: bytes) -> None:
        """As `send_message`, for one that is compressed."""
        if not stream.closed:
            self._queue(stream, b"\1" + len(payload).to_bytes(4, "big") + payload)

    def _queue(self, stream: Stream, message: bytes) -> None:
        stream.outbox.append(message)
        stream.outbox_bytes += len(message)
        self._queued += len(message)
        self._unblock(stream)
        if self._blocked and self._send_window > 0 and self.out_size < self._high_water:
            self._pump()

    def _unblock(self, stream: Stream) -> None:
        """Its outbox or its window has grown: let it take turns, if there is something for it to do."""
        if stream.outbox and stream.send_window > 0:
            self._blocked[stream] = None

    def end(self, stream: Stream, trailers: _wire.RawHeaders) -> None:
        """Close our side once everything queued has gone: with these trailers, or bare when the list is empty."""
        if stream.closed or stream.local_closed or stream.end is not None:
            return
        stream.end = trailers
        if not stream.outbox:
            self._send_end(stream)

    def finish_now(self, stream: Stream, trailers: _wire.RawHeaders) -> None:
        """End a server's stream with this status at once: what is queued is dropped, what comes is ignored."""
        if stream.closed or stream.local_closed:
            return
        self._drop_outbox(stream)
        stream.end = trailers
        self._send_end(stream)

    def reset(self, stream: Stream, code: int) -> None:
        """Send RST_STREAM, unless the stream is over."""
        if not stream.closed:
            send = self._frame if self.client_side else self._answer
            send(RST_STREAM, 0, stream.id, int(code).to_bytes(4, "big"))
            self._close(stream)

    def go_away(self, code: int, text: str = "", *, last: int | None = None) -> None:
        """Tell the peer that this connection is over (RFC 9113, 6.8). Written here and not by h2: see `_control`.

        Args:
            code: why.
            text: the same for whoever reads the peer's log.
            last: the highest stream that is served still; those seen so far when left out.
        """
        last = self._last_peer_stream if last is None else last
        self._frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + int(code).to_bytes(4, "big") + text.encode())

    def announce_drain(self) -> None:
        """Ask the peer to open no more streams, without refusing those that are on their way (RFC 9113, 6.8).

        When the PING that goes with it is answered (`Kind.PONG`), the peer has seen that.
        """
        self.go_away(ErrorCode.NO_ERROR, last=MAX_WINDOW)
        self.ping(DRAIN_PING)

    def refuse_new(self) -> None:
        """Say which streams are served still, and refuse those after them."""
        self.draining = True
        self.go_away(ErrorCode.NO_ERROR)
        if not self.streams:
            self.on_drained()

    @property
    def calls_begun(self) -> int:
        """A number that changes with every call of the peer."""
        return self._last_peer_stream

    def data_mark(self) -> object:
        """Return something that changes when DATA passes in either direction, but for rare coincidences."""
        return self._recv_window, self._send_window

    def ping(self, payload: bytes) -> None:
        """Send a PING with these eight bytes."""
        self._frame(PING, 0, 0, payload)

    # --- streams ---

    def _new_stream(self, stream_id: int) -> Stream:
        stream = Stream(
            stream_id,
            recv_window=self._initial,
            send_window=self._peer_initial_window,
            max_message=self.config.max_receive_message_bytes,
        )
        self.streams[stream_id] = stream
        return stream

    def _close(self, stream: Stream) -> None:
        stream.closed = True
        stream.send_window = -1  # so that `send_message` needs no look at `closed` on its short way
        if stream.watched:
            self._rooms.append(stream)
        self._drop_outbox(stream)
        self.streams.pop(stream.id, None)
        if self._granted or self._withheld or self.draining:
            self._reclaim(stream)
            if self.draining and not self.streams:
                self.on_drained()

    def _drop_outbox(self, stream: Stream) -> None:
        if stream.outbox:
            stream.outbox.clear()
            self._queued -= stream.outbox_bytes
            stream.outbox_bytes = 0
            if self._starved:
                self._wake_starved()
        self._blocked.pop(stream, None)

    def _send_end(self, stream: Stream) -> None:
        assert stream.end is not None
        if stream.end:
            self._emit_block(self._control.send_headers(stream.id, stream.end, end_stream=True))
        else:
            self._frame(DATA, END_STREAM, stream.id)
        stream.local_closed = stream.headers_sent = True
        if stream.remote_closed:
            self._close(stream)
        elif not self.client_side:
            # The response is complete; the rest of the request is of no use (RFC 9113, 8.1).
            self.reset(stream, ErrorCode.NO_ERROR)

    def _pump(self) -> None:
        """Move queued messages to the output, a frame of each stream in turn, as far as windows and the mark allow."""
        blocked = self._blocked
        while blocked and self._send_window > 0 and self.out_size < self._high_water:
            stream = next(iter(blocked))
            del blocked[stream]
            self._send_piece(stream)
            if stream.outbox:
                self._unblock(stream)  # behind the others
            elif stream.end is not None and not stream.local_closed:
                self._send_end(stream)

    def _send_piece(self, stream: Stream) -> None:
        room = min(stream.send_window, self._send_window, self._max_frame)
        if room <= 0:
            return  # SETTINGS have shut its window meanwhile
        pieces: list[bytes | memoryview] = []
        size = 0
        outbox = stream.outbox
        while outbox and size < room:  # several small messages share a frame
            head = outbox[0]
            if len(head) <= room - size:
                pieces.append(outbox.popleft())
                size += len(head)
            else:
                view = memoryview(head)  # a large message is cut without being copied again and again
                cut = room - size
                pieces.append(view[:cut])
                outbox[0] = view[cut:]
                size = room
        stream.outbox_bytes -= size
        self._queued -= size
        stream.send_window -= size
        self._send_window -= size
        self._out.append(HEADER.pack(size >> 8, size & 0xFF, DATA, 0, stream.id))
        self._out += pieces
        self.out_size += size + 9
        if stream.watched:
            stream.watched = False
            self._rooms.append(stream)
        if self._starved and self._queued < self._budget:
            self._wake_starved()
