"""A call on its way back to a browser: its headers, messages and status become bytes of the connection."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio
from purerpc import Cardinality

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc import Metadata
from trio_cogment.rpc.relay import RelayedCall, RelayRoute, Writer, trailer_headers
from trio_cogment.web.frames import fields_frame, message_frame
from trio_cogment.web.output import Pending

_SINGLE = (Cardinality.UNARY_UNARY, Cardinality.STREAM_UNARY)


class Answering(abc.ABC):
    """What both ways of a call to a browser have in common; a subclass says how bytes are wrapped.

    It is the call's consumer: a message goes into the connection's output in the task that has sent it. Where more is
    waiting there than the limit, it pauses the call, whose handler waits then.

    Args:
        output: of the connection.
        writer: of the connection.
        route: what is called; None: nothing is served there, and it is refused.
        high_water_bytes: the limit.

    Attributes:
        prompt: the caller has sent something since the last answer, and so it waits: the next message leaves at once.
        over: the status has been put into the output.
    """

    def __init__(self, output: Pending, writer: Writer, route: RelayRoute | None, high_water_bytes: int) -> None:
        self.prompt = False
        self.over = trio.Event()
        self._output = output
        self._writer = writer
        self._high_water_bytes = high_water_bytes
        self._holds = (
            route is not None and route.method.cardinality in _SINGLE
        )  # its message leaves together with the status
        self._opened = False
        self._paused = False
        self._call: RelayedCall | None = None
        self.code = StatusCode.CANCELLED

    @abc.abstractmethod
    def opening(self, metadata: Metadata) -> bytes:
        """Return what goes before the first message."""

    @abc.abstractmethod
    def wrapped(self, frame: bytes) -> bytes:
        """Return a frame as it travels."""

    def shared(self, message: SharedMessage) -> Sequence[bytes]:
        """Return a message as it travels, in pieces that belong together; large ones are nobody's copy."""
        return (self.wrapped(message_frame(message.payload())),)

    @abc.abstractmethod
    def closing(self) -> bytes:
        """Return what follows the status."""

    # --- one call ---

    async def run(self, call: RelayedCall, farewell_seconds: float) -> None:
        """Bring everything to the caller, until the status has been put into the output.

        On cancellation the handler has half of `farewell_seconds` to end by itself, and what it says then is sent.
        """
        self._call = call
        try:
            await self._attach(call)
            await self.over.wait()
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + farewell_seconds / 2):
                await self._attach(call)
                await self.over.wait()
            if not self.over.is_set():
                self.refuse(RpcError(StatusCode.UNAVAILABLE, "the server is stopping"))
            raise
        finally:
            self._output.listener = None

    async def _attach(self, call: RelayedCall) -> None:
        if self._output.listener is self:
            return
        metadata = Metadata()
        try:
            metadata = await call.wait_initial_metadata()
        except RpcError:
            pass  # the consumer is told
        self._output.listener = self
        self._writer.in_batch = True
        try:
            self._open(metadata)
            call.set_consumer(self)
        finally:
            self._writer.in_batch = False
        self._writer.flush()

    def refuse(self, error: RpcError) -> None:
        """Answer with a status alone."""
        if not self.over.is_set():
            self.on_end(error)
            self._writer.flush()

    def _open(self, metadata: Metadata) -> None:
        if not self._opened:
            self._opened = True
            self._output.add(self.opening(metadata))

    # --- the consumer ---

    def on_message(self, message: Any) -> None:
        """See `Consumer.on_message`."""
        output = self._output
        if isinstance(message, SharedMessage):
            output.add(*self.shared(message))
        else:
            output.add(self.wrapped(message_frame(message.SerializeToString())))
        if output.out_size > self._high_water_bytes and self._call is not None:
            self._paused = True
            self._call.pause()
            self._writer.wake()
        elif self._holds:
            return
        elif self.prompt:
            self.prompt = False
            self._writer.flush_soon()
        else:
            self._writer.wake()

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        if self.over.is_set():
            return
        self._open(Metadata())
        self.code = StatusCode.OK if error is None else error.code
        message = "" if error is None else error.message
        fields = trailer_headers(self.code, message, self._trailing(error))
        try:
            self._output.add(self.wrapped(fields_frame(fields)) + self.closing())
        finally:
            self.over.set()
        self._writer.flush_soon()

    def _trailing(self, error: RpcError | None) -> Metadata:
        if error is not None:
            return Metadata.from_wire(error.trailing_metadata)
        found = None if self._call is None else self._call.trailing_metadata
        return found or Metadata()

    # --- the output's room ---

    @property
    def call(self) -> Answering:
        """See `output.RoomListener`."""
        return self

    def on_room(self) -> None:
        """Some output has been taken."""
        if self._paused and self._output.out_size <= self._high_water_bytes // 2 and self._call is not None:
            self._paused = False
            self._call.resume()


async def relayed(
    call: RelayedCall,
    route: RelayRoute,
    answering: Answering,
    requests: Callable[[RelayedCall], Awaitable[None]],
    farewell_seconds: float,
) -> None:
    """Serve one call from its head to its status.

    Args:
        call: not entered yet.
        route: what is called.
        answering: takes what comes back.
        requests: passes on what the caller sends; it is cancelled when the call is over.
        farewell_seconds: see `Answering.run`.
    """
    began = trio.current_time()
    if route.observer is not None:
        route.observer.started()
    try:
        async with call, trio.open_nursery() as nursery:
            call.accept_shared()  # so there is room for what many get before it is made for this one
            nursery.start_soon(requests, call)
            await answering.run(call, farewell_seconds)
            nursery.cancel_scope.cancel()
    finally:
        if route.observer is not None:
            route.observer.ended(answering.code, trio.current_time() - began)
