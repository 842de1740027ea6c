"""The interface of a call to the connection that it came by."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Protocol

import trio

from trio_cogment.access import Identity, Visitor, authorization, bearer_token
from trio_cogment.base.config import RpcConfig, WebConfig
from trio_cogment.base.errors import CogmentError, RpcError, status_of
from trio_cogment.budget.peer_limits import PeerConnection
from trio_cogment.budget.refusals import note_refused_call
from trio_cogment.rpc import Metadata
from trio_cogment.rpc.relay import ByteStream, CallRelay, Writer
from trio_cogment.web.http1 import Http1
from trio_cogment.web.intake import Intake, in_batches, units_of
from trio_cogment.web.output import Pending
from trio_cogment.web.page_access import PageAccess, check_right, cookie_of
from trio_cogment.web.requests import Request
from trio_cogment.web.websockets import BrokenSocketError, WebSocket

_log = logging.getLogger(__name__)


class Ending(Protocol):
    """What a connection has going on, which can be ended early."""

    def abort(self, error: RpcError) -> None:
        """End it; who has asked for it is told why."""


class Hosting(Protocol):
    """A connection as its call sees it.

    Attributes:
        config: of the server.
        limits: of what is for browsers.
        peer: the other end.
        visitor: decides about calls; None: all are let in.
        account: counts them; None: nobody does.
        http: takes what comes.
        intake: counts it, until a handler has taken it.
        output: gathers what goes.
        writer: sends it.
        byte_stream: below.
        relay: makes the call.
        anybody: who makes it, where nobody asks.
        page_access: knows the tokens of pages.
    """

    config: RpcConfig
    limits: WebConfig
    peer: str
    visitor: Visitor | None
    account: PeerConnection | None
    http: Http1
    intake: Intake
    output: Pending
    writer: Writer
    byte_stream: ByteStream
    relay: CallRelay
    anybody: Identity
    page_access: PageAccess

    async def turn(self, units: int) -> None:
        """Return when so much work may be done: other connections have theirs, too. See `budget.turn_order`."""

    def send_soon(self, data: bytes) -> None:
        """Send bytes, at once if that goes without waiting."""

    def serving(self, call: Ending, identity: Identity, *, until_drain: bool = False) -> AbstractContextManager[None]:
        """Hold the block in which a call is served, which `counted` has counted.

        Args:
            call: can be ended.
            identity: whose it is.
            until_drain: it would not end by itself: it is ended as soon as the server stops.
        """

    def lose(self) -> None:
        """Give the connection up: the client is gone."""


def admitted(connection: Hosting, request: Request, path: str, metadata: Metadata) -> Identity:
    """Return who makes a call.

    Args:
        connection: it came by.
        request: may have a token in its path, or in a cookie.
        path: of the call.
        metadata: of the call; a token there comes first.

    Raises:
        RpcError: it may not.
    """
    visitor, access = connection.visitor, connection.page_access
    try:
        token = "" if bearer_token(metadata) is not None else request.token
        if not token and visitor is not None:
            token = cookie_of(request)
        if token and (visitor is None or access.issued(token)):
            identity = access.identify(token, local=connection.anybody.local)
            check_right(identity, path)
            return identity
        if visitor is None:
            return connection.anybody
        return visitor.admit(path, authorization(token) or metadata)
    except CogmentError as error:
        raise _refused(connection, error) from None


def counted(connection: Hosting, identity: Identity) -> None:
    """Count a call that is about to be served.

    Raises:
        RpcError: its caller has too many.
    """
    if connection.account is not None:
        try:
            connection.account.begin_call(identity)
        except CogmentError as error:
            raise _refused(connection, error) from None


def _refused(connection: Hosting, error: CogmentError) -> RpcError:
    code, message = status_of(error)
    note_refused_call(_log, connection.anybody.account, code, message, service="pages")
    return RpcError(code, message)


async def read_until_closed(connection: Hosting, socket: WebSocket, farewell: bytes) -> None:
    """Send the frame that closes a WebSocket, and read on until its client has closed it, too, for a while.

    What the client sends before it hears of that must not make the system drop what it was sent.
    """
    connection.send_soon(farewell)
    with trio.move_on_after(connection.config.farewell_timeout_seconds):
        try:
            while not socket.peer_closed and (data := await connection.byte_stream.receive_some()):
                await connection.turn(units_of(data))
                for events in in_batches(socket.receive(data)):
                    await connection.turn(len(events) // 4)
        except (BrokenSocketError, trio.BrokenResourceError):
            pass  # nothing is expected any more
