"""A word for clients of HTTP/1.1 that come to a port with gRPC only: they get an answer that says so."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import trio

from trio_cogment.access import Identity
from trio_cogment.budget.refusals import refusals
from trio_cogment.rpc.relay import Accepted, Served

_log = logging.getLogger(__name__)

_TEXT = (
    b"This port speaks gRPC, over HTTP/2 only. `trio-cogment status --endpoint=grpc://HOST:PORT` says what is here.\n"
)
_ANSWER = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\n"
    b"Connection: close\r\n"
    b"\r\n%b" % (len(_TEXT), _TEXT)
)
#: A request of HTTP/1.1 begins with its method; anything else is closed without an answer.
_METHOD = re.compile(rb"[A-Z]{3,10} ")
#: For the answer and the end together.
_SECONDS = 2.0
#: More of a request is not read.
_MOST_BYTES = 64 * 1024


class GrpcOnly:
    """What a server has beside gRPC: an answer that it has nothing else."""

    def connection(self, accepted: Accepted) -> Served:
        """Return a connection that answers once."""
        return _OneAnswer(accepted)

    def grpc_web(self, *, secure: bool) -> None:
        """Return that gRPC-Web is refused, as any other content type is."""


class _OneAnswer:
    def __init__(self, accepted: Accepted) -> None:
        self._accepted = accepted
        self._scope = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        stream, peer = self._accepted.byte_stream, self._accepted.peer
        refusals().add("protocol errors", _log, "connection with %s: this is not HTTP/2", peer)
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + _SECONDS)
        try:
            with self._scope:
                if _METHOD.match(await stream.receive_some()):
                    await stream.send_all(_ANSWER)
                    await stream.linger(_MOST_BYTES)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has gone
        finally:
            await stream.aclose()

    def drain(self, deadline: float) -> None:
        self._scope.deadline = min(self._scope.deadline, deadline)

    def end_calls_of_others(self, valid: Callable[[Identity], bool]) -> None:
        pass  # it makes none
