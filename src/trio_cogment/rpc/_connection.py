"""The Trio shell around one engine: a reader, a writer, and a task per server call.

The reader hands everything one `recv` brought to the calls, and then sends whatever they produced meanwhile in one
piece (see `_writer`). Other tasks only put bytes into the engine and wake the writer. Client calls have no task of
their own: the reader's task runs their callbacks, and one task watches their deadlines (`_deadlines`). Another task
looks for what has become overdue (`_liveness`). How connections end is in `_drain` (in order) and `_lingering_close`
(the last bytes).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import trio

from trio_cogment.access import Identity, Visitor, anonymous
from trio_cogment.config import RpcConfig
from trio_cogment.errors import CogmentError, RemoteProtocolError, RpcError, StatusCode, status_of
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._call_protocols import Route
from trio_cogment.rpc._deadlines import Deadlines
from trio_cogment.rpc._drain import Drain
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._fairness import OPERATIONS_PER_CHECKPOINT
from trio_cogment.rpc._frames import ErrorCode, Kind
from trio_cogment.rpc._lingering_close import LingeringClose
from trio_cogment.rpc._liveness import Liveness
from trio_cogment.rpc._streams import Stream
from trio_cogment.rpc._writer import Writer
from trio_cogment.rpc.refusals import refusals

logger = logging.getLogger(__name__)

_MESSAGE = Kind.MESSAGE
#: Handlers that may still be cleaning up after their streams have gone, beside as many as there may be streams.
_LEAVING_HANDLERS = 100


class Connection:
    """One HTTP/2 connection of either role; `run` owns it and returns when it is closed.

    To calls it is a `ClientTransport` or a `ServerTransport`, also with these functions of its parts: `wake`,
    `flush_soon`, `arm` and `handler_leaves`.

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
        on_change: Callable[[Connection], None] | None = None,
    ) -> None:
        self.peer = peer
        self.config = config
        self.engine = Engine(client_side=client_side, config=config, clock=trio.current_time)
        self.byte_stream = byte_stream
        self.closed = False
        self.number = 0
        self.ready = trio.Event()
        self._routes = routes or {}
        self._visitor = visitor  # decides about each call; None: every call is let in
        self.identity = anonymous(peer) if visitor is None else visitor.identity
        self._on_change = on_change  # client: whether a call can be opened here may have changed
        self._writer = Writer(self.engine, byte_stream)
        self.wake = self._writer.wake
        self.flush_soon = self._writer.flush_soon
        self._deadlines = Deadlines(self.engine.streams)
        self.arm = self._deadlines.arm
        self._lingering_close = LingeringClose(byte_stream, config)
        self.handler_leaves = self._lingering_close.handler_leaves
        self._liveness = Liveness(self)
        self.engine.on_queue = self._liveness.look_soon  # a message waits for the room that another one holds
        self._drain = Drain(self)
        self._nursery: trio.Nursery | None = None
        self._io_nursery: trio.Nursery | None = None
        self._io_scope = trio.CancelScope()
        # How long the peer may take to read the last bytes. An ordinary end grants it `farewell_timeout_seconds`, which
        # is short; a drained one what is left of the grace, so that a slow client gets the rest of its last responses.
        # It is set before the reader is cancelled, and `run` looks at it afterwards. -inf: only the ordinary time.
        self._patient_until = -math.inf
        self._closing = False
        self._free = OPERATIONS_PER_CHECKPOINT
        self._reason = RpcError(StatusCode.UNAVAILABLE, "connection lost")
        self._dispatch: dict[Kind, Callable[[Any, Any], None]] = {
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

    # --- life ---

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
        try:
            async with trio.open_nursery() as nursery:  # the handlers; they may take longer than the socket lives
                self._nursery = nursery
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
                            if self.engine.fault is None and self._patient_until > self._close_deadline():
                                self._begin_close()
                                await self._lingering_close.linger(self._patient_until)
                        finally:
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
            self.closed = True
            self.ready.set()
            self._tell_change()

    async def _read_until_over(self) -> None:
        with self._io_scope:
            try:
                await self._read_loop()
            except RemoteProtocolError as error:
                self._reason = RpcError(StatusCode.UNAVAILABLE, f"connection lost: {error}")
                refusals().add("protocol errors", logger, "connection with %s: %s", self.peer, error)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
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

    async def _read_loop(self) -> None:
        receive_some = self.byte_stream.receive_some
        current_time = trio.lowlevel.current_clock().current_time  # as `trio.current_time`, without its two other calls
        liveness, writer = self._liveness, self._writer
        while True:
            data = await receive_some()
            if not data:
                return
            liveness.heard = current_time()
            writer.in_batch = True
            try:
                self._handle(data)
            finally:
                writer.in_batch = False
            writer.flush()
            if self.engine.fault is not None:
                raise self.engine.fault

    def _handle(self, data: bytes) -> None:
        engine = self.engine
        for kind, stream, value in engine.receive_data(data):
            if kind is _MESSAGE:
                if stream.call is not None:
                    stream.call.on_payload(value)
            elif stream is None or stream.call is not None or kind is Kind.REQUEST:
                self._dispatch[kind](stream, value)
        self._writer.tell_rooms()

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
        identity = self.identity
        if self._visitor is not None:
            try:
                identity = self._visitor.admit(head.path, head.metadata)
            except CogmentError as error:
                self._answer(stream, *status_of(error))
                return
        route = self._routes.get(head.path)
        if route is None:
            self._answer(stream, StatusCode.UNIMPLEMENTED, f"{head.path} is not implemented here")
            return
        assert self._nursery is not None
        if len(self._nursery.child_tasks) >= 2 * self.config.max_concurrent_streams + _LEAVING_HANDLERS:
            # A stream that was reset is gone at once, its handler only when it has cleaned up: both are bounded. An
            # honest client that opens the next call at once must not feel it, hence so many more than streams.
            stream.refused = True
            self.engine.reset(stream, ErrorCode.REFUSED_STREAM)
            return
        make_call, method, function = route
        stream.call = call = make_call(self, stream, method, function, head)
        call.identity = identity
        self._nursery.start_soon(call.run, name=head.path)

    def _answer(self, stream: Stream, code: StatusCode, message: str) -> None:
        """Refuse a call before its handler starts."""
        stream.refused = True
        self.engine.finish_now(stream, _grpc_headers.trailer_headers(code, message, (), alone=b"200"))

    def end_calls_of_others(self, valid: Callable[[Identity], bool]) -> None:
        """Server: end the calls whose callers may not make them any more."""
        for stream in list(self.engine.streams.values()):
            call = stream.call
            if call is not None and not valid(call.identity):
                call.on_broken(StatusCode.UNAUTHENTICATED, "the token or certificate does not count any more")
