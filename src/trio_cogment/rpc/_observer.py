"""Observers of a server's calls. Without one nothing is in the way of a call."""

from __future__ import annotations

from typing import Protocol

from trio_cogment.base.errors import StatusCode


class MethodObserver(Protocol):
    """Learns of the calls of one method, in their handlers' tasks: its functions return at once and never raise."""

    def started(self) -> None:
        """Count a handler that starts."""

    def ended(self, code: StatusCode, seconds: float) -> None:
        """Count a handler that has ended.

        Args:
            code: of the call; CANCELLED if the caller gave it up, UNAVAILABLE if its connection was lost or the server
                stopped.
            seconds: how long the handler took, on Trio's clock, until the caller had taken the answer.
        """


class ServerObserver(Protocol):
    """Learns of a server's calls; those to methods that the server does not have are not among them."""

    def method(self, path: str, shape: str) -> MethodObserver:
        """Return what learns of a method's calls.

        Each server asks for each of its methods before it accepts: once, or twice if it serves browsers, too.

        Args:
            path: `/package.Service/Method`.
            shape: `unary`, `client_stream`, `server_stream` or `bidi_stream`.
        """
