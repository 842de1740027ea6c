"""gRPC-Web over HTTP/2: what the engine asks of the side of a server that knows browsers.

The messages and their framing are those of gRPC, so a call of gRPC-Web is one of the engine's. It differs in how its
request is judged, and in how its answer begins and ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trio_cogment.rpc._hpack import RawHeaders


class WebAnswer(Protocol):
    """How a request of gRPC-Web is answered."""

    @property
    def opening(self) -> RawHeaders:
        """The header fields that every answer begins with."""

    def initial(self, fields: RawHeaders) -> RawHeaders:
        """Return those fields of a handler's initial metadata that may follow."""

    def closing(self, trailers: RawHeaders) -> bytes:
        """Return the frame with which the body ends: HTTP's own trailers are not read."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A request of gRPC-Web that may be served.

    Attributes:
        path: of the method.
        fields: of the request, without those that are HTTP's or the browser's.
        answer: how it is answered.
    """

    path: str
    fields: RawHeaders
    answer: WebAnswer


class WebRules(Protocol):
    """Judges requests of gRPC-Web."""

    def __call__(self, path: str, authority: str, fields: RawHeaders) -> WebRequest:
        """Return what a request asks for.

        Args:
            path: as it was sent, with what is before or behind that of the method.
            authority: the name by which the server was found; empty if it is not said.
            fields: all others.

        Raises:
            _grpc_headers.RefusedRequest: a browser may not send this.
        """
