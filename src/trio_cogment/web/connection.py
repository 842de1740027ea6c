"""One connection of a browser, or of whatever else speaks HTTP/1.1: its requests, one after the other."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from typing_extensions import override

from trio_cogment.access import Identity, anonymous
from trio_cogment.base.config import WebConfig
from trio_cogment.base.errors import CogmentError, NotFoundError, PermissionDeniedError, RpcError, StatusCode
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run
from trio_cogment.rpc.relay import Accepted, CallRelay, LingeringClose, RelayRoute, Writer
from trio_cogment.web.grpc_web import serve_call
from trio_cogment.web.grpc_websockets import PROTOCOL, SocketCall
from trio_cogment.web.hosting import Ending, counted
from trio_cogment.web.http1 import BadRequestError, Http1, Sign
from trio_cogment.web.intake import READ_BYTES, Borrowing, Breakable, Intake, units_of
from trio_cogment.web.origins import OriginPolicy
from trio_cogment.web.output import Pending, Timed
from trio_cogment.web.page_sockets import PageSocket
from trio_cogment.web.pages import Room, Site, admitted_visitor, serve_page
from trio_cogment.web.replies import Reply, failure, preflight, refusal
from trio_cogment.web.requests import Request, is_text
from trio_cogment.web.routing import Visit
from trio_cogment.web.websockets import BadHandshakeError, WebSocket

#: A request costs this many units; see `budget.turn_order`.
_REQUEST_UNITS = 3
#: A call that has been open for this long is a participant's, or a watcher's.
_ESTABLISHED_SECONDS = 0.5
_STOPPING = RpcError(StatusCode.UNAVAILABLE, "the server is stopping")

_log = logging.getLogger(__name__)


class WebConnection(Breakable):
    """See the module, and `rpc.relay.Served`.

    Args:
        accepted: the connection, and what may be called by it.
        limits: of what is for browsers.
        policy: who may use it.
        site: has pages.
        overloaded: there are too many: it gets an answer that says so.
        on_end: called when it has been closed.

    Attributes:
        config, limits, peer, visitor, account, http, intake, output, writer, byte_stream, relay, anybody, page_access:
            see `Hosting`.
        engine, wake: what is borrowed, and what sends output, as a debtor's (see `budget.debts`).
    """

    def __init__(
        self,
        accepted: Accepted,
        *,
        limits: WebConfig,
        policy: OriginPolicy,
        site: Site,
        overloaded: bool,
        on_end: Callable[[], None],
    ) -> None:
        self.config = accepted.config
        self.limits = limits
        self.peer = accepted.peer
        self.visitor = accepted.visitor
        self.account = accepted.account
        self.byte_stream = accepted.byte_stream
        self.byte_stream.limit_reads(READ_BYTES)
        address = policy.address
        prefix = "" if address is None else address.prefix
        self.http = Http1(limits.max_head_bytes, secure=accepted.secure, prefix=prefix)
        self._memory = memory = memory_of_run()
        self.intake = Intake(memory.messages.loan())
        self.output = Pending(memory.messages.loan())
        self.engine = Borrowing(self.intake, self.output, accepted.byte_stream.is_reset)
        timed = Timed(accepted.byte_stream, limits.write_stall_timeout_seconds)
        self.writer = Writer(self.output, timed, exact=True)
        self.wake = self.writer.wake
        self.relay = CallRelay(accepted.config, self.intake, self.output)
        self.anybody = anonymous(accepted.peer)
        self._turns = turns_of_run()
        self._established_at = math.inf
        self._routes = accepted.routes
        self._policy = policy
        self._site = site
        self.page_access = site.access
        self._overloaded = overloaded
        self._on_end = on_end
        self._closing = LingeringClose(accepted.byte_stream, accepted.config)
        self._scope = trio.CancelScope()
        self._idle = trio.CancelScope()
        self._io: trio.Nursery | None = None
        self._call: Ending | None = None
        self._until_drain = False
        self._identity: Identity | None = None
        self._drain_deadline = math.inf

    # --- life ---

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the connection until either end closes it; see `Served.run`.

        On cancellation handlers may still say something within half of `RpcConfig.farewell_timeout_seconds`, every call
        is given a status, and the socket is closed in any case.
        """
        self._memory.watch(self)
        self.intake.call = self
        try:
            async with self.relay:
                try:
                    async with trio.open_nursery() as io:
                        self._io = io
                        io.start_soon(self._write)
                        self._watch_drain()
                        task_status.started()
                        try:
                            with self._scope:
                                await self._serve()
                        finally:
                            self._io = None
                            self.writer.finish()
                            self._closing.hurry(trio.current_time() + self.config.farewell_timeout_seconds)
                            io.cancel_scope.cancel()  # the writer is shielded, its deadline runs
                finally:
                    await self._closing.finish(linger=True)
        except* Exception:  # noqa: BLE001  the boundary of a connection: what fails here harms no other
            _log.exception("connection with %s failed", self.peer)
        finally:
            self._memory.forget(self)
            self.intake.discard()
            self.output.discard()
            self._on_end()

    async def _write(self) -> None:
        with self._closing.scope:
            try:
                await self.writer.run()
                self._closing.written.set()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.lose()

    def lose(self) -> None:
        """The client is gone."""
        self.close(RpcError(StatusCode.CANCELLED, "the caller left"))

    def close(self, reason: RpcError) -> None:
        """Close the connection, whatever of its output has not been read; its call ends with `reason`."""
        self._closing.give_up()
        if self._call is not None:
            self._call.abort(reason)
        self._scope.cancel()
        self.output.discard()

    @override
    def on_broken(self, code: StatusCode, text: str) -> None:
        error = RpcError(code, text)
        if self._call is not None:
            self._call.abort(error)
        else:
            self.close(error)

    def drain(self, deadline: float) -> None:
        """See `Served.drain`."""
        self._drain_deadline = min(self._drain_deadline, deadline)
        if self._until_drain and self._call is not None:
            self._call.abort(_STOPPING)
        self._watch_drain()

    def _watch_drain(self) -> None:
        if self._drain_deadline < math.inf and self._io is not None:
            self._idle.cancel()
            self._io.start_soon(self._end_call_at, self._drain_deadline)

    async def _end_call_at(self, deadline: float) -> None:
        await trio.sleep_until(deadline)
        if self._call is not None:
            self._call.abort(_STOPPING)
        else:
            self._scope.cancel()

    @property
    def _drains(self) -> bool:
        return self._drain_deadline < math.inf

    def end_calls_of_others(self, valid: Callable[[Identity], bool]) -> None:
        """See `Served.end_calls_of_others`."""
        if self._identity is not None and self._site.access.is_own(self._identity):
            valid = self._site.access.valid
        if self._call is not None and self._identity is not None and not valid(self._identity):
            text = "the token or certificate does not count any more"
            self._call.abort(RpcError(StatusCode.UNAUTHENTICATED, text))

    # --- requests ---

    async def _serve(self) -> None:
        first = True
        try:
            room = Room(self)
            while not self._drains:
                await room.wait()  # who asks and asks and does not read is not listened to
                await self.turn(_REQUEST_UNITS)
                request = await self._next_request(first=first)
                if request is None or not await self._answer(request) or not self.http.next_request():
                    return
                first = False
        except BadRequestError as error:
            self.send_soon(self.http.reply(error.reply, close=True))
        except trio.BrokenResourceError:
            self.lose()

    async def _next_request(self, *, first: bool) -> Request | None:
        """Wait for a request; None: there is none.

        Raises:
            BadRequestError: it is not a request, or its head took too long.
        """
        limits = self.limits
        began = first or self.http.pipelined > 0
        seconds = limits.head_timeout_seconds if began else limits.idle_timeout_seconds
        self._idle = trio.CancelScope(deadline=trio.current_time() + seconds)
        with self._idle:
            while True:
                event = self.http.next_event()
                if isinstance(event, Request):
                    return event
                if event is Sign.GONE:
                    return None
                data = await self.byte_stream.receive_some()
                self.http.receive(data)
                await self.turn(units_of(data))
                if not began:
                    began = True
                    self._idle.deadline = trio.current_time() + limits.head_timeout_seconds
        if began and not self._drains:
            raise BadRequestError(refusal(408, "the request took too long to come"))
        return None

    async def _answer(self, request: Request) -> bool:
        """Answer a request; False: it was the connection's last one."""
        admitted = self._policy.admit(
            hosts=request.texts(b"host"), origins=request.texts(b"origin"), secure=request.secure
        )
        if isinstance(admitted, str):
            return self._reply(refusal(403, admitted), close=True)
        request = self.http.admitted(request, admitted)
        if self._overloaded:
            return self._reply(refusal(503, "this server has too many connections"), close=True)
        if request.upgrades_to_websocket:
            await self._websocket(request)
            return False
        route = self._routes.get(request.path)
        try:
            found = None if route is not None else self._site.router.find(request.path)
        except CogmentError as error:
            return self._reply(failure(error))
        methods = ("POST",) if found is None else found.foreign_methods
        asked = preflight(request, self.limits.preflight_seconds, methods)
        if asked is not None:
            return self._reply(asked)
        if request.method == "POST" and is_text(request.first(b"content-type")) is not None:
            await serve_call(self, request, route)
            return True
        if found is not None:
            answered = await serve_page(self, self._site, found, request)
            if answered.reply is None:
                return not answered.close
            await self.output.wait_room(len(answered.reply.body))
            return self._reply(answered.reply, close=answered.close)
        return self._reply(_no_call(request, route))

    def _reply(self, reply: Reply, *, close: bool = False) -> bool:
        """Send an answer; return whether another request may follow. What the request has as a body is not read."""
        close = close or self._drains or not self.http.complete()
        self.send_soon(self.http.reply(reply, close=close))
        return not close

    async def _websocket(self, request: Request) -> None:
        route = self._routes.get(request.path)
        if route is None:
            await self._page_socket(request)
            return
        socket = self._handshake(request, self.config.max_receive_message_bytes + 1024)
        if socket is None:
            return
        if PROTOCOL not in socket.protocols:
            self._reply(refusal(400, f"expected the WebSocket protocol {PROTOCOL}"), close=True)
            return
        self._switch(socket.accept(PROTOCOL))
        await SocketCall(self, socket, route, request).serve(self.http.left_over())

    def _handshake(self, request: Request, max_message_bytes: int, *, text: bool = False) -> WebSocket | None:
        """Return the WebSocket that a request asks for; None: it does not ask properly, and has been told so."""
        try:
            return WebSocket(request, max_message_bytes, text=text)
        except BadHandshakeError:
            headers = ((b"sec-websocket-version", b"13"),)
            reply = refusal(400, "this is not the handshake of a WebSocket of version 13")
            self._reply(Reply(reply.status, reply.body, reply.content_type, headers), close=True)
            return None

    def _switch(self, accepted: bytes) -> None:
        self.http.next_event()  # its end
        self.http.switched()
        self.send_soon(accepted)

    async def _page_socket(self, request: Request) -> None:
        access = self._site.access
        try:
            found = self._site.router.find(request.path)
            route = None if found is None else found.socket
            if found is None or route is None:
                raise NotFoundError("there is no WebSocket at this path")
            if request.foreign and not route.foreign:
                raise PermissionDeniedError("pages of other origins may not use this")
            identity = admitted_visitor(self, access, request, route.right)
            most = route.max_message_bytes or self.limits.max_page_message_bytes
            socket = self._handshake(request, most, text=route.text)
            if socket is None:
                return
            counted(self, identity or anonymous(self.peer))
        except CogmentError as error:
            self._reply(failure(error), close=True)
            return
        self._switch(socket.accept(None))
        visit = Visit(request=request, parameters=found.parameters, peer=self.peer, identity=identity)
        served = PageSocket(self, socket, access, identity)
        with self.serving(served, identity or self.anybody, until_drain=True):
            await served.serve(route, visit, self.http.left_over())

    # --- for calls ---

    async def turn(self, units: int) -> None:
        """See `Hosting.turn`."""
        lane = Lane.ESTABLISHED if trio.current_time() >= self._established_at else Lane.OTHERS
        await self._turns.turn(lane, units)

    def send_soon(self, data: bytes) -> None:
        """Send bytes, at once if that goes without waiting."""
        if data:
            self.output.add(data)
            self.writer.flush()

    @contextmanager
    def serving(self, call: Ending, identity: Identity, *, until_drain: bool = False) -> Iterator[None]:
        """See `Hosting.serving`."""
        self._call, self._identity, self._until_drain = call, identity, until_drain
        self._established_at = trio.current_time() + _ESTABLISHED_SECONDS
        if until_drain and self._drains:
            call.abort(_STOPPING)
        try:
            yield
        finally:
            self._call = self._identity = None
            self._established_at = math.inf
            self.intake.release()
            if self.account is not None:
                self.account.end_call()


def _no_call(request: Request, route: RelayRoute | None) -> Reply:
    """Return the answer to what is neither a call nor for a page."""
    if route is None:
        return refusal(404)
    if request.method != "POST":
        return Reply(405, headers=((b"allow", b"POST, OPTIONS"),))
    return refusal(415, "expected the content-type application/grpc-web+proto or application/grpc-web-text")
