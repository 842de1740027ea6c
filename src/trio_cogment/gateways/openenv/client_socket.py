"""A WebSocket of a client, over a stream that is there already. The protocol is wsproto's; this has the I/O."""

from __future__ import annotations

import logging
from typing import Any

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

_RECEIVE_BYTES = 65536
#: Messages that nobody has taken; then no more is read.
_MAX_UNREAD = 4

_log = logging.getLogger(__name__)


class RefusedSocketError(Exception):
    """The server does not open a WebSocket; the text says what it did instead."""


class ClosedSocketError(Exception):
    """The WebSocket is over; the text says how it ended."""


class ClientSocket:
    """One WebSocket. `open` comes first; `run` reads, and answers pings, as long as it lasts.

    Args:
        stream: to the server.
        max_message_bytes: a longer message ends it.

    Attributes:
        closed: how it ended; empty as long as it has not.
    """

    def __init__(self, stream: trio.abc.Stream, max_message_bytes: int) -> None:
        self.closed = ""
        self._stream = stream
        self._max_message_bytes = max_message_bytes
        self._wsproto = WSConnection(ConnectionType.CLIENT)
        self._sending = trio.Lock()
        self._gathered: list[str | bytes] = []
        self._gathered_bytes = 0
        self._put, self._get = trio.open_memory_channel[str | bytes](_MAX_UNREAD)
        self._over = trio.Event()

    async def open(self, authority: str, target: str) -> None:
        """Ask for the WebSocket, and wait until it is there.

        Args:
            authority: host and port.
            target: the path.

        Raises:
            RefusedSocketError: the server opens none.
        """
        try:
            await self._stream.send_all(self._wsproto.send(Request(host=authority, target=target)))
            while True:
                for event in self._wsproto.events():
                    if isinstance(event, AcceptConnection):
                        return
                    if isinstance(event, RejectConnection | RejectData):
                        status = getattr(event, "status_code", 0)
                        raise RefusedSocketError(f"it answered with the status {status}")
                data = await self._stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    raise RefusedSocketError("it has closed the connection")
                self._wsproto.receive_data(bytes(data))
        except (RemoteProtocolError, LocalProtocolError) as error:
            raise RefusedSocketError(str(error) or type(error).__name__) from None
        except trio.BrokenResourceError:
            raise RefusedSocketError("the connection broke") from None

    async def run(self) -> None:
        """Read until it is over. What fails here ends this WebSocket and nothing else."""
        try:
            # What came together with the handshake is there already.
            while await self._handle_events():
                data = await self._stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    self.closed = self.closed or "the connection was closed without a word"
                    return
                self._wsproto.receive_data(bytes(data))
        except (RemoteProtocolError, LocalProtocolError) as error:
            self.closed = self.closed or str(error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.closed = self.closed or "the connection broke"
        except Exception as error:  # noqa: BLE001  the boundary of a session: others go on
            _log.exception("a WebSocket to a server of OpenEnv failed")
            self.closed = self.closed or type(error).__name__
        finally:
            self.closed = self.closed or "it was given up"
            self._put.close()
            self._over.set()

    async def _handle_events(self) -> bool:
        """Handle what has come; return False when it is over."""
        for event in self._wsproto.events():
            if isinstance(event, Message):
                await self._gather(event)
            elif isinstance(event, Ping):
                await self._send(event.response())
            elif isinstance(event, CloseConnection):
                self.closed = self.closed or _shown(event)
                if self._wsproto.state is ConnectionState.REMOTE_CLOSING:
                    await self._send(event.response())
                return False
        return True

    async def _gather(self, event: Message[Any]) -> None:
        data: str | bytes = event.data if isinstance(event, TextMessage) else bytes(event.data)
        self._gathered_bytes += len(data.encode()) if isinstance(data, str) else len(data)
        if self._gathered_bytes > self._max_message_bytes:
            text = f"expected messages of at most {self._max_message_bytes} bytes"
            closing = CloseConnection(code=CloseReason.MESSAGE_TOO_BIG, reason=text)
            self.closed = _shown(closing)
            await self._send(closing)
            raise trio.BrokenResourceError
        self._gathered.append(data)
        if event.message_finished:
            parts, self._gathered, self._gathered_bytes = self._gathered, [], 0
            empty = "" if isinstance(data, str) else b""
            await self._put.send(empty.join(parts))  # type: ignore[arg-type]  # all are of the same kind

    async def _send(self, event: Event) -> None:
        async with self._sending:
            await self._stream.send_all(self._wsproto.send(event))

    async def send(self, text: str) -> None:
        """Send a message.

        Raises:
            ClosedSocketError: it is over.
        """
        if self.closed:
            raise ClosedSocketError(self.closed)
        try:
            await self._send(TextMessage(data=text))
        except (trio.BrokenResourceError, trio.ClosedResourceError, LocalProtocolError):
            raise ClosedSocketError(self.closed or "the connection broke") from None

    async def receive(self) -> str | bytes:
        """Return the next message.

        Raises:
            ClosedSocketError: it is over, and there is none.
        """
        try:
            return await self._get.receive()
        except trio.EndOfChannel:
            raise ClosedSocketError(self.closed) from None

    async def close(self) -> None:
        """Close it, and wait until the server has done so, too."""
        if not self.closed:
            try:
                await self._send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
            except (trio.BrokenResourceError, trio.ClosedResourceError, LocalProtocolError):
                return
            await self._over.wait()


def _shown(event: CloseConnection) -> str:
    """Return the code of an end, its name in RFC 6455, and what was said about it."""
    try:
        name = CloseReason(event.code).name
    except ValueError:
        name = ""
    return " ".join(filter(None, (str(int(event.code)), name, event.reason)))
