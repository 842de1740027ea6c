"""The orderly end of a server's connection (RFC 9113, 6.8): warn, let calls arrive, refuse new ones, wait, close.

A GOAWAY that named the last stream at once would refuse calls that are on their way, and a client need not repeat
those. So the first GOAWAY names the highest number there is, with a PING behind it: when the PING is answered, the
client has seen the GOAWAY and opens no more calls here. Only then a second GOAWAY says which calls are served.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc._engine import DRAIN_PING, Engine


class Drainable(Protocol):
    """What draining needs of a connection."""

    @property
    def engine(self) -> Engine:
        """Of the connection."""

    @property
    def config(self) -> RpcConfig:
        """Of the connection."""

    def wake(self) -> None:
        """Send the engine's output."""

    def close(self, reason: RpcError, *, patient_until: float) -> None:
        """Close; see `Connection.close`."""


class Drain:
    """See the module. The engine tells when no call is left.

    Attributes:
        asked: it has been asked for.
    """

    def __init__(self, connection: Drainable) -> None:
        self.asked = False
        self._connection = connection
        self._scope = trio.CancelScope()
        self._seen = trio.Event()  # the client has seen the first GOAWAY
        self._emptied = trio.Event()  # no call runs any more, and none can come
        connection.engine.on_drained = self._emptied.set

    def ask(self, deadline: float) -> None:
        """Drain until `deadline` at the latest; asked again, the earlier one counts."""
        self.asked = True
        self._scope.deadline = min(deadline, self._scope.deadline)

    async def run(self) -> None:
        """Do it.

        Calls that have not ended at the deadline are cancelled, and their callers told UNAVAILABLE. What is left of
        the time, the peer may take to read what has been written.
        """
        connection, engine = self._connection, self._connection.engine
        with self._scope:
            engine.announce_drain()
            connection.wake()
            with trio.move_on_after(connection.config.keepalive_timeout_seconds):
                await self._seen.wait()
            engine.refuse_new()
            connection.wake()
            await self._emptied.wait()
        deadline = self._scope.deadline
        if deadline == math.inf:  # idleness hurries nobody, but this has to end
            deadline = trio.current_time() + connection.config.drain_grace_seconds
        connection.close(RpcError(StatusCode.UNAVAILABLE, "the server is stopping"), patient_until=deadline)

    def on_pong(self, payload: bytes) -> None:
        """The peer has answered a PING."""
        if self.asked and payload == DRAIN_PING:
            self._seen.set()
