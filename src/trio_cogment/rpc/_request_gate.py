"""The gate of requests: rights, routes, and limits, before a handler is even thought of.

Whoever is refused gets a status, from the headers alone; no call is made for it.
"""

from __future__ import annotations

import logging

from trio_cogment.access import Identity, Visitor
from trio_cogment.base.errors import CogmentError, ResourceExhaustedError, StatusCode, status_of
from trio_cogment.budget.peer_limits import PeerConnection
from trio_cogment.budget.refusals import note_refused_call
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._call_protocols import Route
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import ErrorCode
from trio_cogment.rpc._streams import Stream

_log = logging.getLogger(__name__)

#: Handlers that may still be cleaning up after their streams have gone, beside as many as there may be streams.
_LEAVING_HANDLERS = 100


class RequestGate:
    """The gate of one connection of a server.

    Args:
        engine: of the connection.
        routes: what is served, by path.
        identity: who makes calls that no visitor decides about.
        visitor: decides about each call; None: every call is let in.
        account: counts the calls; None: nobody does.
    """

    def __init__(
        self,
        engine: Engine,
        routes: dict[str, Route],
        identity: Identity,
        visitor: Visitor | None,
        account: PeerConnection | None,
    ) -> None:
        self._engine = engine
        self._routes = routes
        self._identity = identity
        self._visitor = visitor
        self._account = account
        self._most_handlers = 2 * engine.config.max_concurrent_streams + _LEAVING_HANDLERS
        if account is not None:
            engine.on_reset = account.count_reset

    def admit(self, stream: Stream, head: _grpc_headers.RequestHead, handlers: int) -> tuple[Route, Identity] | None:
        """Return where a request goes and who makes it, and count the call until `leave`; None: it was answered.

        Args:
            stream: of the request.
            head: its headers.
            handlers: how many the connection has, with those that have not begun.
        """
        identity = self._identity
        if self._visitor is not None:
            try:
                identity = self._visitor.admit(head.path, head.metadata)
            except CogmentError as error:
                self._refuse_caller(stream, head, error)
                return None
        route = self._routes.get(head.path)
        if route is None:
            self._refuse(stream, head, StatusCode.UNIMPLEMENTED, f"{head.path} is not implemented here")
            return None
        if handlers >= self._most_handlers:
            # A stream that was reset is gone at once, its handler only when it has cleaned up: both are bounded. An
            # honest client that opens the next call at once must not feel it, hence so many more than streams.
            self._engine.reset(stream, ErrorCode.REFUSED_STREAM)
            return None
        if self._account is not None:
            try:
                self._account.begin_call(identity)
            except ResourceExhaustedError as error:
                self._refuse_caller(stream, head, error)
                return None
        return route, identity

    def _refuse_caller(self, stream: Stream, head: _grpc_headers.RequestHead, error: CogmentError) -> None:
        code, message = status_of(error)
        service = head.path[1:].rpartition("/")[0] if head.path in self._routes else "unknown"
        note_refused_call(_log, self._identity.account, code, message, service=service)
        self._refuse(stream, head, code, message)

    def _refuse(self, stream: Stream, head: _grpc_headers.RequestHead, code: StatusCode, message: str) -> None:
        self._engine.finish_now(stream, _grpc_headers.status_alone(code, message, head.web))

    def leave(self) -> None:
        """A call that was admitted is over, and its handler has ended or will never begin."""
        if self._account is not None:
            self._account.end_call()
