"""One HTTP/2 stream: the record that the engine's parts share, and the framing of its messages.

gRPC's messages and HTTP/2's frames have nothing to do with each other: a frame may hold many messages, and a message
may be spread over many frames, cut anywhere, also inside its five bytes of prefix. `Stream.feed` puts them together.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc._compressed_message import CompressedMessage
from trio_cogment.rpc._grpc_headers import RawHeaders

#: Flag byte and length before every message (gRPC over HTTP/2, "Length-Prefixed-Message").
PREFIX_BYTES: Final = 5
#: Pieces of a message from this size on are kept as views of what was received.
_VIEW_BYTES: Final = 16 * 1024
#: Pieces below this size are put together at once: kept as objects, the smallest take twenty times their size.
_CRUMB_BYTES: Final = 1024


class BadMessageError(Exception):
    """A message that cannot be accepted; it ends its stream with this status."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Stream:
    """The state of one stream. The engine's parts read and write the fields directly: this is their hot path.

    Attributes:
        id: its number.
        call, path: whatever the shell put here: what is told of the stream, and what takes its messages; the engine
            never looks.
        closed: the stream is gone in both directions (stream table).
        local_closed, remote_closed: END_STREAM went out (stream table), or came in (frame handler).
        headers_sent: the headers of this end have gone out (stream table).
        headers_seen: the request's or response's headers have arrived; 1xx do not count (frame handler).
        refused: it is still open, and its incoming data is of no interest any more; it is credited to the connection
            and dropped (frame handler).
        encoding: the compression that the peer's headers announce.
        recv_window: bytes that the peer may still send (receive window; the frame parser subtracts what arrives).
        full_window: what that is when nothing is held; grows (receive window).
        low_window: below this it may be due a credit (receive window).
        held: bytes that have arrived and have not been taken by the application (the same).
        granted: bytes of the connection's memory that are reserved for a large message (receive window).
        max_message: the largest message that is accepted.
        chunks, have, missing, compressed: the message that has begun: its pieces; how much of its prefix is there; how
            many bytes are still to come, 0 between messages; the flag of its prefix (`feed`).
        send_window: what the peer allows; negative after the peer shrank its settings (RFC 9113, 6.9.2), and when
            the stream is closed (send queue; the frame parser adds what the peer grants).
        outbox: messages (prefixed) that wait for a window, and their total size (send queue).
        end: what follows the outbox: trailers to send, or an empty list for a bare END_STREAM; None while open.
        watched: the shell wants to hear when the outbox has shrunk.
        views: the shell takes large messages as views of what was received, and keeps none of them (shell).

    A closed stream has -1 as its `send_window`, and as its `recv_window` while messages of it may still be taken. The
    hot paths compare with the windows anyway: nothing fits into -1, so a closed stream always takes the slow path,
    and only that one looks at `closed`. This saves one test for each message. The value means nothing else; nothing
    is sent or granted on a closed stream.
    """

    __slots__ = (
        "call",
        "chunks",
        "closed",
        "compressed",
        "encoding",
        "end",
        "full_window",
        "granted",
        "have",
        "headers_seen",
        "headers_sent",
        "held",
        "id",
        "local_closed",
        "low_window",
        "max_message",
        "missing",
        "outbox",
        "outbox_bytes",
        "path",
        "recv_window",
        "refused",
        "remote_closed",
        "send_window",
        "views",
        "watched",
    )

    def __init__(self, stream_id: int, *, recv_window: int, send_window: int, max_message: int) -> None:
        self.id = stream_id
        self.call: Any = None
        self.path: Any = None
        self.recv_window = self.full_window = recv_window
        self.low_window = recv_window >> 1
        self.send_window = send_window
        self.max_message = max_message
        self.held = 0
        self.granted = 0
        self.chunks: list[bytes | bytearray | memoryview] = []
        self.have = 0
        self.missing = 0
        self.encoding = b"identity"
        self.compressed = 0
        self.outbox: deque[bytes | memoryview] = deque()
        self.outbox_bytes = 0
        self.end: RawHeaders | None = None
        self.watched = False
        self.views = False
        self.headers_seen = False
        self.headers_sent = False
        self.local_closed = False
        self.remote_closed = False
        self.closed = False
        self.refused = False

    # --- receiving ---

    def check_prefix(self, flag: int, length: int) -> None:
        """Judge a message by its prefix.

        Raises:
            BadMessageError: longer than allowed, or compressed although the headers do not say so.
        """
        self.compressed = flag
        if flag and (flag != 1 or self.encoding == b"identity"):
            raise BadMessageError(StatusCode.INTERNAL, "compressed flag set without a message encoding")
        if length > self.max_message:
            raise BadMessageError(
                StatusCode.RESOURCE_EXHAUSTED, f"message of {length} bytes is larger than {self.max_message}"
            )

    def feed(self, data: bytes, position: int, end: int, messages: list[bytes]) -> None:
        """Take payload bytes; add the messages that are complete to `messages`, also when a later one is bad.

        Raises:
            BadMessageError: see `check_prefix`.
        """
        while position < end:
            if not self.missing:
                if self.have or end - position < PREFIX_BYTES:
                    position = self._feed_prefix(data, position, end, messages)
                    continue
                body = position + PREFIX_BYTES
                length = int.from_bytes(data[position + 1 : body], "big")
                self.check_prefix(data[position], length)
                position = body + length
                if position <= end:
                    payload = data[body:position]
                    messages.append(CompressedMessage(payload) if self.compressed else payload)
                    continue
                position, self.missing = body, length
                if position == end:
                    break
            stop = min(end, position + self.missing)
            size = stop - position
            # Pieces are joined once, when the message is whole: `buffer += piece` would copy a large message again and
            # again. A view saves one more copy of what is large anyway. It keeps all of `data` alive, so what it shows
            # must be most of that: or a peer could make this end hold a whole read for each few bytes.
            if size < _CRUMB_BYTES:
                self._feed_crumb(data[position:stop])
            else:
                small = size < _VIEW_BYTES or size << 1 < len(data)
                self.chunks.append(data[position:stop] if small else memoryview(data)[position:stop])
            self.missing -= size
            position = stop
            if not self.missing:
                payload = b"".join(self.chunks)
                messages.append(CompressedMessage(payload) if self.compressed else payload)
                self.chunks.clear()

    def _feed_crumb(self, crumb: bytes) -> None:
        chunks = self.chunks
        last = chunks[-1] if chunks else b""
        if isinstance(last, bytearray):
            last += crumb
        else:
            chunks.append(bytearray(crumb))

    def _feed_prefix(self, data: bytes, position: int, end: int, messages: list[bytes]) -> int:
        stop = min(end, position + PREFIX_BYTES - self.have)
        self.chunks.append(data[position:stop])
        self.have += stop - position
        if self.have == PREFIX_BYTES:
            prefix = b"".join(self.chunks)
            self.chunks.clear()
            self.have = 0
            length = int.from_bytes(prefix[1:], "big")
            self.check_prefix(prefix[0], length)
            if length:
                self.missing = length
            else:
                messages.append(CompressedMessage() if self.compressed else b"")
        return stop

    @property
    def inside_message(self) -> bool:
        """Whether END_STREAM now would cut a message off."""
        return bool(self.missing or self.have)

    def piece_size(self) -> int:
        """How much is held of a message that is not whole yet."""
        size = sum(len(chunk) for chunk in self.chunks)
        return size + PREFIX_BYTES if self.missing else size
