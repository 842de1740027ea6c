"""What a call needs of the connection that it came by."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from trio_cogment.access import Identity, PeerConnection, Visitor
from trio_cogment.config import RpcConfig, WebConfig
from trio_cogment.errors import CogmentError, RpcError, status_of
from trio_cogment.rpc import Metadata
from trio_cogment.rpc.relay import ByteStream, CallRelay, RelayedCall, Writer
from trio_cogment.web.http1 import Http1
from trio_cogment.web.output import Pending


class Hosting(Protocol):
    """A connection as its call sees it.

    Attributes:
        config: of the server.
        limits: of what is for browsers.
        peer: the other end.
        visitor: decides about calls; None: all are let in.
        account: counts them; None: nobody does.
        http: takes what comes.
        output: gathers what goes.
        writer: sends it.
        byte_stream: below.
        relay: makes the call.
        anybody: who makes it, where nobody asks.
    """

    config: RpcConfig
    limits: WebConfig
    peer: str
    visitor: Visitor | None
    account: PeerConnection | None
    http: Http1
    output: Pending
    writer: Writer
    byte_stream: ByteStream
    relay: CallRelay
    anybody: Identity

    def send_soon(self, data: bytes) -> None:
        """Send bytes, at once if that goes without waiting."""

    def serving(self, call: RelayedCall, identity: Identity) -> AbstractContextManager[None]:
        """Hold the block in which a call is served, which `counted` has counted."""

    def lose(self) -> None:
        """Give the connection up: the client is gone."""


def admitted(connection: Hosting, path: str, metadata: Metadata) -> Identity:
    """Return who makes a call.

    Raises:
        RpcError: it may not.
    """
    if connection.visitor is None:
        return connection.anybody
    try:
        return connection.visitor.admit(path, metadata)
    except CogmentError as error:
        raise RpcError(*status_of(error)) from None


def counted(connection: Hosting, identity: Identity) -> None:
    """Count a call that is about to be served.

    Raises:
        RpcError: its caller has too many.
    """
    if connection.account is not None:
        try:
            connection.account.begin_call(identity)
        except CogmentError as error:
            raise RpcError(*status_of(error)) from None
