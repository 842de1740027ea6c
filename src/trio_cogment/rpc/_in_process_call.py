"""Shared state of the two ends of a call within a process: two queues, the status, and how both send and receive.

A protobuf message can be changed after it was sent. Over a network that does no harm, as it is serialized when it is
sent. Within a process the receiver would see the change. So `End.send` copies each message once, and the copy belongs
to the receiver alone.

A sender that gives its message away (`hand_over_nowait`) saves the copy. It also says about how large the message is,
because `ByteSize` costs nearly as much as copying. That number only bounds the queue: where a message size limit is
configured (`_measured`), the message is measured all the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import trio
from google.protobuf.message import Message

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.budget.waiting_bytes import WaitingBytes
from trio_cogment.rpc._borrowing_queue import BorrowingQueue
from trio_cogment.rpc._grpc_headers import metadata_bytes
from trio_cogment.rpc._in_process_queue import MessageQueue
from trio_cogment.rpc.calls import UNKNOWN_SIZE, Consumer, Method
from trio_cogment.rpc.metadata import Metadata

#: As `RpcConfig.max_receive_message_bytes`: any message passes, as protobuf has none that is larger. Finding out how
#: large one is costs as much as copying it, which is then saved.
UNLIMITED_BYTES = 2**31 - 1

_OVER = "the call is over"
_NO_METADATA = Metadata()
_BYTE_SIZE = methodcaller("ByteSize")


def max_bytes(config: RpcConfig) -> int:
    """Return what a message may have: one limit counts on its way out, one on its way in, and here both at once."""
    least = config.max_send_message_bytes
    return config.max_receive_message_bytes if least is None else min(least, config.max_receive_message_bytes)


def fits(metadata: Metadata, limit: int) -> bool:
    """Whether metadata are within the limit, as they would be encoded; nearly always that is clear without encoding."""
    bound = 0
    for name, value in metadata:
        bound += len(name) + 2 * len(value) + 36
    return bound <= limit or metadata_bytes(metadata) <= limit


class Exchange:
    """What the two ends of a call share.

    Args:
        method: that is called.
        metadata: of the request.
        deadline: of the call.
        config: its limits.
        waiting: to which the bytes of requests belong that wait, and those of responses; None: they are nobody's.
    """

    def __init__(
        self,
        method: Method,
        metadata: Metadata,
        deadline: float,
        config: RpcConfig,
        waiting: tuple[WaitingBytes, WaitingBytes] | None = None,
    ) -> None:
        self.method = method
        self.config = config
        self.metadata = metadata
        self.scope = trio.CancelScope(deadline=deadline)
        # What is not in a cycle of references is gone with its call, and not when garbage is collected next.
        cancel = _cancelling(self)
        self.borrows = waiting is not None
        self.requests = self._queue(cancel, None if waiting is None else waiting[0])
        self.responses = self._queue(cancel, None if waiting is None else waiting[1])
        self.initial_metadata = _NO_METADATA
        self.trailing_metadata = _NO_METADATA
        self.headers_sent = trio.Event()
        self.without_headers = False  # it was ended by the caller, or for it, before any came

    def _queue(self, on_consumer_failed: Callable[[RpcError], None], waiting: WaitingBytes | None) -> MessageQueue:
        config = self.config
        if waiting is not None:
            return BorrowingQueue(
                config.call_outbox_messages,
                config.call_outbox_bytes,
                waiting,
                size_of=_BYTE_SIZE,
                on_consumer_failed=on_consumer_failed,
                name=self.method.path,
            )
        return MessageQueue(
            config.call_outbox_messages,
            config.call_outbox_bytes,
            size_of=_BYTE_SIZE,
            on_consumer_failed=on_consumer_failed,
            name=self.method.path,
        )

    @property
    def over(self) -> bool:
        return self.responses.ended

    def send_headers(self) -> None:
        """Let the caller have the initial metadata."""
        if not self.headers_sent.is_set() and self._fits(self.initial_metadata):
            self.headers_sent.set()

    def _fits(self, metadata: Metadata) -> bool:
        """Whether metadata of the response are within the limit; else that ends the call."""
        limit = self.config.max_header_list_bytes
        if fits(metadata, limit):
            return True
        self.cancel(RpcError(StatusCode.RESOURCE_EXHAUSTED, f"response metadata is larger than {limit} bytes"))
        return False

    def finish(self, error: RpcError | None) -> None:
        """Give the call its status; only the first counts."""
        if self.responses.ended:
            return
        if error is not None and (error.trailing_metadata or self.trailing_metadata):
            trailing = Metadata.from_wire((*self.trailing_metadata, *error.trailing_metadata))  # checked already
            self.trailing_metadata = trailing
            error = RpcError(error.code, error.message, trailing)
        self.send_headers()
        if self.responses.ended or not self._fits(self.trailing_metadata):
            self.trailing_metadata = _NO_METADATA
            return
        self.responses.finish(error)
        if not self.requests.is_over():
            self.requests.abort(RpcError(StatusCode.CANCELLED, _OVER))

    def leave(self) -> None:
        """End the call because its caller leaves it."""
        # Whatever has ended it has also seen to its handler: that has returned, or its scope is cancelled.
        if not self.responses.is_over():
            self.cancel(RpcError(StatusCode.CANCELLED, "the caller left"))

    def cancel(self, error: RpcError) -> None:
        """End the call from the client's side, whatever is still queued."""
        if not self.headers_sent.is_set():
            self.without_headers = True
            self.headers_sent.set()
        self.responses.abort(error)
        self.requests.abort(error)
        self.scope.cancel()


def _cancelling(exchange: Exchange) -> Callable[[RpcError], None]:
    reference = weakref.ref(exchange)

    def cancel(error: RpcError) -> None:
        exchange = reference()
        if exchange is not None:
            exchange.cancel(error)

    return cancel


class End:
    """What both ends do alike: one queue to read, one to write."""

    method: Method
    _exchange: Exchange
    _incoming: MessageQueue
    _outgoing: MessageQueue
    _outgoing_type: type[Message]
    _max_bytes: int
    _measured: bool  # `_max_bytes` means something
    _plain = False  # messages are not measured, and nothing goes before the next one
    _done_sending = False

    async def receive(self) -> Any:
        return await self._incoming.get()

    # "Now, or say no" is the primitive; who waits makes sure of room first.

    def hand_over_nowait(self, message: Message | SharedMessage, size: int = UNKNOWN_SIZE) -> None:
        kind, outgoing = self._outgoing_type, self._outgoing
        consumer = outgoing.direct
        if (
            consumer is not None
            and self._plain
            and not self._done_sending
            and (
                type(message) is kind  # or as `_passes`, without its call
                or (outgoing.takes_shared and isinstance(message, SharedMessage) and message.kind is kind)
            )
        ):
            # The usual case of a trial's messages, without another call: as `_put`, and as `MessageQueue.put_nowait`.
            try:
                consumer.on_message(message)
            except Exception:  # noqa: BLE001  the boundary between a call and its consumer: it ends the call
                outgoing.consumer_failed()
            return
        self._put(message, UNKNOWN_SIZE if self._measured else size)

    async def hand_over(self, message: Message | SharedMessage) -> None:
        self.hand_over_nowait(message, await self._wait_room((message,)))

    def send_nowait(self, message: Message) -> None:
        self.hand_over_nowait(self._copied(message))

    async def send(self, message: Message) -> None:
        await self.hand_over(self._copied(message))

    send_shared_nowait = hand_over_nowait

    async def send_shared(self, message: SharedMessage) -> None:
        await self.hand_over(message)

    @property
    def passes_objects(self) -> bool:
        return self._outgoing.takes_shared

    def accept_shared(self) -> None:
        self._incoming.takes_shared = True

    def send_together_nowait(self, messages: Sequence[Message | SharedMessage]) -> None:
        self._put_together(messages, UNKNOWN_SIZE)

    async def send_together(self, messages: Sequence[Message | SharedMessage]) -> None:
        self._put_together(messages, await self._wait_room(messages))

    def _put_together(self, messages: Sequence[Message | SharedMessage], size: int) -> None:
        outgoing = self._outgoing
        wrong = self._measured or self._done_sending or outgoing.ended
        for message in messages:
            wrong = wrong or not self._passes(message)
        if wrong:
            self._check_together(messages)
            messages = [self._as_taken(message) for message in messages]
        outgoing.put_together_nowait(messages, size)

    async def _wait_room(self, messages: Sequence[Message | SharedMessage]) -> int:
        """Return when there is room for these messages, and their size if it matters.

        Raises:
            RpcError, LocalProtocolError: as `Call.send`.
        """
        outgoing = self._outgoing
        if not outgoing.is_busy():
            await trio.lowlevel.checkpoint_if_cancelled()
            return UNKNOWN_SIZE
        size = self._check_together(messages)
        await outgoing.wait_room(size)
        return size

    def _check_together(self, messages: Sequence[Message | SharedMessage]) -> int:
        """Return the size of all messages; raise what `Call.send` says if one cannot be sent."""
        for message in messages:
            self._check(message, UNKNOWN_SIZE)
        return sum(message.ByteSize() for message in messages)

    def _copied(self, message: Message) -> Message:
        kind = self._outgoing_type
        if type(message) is not kind:
            self._check(message, UNKNOWN_SIZE)
        copied = kind()
        copied.CopyFrom(message)
        return copied

    def _passes(self, message: Message | SharedMessage) -> bool:
        """Whether a message is of the right type, and goes to the other side as it is."""
        kind = self._outgoing_type
        return type(message) is kind or (
            self._outgoing.takes_shared and isinstance(message, SharedMessage) and message.kind is kind
        )

    def _as_taken(self, message: Message | SharedMessage) -> Message | SharedMessage:
        """Return what the other side gets of a message."""
        return message.whole() if isinstance(message, SharedMessage) and not self._outgoing.takes_shared else message

    def _put(self, message: Message | SharedMessage, size: int) -> None:
        outgoing = self._outgoing
        if self._measured or self._done_sending or outgoing.ended or not self._passes(message):
            size = self._check(message, size)
            message = self._as_taken(message)
        outgoing.put_nowait(message, size)

    def _check(self, message: Message | SharedMessage, size: int) -> int:
        """Return the message's size if it matters here; raise what `Call.send` says if it cannot be sent."""
        kind = self._outgoing_type
        given = message.kind if isinstance(message, SharedMessage) else type(message)
        if given is not kind:
            raise LocalProtocolError(f"{self.method.path}: expected {kind.__name__}, got {given.__name__}")
        responses = self._exchange.responses
        if responses.ended:  # as `over`, without its call: this is nearly once per message
            raise responses.end or RpcError(StatusCode.CANCELLED, _OVER)
        if self._done_sending:
            raise LocalProtocolError(f"{self.method.path}: sending after done_sending")
        if self._measured:
            if size == UNKNOWN_SIZE:
                size = message.ByteSize()
            if size > self._max_bytes:
                self._refuse(size)
        return size

    def _refuse(self, size: int) -> None:
        """Treat a message as too large: the sender's limit fails the send, the receiver's ends the call."""
        config = self._exchange.config
        limit = config.max_send_message_bytes
        if limit is not None and size > limit:
            text = f"message of {size} bytes is larger than {limit} allowed to send"
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, text)
        text = f"message of {size} bytes is larger than {config.max_receive_message_bytes}"
        self._exchange.cancel(RpcError(StatusCode.RESOURCE_EXHAUSTED, text))
        raise RpcError(StatusCode.RESOURCE_EXHAUSTED, text)

    def set_consumer(self, consumer: Consumer) -> None:
        self._incoming.set_consumer(consumer)

    def pause(self) -> None:
        self._incoming.pause()

    def resume(self) -> None:
        self._incoming.resume()
