"""WebSockets of pages: messages of bytes in both directions, as long as the page is there and may be."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable

import trio

from trio_cogment.access import Identity
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode, status_of
from trio_cogment.base.tracing import tracing_of_run
from trio_cogment.web.hosting import Hosting, read_until_closed
from trio_cogment.web.intake import BATCH_UNITS, MOST_AT_ONCE, in_batches, units_of
from trio_cogment.web.page_access import PageAccess
from trio_cogment.web.pages import sending
from trio_cogment.web.routing import SocketRoute, Visit
from trio_cogment.web.websockets import Alive, Answer, BrokenSocketError, Closed, WebSocket

_log = logging.getLogger(__name__)

#: Codes with which a WebSocket is closed (RFC 6455, 7.4.1).
_DONE, _GOING_AWAY, _NOT_ALLOWED, _FAILED = 1000, 1001, 1008, 1011
_CODES = {
    StatusCode.UNAVAILABLE: _GOING_AWAY,
    StatusCode.UNAUTHENTICATED: _NOT_ALLOWED,
    StatusCode.PERMISSION_DENIED: _NOT_ALLOWED,
    StatusCode.UNKNOWN: _FAILED,
    StatusCode.INTERNAL: _FAILED,
}
_OTHER = 4000
#: The status of HTTP with which a WebSocket begins.
_SWITCHED = 101
#: Messages of a page that wait for the handler; then no more is read.
_MAX_UNREAD = 16


class PageSocket:
    """One WebSocket, as its handler has it, and what serves it.

    Args:
        connection: it came by, after the handshake.
        socket: see above.
        access: says whether its identity counts still.
        identity: whose it is; None: nobody knows.
    """

    def __init__(self, connection: Hosting, socket: WebSocket, access: PageAccess, identity: Identity | None) -> None:
        self._connection = connection
        self._socket = socket
        self._access = access
        self._identity = identity
        self._heard = trio.current_time()
        self._scope = trio.CancelScope()
        self._error: RpcError | None = None
        self._end = (_DONE, "")
        self._send = sending(connection, socket.message)
        self._sending = trio.Lock()
        self._waits_for_room = False
        self._put, self._get = trio.open_memory_channel[bytes](_MAX_UNREAD)

    # --- for the handler ---

    async def send(self, data: bytes) -> None:
        """Send a message; wait while the page does not read what was sent before."""
        async with self._sending:
            await self._send(data)

    async def receive(self) -> bytes:
        """Return the next message of the page."""
        message = await self._get.receive()
        self._connection.intake.queue(-len(message))
        return message

    def close_with(self, code: int, reason: str = "") -> None:
        """Say how it is to be closed when the handler has returned; see `routing.Socket`."""
        self._end = (code, reason)

    # --- its life ---

    def abort(self, error: RpcError) -> None:
        """End it; the page is told why."""
        self._error = self._error or error
        self._scope.cancel()

    async def serve(self, route: SocketRoute, visit: Visit, left_over: bytes) -> None:
        """Run the handler until it ends or the page leaves, and close the WebSocket.

        Args:
            route: has the handler.
            visit: for the handler.
            left_over: what came together with the handshake.
        """
        failed: tuple[int, str] | None = None
        with self._scope:
            try:
                async with trio.open_nursery(strict_exception_groups=True) as nursery:
                    nursery.start_soon(self._read, left_over)
                    nursery.start_soon(self._keep_alive)
                    await self._handle_visit(route, visit)
                    nursery.cancel_scope.cancel()
            except* CogmentError as group:
                failed = _told(_first(group))
            except* Exception:  # noqa: BLE001  the boundary of a page: what fails here harms no other
                _log.exception("the WebSocket %s failed", visit.request.path)
                failed = _FAILED, "unexpected failure; the server's log has the details"
        if self._error is not None:
            failed = _told(self._error)
        await self._close(*(failed or self._end))

    async def _handle_visit(self, route: SocketRoute, visit: Visit) -> None:
        tracing = tracing_of_run()
        if tracing is None:
            await route.handler(visit, self)
            return
        from trio_cogment.base.tracing.spans import request_span

        request = visit.request
        with request_span(tracing, "GET", route.pattern, request.headers, visit.peer) as answered_with:
            answered_with(_SWITCHED)
            await route.handler(visit, self)

    async def _read(self, data: bytes) -> None:
        connection = self._connection
        receive_some, intake = connection.byte_stream.receive_some, connection.intake
        try:
            while True:
                for events in in_batches(self._socket.receive(data)) if data else ():
                    if not await self._handle(events):
                        self._scope.cancel()
                        return
                connection.writer.flush()
                if self._socket.begun or intake.begun:
                    await self._when_there_is_room(intake.begin(self._socket.begun, self._socket.missing))
                data = await receive_some()
                self._heard = trio.current_time()
                await connection.turn(units_of(data))
                if not data:
                    self._scope.cancel()
                    return
        except BrokenSocketError as error:
            self._connection.send_soon(self._socket.close(error.code, str(error)))
            self._scope.cancel()
        except trio.BrokenResourceError:
            self._scope.cancel()

    async def _handle(self, events: Iterable[bytes | Answer | Alive | Closed]) -> bool:
        """Have what has come wait for the handler; False: the page has closed the WebSocket."""
        connection = self._connection
        for number, event in enumerate(events, 1):
            if type(event) is bytes:
                await self._when_there_is_room(connection.intake.take(len(event)))
                await self._put.send(event)
            elif isinstance(event, Answer):
                connection.output.answer(event.data)
            elif isinstance(event, Closed):
                return False
            if number == MOST_AT_ONCE:
                await connection.turn(BATCH_UNITS)
        return True

    async def _when_there_is_room(self, counted: Awaitable[None]) -> None:
        self._waits_for_room = True
        try:
            await counted
        finally:
            self._waits_for_room = False

    async def _keep_alive(self) -> None:
        """Send a ping after a silence, and end it if nothing comes then, or if its token does not count any more."""
        limits = self._connection.limits
        while True:
            before = self._heard
            await trio.sleep(limits.ping_seconds)
            if self._identity is not None and not self._access.valid(self._identity):
                self.abort(RpcError(StatusCode.UNAUTHENTICATED, "the token does not count any more"))
            if self._heard > before:
                continue
            self._connection.send_soon(self._socket.ping())
            await trio.sleep(limits.ping_timeout_seconds)
            # While the handler takes no messages, none are read, and the answer may be behind them.
            unread = self._waits_for_room or self._get.statistics().current_buffer_used
            if self._heard == before and not unread:
                self._connection.lose()

    async def _close(self, code: int, reason: str) -> None:
        """Close it, and read on until the page has closed it, too."""
        await read_until_closed(self._connection, self._socket, self._socket.close(code, reason))


def _first(group: BaseExceptionGroup[CogmentError]) -> CogmentError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, CogmentError)
    return error


def _told(error: CogmentError) -> tuple[int, str]:
    code, text = status_of(error)
    return _CODES.get(code, _OTHER), text
