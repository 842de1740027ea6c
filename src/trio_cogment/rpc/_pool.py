"""The connections of a channel: made when calls need them, and more than one when the server limits calls on each."""

from __future__ import annotations

import logging
import math
import os
import random
from collections.abc import Awaitable, Callable

import trio

from trio_cogment.base.backoff import Backoff
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RemoteProtocolError, RpcError, StatusCode
from trio_cogment.rpc._byte_stream_over import byte_stream_over, peer_name
from trio_cogment.rpc._connection import CONNECTION_LOST, Connection

logger = logging.getLogger(__name__)

#: The longest pause between attempts while calls wait for a server that has never been reached.
_AWAITED_PAUSE_SECONDS = 0.25


class Pool:
    """Lends connections to calls.

    One attempt to connect runs at a time, in a task of its own: a call that gives up does not end it for others. Calls
    fill the first connection before the second, so that one that is no longer needed runs empty and can go. If calls
    were spread evenly, every connection would have some, and a channel would keep all connections of its busiest time.
    The first connection is never closed for being idle.

    A new connection is not proof that the server works: a proxy may accept it and close it at once. So the backoff is
    reset when a call first uses the connection, and a connection that is lost early and unused counts as a failure.
    `_unused` holds the connections that no call has used yet.

    A server that has never been reached may not listen yet. So the first calls wait for it, even if they do not ask for
    that, up to `await_server_seconds` from the first of them, and the pauses between attempts are short.

    `_retiring` holds the connections whose idle time runs, so that each has one timer, however often it becomes idle.
    Calls do not stop the timer: when it ends, a connection that is in use stays, and its next idleness starts another.

    Attributes:
        trouble: why the last attempt to connect failed; empty when it did not.
        made: how many connections there have been.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[trio.abc.Stream]], target: str, config: RpcConfig, rng: random.Random
    ) -> None:
        self._connect = connect
        self._target = target
        self._config = config
        self._nursery: trio.Nursery | None = None
        self._connections: list[Connection] = []  # that take calls, or will when some of theirs have ended
        self._unused: dict[Connection, float] = {}  # that no call has used yet, and when they were made
        self._retiring: set[Connection] = set()
        self._lot = trio.lowlevel.ParkingLot()
        self._dialing = False
        self._backoff = Backoff(config.connect_backoff_initial_seconds, config.connect_backoff_max_seconds, rng)
        self._failures = 0
        self._last_error = RpcError(StatusCode.UNAVAILABLE, f"not connected to {target}")
        self.trouble = ""
        self.made = 0
        self._retry_at = -math.inf
        self._awaited_until: float | None = None  # None: no call has been made yet

    def start(self, nursery: trio.Nursery) -> None:
        """Let the pool work in this nursery."""
        self._nursery = nursery

    def stop(self) -> None:
        """No call can be made from now on."""
        self._nursery = None
        self._lot.unpark_all()

    async def acquire(self, wait_for_ready: bool) -> Connection:
        """Return a connection that takes a call now; it does so until the next checkpoint.

        Raises:
            RpcError: UNAVAILABLE, the server cannot be reached or the channel is closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        connection = self._usable()
        if connection is None:
            connection = await self._wait(wait_for_ready)
        if self._unused.pop(connection, None) is not None:
            self._backoff.reset()
        return connection

    def acquire_nowait(self) -> Connection | None:
        """As `acquire`; None: it would have to wait."""
        connection = self._usable()
        if connection is not None and self._unused.pop(connection, None) is not None:
            self._backoff.reset()
        return connection

    def _usable(self) -> Connection | None:
        if self._nursery is None:
            return None
        for connection in self._connections:
            if not connection.closed and not connection.engine.exhausted() and connection.engine.can_open():
                return connection
        return None

    async def _wait(self, wait_for_ready: bool) -> Connection:
        failures = self._failures
        if self._awaited_until is None:
            self._awaited_until = trio.current_time() + self._config.await_server_seconds
        while (connection := self._usable()) is None:
            if self._nursery is None:
                raise RpcError(StatusCode.UNAVAILABLE, "the channel is not open")
            self._dial_if_due()
            hopeless = self._failures != failures or not self._dialing
            if hopeless and not wait_for_ready and not self._connections and not self._awaiting():
                raise RpcError(self._last_error.code, self._last_error.message)
            await self._changed()
        self._lot.unpark()  # one after the other, as long as there is room
        return connection

    async def _changed(self) -> None:
        waits = not self._dialing and self._retry_at > trio.current_time()
        until = self._retry_at if waits else math.inf
        if waits and self._awaiting():
            assert self._awaited_until is not None
            until = min(until, self._awaited_until)
        with trio.move_on_at(until):
            await self._lot.park()
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            self._lot.unpark()  # this call was woken and then cancelled: wake the next one
            raise

    def on_change(self, connection: Connection) -> None:
        """A connection tells: its limit has changed, a call has ended, or it takes none any more."""
        if connection.closed or connection.engine.exhausted():
            self._gone(connection)
        elif len(self._connections) > 1 and not connection.engine.streams:
            self._retire_soon(connection)
        if self._lot:
            self._lot.unpark()

    # --- connecting ---

    def _dial_if_due(self) -> None:
        connections = self._connections
        for connection in [item for item in connections if item.closed or item.engine.exhausted()]:
            self._gone(connection)  # `on_change` has not been called yet
        if self._dialing or self._retry_at > trio.current_time():
            return
        if len(connections) >= self._config.max_channel_connections:
            return
        if any(not connection.engine.streams for connection in connections):
            return  # the server allows no call at all for now, and would not on another connection
        assert self._nursery is not None
        self._dialing = True
        self._nursery.start_soon(self._dial, self._nursery, name=f"connecting to {self._target}")

    async def _dial(self, nursery: trio.Nursery) -> None:
        try:
            connection = await self._connected(nursery)
        except trio.Cancelled:
            # The channel's block is being cancelled. A call in a shield would dial again and again, indefinitely.
            self.stop()
            raise
        except RpcError as error:
            if not isinstance(error.__cause__, OSError):
                self._awaited_until = -math.inf  # something listens: waiting would not change what it is
            self._failed(error)
        except Exception:  # the boundary of the attempt: who waits for it is told
            logger.exception("connecting to %s failed", self._target)
            self._failed(RpcError(StatusCode.UNAVAILABLE, f"cannot connect to {self._target}: unexpected failure"))
        else:
            self.trouble = ""
            self._awaited_until = -math.inf
            self.made += 1
            connection.number = self.made
            self._connections.append(connection)
            self._unused[connection] = trio.current_time()
        finally:
            self._dialing = False
            self._lot.unpark_all()

    async def _connected(self, nursery: trio.Nursery) -> Connection:
        """Return a connection whose server has said its limits (its SETTINGS)."""
        timeout = self._config.connect_timeout_seconds
        late = RpcError(StatusCode.UNAVAILABLE, f"cannot connect to {self._target} within {timeout:g} s")
        connection: Connection | None = None
        try:
            with trio.move_on_after(timeout):
                stream = await self._connect()
                connection = Connection(
                    byte_stream_over(stream),
                    client_side=True,
                    config=self._config,
                    peer=self._peer(stream),
                    on_change=self.on_change,
                )
                nursery.start_soon(connection.run, name=f"connection to {self._target}")
                await connection.ready.wait()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError) as error:
            raise RpcError(StatusCode.UNAVAILABLE, f"cannot connect to {self._target}: {_why(error)}") from error
        if connection is None:
            raise late
        if not connection.ready.is_set():
            connection.close(late)
            raise late
        if connection.closed:
            reason = connection.reason.message
            if reason == CONNECTION_LOST and not isinstance(stream, trio.SSLStream):
                reason += "; the server may speak TLS"  # it hangs up when somebody comes without
            raise RpcError(StatusCode.UNAVAILABLE, f"cannot connect to {self._target}: {reason}")
        return connection

    def _peer(self, stream: trio.abc.Stream) -> str:
        name = peer_name(stream)
        return self._target if name == "stream" else name

    def _failed(self, error: RpcError) -> None:
        self._failures += 1
        self._last_error = error
        self.trouble = error.message
        pause = self._backoff.failed()
        if self._awaiting():
            if self._failures == 1:
                logger.info("%s; waiting for it up to %g s", error.message, self._config.await_server_seconds)
            pause = min(pause, _AWAITED_PAUSE_SECONDS)
        self._retry_at = trio.current_time() + pause

    def _awaiting(self) -> bool:
        """Tell whether the server has never been reached, and calls still wait for it."""
        return self._awaited_until is not None and trio.current_time() < self._awaited_until

    def _gone(self, connection: Connection) -> None:
        """A connection takes no calls any more; those that run go on if it drains."""
        if connection in self._connections:
            self._connections.remove(connection)
        since = self._unused.pop(connection, None)
        if since is not None and trio.current_time() - since < self._config.connect_backoff_initial_seconds:
            # A server that accepts connections only to drop them must not be called in a tight loop.
            self._failed(RpcError(StatusCode.UNAVAILABLE, f"{self._target} closed the connection at once"))

    # --- connections that are no longer needed ---

    def _retire_soon(self, connection: Connection) -> None:
        if connection is self._connections[0] or connection in self._retiring or self._nursery is None:
            return
        self._retiring.add(connection)
        self._nursery.start_soon(self._retire, connection, name=f"retiring a connection to {self._target}")

    async def _retire(self, connection: Connection) -> None:
        await trio.sleep(self._config.surplus_idle_seconds)
        self._retiring.discard(connection)
        if not connection.engine.streams and connection in self._connections[1:]:
            connection.close(RpcError(StatusCode.UNAVAILABLE, "the connection was idle"))


def _why(error: Exception) -> str:
    """Return why a connection could not be made: what the system says, if it does."""
    # Of several addresses that were tried, Trio's own text only says that none worked.
    causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else [error.__cause__]
    texts = [_system_text(cause) for cause in [error, *causes] if isinstance(cause, OSError)]
    return ", ".join(dict.fromkeys(filter(None, texts))) or str(error)


def _system_text(error: OSError) -> str | None:
    # Trio adds the address to the text; the numbers of failed name lookups are negative.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
