"""The end of a connection: what has been said must arrive, and nobody may hold us.

Closing a socket whose input nobody has read makes the kernel reset the connection, and a reset destroys what the peer
has not read yet: the tail of a response, or the GOAWAY that says what was wrong. So an end takes three steps: all is
written, our side is shut, and what still comes is thrown away until the peer's end. Their time is bounded together.
"""

from __future__ import annotations

import math

import trio

from trio_cogment.config import RpcConfig
from trio_cogment.rpc._pipe import Pipe

#: What may come beside the DATA that windows allow, before the peer has seen our end.
_CONTROL_BYTES = 1024 * 1024


class Farewell:
    """The end of one connection.

    Attributes:
        scope: the writer's. It is shielded, so that a frame is never cut by cancellation, and gets its deadline here.
        written: set by the writer when everything has been given to the system.
    """

    def __init__(self, pipe: Pipe, config: RpcConfig) -> None:
        self.scope = trio.CancelScope(shield=True)
        self.written = trio.Event()
        self._patience = trio.CancelScope()
        self._pipe = pipe
        self._discard_bytes = config.connection_window_bytes + _CONTROL_BYTES
        self._leave_seconds = config.farewell_timeout_seconds / 2
        self._left: trio.Event | None = None

    def hurry(self, deadline: float) -> None:
        """End at this time at the latest; the nearest one counts."""
        for scope in (self.scope, self._patience):
            scope.deadline = min(scope.deadline, deadline)

    def give_up(self) -> None:
        """The peer is gone."""
        self.scope.cancel()
        self._patience.cancel()

    async def let_leave(self, handlers: trio.Nursery) -> None:
        """Where all is cancelled, let the handlers end first: what they still say, in shields of their own, is sent.

        They have half of the time; the other half is for telling the callers of those that do not end.
        """
        if trio.current_effective_deadline() > -math.inf:
            return  # only the connection ends, and they will feel that
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self._leave_seconds
            while handlers.child_tasks:
                self._left = trio.Event()
                await self._left.wait()

    def handler_leaves(self) -> None:
        """A handler is about to end, in this very turn."""
        if self._left is not None:
            self._left.set()

    async def linger(self, deadline: float) -> None:
        """Take more time than `finish` will; cancellation ends that."""
        self.hurry(deadline)
        with self._patience:
            await self.written.wait()
            await self._pipe.linger(self._discard_bytes)

    async def finish(self, *, linger: bool) -> None:
        """Do what is left to do, and close.

        Args:
            linger: the peer may still have to read what we wrote.
        """
        with trio.CancelScope(shield=True, deadline=self.scope.deadline):
            if linger and self.written.is_set() and not self.scope.cancel_called:
                await self._pipe.linger(self._discard_bytes)
        with trio.CancelScope(shield=True, deadline=self.scope.deadline):
            await self._pipe.aclose()  # closes also when the time is over: it never waits for the peer
