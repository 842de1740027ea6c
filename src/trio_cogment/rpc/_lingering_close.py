"""The end of a connection: what has been written must arrive, and no peer may keep the connection open.

Closing a socket with unread input makes the kernel reset the connection, and a reset destroys what the peer has not
read yet: the tail of a response, or the GOAWAY that says what was wrong. So an end takes three steps: everything is
written, the sending side of the socket is shut, and what still comes is discarded until the peer has closed its side.
The three together have a time limit.
"""

from __future__ import annotations

import math

import trio

from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._byte_stream import ByteStream

#: What may come beside the DATA that windows allow, before the peer has seen the end.
_CONTROL_BYTES = 1024 * 1024


class LingeringClose:
    """The end of one connection.

    Attributes:
        scope: the writer's. It is shielded, so that a frame is never cut by cancellation, and gets its deadline here.
        written: set by the writer when everything has been given to the system.
    """

    def __init__(self, byte_stream: ByteStream, config: RpcConfig) -> None:
        self.scope = trio.CancelScope(shield=True)
        self.written = trio.Event()
        self._patience = trio.CancelScope()
        self._byte_stream = byte_stream
        self._discard_bytes = config.connection_window_bytes + _CONTROL_BYTES
        self._handler_seconds = config.farewell_timeout_seconds / 2
        self._handler_leaving: trio.Event | None = None

    def hurry(self, deadline: float) -> None:
        """End at this time at the latest; the nearest one counts."""
        for scope in (self.scope, self._patience):
            scope.deadline = min(scope.deadline, deadline)

    def give_up(self) -> None:
        """The peer is gone."""
        self.scope.cancel()
        self._patience.cancel()

    async def wait_for_handlers(self, handlers: trio.Nursery) -> None:
        """On cancellation, let the handlers end first: what they send from shields of their own goes out.

        They have half of the time. The other half is for telling the callers of those that do not end.
        """
        if trio.current_effective_deadline() > -math.inf:
            return  # only the connection ends, and with it the calls of the handlers
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self._handler_seconds
            while handlers.child_tasks:
                self._handler_leaving = trio.Event()
                await self._handler_leaving.wait()

    def handler_leaves(self) -> None:
        """A handler is about to end, in this very turn."""
        if self._handler_leaving is not None:
            self._handler_leaving.set()

    async def linger(self, deadline: float) -> None:
        """Take more time than `finish` will; cancellation ends that."""
        self.hurry(deadline)
        with self._patience:
            await self.written.wait()
            await self._byte_stream.linger(self._discard_bytes)

    async def finish(self, *, linger: bool) -> None:
        """Do what is left to do, and close.

        Args:
            linger: the peer may still have to read what was written.
        """
        with trio.CancelScope(shield=True, deadline=self.scope.deadline):
            if linger and self.written.is_set() and not self.scope.cancel_called:
                await self._byte_stream.linger(self._discard_bytes)
        with trio.CancelScope(shield=True, deadline=self.scope.deadline):
            await self._byte_stream.aclose()  # closes also when the time is over: it never waits for the peer
