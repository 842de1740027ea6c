"""Calls between parts of one process: the interface of `calls` without HTTP/2, an order of magnitude faster.

A call is two bounded queues and a handler task. Messages are handed over as objects, each copied once on the way, so
that a later change by either side is seen by nobody else (`hand_over_nowait` saves that); payload bytes are shared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio
from google.protobuf.message import Message
from purerpc import Service
from typing_extensions import override

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.tracing import tracing_of_run
from trio_cogment.budget.waiting_bytes import WaitingBytes
from trio_cogment.rpc._compression import checked_encoding
from trio_cogment.rpc._in_process_call import UNLIMITED_BYTES as UNLIMITED_BYTES
from trio_cogment.rpc._in_process_call import End, Exchange, fits, max_bytes
from trio_cogment.rpc._in_process_server_call import CallServedAtOnce, InProcessServerCall
from trio_cogment.rpc._nursery import OwnNursery
from trio_cogment.rpc._status import outcome_of
from trio_cogment.rpc.calls import (
    CallOpener,
    DirectCall,
    Handler,
    MetadataLike,
    Method,
    OnReply,
    ReplyConsumer,
    ServerCall,
    TakeAtOnce,
    checked_method,
    checked_timeout,
)
from trio_cogment.rpc.metadata import Metadata
from trio_cogment.rpc.service import BoundService

if TYPE_CHECKING:
    from trio_cogment.base.tracing.spans import Tracing

_STOPPING = "the server is stopping"


class InProcessClientCall(End, DirectCall):
    """The caller's end."""

    #: To which what waits of requests and of responses belongs, for a call that a connection has brought.
    _waiting: tuple[WaitingBytes, WaitingBytes] | None = None

    def __init__(self, channel: InProcessChannel, method: Method, metadata: Metadata, timeout: float | None) -> None:
        self._channel = channel
        self.method = checked_method(method)
        self._metadata = metadata
        self._timeout = checked_timeout(timeout)
        self._entered = False
        self._timer: trio.CancelScope | None = None

    async def __aenter__(self) -> InProcessClientCall:
        """Start the handler's task; it runs from its next turn on."""
        if self._entered:
            raise RuntimeError("a call can be entered once")
        self._entered = True
        await trio.lowlevel.checkpoint_if_cancelled()
        now = trio.current_time()
        deadline = math.inf if self._timeout is None else now + self._timeout
        handler = self._channel.find(self.method)
        await self._channel.wait_turn(deadline, self.method.path)
        exchange = self._begin(handler, min(deadline, trio.current_effective_deadline()))
        if deadline < math.inf:
            self._timer = trio.CancelScope()
            self._channel.watch_deadline(exchange, deadline, self._timer)
        return self

    def enter_nowait(self, first: Message | None = None) -> None:
        """Enter it; the channel has given it its turn. The scopes around the caller are not those of the call."""
        self._entered = True
        if first is None:
            self._begin(self._channel.find(self.method), math.inf)
            return
        exchange = self._prepare(math.inf)
        if not self._channel.take_at_once(exchange, first):
            exchange.requests.put_nowait(first)
            self._channel.start(self._channel.find(self.method), exchange)

    def _begin(self, handler: Handler | None, deadline: float) -> Exchange:
        exchange = self._prepare(deadline)
        self._channel.start(handler, exchange)
        return exchange

    def _prepare(self, deadline: float) -> Exchange:
        config = self._channel.config
        self._exchange = exchange = Exchange(self.method, self._metadata, deadline, config, self._waiting)
        self._incoming = exchange.responses
        self._outgoing = exchange.requests
        self._outgoing_type = self.method.request_type
        self._max_bytes = max_bytes(config)
        self._measured = self._max_bytes < UNLIMITED_BYTES
        self._plain = not self._measured
        return exchange

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the call if it has not ended: the handler's scope is cancelled. Nothing here waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._exchange.leave()

    @property
    @override
    def initial_metadata(self) -> Metadata | None:
        exchange = self._exchange
        return exchange.initial_metadata if exchange.headers_sent.is_set() and not exchange.without_headers else None

    @property
    @override
    def trailing_metadata(self) -> Metadata | None:
        return self._exchange.trailing_metadata if self._exchange.over else None

    @override
    async def wait_initial_metadata(self) -> Metadata:
        await self._exchange.headers_sent.wait()
        error = self._exchange.responses.end
        if error is not None and self._exchange.without_headers:
            raise RpcError(error.code, error.message, error.trailing_metadata)
        return self._exchange.initial_metadata

    @override
    async def done_sending(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.done_sending_nowait()

    def ask(self, request: Message, reply: ReplyConsumer) -> None:
        """Send the only request, and have the reply given to somebody; a call that is over has an error for a reply."""
        if not self._exchange.over:
            self.send_nowait(request)
            self.done_sending_nowait()
        self.set_consumer(reply)

    @override
    def done_sending_nowait(self) -> None:
        self._done_sending = True
        self._exchange.requests.finish()

    @override
    def cancel(self) -> None:
        self._exchange.cancel(RpcError(StatusCode.CANCELLED, "the caller cancelled"))


class InProcessChannel(CallOpener):
    """Calls to services of this process: `async with InProcessChannel(services) as channel`.

    The handlers run in tasks of the channel. Leaving the block (or cancelling it) cancels them and waits for them; the
    calls they served end with UNAVAILABLE.

    Args:
        services: what can be called.
        config: its limits on messages, metadata, outboxes and calls hold here too. There are as many calls at a time as
            on all connections of a `Channel` together (`max_concurrent_streams` times `max_channel_connections`), and
            more wait in the same way. With `max_receive_message_bytes` at `UNLIMITED_BYTES` a message is measured only
            where another one waits before it.

    Attributes:
        config: see above.
    """

    def __init__(self, services: Iterable[Service] = (), *, config: RpcConfig | None = None) -> None:
        self.config = config or RpcConfig()
        self._handlers: dict[str, Handler] = {}
        self._takers: dict[str, TakeAtOnce] = {}
        #: Without a task; in the order of their beginnings.
        self._taken: dict[CallServedAtOnce, None] = {}
        self._tasks = OwnNursery()
        self._nursery: trio.Nursery | None = None
        self._tracing: Tracing | None = None
        self._room = trio.Semaphore(self.config.max_concurrent_streams * self.config.max_channel_connections)
        for service in services:
            self.add(service)

    def add(self, service: Service) -> None:
        """Serve one more service from now on; one of the same name is replaced."""
        for name, bound in service.methods.items():
            path = f"/{service.name}/{name}"
            self._handlers[path] = _handler_of(bound.method_fn)
            self._takers.pop(path, None)
            if isinstance(service, BoundService) and name in service.takers:
                self._takers[path] = service.takers[name]

    async def __aenter__(self) -> InProcessChannel:
        """Open the tasks' nursery."""
        self._tracing = tracing_of_run()
        self._nursery = await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Cancel every running handler and wait for it."""
        nursery, self._nursery = self._nursery, None  # who waits for room is turned away
        assert nursery is not None
        nursery.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, value, traceback)
        finally:
            for call in list(self._taken):
                call.finish(RpcError(StatusCode.UNAVAILABLE, _STOPPING))

    @override
    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> InProcessClientCall:
        checked_encoding(compression)
        return InProcessClientCall(self, method, Metadata(metadata), timeout)

    @override
    def call_nowait(
        self, method: Method, *, metadata: MetadataLike = (), first: Message | None = None
    ) -> InProcessClientCall | None:
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            return None
        call = InProcessClientCall(self, method, Metadata(metadata), None)
        call.enter_nowait(first)
        return call

    def unary_nowait(
        self,
        method: Method,
        request: Message,
        on_reply: OnReply,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
    ) -> InProcessClientCall | None:
        """See `CallOpener.unary_nowait`; without a timeout only, because that would need a task."""
        call = self.call_nowait(method, metadata=metadata) if timeout is None else None
        if call is not None:
            call.ask(request, ReplyConsumer(method, on_reply))
        return call

    def find(self, method: Method) -> Handler | None:
        """Return the handler of a method, None when nobody serves it."""
        return self._handlers.get(method.path)

    def take_at_once(self, exchange: Exchange, first: Message) -> bool:
        """Give a call that has its turn to its service without a task, if the service takes it so."""
        take = self._takers.get(exchange.method.path)
        if take is None or self._nursery is None or not fits(exchange.metadata, self.config.max_header_list_bytes):
            return False
        call = CallServedAtOnce(exchange, self._finished)
        self._taken[call] = None
        if take(call, first):
            return True
        del self._taken[call]
        return False

    def _finished(self, call: CallServedAtOnce) -> None:
        del self._taken[call]
        self._room.release()

    async def wait_turn(self, deadline: float, path: str) -> None:
        """Return when there is room for one more call, which `start` must follow. Calls come in in order.

        Raises:
            RpcError: DEADLINE_EXCEEDED, there was none in time.
        """
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            with trio.move_on_at(deadline) as scope:
                await self._room.acquire()
            if scope.cancelled_caught:
                text = f"{path}: the deadline passed while waiting for other calls to end"
                raise RpcError(StatusCode.DEADLINE_EXCEEDED, text) from None

    def start(self, handler: Handler | None, exchange: Exchange) -> None:
        """Run a call's handler in a task of the channel. The call counts until that has ended."""
        path = exchange.method.path
        limit = self.config.max_header_list_bytes
        if not fits(exchange.metadata, limit):
            error = RpcError(StatusCode.RESOURCE_EXHAUSTED, f"metadata is larger than {limit} bytes")
        elif handler is None:
            error = RpcError(StatusCode.UNIMPLEMENTED, f"{path} is not served here")
        elif self._nursery is None:
            error = RpcError(StatusCode.UNAVAILABLE, f"{path}: the channel is closed")
        else:
            self._nursery.start_soon(_run_handler, handler, exchange, self._room, self._tracing, name=path)
            return
        self._room.release()
        exchange.finish(error)

    def watch_deadline(self, exchange: Exchange, deadline: float, scope: trio.CancelScope) -> None:
        """End a call at its deadline, whatever its handler does then; cancelling `scope` stops the watch."""
        if self._nursery is not None:
            self._nursery.start_soon(_end_at, exchange, deadline, scope, name=f"deadline of {exchange.method.path}")


def _handler_of(method_fn: Any) -> Handler:
    # purerpc's container wraps a one-parameter function into one of (arg, request).
    async def handler(call: ServerCall) -> None:
        await method_fn(call, None)

    return handler


async def _end_at(exchange: Exchange, deadline: float, scope: trio.CancelScope) -> None:
    with scope:
        await trio.sleep_until(deadline)
        if not exchange.over:
            exchange.cancel(RpcError(StatusCode.DEADLINE_EXCEEDED, f"{exchange.method.path}: no answer in time"))


async def _run_handler(handler: Handler, exchange: Exchange, room: trio.Semaphore, tracing: Tracing | None) -> None:
    stopping = True
    outcome: RpcError | None = None
    try:
        with exchange.scope as scope:
            call = InProcessServerCall(exchange)
            if tracing is None:
                await handler(call)
            else:
                from trio_cogment.rpc._tracing import served

                with served(tracing, call, local=True):
                    await handler(call)
        if scope.cancelled_caught:
            late = trio.current_time() >= scope.deadline
            code = StatusCode.DEADLINE_EXCEEDED if late else StatusCode.CANCELLED
            outcome = RpcError(code, f"{exchange.method.path}: no answer in time" if late else "cancelled")
            if late:
                exchange.cancel(outcome)  # as `_end_at` in the same turn: the caller finds the same, whoever is first
        stopping = False
    except* Exception as failures:  # noqa: BLE001  the boundary of a call: any failure becomes its status
        # Outside of the scope: user code that is cancelled may fail on its way out, which makes a mixed group.
        outcome, stopping = outcome_of(failures, exchange.method.path), False
    finally:
        try:
            if stopping:
                # Cancelled from outside, often with the whole program. Trio wakes all its tasks in the same turn, in
                # any order; a caller that is one of them must learn of it before it learns what became of this call.
                outcome = RpcError(StatusCode.UNAVAILABLE, _STOPPING)
                await trio.lowlevel.cancel_shielded_checkpoint()
        finally:
            exchange.finish(outcome)
            room.release()
