"""HTTP/1.1 without I/O: bytes in, events out; and the bytes of answers.

The parser is h11. This adds what a server must decide: what is not a request here, how long things may be, and what is
answered when it cannot go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import h11

from trio_cogment.web.origins import Admitted
from trio_cogment.web.replies import Reply, common_headers, refusal
from trio_cogment.web.requests import Request, token_in_path

#: Pieces of a body. Each costs as much as a request, and one read may bring thousands.
_MOST_DISCARDED = 64
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class BadRequestError(Exception):
    """What came is not a request that can be answered otherwise; the connection ends after the answer.

    Attributes:
        reply: the answer.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class Sign(Enum):
    """What else there is besides requests and pieces of their bodies."""

    END = auto()  # the body is complete
    GONE = auto()  # the client has left, or sends nothing more


class Http1:
    """One connection, as a server sees it.

    Args:
        max_head_bytes: of a request's first line and fields.
        secure: it has TLS.
        prefix: what the server's public address has before its paths, as `/lab`. A request may have it or not: some
            proxies take it away.
    """

    def __init__(self, max_head_bytes: int, *, secure: bool, prefix: str = "") -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=max_head_bytes)
        self._secure = secure
        self._prefix = prefix
        self._foreign = ""
        self._head_only = False

    # --- what comes ---

    def receive(self, data: bytes) -> None:
        """Take bytes; none means that nothing more comes. `next_event` says what they mean."""
        try:
            self._h11.receive_data(data)
        except h11.RemoteProtocolError:  # bytes after the end
            pass

    def next_event(self) -> Request | bytes | Sign | None:
        """Return what has come next: a request, its body in pieces, `END`, and nothing more until `next_request`.

        None means that there is nothing, or not all of it.

        Raises:
            BadRequestError: it is not HTTP/1.1.
        """
        try:
            event: Any = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequestError(_refusal_of(error)) from None
        if isinstance(event, h11.Request):
            return self._request(event)
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return Sign.END
        return Sign.GONE if isinstance(event, h11.ConnectionClosed) else None

    def _request(self, event: h11.Request) -> Request:
        self._head_only = event.method == b"HEAD"
        if event.http_version not in (b"1.0", b"1.1"):
            raise BadRequestError(refusal(505, "expected HTTP/1.1"))
        if event.target[:1] != b"/":
            # The other forms are for proxies; with them the Host would not be what counts.
            raise BadRequestError(refusal(400, "expected a path that begins with '/'"))
        written, _, query = event.target.decode("latin-1").partition("?")
        base = ""
        if self._prefix and (written == self._prefix or written.startswith(f"{self._prefix}/")):
            base, written = self._prefix, written[len(self._prefix) :] or "/"
        token, path = token_in_path(written)
        headers = tuple(event.headers)
        method = event.method.decode("latin-1")
        return Request(method, path, query, headers, self._secure, token=token, written=written, base=base)

    def complete(self) -> bool:
        """Whether all of the request has come, and its body has been read or is empty."""
        return self._h11.their_state is h11.DONE or self.next_event() is Sign.END

    def discard(self) -> None:
        """Drop what has come of the request's body, if that is not many small pieces; else no request can follow."""
        for _ in range(_MOST_DISCARDED):
            if not isinstance(self.next_event(), bytes):
                return

    @property
    def pipelined(self) -> int:
        """How many bytes have come that are not of this request."""
        return len(self._h11.trailing_data[0])

    def left_over(self) -> bytes:
        """Return what came after the request that has switched protocols."""
        return bytes(self._h11.trailing_data[0])

    def next_request(self) -> bool:
        """Begin with the next request; False: there cannot be one."""
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        self._foreign, self._head_only = "", False
        return True

    # --- what goes ---

    def admitted(self, request: Request, admitted: Admitted) -> Request:
        """Note which page sees the answers; return the request with that, and with what its address tells."""
        self._foreign = admitted.foreign
        base = self._prefix if admitted.public else request.base
        return replace(request, foreign=admitted.foreign, secure=admitted.secure, base=base)

    def go_on(self) -> bytes:
        """Return what a client waits for before it sends a large body; mostly nothing."""
        if not self._h11.they_are_waiting_for_100_continue:
            return b""
        return self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def reply(self, reply: Reply, *, close: bool = False) -> bytes:
        """Return a whole answer; nothing if one has begun."""
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        headers = [(b"content-type", reply.content_type)] if reply.content_type else []
        if reply.status != 204:
            headers.append((b"content-length", b"%d" % len(reply.body)))
        data = self.head(reply.status, [*headers, *reply.headers], close=close)
        if reply.body and not self._head_only:
            data += self.data(reply.body)
        return data + self.end()

    def head(self, status: int, headers: Iterable[tuple[bytes, bytes]], *, close: bool = False) -> bytes:
        """Return the head of an answer; its body follows in pieces unless there is a length among the headers."""
        own = list(headers)
        fields = [*own, *common_headers(self._foreign, {name for name, _ in own})]
        if close or self._h11.their_state is h11.SEND_BODY:  # what comes of the body then is not waited for
            fields.append((b"connection", b"close"))
        return self._send(h11.Response(status_code=status, reason=_PHRASES[status], headers=fields))

    def data(self, data: bytes) -> bytes:
        """Return a piece of a body."""
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        """Return the end of a body."""
        return self._send(h11.EndOfMessage())

    def switched(self) -> None:
        """Learn that another protocol is spoken from now on: its answer is not made here."""
        self._h11.send(h11.InformationalResponse(status_code=101, headers=[(b"upgrade", b"websocket")]))

    def _send(self, event: Any) -> bytes:
        return self._h11.send(event) or b""


def _refusal_of(error: h11.RemoteProtocolError) -> Reply:
    status = int(error.error_status_hint)
    if status == 431:
        return refusal(431, "the head of the request is too long")
    return refusal(400, "this is not a request of HTTP/1.1")
