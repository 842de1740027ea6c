"""Requests for pages, and for what pages ask: from the head of a request to its answer."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable

import trio

from trio_cogment.access import Identity, anonymous
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode, UnauthenticatedError
from trio_cogment.base.tracing import tracing_of_run
from trio_cogment.web.hosting import Hosting, counted
from trio_cogment.web.http1 import Sign
from trio_cogment.web.intake import BATCH_UNITS, MOST_AT_ONCE, units_of
from trio_cogment.web.page_access import PageAccess, check_right, expect_known, token_of
from trio_cogment.web.replies import Reply, Streamed, failure, refusal
from trio_cogment.web.requests import Request
from trio_cogment.web.routing import Found, Route, Router, UnsupportedTypeError, Visit
from trio_cogment.web.sign_in import refused_page

_log = logging.getLogger(__name__)

#: The status of an answer that is sent in pieces.
_STREAMED = 200


class Site:
    """The pages of a server.

    Args:
        access: who is behind a request.
        router: what answers.
    """

    def __init__(self, access: PageAccess, router: Router) -> None:
        self.access = access
        self.router = router


class _Scoped:
    """Ends what runs in its scope."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.error: RpcError | None = None

    def abort(self, error: RpcError) -> None:
        self.error = self.error or error
        self.scope.cancel()


def identity_of(connection: Hosting, access: PageAccess, request: Request) -> Identity | None:
    """Return who makes a request: by a token, or by the certificate of the connection; None: nobody knows.

    Raises:
        UnauthenticatedError: the token is not valid.
    """
    token = token_of(request)
    if token:
        return access.identify(token, local=anonymous(connection.peer).local)
    visitor = connection.visitor
    if visitor is not None and not visitor.identity.by_address:
        return visitor.identity
    return None


def admitted_visitor(connection: Hosting, access: PageAccess, request: Request, right: str | None) -> Identity | None:
    """Return who makes a request that may be served.

    Raises:
        UnauthenticatedError: somebody has to be known, and nobody is.
        PermissionDeniedError: it is not for the roles of who asks.
    """
    if right is None:
        try:
            return identity_of(connection, access, request)
        except UnauthenticatedError:
            return None
    identity = expect_known(identity_of(connection, access, request))
    check_right(identity, right)
    return identity


class Answered:
    """What came of a request.

    Attributes:
        reply: to be sent; None: it was sent.
        close: no other request can follow.
    """

    def __init__(self, reply: Reply | None, *, close: bool = False) -> None:
        self.reply = reply
        self.close = close


async def serve_page(connection: Hosting, site: Site, found: Found, request: Request) -> Answered:
    """Answer a request.

    Args:
        connection: it came by.
        site: has the page.
        found: what there is at its path.
        request: of which the body has not been read.
    """
    route = found.route(request.method)
    if route is None:
        return Answered(Reply(405, headers=((b"allow", ", ".join(found.methods).encode()),)))
    if request.foreign and not route.foreign:
        return Answered(refusal(403, "pages of other origins may not use this"))
    try:
        identity = admitted_visitor(connection, site.access, request, route.right)
        counted(connection, identity or anonymous(connection.peer))
    except CogmentError as error:
        return Answered(_refused(request, error))
    ending = _Scoped()
    serving = connection.serving(ending, identity or connection.anybody, until_drain=route.waits)
    with serving, ending.scope:
        body = await _body(connection, route)
        if isinstance(body, Reply):
            return Answered(body, close=True)
        visit = Visit(request=request, parameters=found.parameters, peer=connection.peer, identity=identity, body=body)
        if not route.waits:
            return await _answer(connection, route, visit, connection.limits.page_timeout_seconds)
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            nursery.start_soon(_watch_client, connection)
            answered = await _answer(connection, route, visit, math.inf)
            nursery.cancel_scope.cancel()
            return answered
    why = ending.error or RpcError(StatusCode.UNAVAILABLE, "the server is stopping")
    return Answered(failure(why), close=True)


async def _watch_client(connection: Hosting) -> None:
    """Give the connection up if the client leaves; a next request waits until this one is answered."""
    if connection.http.pipelined:
        return
    try:
        data = await connection.byte_stream.receive_some()
    except trio.BrokenResourceError:
        data = b""
    if data:
        connection.http.receive(data)
        await connection.intake.begin(connection.http.pipelined, 0)
    else:
        connection.lose()


async def _answer(connection: Hosting, route: Route, visit: Visit, seconds: float) -> Answered:
    tracing = tracing_of_run()
    if tracing is None:
        return await _answer_now(connection, route, visit, seconds)
    from trio_cogment.base.tracing.spans import request_span

    request = visit.request
    with request_span(tracing, request.method, route.pattern, request.headers, visit.peer) as answered_with:
        answered = await _answer_now(connection, route, visit, seconds)
        answered_with(_STREAMED if answered.reply is None else answered.reply.status)
        return answered


async def _answer_now(connection: Hosting, route: Route, visit: Visit, seconds: float) -> Answered:
    with trio.move_on_after(seconds):
        try:
            reply = await route.handler(visit)
        except UnsupportedTypeError as error:
            return Answered(refusal(415, str(error)))
        except CogmentError as error:
            return Answered(_refused(visit.request, error))
        except Exception:  # noqa: BLE001  the boundary of a request: what fails here harms no other
            _log.exception("%s %s failed", visit.request.method, visit.request.path)
            return Answered(refusal(500, "unexpected failure; the server's log has the details"))
        if isinstance(reply, Reply):
            return Answered(reply)
        return await _stream(connection, visit.request, reply)
    return Answered(failure(RpcError(StatusCode.DEADLINE_EXCEEDED, "this took too long")))


async def _body(connection: Hosting, route: Route) -> bytes | Reply:
    """Return the body of a request, or why it is refused."""
    seconds = connection.limits.body_timeout_seconds
    body = bytearray()
    pieces = 0
    with trio.move_on_after(seconds):
        while True:
            event = connection.http.next_event()
            if isinstance(event, bytes):
                body += event
                pieces += 1
                if len(body) > route.max_body_bytes:
                    return refusal(413, f"expected a body of {route.max_body_bytes} bytes at most")
                if not pieces % MOST_AT_ONCE:
                    await connection.turn(BATCH_UNITS)
            elif event is Sign.END:
                return bytes(body)
            elif event is Sign.GONE:
                raise trio.BrokenResourceError("the client has left")
            else:
                if body:
                    await connection.intake.begin(len(body), 0)
                connection.send_soon(connection.http.go_on())
                data = await connection.byte_stream.receive_some()
                connection.http.receive(data)
                await connection.turn(units_of(data))
    return refusal(408, "the body of the request took too long to come")


async def _stream(connection: Hosting, request: Request, streamed: Streamed) -> Answered:
    """Send an answer that is made meanwhile; its time is not limited, as long as the client reads."""
    http = connection.http
    connection.send_soon(http.head(streamed.status, [(b"content-type", streamed.content_type), *streamed.headers]))
    try:
        if request.method != "HEAD":
            await streamed.write(sending(connection, http.data))
    except Exception:  # noqa: BLE001  the boundary of a request; the client sees that the end is missing
        _log.exception("%s %s failed in the middle", request.method, request.path)
        return Answered(None, close=True)
    connection.send_soon(http.end())
    return Answered(None)


class Room:
    """Waits while more is unsent than the limit; see `output.RoomListener`.

    Args:
        connection: whose output it is.
    """

    def __init__(self, connection: Hosting) -> None:
        self._output = connection.output
        self._high_water_bytes = connection.limits.write_high_water_bytes
        self._changed = trio.Event()

    @property
    def call(self) -> Room:
        """See `output.RoomListener`."""
        return self

    def on_room(self) -> None:
        """Some output has been taken."""
        self._changed.set()

    async def wait(self) -> None:
        """Wait until there is room; nobody else may listen to the output meanwhile."""
        self._output.listener = self
        try:
            while self._output.out_size > self._high_water_bytes:
                self._changed = trio.Event()
                await self._changed.wait()
        finally:
            self._output.listener = None


def sending(connection: Hosting, wrap: Callable[[bytes], bytes]) -> Callable[[bytes], Awaitable[None]]:
    """Return what sends pieces, each wrapped, as fast as the client reads."""
    room = Room(connection)

    async def send(data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        await connection.output.wait_room(len(data))
        connection.send_soon(wrap(data))
        await room.wait()

    return send


def _refused(request: Request, error: CogmentError) -> Reply:
    """Return why a request is refused: to somebody who looks, as a page on which a token can be given."""
    if not request.wants_html:
        return failure(error)
    return refused_page(request, error, presented=bool(_token_sent(request)))


def _token_sent(request: Request) -> str:
    try:
        return token_of(request)
    except UnauthenticatedError:
        return "one that is too long"
