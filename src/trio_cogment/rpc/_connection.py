"""The Trio shell around one engine: a reader, a writer, and a task per server call.

The reader (`_reader`) hands everything one `recv` brought to the calls, and then sends whatever they produced meanwhile
in one piece (see `_writer`). Other tasks only put bytes into the engine and wake the writer. Client calls have no task
of their own: the reader's task runs their callbacks, and one task watches their deadlines (`_deadlines`). Another task
looks for what has become overdue (`_liveness`). How connections end is in `_drain` (in order) and `_lingering_close`
(the last bytes).

Reading takes turns with the other connections of the process (`budget.turn_order`), and so do large output, the
beginnings of calls (`budget.call_starts`) and their ends when the connection is lost.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import trio

from trio_cogment.access import Identity, Visitor, anonymous
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import (
    RemoteProtocolError,
    RpcError,
    StatusCode,
)
from trio_cogment.base.host.heap import keep_heap
from trio_cogment.budget.call_starts import CallStarts
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.budget.peer_limits import PeerConnection
from trio_cogment.budget.refusals import refusals
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._call_protocols import Route
from trio_cogment.rpc._deadlines import Deadlines
from trio_cogment.rpc._drain import Drain
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._fairness import OPERATIONS_PER_CHECKPOINT
from trio_cogment.rpc._frames import ErrorCode, Kind
from trio_cogment.rpc._grpc_web import WebRules
from trio_cogment.rpc._lingering_close import LingeringClose
from trio_cogment.rpc._liveness import Liveness
from trio_cogment.rpc._reader import Reader
from trio_cogment.rpc._request_gate import RequestGate
from trio_cogment.rpc._streams import Stream
from trio_cogment.rpc._writer import Writer
from trio_cogment.rpc.tls import refusal_in

logger = logging.getLogger(__name__)

#: What is sent costs less: the system does it.
_SENT_BYTES_PER_UNIT = 32 * 1024

#: Why calls end with a connection of which nothing else is known.
CONNECTION_LOST = "connection lost"


class Connection:
    """One HTTP/2 connection of either role; `run` owns it and returns when it is closed.

    To calls it is a `ClientTransport` or a `ServerTransport`, also with these functions of its parts: `wake`,
    `flush_soon` and `arm`.

    Attributes:
        peer: the other end, for logs.
        config: limits and timeouts.
        engine: what speaks HTTP/2.
        byte_stream: the bytes below.
        identity: who the peer is as far as the connection says. With open access, it makes every call.
        closed: no call can be made or answered any more.
        ready: the peer's first SETTINGS have come, or the connection has ended without them.
        number: which one of its channel it is, from 1 on.
    """

    def __init__(
        self,
        byte_stream: ByteStream,
        *,
        client_side: bool,
        config: RpcConfig,
        peer: str,
        routes: dict[str, Route] | None = None,
        visitor: Visitor | None = None,
        account: PeerConnection | None = None,
        web: WebRules | None = None,
        on_change: Callable[[Connection], None] | None = None,
    ) -> None:
        keep_heap(config.max_receive_message_bytes)
        self.peer = peer
        self.config = config
        self._memory = memory_of_run()
        self.engine = Engine(
            client_side=client_side, config=config, clock=trio.current_time, memory=self._memory, web=web
        )
        self.byte_stream = byte_stream
        self.closed = False
        self.number = 0
        self.ready = trio.Event()
        self._turns = turns_of_run()
        self.identity = anonymous(peer) if visitor is None else visitor.identity
        self._gate = RequestGate(self.engine, routes or {}, self.identity, visitor, account)
        self._on_change = on_change  # client: whether a call can be opened here may have changed
        self._writer = Writer(self.engine.output, byte_stream, self._writers_turn)
        self.wake = self._writer.wake
        self.flush_soon = self._writer.flush_soon
        self._deadlines = Deadlines(self.engine.streams)
        self.engine.on_output = self._writer.wake
        self.arm = self._deadlines.arm
        self._lingering_close = LingeringClose(byte_stream, config)
        self._liveness = Liveness(self)
        self.engine.on_queue = self._liveness.look_soon  # a message waits for the room that another one holds
        self._drain = Drain(self)
        self._starts: CallStarts | None = None
        self._io_nursery: trio.Nursery | None = None
        self._io_scope = trio.CancelScope()
        # How long the peer may take to read the last bytes. An ordinary end grants it `farewell_timeout_seconds`, which
        # is short; a drained one what is left of the grace, so that a slow client gets the rest of its last responses.
        # It is set before the reader is cancelled, and `run` looks at it afterwards. -inf: only the ordinary time.
        self._patient_until = -math.inf
        self._closing = False
        self._free = OPERATIONS_PER_CHECKPOINT
        self._reason = RpcError(StatusCode.UNAVAILABLE, CONNECTION_LOST)
        dispatch: dict[Kind, Callable[[Any, Any], None]] = {
            Kind.REQUEST: self._on_request,
            Kind.RESPONSE: lambda stream, value: stream.call.on_response(value),
            Kind.HALF_CLOSED: lambda stream, value: stream.call.on_half_closed(),
            Kind.STATUS: lambda stream, value: stream.call.on_status(value),
            Kind.BROKEN: lambda stream, value: stream.call.on_broken(value.code, value.message),
            Kind.RESET: lambda stream, value: stream.call.on_reset(value),
            Kind.GOAWAY: lambda stream, value: self.retire_if_idle(),
            Kind.SETTINGS: lambda stream, value: self._on_settings(),
            Kind.PONG: lambda stream, value: self._drain.on_pong(value),
        }
        self._reader = Reader(self.engine, byte_stream, self._writer, self._turns, self._liveness, dispatch)

    # --- life ---

    @property
    def batch(self) -> int:
        """How many times something has been received."""
        return self._reader.batch

    @property
    def reason(self) -> RpcError:
        """Why calls end, or ended, with the connection."""
        return self._reason

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the connection until either end closes it.

        Raises no `Exception`: this is the boundary where what goes wrong on one connection stays with it. On
        cancellation handlers may still say something (see `serve`), every call is ended, the peer is told if that is
        possible within `RpcConfig.farewell_timeout_seconds`, and the socket is closed in any case; see
        `_lingering_close`.
        """
        self._memory.watch(self)
        try:
            async with trio.open_nursery() as nursery:  # the handlers; they may take longer than the socket lives
                self._starts = starts = CallStarts(self._turns, nursery, self._gate.leave)
                try:
                    async with trio.open_nursery() as io_nursery:
                        self._io_nursery = io_nursery
                        io_nursery.start_soon(self._write)
                        io_nursery.start_soon(self._liveness.run)
                        if self._drain.asked:
                            io_nursery.start_soon(self._drain.run)
                        if self.engine.client_side:
                            io_nursery.start_soon(self._deadlines.run)
                        task_status.started()
                        try:
                            await self._read_until_over()
                            await self._lose_calls_in_turns()
                            if self.engine.fault is None and self._patient_until > self._close_deadline():
                                self._begin_close()
                                await self._lingering_close.linger(self._patient_until)
                        finally:
                            starts.drop()
                            deadline = self._close_deadline()
                            await self._lingering_close.wait_for_handlers(nursery)
                            self._begin_close()
                            self._lingering_close.hurry(deadline)
                            io_nursery.cancel_scope.cancel()  # the writer is shielded, its deadline runs
                finally:
                    # Of a client nothing is awaited any more; but a server should learn what it did wrong.
                    await self._lingering_close.finish(
                        linger=not self.engine.client_side or self.engine.fault is not None
                    )
        except* Exception:
            logger.exception("connection with %s failed", self.peer)
        finally:
            self._memory.forget(self)
            self.engine.close()
            self.closed = True
            self.ready.set()
            self._tell_change()

    async def _read_until_over(self) -> None:
        with self._io_scope:
            try:
                await self._reader.run()
            except RemoteProtocolError as error:
                self._reason = RpcError(StatusCode.UNAVAILABLE, f"{CONNECTION_LOST}: {error}")
                refusals().add("protocol errors", logger, "connection with %s: %s", self.peer, error)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                if refusal := refusal_in(error):
                    self._reason = RpcError(StatusCode.UNAVAILABLE, f"{CONNECTION_LOST}: {refusal}")
                self._lingering_close.give_up()  # nobody is left to tell

    def _begin_close(self) -> None:
        """End every call, and let the writer finish."""
        if self._closing:
            return
        self._lose_calls()
        if self.engine.fault is None:
            self.engine.go_away(ErrorCode.NO_ERROR)
        self._closing = True
        self._writer.finish()

    def _close_deadline(self) -> float:
        return trio.current_time() + self.config.farewell_timeout_seconds

    async def _writers_turn(self, size: int) -> None:
        await self._turns.turn(self._reader.lane, 1 + size // _SENT_BYTES_PER_UNIT)

    async def _write(self) -> None:
        with self._lingering_close.scope:
            try:
                await self._writer.run()
                self._lingering_close.written.set()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._lingering_close.give_up()
                self._io_scope.cancel()  # the reader may not have noticed

    def _lose_calls(self) -> None:
        """End every call: the peer is gone, or this end is closing."""
        self.closed = True
        for stream in list(self.engine.streams.values()):
            if stream.call is not None:
                stream.call.on_lost(self._reason)
        self._tell_change()

    async def _lose_calls_in_turns(self) -> None:
        """End a server's calls one by one: a thousand handlers that end in one pass would delay everybody."""
        if self._starts is not None:
            self._starts.drop()
        if self.engine.client_side:
            return  # its calls run no handlers
        for stream in list(self.engine.streams.values()):
            if stream.call is not None and not stream.call.over:
                await self._turns.turn(Lane.OTHERS)
                stream.call.on_lost(self._reason)

    def close(self, reason: RpcError, *, patient_until: float = -math.inf) -> None:
        """Close the connection; calls that run end with `reason`.

        Args:
            reason: what they are told.
            patient_until: how long the peer may take to read what has been written, if that is longer than
                `RpcConfig.farewell_timeout_seconds`.
        """
        self._reason = reason
        self._patient_until = patient_until
        self.closed = True
        self._io_scope.cancel()

    def drain(self, deadline: float) -> None:
        """Server: end the connection in order, its calls at `deadline` at the latest; see `_drain`."""
        first = not self._drain.asked
        self._drain.ask(deadline)
        if self._closing:
            self._lingering_close.hurry(max(deadline, self._close_deadline()))
        elif first and self._io_nursery is not None:
            self._io_nursery.start_soon(self._drain.run)

    def retire_if_idle(self) -> None:
        """Client: after GOAWAY, close when the last call has ended."""
        if self.engine.client_side and self.engine.exhausted() and not self.engine.streams:
            self.close(self._reason)
        self._tell_change()

    def _tell_change(self) -> None:
        if self._on_change is not None:
            self._on_change(self)

    def _on_settings(self) -> None:
        if not self.ready.is_set():
            self.ready.set()
            self._liveness.look_soon()  # until now only the handshake's end was due
        self._tell_change()

    # --- calls ---

    def turn_is_over(self) -> bool:
        """Whether an operation that need not wait owes the others a full checkpoint; see `_fairness`."""
        self._free -= 1
        if self._free:
            return False
        self._free = OPERATIONS_PER_CHECKPOINT
        return True

    async def yield_sometimes(self) -> None:
        """A checkpoint for operations that need not wait: always for cancellation, now and then for fairness."""
        if self.turn_is_over():
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    def _on_request(self, stream: Stream, head: _grpc_headers.RequestHead) -> None:
        assert self._starts is not None
        admitted = self._gate.admit(stream, head, self._starts.handlers())
        if admitted is None:
            return
        (make_call, method, function), identity = admitted
        stream.call = call = make_call(self, stream, method, function, head)
        call.identity = identity
        self._starts.start(call, head.path)

    def handler_leaves(self) -> None:
        """See `ServerTransport.handler_leaves`."""
        self._gate.leave()
        self._lingering_close.handler_leaves()

    def end_calls_of_others(self, valid: Callable[[Identity], bool]) -> None:
        """Server: end the calls whose callers may not make them any more."""
        for stream in list(self.engine.streams.values()):
            call = stream.call
            if call is not None and not valid(call.identity):
                call.on_broken(StatusCode.UNAUTHENTICATED, "the token or certificate does not count any more")
