"""Deadlines of a connection: a handshake, a sign of life, a call on an idle connection, the rest of a message.

One task per connection looks at it when something may be due. The connection's reader notes the time of each `recv`;
nothing else here costs anything per message.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._stalled_messages import StalledMessages

_LIFE_PING = b"alive?\0\0"
_LOOK_SECONDS = 10.0
#: A PING behind as much as this may be late, as long as at least so much of it arrives within its time.
_LONG_QUEUE_BYTES = 16 * 1024
_LEAST_TAKEN_BYTES = 1024


class Watched(Protocol):
    """A connection, as far as what is overdue on it is concerned."""

    @property
    def engine(self) -> Engine:
        """Of the connection."""

    @property
    def config(self) -> RpcConfig:
        """Of the connection."""

    @property
    def byte_stream(self) -> ByteStream:
        """Of the connection."""

    @property
    def closed(self) -> bool:
        """Whether it is closed, or about to be."""

    def wake(self) -> None:
        """Send the engine's output."""

    def close(self, reason: RpcError) -> None:
        """Close it; calls that run end with `reason`."""

    def drain(self, deadline: float) -> None:
        """Server: end it in order."""


class Liveness:
    """Decides what is due, by time alone.

    Servers PING a client that is silent. Towards servers one must be sparing: grpcio's count a PING that comes within
    five minutes of the last one as a strike, and close the connection after some, unless they have sent data since; and
    without calls they allow one in two hours. So a client PINGs only while calls run.

    Attributes:
        heard: when bytes came last, on Trio's clock. The connection's reader sets it; `-inf` while a PING that was sent
            since then is not answered.
    """

    def __init__(self, connection: Watched) -> None:
        now = trio.current_time()
        self.heard = now
        self._turns = turns_of_run()
        self._lane = Lane.ESTABLISHED if connection.engine.client_side else Lane.OTHERS
        self._scope = trio.CancelScope()  # its deadline is when `run` looks again
        self._connection = connection
        self._engine = connection.engine
        self._config = connection.config
        self._opened = now
        self._busy = now  # when calls were seen last
        self._calls = 0
        self._last_ping = now
        self._data_mark = self._engine.data_mark()
        self._expected = math.inf  # when the last PING must be answered
        # An answer does not wake this task either: with intervals that are shorter than the time for an answer, the
        # next PING is due before that has passed.
        intervals = [self._config.keepalive_seconds]
        if connection.engine.client_side:
            intervals.append(self._config.client_keepalive_seconds)
        self._shortest = min((seconds for seconds in intervals if seconds), default=math.inf)
        self._queue = _Queue(connection)
        self._stalled_messages = StalledMessages(
            self._engine, self._config.message_stall_timeout_seconds, connection.wake
        )

    async def run(self) -> None:
        """Look after the connection until cancelled."""
        while True:
            with trio.CancelScope() as self._scope:
                self._scope.deadline = self.look(trio.current_time())
                await trio.sleep_forever()
            # If the process had been stopped (SIGSTOP, a debugger), timers and input are due in the same step. Let the
            # reader take the input first, or a peer that has answered in time would be given up.
            await trio.lowlevel.checkpoint()
            # Thousands of connections that were opened together become due together.
            await self._turns.turn(self._lane)

    def look_soon(self) -> None:
        """Something may be due earlier than it was when `look` looked last."""
        self._scope.deadline = -math.inf

    def look(self, now: float) -> float:
        """Do what is due; return when to look again."""
        if not self._engine.opened:
            due = self._opened + self._config.handshake_timeout_seconds
            if now >= due:
                self._give_up(f"no SETTINGS within {self._config.handshake_timeout_seconds:g} s")
            return due if due > now else math.inf
        due = min(self._look_for_life(now), self._look_for_calls(now), self._stalled_messages.look(now))
        return math.inf if self._connection.closed else due

    def _give_up(self, text: str) -> None:
        self._connection.close(RpcError(StatusCode.UNAVAILABLE, f"connection lost: {text}"))

    # --- keepalive ---

    def _look_for_life(self, now: float) -> float:
        if self.heard == -math.inf:
            due = self._expected
            if now < due:
                return min(due, now + self._shortest)
            if self._queue.moves():
                self._expected = now + self._config.keepalive_timeout_seconds
                return min(self._expected, now + self._shortest)
            self._give_up("the peer does not answer")
            return math.inf
        due = self._next_ping(now)
        if now < due:
            # Data that comes, or a new call, makes the next PING due earlier, but does not wake this task: look again
            # before that. Data that comes from now on makes no PING due before the keepalive interval has passed.
            patience = self._config.keepalive_seconds if self._engine.streams else 0.0
            return min(due, now + max(patience, _LOOK_SECONDS)) if self._engine.client_side else due
        self._last_ping = now
        self._data_mark = self._engine.data_mark()
        self.heard = -math.inf  # whatever comes next is an answer
        self._queue.note()
        self._engine.ping(_LIFE_PING)
        self._connection.wake()
        self._expected = now + self._config.keepalive_timeout_seconds
        return min(self._expected, now + self._shortest)

    def _next_ping(self, now: float) -> float:
        config = self._config
        usual = self.heard + config.keepalive_seconds if config.keepalive_seconds else math.inf
        if not self._engine.client_side:
            return usual
        sparing = config.client_keepalive_seconds
        if not sparing:
            return math.inf
        if not self._engine.streams:
            return now + sparing
        rare = max(self._last_ping, self.heard) + sparing
        return min(usual, rare) if self._engine.data_mark() != self._data_mark else rare

    # --- idleness ---

    def _look_for_calls(self, now: float) -> float:
        patience = self._config.idle_timeout_seconds
        if self._engine.client_side or not patience:
            return math.inf
        if self._engine.streams or self._engine.calls_begun != self._calls:
            self._calls = self._engine.calls_begun
            self._busy = now
        if now >= self._busy + patience:
            self._connection.drain(math.inf)  # without a deadline: a call may just be on its way
            return math.inf
        return self._busy + patience


class _Queue:
    """Tells whether a PING may not have arrived yet because data was queued before it, as on a slow link.

    A peer whose system acknowledges that data is alive. That counts only while the queue is long, or a program that
    has stopped would pass as alive for as long as its system has room in its socket buffer.
    """

    def __init__(self, connection: Watched) -> None:
        self._connection = connection
        self._taken = 0
        self._long = False

    def note(self) -> None:
        """Note the length of the queue, and what has been delivered so far."""
        self._taken, waiting = self._connection.byte_stream.delivered()
        self._long = waiting + self._connection.engine.out_size >= _LONG_QUEUE_BYTES

    def moves(self) -> bool:
        """Whether the queue was long when it was noted last, and has moved on since; note it again."""
        taken, was_long = self._taken, self._long
        self.note()
        return was_long and self._taken - taken >= _LEAST_TAKEN_BYTES
