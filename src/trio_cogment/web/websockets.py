"""WebSockets without I/O: bytes in, messages out; and the bytes of messages.

The parser is wsproto. This adds a limit on messages, which it does not have; messages are never compressed, since what
they inflate to could not be limited either.
"""

from __future__ import annotations

import re
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

    Raises:
        BadHandshakeError: it has not asked properly.
    """

    def __init__(self, request: Request, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._peer_closed = False
        self._closed = False
        if not _KEY.match(request.first(b"sec-websocket-key")):
            raise BadHandshakeError("expected a key of 16 bytes")
        self._wsproto = WSConnection(ConnectionType.SERVER)
        try:
            self._wsproto.initiate_upgrade_connection(list(request.headers), request.path)
            events = list(self._wsproto.events())
        except (RemoteProtocolError, LocalProtocolError) as error:
            raise BadHandshakeError(str(error)) from None
        if not events or not isinstance(events[0], Handshake):
            raise BadHandshakeError("expected a request for a WebSocket")
        self.protocols = list(events[0].subprotocols)

    def accept(self, protocol: str) -> bytes:
        """Return what opens it."""
        headers = list(SECURITY_HEADERS)
        return self._wsproto.send(AcceptConnection(subprotocol=protocol, extra_headers=headers))

    def receive(self, data: bytes) -> Iterator[bytes | Answer | Alive | Closed]:
        """Take bytes, and yield the messages that are complete now.

        Raises:
            BrokenSocketError: nothing can be read after that.
        """
        try:
            self._wsproto.receive_data(data)
            for event in self._wsproto.events():
                if type(event) is BytesMessage:
                    message = self._gathered(event)
                    if message is not None:
                        yield message
                else:
                    yield from self._other(event)
        except (RemoteProtocolError, LocalProtocolError):  # bytes after its end
            raise BrokenSocketError(CloseReason.PROTOCOL_ERROR, "this is not a WebSocket's frame") from None

    def _gathered(self, event: BytesMessage) -> bytes | None:
        data = event.data
        if event.message_finished and not self._pieces:
            if len(data) > self._max_message_bytes:
                raise BrokenSocketError(CloseReason.MESSAGE_TOO_BIG, "the message is too large")
            return bytes(data)
        self._size += len(data)
        if self._size > self._max_message_bytes or len(self._pieces) > self._max_message_bytes // 16 + 1024:
            raise BrokenSocketError(CloseReason.MESSAGE_TOO_BIG, "the message is too large")
        if data:
            self._pieces.append(bytes(data))
        if not event.message_finished:
            return None
        message, self._pieces, self._size = b"".join(self._pieces), [], 0
        return message

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
        elif isinstance(event, TextMessage):
            raise BrokenSocketError(CloseReason.UNSUPPORTED_DATA, "expected messages of bytes")

    def message(self, data: bytes) -> bytes:
        """Return the bytes of a message; nothing once either end has closed it."""
        return b"" if self._closed or self._peer_closed else self._wsproto.send(BytesMessage(data=data))

    def ping(self) -> bytes:
        """Return a ping; nothing once either end has closed it."""
        return b"" if self._closed or self._peer_closed else self._wsproto.send(Ping(payload=b""))

    def close(self, code: int = 1000, reason: str = "") -> bytes:
        """Return the end of it, or the answer to the peer's; nothing when that has been said."""
        if self._closed:
            return b""
        self._closed = True
        return self._wsproto.send(CloseConnection(code=code, reason=reason[:_MAX_REASON_CHARACTERS] or None))

    @property
    def peer_closed(self) -> bool:
        """Whether the peer has said that it is over."""
        return self._peer_closed
