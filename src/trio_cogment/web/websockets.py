"""WebSockets without I/O: bytes in, messages out; and the bytes of messages.

The parser is wsproto. This adds a limit on messages, which it does not have; messages are never compressed, since what
they inflate to could not be limited either.

Nearly all frames are of one kind: a whole message of bytes that has come as a whole. wsproto takes longer for one than
everything else that is done with a message, so these are read, and written, here. It gets every other frame, and of
one that has come in part what is there of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.events import Request as Handshake
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from trio_cogment.web.replies import SECURITY_HEADERS
from trio_cogment.web.requests import Request

_MAX_REASON_CHARACTERS = 100
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==\Z")
_OPEN = (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING)


#: The first byte of a frame, and what is in it: FIN and the code of bytes, or of text.
_WHOLE_MESSAGE = 0x82
_WHOLE_TEXT = 0x81
_FINAL = 0x80
_CODE = 0x0F
_TEXT = 0x01
_CONTROL = 0x08
#: The second byte: whether the content is masked, and the length, or in how many bytes the length follows.
_MASKED = 0x80
_LENGTH = 0x7F
_TWO_BYTES = 126
_EIGHT_BYTES = 127
_LONG = 0x10000
_NEVER = 1 << 63
#: A message in pieces that is no larger is not expected to become as large as it may.
_SMALL = 16 * 1024
_MASK_BYTES = 4
_SHORT_HEAD = struct.Struct("!BBH")
_LONG_HEAD = struct.Struct("!BBQ")


def _head(data: bytes, at: int) -> tuple[int | None, int]:
    """Return where the content of a frame begins, and how long it is; None: that cannot be said yet."""
    if len(data) - at < 2:
        return None, 0
    size = data[at + 1] & _LENGTH
    begin = at + 2
    if size >= _TWO_BYTES:
        more = 2 if size == _TWO_BYTES else 8
        if len(data) < begin + more:
            return None, 0
        written = int.from_bytes(data[begin : begin + more], "big")
        begin += more
        if written < (_TWO_BYTES if more == 2 else _LONG) or written >= _NEVER:
            raise BrokenSocketError(CloseReason.PROTOCOL_ERROR, "this is not a WebSocket's frame")
        size = written
    if data[at + 1] & _MASKED:
        begin += _MASK_BYTES
    return (begin, size) if len(data) >= begin else (None, 0)


def _unmasked(data: bytes, begin: int, end: int) -> bytes:
    size = end - begin
    mask = data[begin - _MASK_BYTES : begin] * ((size + 3) // _MASK_BYTES)
    content = int.from_bytes(data[begin:end], "little") ^ int.from_bytes(mask[:size], "little")
    return content.to_bytes(size, "little")


class BrokenSocketError(Exception):
    """What came cannot be part of a WebSocket's stream, or is not for this one.

    Attributes:
        code: with which it is closed.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class BadHandshakeError(Exception):
    """The request does not ask for a WebSocket as RFC 6455 has it; the text says why."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer has closed it."""

    code: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes that are due at once: the answer to a ping."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    """The peer has answered a ping."""


class WebSocket:
    """One WebSocket, as a server sees it.

    Args:
        request: what has asked for it.
        max_message_bytes: a longer message is refused as soon as it is.
        text: messages are text in UTF-8; those of bytes are taken, too.

    Raises:
        BadHandshakeError: it has not asked properly.
    """

    def __init__(self, request: Request, max_message_bytes: int, *, text: bool = False) -> None:
        self._text = text
        self._first_byte = _WHOLE_TEXT if text else _WHOLE_MESSAGE
        self._max_message_bytes = max_message_bytes
        self._most_frames = max_message_bytes // 16 + 1024
        self._gathered = bytearray()  # of a message that is not whole
        self._frames = 0  # that it has come in
        self._peer_closed = False
        self._closed = False
        self._begun = b""  # the first bytes of a frame, too few to know its length
        self._missing = 0  # bytes of a frame that wsproto has got a part of
        self._in_pieces = False  # a message has begun that further frames belong to
        if not _KEY.match(request.first(b"sec-websocket-key")):
            raise BadHandshakeError("expected a key of 16 bytes")
        self._wsproto = WSConnection(ConnectionType.SERVER)
        try:
            self._wsproto.initiate_upgrade_connection(list(request.headers), request.path)
            events = list(self._wsproto.events())
        except (RemoteProtocolError, LocalProtocolError) as error:
            raise BadHandshakeError(str(error)) from None
        except UnicodeError:  # wsproto takes names of hosts and of protocols for ASCII
            raise BadHandshakeError("expected names in ASCII") from None
        if not events or not isinstance(events[0], Handshake):
            raise BadHandshakeError("expected a request for a WebSocket")
        self.protocols = list(events[0].subprotocols)

    def accept(self, protocol: str | None) -> bytes:
        """Return what opens it.

        Args:
            protocol: one of those that were offered; None: no particular one.
        """
        headers = list(SECURITY_HEADERS)
        return self._wsproto.send(AcceptConnection(subprotocol=protocol, extra_headers=headers))

    def receive(self, data: bytes) -> Iterator[bytes | Answer | Alive | Closed]:
        """Take bytes, and yield the messages that are complete now.

        Raises:
            BrokenSocketError: nothing can be read after that.
        """
        if self._begun:
            data, self._begun = self._begun + data, b""
        at = min(self._missing, len(data))  # of the frame before
        if at:
            self._missing -= at
            yield from self._parsed(data[:at])
        while at < len(data):
            begin, size = _head(data, at)
            if begin is None:
                self._begun = data[at:]
                return
            end = begin + size
            if data[at] & _CODE == _TEXT and not self._text:
                raise BrokenSocketError(CloseReason.UNSUPPORTED_DATA, "expected messages of bytes")
            if size + len(self._gathered) > self._max_message_bytes and not data[at] & _CONTROL:
                raise BrokenSocketError(CloseReason.MESSAGE_TOO_BIG, "the message is too large")
            if data[at] == _WHOLE_MESSAGE and data[at + 1] & _MASKED and end <= len(data) and not self._in_pieces:
                yield _unmasked(data, begin, end)
            else:
                if not data[at] & _CONTROL:
                    self._in_pieces = not data[at] & _FINAL
                self._missing = max(end - len(data), 0)
                yield from self._parsed(data[at:end])
            at = end

    def _parsed(self, data: bytes) -> Iterator[bytes | Answer | Alive | Closed]:
        try:
            self._wsproto.receive_data(data)
            for event in self._wsproto.events():
                if isinstance(event, BytesMessage | TextMessage):
                    message = self._whole(event)
                    if message is not None:
                        yield message
                else:
                    yield from self._other(event)
        except (RemoteProtocolError, LocalProtocolError):  # bytes after its end
            raise BrokenSocketError(CloseReason.PROTOCOL_ERROR, "this is not a WebSocket's frame") from None

    def _whole(self, event: BytesMessage | TextMessage) -> bytes | None:
        if self._closed:
            return None  # nobody is interested any more
        data = event.data.encode() if isinstance(event, TextMessage) else event.data
        gathered = self._gathered
        self._frames += 1
        if len(gathered) + len(data) > self._max_message_bytes or self._frames > self._most_frames:
            raise BrokenSocketError(CloseReason.MESSAGE_TOO_BIG, "the message is too large")
        if event.message_finished and not gathered:
            self._frames = 0
            return bytes(data)
        gathered += data
        if not event.message_finished:
            return None
        self._gathered, self._frames = bytearray(), 0
        return bytes(gathered)

    def _other(self, event: Event) -> Iterator[Answer | Alive | Closed]:
        if isinstance(event, Ping):
            yield Answer(b"" if self._closed else self._wsproto.send(event.response()))
        elif isinstance(event, Pong):
            yield Alive()
        elif isinstance(event, CloseConnection):
            if self._wsproto.state in _OPEN:  # that is how it reports what it cannot parse
                raise BrokenSocketError(int(event.code), "this is not a WebSocket's frame")
            self._peer_closed = True
            yield Closed(int(event.code))

    def message(self, data: bytes) -> bytes:
        """Return the bytes of a message; nothing once either end has closed it."""
        head = self.message_head(len(data))
        return head + data if head else b""

    def message_head(self, size: int) -> bytes:
        """Return what goes before the data of a message of this many bytes; nothing once either end has closed it."""
        if self._closed or self._peer_closed:
            return b""
        if size < _TWO_BYTES:
            return bytes((self._first_byte, size))
        if size < _LONG:
            return _SHORT_HEAD.pack(self._first_byte, _TWO_BYTES, size)
        return _LONG_HEAD.pack(self._first_byte, _EIGHT_BYTES, size)

    def ping(self) -> bytes:
        """Return a ping; nothing once either end has closed it."""
        return b"" if self._closed or self._peer_closed else self._wsproto.send(Ping(payload=b""))

    def close(self, code: int = 1000, reason: str = "") -> bytes:
        """Return the end of it, or the answer to the peer's; nothing when that has been said."""
        if self._closed:
            return b""
        self._closed = True
        self._gathered = bytearray()
        return self._wsproto.send(CloseConnection(code=code, reason=reason[:_MAX_REASON_CHARACTERS] or None))

    @property
    def begun(self) -> int:
        """How many bytes have come of a message that is not whole."""
        return len(self._gathered)

    @property
    def missing(self) -> int:
        """How many bytes are still to come of that, at most; of a small one in pieces only what is known to come."""
        if self._in_pieces and self.begun + self._missing > _SMALL:
            return self._max_message_bytes - self.begun
        return self._missing

    @property
    def peer_closed(self) -> bool:
        """Whether the peer has said that it is over."""
        return self._peer_closed
