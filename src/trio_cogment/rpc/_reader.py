"""Reads a connection: everything that one `recv` brings is handled at once, in the order in which it came.

Reading takes turns with the other connections of the process (`budget.turn_order`). What it costs is known only
afterwards, so what the last batch has cost is what the next one is expected to cost.

Actors of a trial answer within microseconds of each other, and whatever brings them together sends answer by answer. To
wait for each would cost a round of Trio's loop, several times as much as to handle it. So after a batch that nobody was
answered for, the next is read without waiting if it is there; never more in a row than one read brings at most, so that
other tasks and connections get their turn. Where such reads find nothing, they are tried rarely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

from trio_cogment.budget.turn_order import ConnectionLane, Lane
from trio_cogment.budget.turns import Turns
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import Kind
from trio_cogment.rpc._message_path import MessagePath
from trio_cogment.rpc._writer import Writer

_MESSAGE: Final = Kind.MESSAGE
_REQUEST: Final = Kind.REQUEST
#: Requests are what costs most to receive; a client that sends many at once waits for its turn in between.
REQUESTS_PER_TURN: Final = 16
#: What is received costs a unit, and one more for this many bytes and for each request.
_BYTES_PER_UNIT: Final = 4096
#: So much is read without waiting in between; a small read counts as more, because each costs something.
_UNINTERRUPTED_BYTES: Final = 16 * 1024
_SMALL_READ: Final = 1024
#: After this many reads in vain without waiting, they are tried after each sixteenth batch only.
_VAIN_READS: Final = 4
#: What the first bytes of a client cost, before anything is known of it.
_FIRST_UNITS: Final = 8


class Heard(Protocol):
    """Remembers when something was heard of the peer."""

    heard: float


class Reader:
    """The reader of one connection.

    Args:
        engine: what speaks HTTP/2.
        byte_stream: where the bytes come from.
        writer: sends what handling them has brought about.
        turns: those of all connections.
        liveness: learns when bytes have come, on Trio's clock.
        dispatch: what is done for an event that is not a message, by its kind, with its stream and its value.

    Attributes:
        batch: how many times something has been received.
    """

    def __init__(
        self,
        engine: Engine,
        byte_stream: ByteStream,
        writer: Writer,
        turns: Turns,
        liveness: Heard,
        dispatch: dict[Kind, Callable[[Any, Any], None]],
    ) -> None:
        self.batch = 0
        self._engine = engine
        self._byte_stream = byte_stream
        self._writer = writer
        self._turns = turns
        self._liveness = liveness
        self._dispatch = dispatch
        self._lane = ConnectionLane(engine)
        if not engine.client_side:
            engine.limit_requests(REQUESTS_PER_TURN)

    @property
    def lane(self) -> Lane:
        """In which the connection waits for its turns."""
        return self._lane.lane

    async def run(self) -> None:
        """Read until the peer has sent its last byte.

        Raises:
            RemoteProtocolError: the peer has broken the connection.
            trio.BrokenResourceError, trio.ClosedResourceError: it is lost.
        """
        current_time = trio.lowlevel.current_clock().current_time  # as `trio.current_time`, without its two other calls
        byte_stream, liveness, turns, connection_lane = self._byte_stream, self._liveness, self._turns, self._lane
        engine, writer = self._engine, self._writer
        table, parser = engine.table, engine.parser
        units = 1 if engine.client_side else _FIRST_UNITS
        room, hope = 0, _VAIN_READS
        while True:
            data = b""
            if room > 0 and (hope or not self.batch & 15):
                data = byte_stream.receive_now(room)
                hope = _VAIN_READS if data else max(hope - 1, 0)
            if data:
                room -= max(len(data), _SMALL_READ)
            else:
                data = await byte_stream.receive_some()
                room = _UNINTERRUPTED_BYTES - len(data)
            liveness.heard = now = current_time()
            if now >= connection_lane.until:
                connection_lane.look(now)
            lane = connection_lane.lane
            if not turns.take(lane, units):
                await turns.turn(lane, units)
            if not data:
                return
            expected, calls = units, table.begun
            self.batch += 1
            writer.in_batch = True
            try:
                self._handle(data)
            finally:
                writer.in_batch = False
            if engine.output.out_size or table.begun != calls:
                room = 0  # the peer has to read that first; and calls that have begun must run
            writer.flush()
            if engine.fault is not None:
                raise engine.fault
            units = 1 + len(data) // _BYTES_PER_UNIT + table.begun - calls
            if units != expected:
                turns.charge(lane, units - expected)
            if parser.paused:
                await self._handle_rest()

    async def _handle_rest(self) -> None:
        """Handle the requests of a batch beyond those that are handled at once."""
        engine, writer = self._engine, self._writer
        while engine.parser.paused:
            self._lane.crowd()
            await self._turns.turn(Lane.OTHERS, REQUESTS_PER_TURN)
            writer.in_batch = True
            try:
                self._handle(b"")
            finally:
                writer.in_batch = False
            writer.flush()
            if engine.fault is not None:
                raise engine.fault

    def _handle(self, data: bytes) -> None:
        for kind, stream, value in self._engine.receive_data(data):
            if kind is _MESSAGE:
                path: MessagePath | None = stream.path
                if path is not None:
                    path.on_payload(value)
            elif stream is None or stream.call is not None or kind is _REQUEST:
                self._dispatch[kind](stream, value)
