"""Interceptors: functions around every call of a server or of a channel, for logs, times, rights, metadata.

On a server an interceptor is a coroutine function that gets the call and what serves it. On a channel it is an object
with a method for calls as blocks and one for calls with one request and one response; both pass the call on unless they
are overridden. The first interceptor is the outermost, as in grpc.

An interceptor that wants to see messages passes on a `ServerCallWrapper` or `ClientCallWrapper` in place of the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias

from google.protobuf.message import Message
from purerpc import Service
from typing_extensions import override

from trio_cogment.base.errors import RpcError
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc._compression import checked_encoding
from trio_cogment.rpc.calls import (
    UNKNOWN_SIZE,
    Call,
    CallOpener,
    ClientCall,
    Consumer,
    Handler,
    MetadataLike,
    Method,
    ServerCall,
    checked_method,
    checked_timeout,
)
from trio_cogment.rpc.metadata import Metadata

#: `async def interceptor(call, handler)`: awaits `handler(call)`, or raises an `RpcError` in its place. What is raised
#: ends the call, as what a handler raises does.
ServerInterceptor: TypeAlias = Callable[[ServerCall, Handler], Awaitable[None]]


def intercept_services(services: Iterable[Service], *interceptors: ServerInterceptor) -> list[Service]:
    """Return services whose calls go through interceptors, for `serve` and `InProcessChannel`.

    Calls of this process that a service would take without a task (`bind`) get one.

    Args:
        services: as `bind` returns them. They are left as they are.
        interceptors: the first is the outermost.
    """
    return [_intercepted(service, interceptors) for service in services]


def _intercepted(service: Service, interceptors: Sequence[ServerInterceptor]) -> Service:
    made = Service(service.name)
    for name, bound in service.methods.items():
        handler: Handler = partial(_served, bound.method_fn)
        for interceptor in reversed(interceptors):
            handler = partial(_through, interceptor, handler)
        made.add_method(name, handler, bound.signature)
    return made


async def _served(method_fn: Callable[[ServerCall, None], Awaitable[None]], call: ServerCall) -> None:
    await method_fn(call, None)


async def _through(interceptor: ServerInterceptor, handler: Handler, call: ServerCall) -> None:
    await interceptor(call, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDetails:
    """A call as it is about to be made; `dataclasses.replace` makes another one of it.

    Attributes:
        method: which one is called.
        metadata: what is sent with it.
        timeout: in seconds; None: as long as the scopes around it allow.
        wait_for_ready: whether it waits for a peer that cannot be reached.
        compression: of requests; None: the channel's.
    """

    method: Method
    metadata: Metadata
    timeout: float | None = None
    wait_for_ready: bool = False
    compression: str | None = None


class ClientInterceptor:
    """Functions around the calls of a channel. Each passes on what it gets unless it is overridden."""

    def intercept_call(
        self, details: CallDetails, continuation: Callable[[CallDetails], AbstractAsyncContextManager[ClientCall]]
    ) -> AbstractAsyncContextManager[ClientCall]:
        """Return the block of a call that is opened with `CallOpener.call`, of any shape.

        Args:
            details: what the caller asks for.
            continuation: returns the call's block; what it raises, and what the caller's block raises, can be seen
                around it. It is entered once at most.
        """
        return continuation(details)

    async def intercept_unary(
        self, details: CallDetails, request: Any, continuation: Callable[[CallDetails, Any], Awaitable[Any]]
    ) -> Any:
        """Return the response to a request that is sent with `CallOpener.unary`.

        Args:
            details: what the caller asks for.
            request: the message.
            continuation: sends a request and returns the response. It may be awaited several times, or never.
        """
        return await continuation(details, request)


def intercept_channel(channel: CallOpener, *interceptors: ClientInterceptor) -> CallOpener:
    """Return what makes a channel's calls through interceptors.

    Args:
        channel: an open channel, whose block goes on to be its own.
        interceptors: the first is the outermost.
    """
    return _InterceptedChannel(channel, interceptors)


class _InterceptedChannel(CallOpener):
    def __init__(self, channel: CallOpener, interceptors: Sequence[ClientInterceptor]) -> None:
        self._channel = channel
        self._interceptors = interceptors

    @override
    def call(
        self,
        method: Method,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall:
        block: Callable[[CallDetails], AbstractAsyncContextManager[ClientCall]] = self._call
        for interceptor in reversed(self._interceptors):
            block = partial(interceptor.intercept_call, continuation=block)
        details = _details(method, metadata, timeout, wait_for_ready, compression)
        return _InterceptedCall(details.method, block(details))

    def _call(self, details: CallDetails) -> ClientCall:
        return self._channel.call(
            details.method,
            metadata=details.metadata,
            timeout=details.timeout,
            wait_for_ready=details.wait_for_ready,
            compression=details.compression,
        )

    @override
    async def unary(
        self,
        method: Method,
        request: Any,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> Any:
        send: Callable[[CallDetails, Any], Awaitable[Any]] = self._unary
        for interceptor in reversed(self._interceptors):
            send = partial(interceptor.intercept_unary, continuation=send)
        return await send(_details(method, metadata, timeout, wait_for_ready, compression), request)

    async def _unary(self, details: CallDetails, request: Any) -> Any:
        return await self._channel.unary(
            details.method,
            request,
            metadata=details.metadata,
            timeout=details.timeout,
            wait_for_ready=details.wait_for_ready,
            compression=details.compression,
        )


def _details(
    method: Method, metadata: MetadataLike, timeout: float | None, wait_for_ready: bool, compression: str | None
) -> CallDetails:
    return CallDetails(
        method=checked_method(method),
        metadata=Metadata(metadata),
        timeout=checked_timeout(timeout),
        wait_for_ready=wait_for_ready,
        compression=checked_encoding(compression),
    )


class _CallWrapper(Call):
    """Passes everything on to another call, and tells its own functions of messages."""

    _inner: Call

    def on_sent(self, message: Any) -> None:
        """Learn of a message that has been taken for sending; it is the sender's, and may be changed afterwards."""

    def on_received(self, message: Any) -> None:
        """Learn of a message that has come, before its receiver does; it is the receiver's, and not to be changed."""

    async def receive(self) -> Any:
        message = await self._inner.receive()
        if message is not None:
            self.on_received(message)
        return message

    async def send(self, message: Message) -> None:
        await self._inner.send(message)
        self.on_sent(message)

    def send_nowait(self, message: Message) -> None:
        self._inner.send_nowait(message)
        self.on_sent(message)

    def hand_over_nowait(self, message: Message | SharedMessage, size: int = UNKNOWN_SIZE) -> None:
        message = _whole(message)
        self._inner.send_nowait(message)  # a copy: who gets it may change what `on_sent` keeps
        self.on_sent(message)

    async def send_together(self, messages: Sequence[Message | SharedMessage]) -> None:
        whole = [_whole(message) for message in messages]
        await self._inner.send_together(whole)
        for message in whole:
            self.on_sent(message)

    def send_together_nowait(self, messages: Sequence[Message | SharedMessage]) -> None:
        whole = [_whole(message) for message in messages]
        self._inner.send_together_nowait(whole)
        for message in whole:
            self.on_sent(message)

    async def send_shared(self, message: SharedMessage) -> None:
        await self._inner.send_shared(message)
        self.on_sent(message.whole())

    def send_shared_nowait(self, message: SharedMessage) -> None:
        self._inner.send_shared_nowait(message)
        self.on_sent(message.whole())

    def flush_next(self) -> None:
        self._inner.flush_next()

    def set_consumer(self, consumer: Consumer) -> None:
        self._inner.set_consumer(_ConsumerWrapper(self, consumer))

    def pause(self) -> None:
        self._inner.pause()

    def resume(self) -> None:
        self._inner.resume()


def _whole(message: Message | SharedMessage) -> Message:
    return message.whole() if isinstance(message, SharedMessage) else message


class _ConsumerWrapper:
    def __init__(self, call: _CallWrapper, consumer: Consumer) -> None:
        self._call = call
        self._consumer = consumer

    def on_message(self, message: Any) -> None:
        self._call.on_received(message)
        self._consumer.on_message(message)

    def on_end(self, error: RpcError | None) -> None:
        self._consumer.on_end(error)


class ServerCallWrapper(_CallWrapper, ServerCall):
    """A call that passes everything on to another one: override what is to be seen.

    Args:
        call: the other one.
    """

    _inner: ServerCall

    def __init__(self, call: ServerCall) -> None:
        self._inner = call
        self.method = call.method
        self.metadata = call.metadata
        self.peer = call.peer
        self.identity = call.identity
        self.deadline = call.deadline

    @property
    @override
    def batch(self) -> int:
        return self._inner.batch

    @override
    def under_way(self) -> tuple[int, int]:
        return self._inner.under_way()

    @override
    def set_initial_metadata(self, metadata: MetadataLike) -> None:
        self._inner.set_initial_metadata(metadata)

    @override
    def set_trailing_metadata(self, metadata: MetadataLike) -> None:
        self._inner.set_trailing_metadata(metadata)

    @override
    def set_compression(self, compression: str) -> None:
        self._inner.set_compression(compression)

    @override
    async def send_initial_metadata(self) -> None:
        await self._inner.send_initial_metadata()


class ClientCallWrapper(_CallWrapper, ClientCall):
    """A call that passes everything on to another one, which has been entered: override what is to be seen.

    Args:
        call: the other one.
    """

    _inner: ClientCall

    def __init__(self, call: ClientCall) -> None:
        self._inner = call
        self.method = call.method

    async def __aenter__(self) -> ClientCallWrapper:
        """Do nothing: the other call has been entered."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Do nothing: whoever has entered the other call leaves it."""
        return None

    @property
    @override
    def initial_metadata(self) -> Metadata | None:
        return self._inner.initial_metadata

    @property
    @override
    def trailing_metadata(self) -> Metadata | None:
        return self._inner.trailing_metadata

    @override
    async def wait_initial_metadata(self) -> Metadata:
        return await self._inner.wait_initial_metadata()

    @override
    async def done_sending(self) -> None:
        await self._inner.done_sending()

    @override
    def cancel(self) -> None:
        self._inner.cancel()


class _InterceptedCall(ClientCallWrapper):
    """The call of a block that interceptors have made: it is theirs once the block has been entered."""

    def __init__(self, method: Method, block: AbstractAsyncContextManager[ClientCall]) -> None:
        self.method = method
        self._block = block

    async def __aenter__(self) -> ClientCallWrapper:
        self._inner = await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, value, traceback)
