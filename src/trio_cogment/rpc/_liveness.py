"""What a connection does on its own account: it looks for life, gives up who shows none, and drains when told.

One task per connection looks at it when something may be due. The connection notes the time of each `recv`; nothing
here costs anything per message.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc._engine import DRAIN_PING
from trio_cogment.rpc._frames import ErrorCode

if TYPE_CHECKING:
    from trio_cogment.rpc._connection import Connection
    from trio_cogment.rpc._streams import Stream

_LIFE_PING = b"alive?\0\0"
_LOOK_SECONDS = 10.0
#: A PING behind as much as this may be late, as long as at least so much of it arrives within its time.
_LONG_QUEUE_BYTES = 16 * 1024
_LEAST_TAKEN_BYTES = 1024
#: What comes of a message within its patience must be as much as this, or all of it.
_LEAST_PROGRESS_BYTES = 16 * 1024
#: Or so much of all large messages of the connection: then it is the link that is slow.
_BUSY_BYTES = 16 * _LEAST_PROGRESS_BYTES


async def watch(connection: Connection) -> None:
    """Look after a connection until cancelled."""
    watcher = Watcher(connection, trio.current_time())
    while True:
        with trio.CancelScope() as connection.watch_scope:
            connection.watch_scope.deadline = watcher.look(trio.current_time())
            await trio.sleep_forever()
        # Had we been stopped (SIGSTOP, a debugger), what arrived meanwhile is read in this very step: let it.
        await trio.lowlevel.checkpoint()


class Watcher:
    """Decides what is due, by time alone.

    Servers PING a client that is silent. Towards servers one must be sparing: grpcio's count a PING that comes within
    five minutes of the last one as a strike, and close the connection after some, unless they have sent data since; and
    without calls they allow one in two hours. So a client PINGs only while calls run.
    """

    def __init__(self, connection: Connection, now: float) -> None:
        self._connection = connection
        self._engine = connection.engine
        self._config = connection.config
        self._opened = now
        self._busy = now  # when calls were seen last
        self._calls = 0
        self._last_ping = now
        self._data_mark = self._engine.data_mark()
        self._pinged = False  # and not answered
        self._expected = math.inf  # when it must be
        self._queue = _Queue(connection)
        self._stalls = _Stalls(connection)

    def look(self, now: float) -> float:
        """Do what is due; return when to look again."""
        if not self._engine.opened:
            due = self._opened + self._config.handshake_timeout_seconds
            if now >= due:
                self._give_up(f"no SETTINGS within {self._config.handshake_timeout_seconds:g} s")
            return due if due > now else math.inf
        due = min(self._look_for_life(now), self._look_for_calls(now), self._stalls.look(now))
        return math.inf if self._connection.closed else due

    def _give_up(self, text: str) -> None:
        self._connection.close(RpcError(StatusCode.UNAVAILABLE, f"connection lost: {text}"))

    # --- keepalive ---

    def _look_for_life(self, now: float) -> float:
        if self._pinged:
            if self._connection.heard == -math.inf:
                due = self._expected
                if now < due:
                    return due
                if self._queue.moves():
                    self._expected = now + self._config.keepalive_timeout_seconds
                    return self._expected
                self._give_up("the peer does not answer")
                return math.inf
            self._pinged = False
        due = self._next_ping(now)
        if now < due:
            # Nobody tells us that data has come (towards a server it makes the next PING due earlier), or a call: look.
            # Data that comes from now on makes none due within its own silence.
            patience = self._config.keepalive_seconds if self._engine.streams else 0.0
            return min(due, now + max(patience, _LOOK_SECONDS)) if self._engine.client_side else due
        self._pinged = True
        self._last_ping = now
        self._data_mark = self._engine.data_mark()
        self._connection.heard = -math.inf  # whatever comes next is an answer
        self._queue.note()
        self._engine.ping(_LIFE_PING)
        self._connection.wake()
        self._expected = now + self._config.keepalive_timeout_seconds
        return self._expected

    def _next_ping(self, now: float) -> float:
        config = self._config
        usual = self._connection.heard + config.keepalive_seconds if config.keepalive_seconds else math.inf
        if not self._engine.client_side:
            return usual
        sparing = config.client_keepalive_seconds
        if not sparing:
            return math.inf
        if not self._engine.streams:
            return now + sparing
        rare = max(self._last_ping, self._connection.heard) + sparing
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
            self._connection.drain(math.inf)  # for ever: a call may just be on its way
            return math.inf
        return self._busy + patience


class _Queue:
    """Tells whether a PING may not have arrived yet: on a slow link, data before it can take longer than patience.

    A peer whose system takes that data is there. That counts only while much of it is on its way, or a program that
    has stopped would live for as long as its system has room for what we send.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._taken = 0
        self._long = False

    def note(self) -> None:
        """Remember how things are."""
        self._taken, waiting = self._connection.pipe.delivered()
        self._long = waiting + self._connection.engine.out_size >= _LONG_QUEUE_BYTES

    def moves(self) -> bool:
        """Whether the queue was long when it was noted last, and has moved on since; note it again."""
        taken, was_long = self._taken, self._long
        self.note()
        return was_long and self._taken - taken >= _LEAST_TAKEN_BYTES


class _Progress:
    """How far the large message of one stream has come, as far as we have looked.

    Attributes:
        seen: bytes that were missing when we looked last.
        missing: the same at `since`.
        others: what had come of all large messages together at `since`.
        since: when it was seen to come further, or had a reason not to.
    """

    __slots__ = ("missing", "others", "seen", "since")

    def __init__(self, missing: int, others: int, now: float) -> None:
        self.seen = self.missing = missing
        self.others = others
        self.since = now


class _Stalls:
    """Ends calls whose large messages do not come any further while the messages of others wait for their room.

    Who sends several may do so one after the other (grpcio does), and its link may be slow: while enough comes of them
    together, the one that has to wait for its turn is not to blame.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._patience = connection.config.message_stall_timeout_seconds
        self._progress: dict[Stream, _Progress] = {}
        self._came = 0  # bytes of all of them

    def look(self, now: float) -> float:
        """End the calls for which it is time; return when to look again."""
        for stream, progress in self._progress.items():
            left = stream.missing
            self._came += progress.seen - left if left <= progress.seen else progress.seen
        holders: dict[Stream, _Progress] = {}
        for stream in self._connection.engine.holders():
            progress = self._progressed(stream, now)
            if now - progress.since >= self._patience:
                self._end(stream)
            else:
                holders[stream] = progress
        self._progress = holders
        return now + self._patience / 4 if holders else math.inf

    def _progressed(self, stream: Stream, now: float) -> _Progress:
        missing = stream.missing
        progress = self._progress.get(stream)
        if (
            progress is None
            or missing > progress.seen  # it is another message
            or progress.missing - missing >= _LEAST_PROGRESS_BYTES
            or self._came - progress.others >= _BUSY_BYTES
        ):
            return _Progress(missing, self._came, now)
        progress.seen = missing
        return progress

    def _end(self, stream: Stream) -> None:
        text = f"a message has come no further for {self._patience:g} s while others waited for its room"
        if stream.call is not None:
            stream.call.on_broken(StatusCode.RESOURCE_EXHAUSTED, text)
        else:
            self._connection.engine.reset(stream, ErrorCode.CANCEL)
        self._connection.wake()


async def drain(connection: Connection) -> None:
    """End a server's connection in order (RFC 9113, 6.8): warn, let what is on its way arrive, refuse, wait, close.

    Calls that have not ended at the deadline of `Connection.drain_scope` are cancelled, and their callers told
    UNAVAILABLE. What is left of the time, the peer may take to read what has been written.
    """
    engine = connection.engine
    with connection.drain_scope:
        engine.announce_drain()
        connection.wake()
        with trio.move_on_after(connection.config.keepalive_timeout_seconds):
            await connection.drain_seen.wait()
        engine.refuse_new()
        connection.wake()
        await connection.emptied.wait()
    deadline = connection.drain_scope.deadline
    if deadline == math.inf:  # idleness hurries nobody, but this has to end
        deadline = trio.current_time() + connection.config.drain_grace_seconds
    connection.close(RpcError(StatusCode.UNAVAILABLE, "the server is stopping"), patient_until=deadline)


def is_drain_answer(payload: bytes) -> bool:
    """Tell whether this is the answer to the PING of a drain."""
    return payload == DRAIN_PING
