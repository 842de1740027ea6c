"""The call interface: what a handler and a caller see, the same over HTTP/2 and in process.

A call is a pair of message streams with metadata, a deadline and a final status. Nothing here does I/O; `server`,
`channel` and `inprocess` implement it, and one conformance kit (`trio_cogment.testing.check_channel`) runs on both.

Rules that hold for every implementation:

* Whatever a side sends is its own again at once: the other side gets a copy, so a later change by either is seen by
  nobody else (payload bytes are shared, they cannot change).
* Everything is bounded. `send` waits when the peer does not read; `send_nowait` raises `trio.WouldBlock` instead.
* `send` is all or nothing: after `Cancelled` the message has either been taken whole or not at all. So is
  `send_together`, for all of its messages.
* Every call ends with exactly one status.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from google.protobuf.message import Message
from purerpc import Cardinality

from trio_cogment.access import Identity
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc.metadata import Metadata, Pairs

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # knows defaults, which `typing` learns in Python 3.13

    SentT = TypeVar("SentT", default=Any)
    ReceivedT = TypeVar("ReceivedT", default=Any)
else:
    from typing import TypeVar

    SentT = TypeVar("SentT")
    ReceivedT = TypeVar("ReceivedT")

#: Of a message: it is measured if its size matters.
UNKNOWN_SIZE = -1

MetadataLike: TypeAlias = Pairs | Mapping[str, str | bytes]


@dataclass(frozen=True, slots=True)
class Method(Generic[SentT, ReceivedT]):
    """One method of a service: its path on the wire, its shape and its message types.

    To type checkers it is a `Method[Request, Response]`, where generated code says so, and a `Method[Any, Any]` where
    `methods_of` has made it from a descriptor.
    """

    path: str
    cardinality: Cardinality
    request_type: type[Message]
    response_type: type[Message]


class Consumer(Protocol):
    """Takes a call's messages at the moment they arrive, in the task that brought them.

    Both functions must return at once: no checkpoint, no exception. One that escapes is logged as a bug and ends the
    call with INTERNAL; the consumer is told so, and gets no more messages. Where a receiver would only feed a state
    machine, a consumer saves its task and two task switches for every message.
    """

    def on_message(self, message: Any) -> None:
        """Take one message; it belongs to the consumer."""

    def on_end(self, error: RpcError | None) -> None:
        """Learn that no more messages come: None for an orderly end, else why. Called once."""


class Call(abc.ABC, Generic[SentT, ReceivedT]):
    """What both ends of a call have in common: messages of one type are sent, of another one received."""

    method: Method

    @abc.abstractmethod
    async def receive(self) -> Any:
        """Wait for the next message.

        Returns:
            The message, or None when the peer has sent its last one (and, for a client, the status is OK).

        Raises:
            RpcError: the call ended with a status other than OK. The messages that came before are returned first,
                unless the call was cancelled.
            LocalProtocolError: another task is waiting in `receive` on this call, or the call has a consumer.

        After `Cancelled` no message is lost: the next call to `receive` returns it.
        """

    @abc.abstractmethod
    async def send(self, message: SentT) -> None:
        """Send one message; wait while the peer's window or the outbox of this side is full.

        Raises:
            RpcError: the call is over, so the message cannot be delivered.
            LocalProtocolError: this side has already finished sending, or the message has another type.
        """

    @abc.abstractmethod
    def send_nowait(self, message: SentT) -> None:
        """Send one message without waiting.

        Raises:
            trio.WouldBlock: the call's bounded outbound buffer is full; the message was not taken.
            RpcError, LocalProtocolError: as `send`.
        """

    async def hand_over(self, message: SentT | SharedMessage) -> None:
        """Send one message that nobody else uses any more, as `send`: in process it is not copied.

        Args:
            message: not to be changed afterwards, unless it was not taken. A `SharedMessage` is not encoded, either,
                unless the receiver needs that.

        Raises:
            RpcError, LocalProtocolError: as `send`.
        """
        await (self.send_shared(message) if isinstance(message, SharedMessage) else self.send(message))

    def hand_over_nowait(self, message: SentT | SharedMessage, size: int = UNKNOWN_SIZE) -> None:
        """Send one message that nobody else uses any more, without waiting: in process it is not copied.

        Args:
            message: see `hand_over`.
            size: about this many bytes, for what limits the buffer; by default it is measured where that matters.

        Raises:
            trio.WouldBlock, RpcError, LocalProtocolError: as `send_nowait`.
        """
        if isinstance(message, SharedMessage):
            self.send_shared_nowait(message)
        else:
            self.send_nowait(message)

    @abc.abstractmethod
    async def send_together(self, messages: Sequence[SentT | SharedMessage]) -> None:
        """Send messages that nobody else uses any more in one go, as if they were one: nothing comes in between.

        Over a socket they leave together. In process they are not copied. Where room is made for one message, it is
        for all of these.

        Args:
            messages: see `hand_over`.

        Raises:
            RpcError, LocalProtocolError: as `send`; for one that is too large, none is sent.
        """

    @abc.abstractmethod
    def send_together_nowait(self, messages: Sequence[SentT | SharedMessage]) -> None:
        """As `send_together`, without waiting.

        Raises:
            trio.WouldBlock, RpcError, LocalProtocolError: as `send_nowait`; no message was taken.
        """

    async def send_shared(self, message: SharedMessage) -> None:
        """Send one message as `send` does, without a copy of what it shares with others.

        Raises:
            RpcError, LocalProtocolError: as `send`.
        """
        whole: Any = message.whole()
        await self.send(whole)

    def send_shared_nowait(self, message: SharedMessage) -> None:
        """As `send_shared`, without waiting.

        Raises:
            trio.WouldBlock, RpcError, LocalProtocolError: as `send_nowait`.
        """
        whole: Any = message.whole()
        self.hand_over_nowait(whole)

    def put_shared(self, message: SharedMessage) -> Callable[[], None] | None:
        """Put one message into the output of the connection, where that is all that `send_shared_nowait` would do.

        Returns:
            Has the output sent soon; call it, once for as many messages as have it in common. None: nothing has been
            done, and `send_shared_nowait` sends the message.
        """
        return None

    @property
    def passes_objects(self) -> bool:
        """Whether the other end is in this process, and gets a `SharedMessage` as the object that it is."""
        return False

    def accept_shared(self) -> None:
        """Say that the receiver changes no messages, and knows `SharedMessage`.

        What it receives from now on may then be one, as it was sent: in process that saves a message for each receiver.
        """

    def accept_encoded(self) -> None:
        """Say that the consumer, which is to be set next, takes messages as bytes, too, and parses them itself.

        What it is given may then be the bytes of a message, as they came, which need not be a valid one. Large ones,
        and those of a call that passes objects, are parsed as ever.
        """

    def flush_next(self) -> None:
        """Let the next message leave at once, if that goes without waiting: nothing follows before the peer answers.

        Other messages leave when the task gives way to others, together with what these send.
        """

    @abc.abstractmethod
    def set_consumer(self, consumer: Consumer) -> None:
        """Hand everything received from now on (and what waits already, before this returns) to `consumer`.

        `receive` cannot be used afterwards, and a call has one consumer.

        Raises:
            LocalProtocolError: the call has a consumer, or a task is waiting in `receive`.
        """

    @abc.abstractmethod
    def pause(self) -> None:
        """Stop handing messages to the consumer: they wait, bounded, and then the peer's `send` waits.

        An orderly end, and an error that comes after messages that wait, are told after `resume`. An error with
        nothing before it, or one that drops what waits (the call was cancelled), is told at once.
        """

    @abc.abstractmethod
    def resume(self) -> None:
        """Undo `pause`; what waits is handed over before this returns."""

    def __aiter__(self) -> Call[SentT, ReceivedT]:
        return self

    async def __anext__(self) -> ReceivedT:
        message: ReceivedT | None = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message


#: The `peer` of a call from this process.
IN_PROCESS = "inprocess"


class ServerCall(Call[SentT, ReceivedT]):
    """A call as its handler sees it.

    The handler's task runs in a cancel scope that the call's deadline, RST_STREAM by the peer and loss of the
    connection cancel. Returning ends the call with OK; raising a `CogmentError` ends it with that error's status.

    Attributes:
        metadata: what the caller sent.
        peer: where the caller is, for logs (`ipv4:127.0.0.1:53412`, `inprocess`).
        identity: who the caller is, and what it may do.
        deadline: on Trio's clock, `math.inf` without one.
    """

    metadata: Metadata
    peer: str
    identity: Identity
    deadline: float

    @property
    def batch(self) -> int:
        """A number that is the same for messages that have come together, in one turn of the connection.

        With another number everybody has had a turn meanwhile. In process it does not change.
        """
        return 0

    def under_way(self) -> tuple[int, int]:
        """Return how many bytes have come and were not taken, and how many wait to be sent; 0 in process."""
        return 0, 0

    @abc.abstractmethod
    def set_initial_metadata(self, metadata: MetadataLike) -> None:
        """Choose what goes out with the response headers.

        Raises:
            LocalProtocolError: the headers have gone out with the first message.
        """

    @abc.abstractmethod
    def set_trailing_metadata(self, metadata: MetadataLike) -> None:
        """Choose what goes out with the status."""

    @abc.abstractmethod
    def set_compression(self, compression: str) -> None:
        """Compress responses from now on with "gzip" or "deflate", if the caller accepts that ("identity": do not).

        Those that would not become smaller are sent as they are, and in process all are.

        Raises:
            ValueError: it is none of these.
            LocalProtocolError: the headers have gone out with the first message.
        """

    @abc.abstractmethod
    async def send_initial_metadata(self) -> None:
        """Send the response headers now, before any message: the caller learns that the call was accepted."""


class ClientCall(Call[SentT, ReceivedT], AbstractAsyncContextManager["ClientCall[SentT, ReceivedT]"]):
    """A call as its caller sees it: an async context manager.

    Leaving the block before the call has ended cancels it: the peer gets RST_STREAM(CANCEL), and its handler's scope is
    cancelled. Nothing of the call is left after the block.
    """

    @property
    @abc.abstractmethod
    def initial_metadata(self) -> Metadata | None:
        """What came with the response headers; None before they came."""

    @property
    @abc.abstractmethod
    def trailing_metadata(self) -> Metadata | None:
        """What came with the status; None before it came."""

    @abc.abstractmethod
    async def wait_initial_metadata(self) -> Metadata:
        """Wait for the response headers (empty when the server answered with a status only).

        Raises:
            RpcError: the call failed before.
        """

    @abc.abstractmethod
    async def done_sending(self) -> None:
        """Tell the peer that no more messages come (half-close). Everything sent before arrives first."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """End the call now, from any task: RST_STREAM(CANCEL). Waiting and later operations raise CANCELLED."""


class DirectCall(ClientCall):
    """A call that has been opened by `CallOpener.call_nowait`: it has been entered, and is not to be entered again."""

    @abc.abstractmethod
    def done_sending_nowait(self) -> None:
        """Tell the peer that no more messages come, as `done_sending` does."""


class ServedAtOnce(ServerCall):
    """A call that its service has taken without a task of its own: it lasts until `finish`."""

    @abc.abstractmethod
    def finish(self, error: RpcError | None = None) -> None:
        """End the call with OK, after what has been sent, or with an error; nothing happens the second time."""


#: Takes a call with its first message, or returns False and has done nothing. See `service.bind`.
TakeAtOnce: TypeAlias = Callable[[ServedAtOnce, Any], bool]


class CallOpener(abc.ABC):
    """Where calls are made: a channel to a socket, or the services of this process."""

    @abc.abstractmethod
    def call(
        self,
        method: Method[SentT, ReceivedT],
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ClientCall[SentT, ReceivedT]:
        """Open a call of any cardinality; use it as `async with channel.call(...) as call`.

        Entering connects if need be and sends the headers. The deadline sent to the peer is the nearer of `timeout`
        (seconds) and the deadline of the surrounding cancel scopes.

        With `wait_for_ready`, entering waits while the peer cannot be reached; in process it always can.

        With `compression`, "gzip" or "deflate", requests are compressed, those at least that become smaller by it;
        with "identity" they are not, whatever the channel's default. In process nothing ever is. Responses are
        decompressed in any case.

        Raises:
            TypeError: `method` is no `Method`.
            ValueError: `timeout` is not a number, or `compression` none of these.
            RpcError: on entering, UNAVAILABLE if the peer cannot be reached, DEADLINE_EXCEEDED if that took too long.
        """

    def call_nowait(
        self, method: Method, *, metadata: MetadataLike = (), first: Message | None = None
    ) -> DirectCall | None:
        """Open a call without waiting, where that is possible: in process; None elsewhere, and where it would wait.

        No block ends such a call, so that a stream that waits for nothing needs no task: whoever opened it cancels it,
        or has seen its end.

        Args:
            method: of any cardinality.
            metadata: sent with it.
            first: the first message, not to be changed afterwards. A service that can (`service.bind`) takes the call
                with it at once, and needs no task for it either.
        """
        return None

    def unary_nowait(
        self,
        method: Method,
        request: Message,
        on_reply: OnReply,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
    ) -> ClientCall | None:
        """Send one request without waiting, where that is possible: in process, or to a server that is connected.

        None elsewhere, and where it would wait.

        No task waits for the response: `on_reply` is called by whoever brings it, with the response or with the error,
        and once. It must not raise. Cancelling the call that is returned is an error like any other.

        Args:
            method: with one request and one response.
            request: see above.
            on_reply: see above.
            metadata: sent with it.
            timeout: in seconds.
        """
        return None

    async def unary(
        self,
        method: Method[SentT, ReceivedT],
        request: SentT,
        *,
        metadata: MetadataLike = (),
        timeout: float | None = None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> ReceivedT:
        """Send one request and return the one response.

        Raises:
            TypeError, ValueError: as `call`.
            RpcError: a status other than OK; UNIMPLEMENTED when the peer sent no response or more than one.
        """
        async with self.call(
            method, metadata=metadata, timeout=timeout, wait_for_ready=wait_for_ready, compression=compression
        ) as call:
            try:
                await call.send(request)
                await call.done_sending()
            except RpcError as error:
                # A server may refuse before it has read the request: its status says more than the failed send.
                if error.code is not StatusCode.CANCELLED:
                    raise
            return await only_response(call, method)


async def only_response(call: ClientCall[SentT, ReceivedT], method: Method) -> ReceivedT:
    """Return the response of a call that has one.

    Raises:
        RpcError: a status other than OK; UNIMPLEMENTED when the peer sent no response or more than one.
    """
    response: ReceivedT | None = await call.receive()
    if response is None:
        raise RpcError(StatusCode.UNIMPLEMENTED, f"{method.path}: no response message")
    if await call.receive() is not None:
        raise RpcError(StatusCode.UNIMPLEMENTED, f"{method.path}: more than one response message")
    return response


#: Takes the response to a call, or the error that it has ended with.
OnReply: TypeAlias = Callable[[Any, "RpcError | None"], None]


class ReplyConsumer:
    """Waits for the one response of a call, and passes it on."""

    def __init__(self, method: Method, on_reply: OnReply) -> None:
        self._method = method
        self._on_reply = on_reply
        self._replies: list[Any] = []

    def on_message(self, message: Any) -> None:
        """See `Consumer.on_message`."""
        self._replies.append(message)

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        if error is None and len(self._replies) != 1:
            how_many = "more than one response message" if self._replies else "no response message"
            error = RpcError(StatusCode.UNIMPLEMENTED, f"{self._method.path}: {how_many}")
        self._on_reply(None if error is not None else self._replies[0], error)


def checked_method(method: Method) -> Method:
    """Return a call's method; raise TypeError for what is none, such as its name."""
    if not isinstance(method, Method):
        raise TypeError(f"method: expected an rpc.Method, as rpc.methods_of(service)[name] is one, got {method!r}")
    return method


def checked_timeout(timeout: float | None) -> float | None:
    """Return a call's timeout; raise ValueError for one that no clock can compare with."""
    if timeout is not None and math.isnan(timeout):
        raise ValueError("timeout: expected a number of seconds, got NaN")
    return timeout


#: Every method of a served service comes down to this; `service.bind` makes it from friendlier shapes.
Handler: TypeAlias = Callable[[ServerCall], Awaitable[None]]
