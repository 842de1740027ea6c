"""What server and client calls over HTTP/2 have in common: an inbox, a consumer, and sending through the engine.

The inbox holds undecoded messages. Its bound is the stream's window: what waits here is not credited to the peer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from google.protobuf.message import DecodeError, Message

from trio_cogment.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc._compression import compress
from trio_cogment.rpc._streams import BadMessageError, CompressedMessage
from trio_cogment.rpc.calls import Call, Consumer, Method

if TYPE_CHECKING:
    from trio_cogment.rpc._connection import Connection
    from trio_cogment.rpc._engine import Engine
    from trio_cogment.rpc._retry import Sent
    from trio_cogment.rpc._streams import Stream

logger = logging.getLogger(__name__)


class WireCall(Call):
    """See `Call`.

    Attributes:
        over: the call has its status; nothing can be sent any more.
    """

    _connection: Connection
    _engine: Engine
    _stream: Stream
    _undecodable: StatusCode
    _hold: bool  # our side sends a single message: it leaves together with the end, in one piece
    _compression = ""  # what our messages are compressed with
    _sent: Sent | None = None  # a client's call might have to be made again

    def __init__(self, method: Method, receive_type: type[Message], send_type: type[Message]) -> None:
        self.method = method
        self.over = False
        self._decode: Callable[[bytes], Any] = receive_type.FromString
        self._send_type = send_type
        self._inbox: deque[bytes] = deque()
        self._consumer: Consumer | None = None
        self._paused = False
        self._draining = False
        self._no_more = False  # nothing will be added to the inbox
        self._error: RpcError | None = None
        self._end_told = False
        self._sending_done = False
        self._answering = False  # we have received since we sent last
        self._receiver: trio.lowlevel.Task | None = None
        self._senders: deque[trio.lowlevel.Task] = deque()

    # --- receiving ---

    async def receive(self) -> Any:
        if self._consumer is not None:
            raise LocalProtocolError("receive: the call has a consumer")
        if self._receiver is not None:
            raise LocalProtocolError("receive: another task is receiving")
        if self._inbox or self._no_more:
            await self._connection.yield_sometimes()
        while not self._inbox:
            if self._no_more:
                self._raise_error()
                return None
            if self._engine.out_size:
                self._connection.wake()
            self._receiver = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort_receiver)
        return self._take(self._inbox.popleft())

    def _abort_receiver(self, _: Any) -> trio.lowlevel.Abort:
        self._receiver = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake_receiver(self) -> None:
        if self._receiver is not None:
            task, self._receiver = self._receiver, None
            trio.lowlevel.reschedule(task)

    def _take(self, payload: bytes) -> Any:
        try:
            message = self._decode(payload)
        except (DecodeError, BadMessageError) as bad:
            error = self._unreadable(bad)
            self._connection.wake()
            raise RpcError(error.code, error.message) from None
        self._answering = True
        self._engine.consumed(self._stream, len(payload))
        if self._engine.out_size:
            self._connection.wake()
        return message

    def on_payload(self, payload: bytes) -> None:
        """Take a message from the reader."""
        if self._no_more:
            return
        if self._consumer is None or self._paused or self._inbox or self._draining:
            self._inbox.append(payload)
            self._wake_receiver()
        else:
            self._deliver(self._consumer, payload)

    def _deliver(self, consumer: Consumer, payload: bytes) -> None:
        try:
            message = self._decode(payload)
        except (DecodeError, BadMessageError) as bad:
            self._unreadable(bad)
            return
        self._engine.consumed(self._stream, len(payload))
        try:
            consumer.on_message(message)
        except Exception:  # the boundary of the call: the others of its connection go on
            logger.exception("%s: the consumer of a call failed", self.method.path)
            self.on_broken(StatusCode.INTERNAL, "unexpected failure while consuming a message")

    def _unreadable(self, bad: Exception) -> RpcError:
        """End the call because of a message."""
        error = RpcError(self._undecodable, f"{self.method.path}: undecodable message")
        if isinstance(bad, BadMessageError):
            error = RpcError(bad.code, f"{self.method.path}: {bad.message}")
        self.on_broken(error.code, error.message)
        if self._error is None:  # the peer has ended it already, and well
            self._no_more_messages(error, drop=True)
        return error

    def set_consumer(self, consumer: Consumer) -> None:
        if self._consumer is not None or self._receiver is not None:
            raise LocalProtocolError("set_consumer: the call is being received from already")
        self._consumer = consumer
        self._drain()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._drain()

    def _drain(self) -> None:
        """Hand what waits to the consumer, then the end if that was all."""
        if self._consumer is None or self._draining:
            return
        self._draining = True
        try:
            while self._inbox and not self._paused:
                self._deliver(self._consumer, self._inbox.popleft())
        finally:
            self._draining = False
        if self._engine.out_size:
            self._connection.wake()
        self._tell_end()

    def _no_more_messages(self, error: RpcError | None, *, drop: bool) -> None:
        """No message comes any more; with `drop`, those that wait are not delivered either."""
        if error is not None and self._error is None:
            self._error = error
        if drop:
            self._inbox.clear()
            self._engine.forget(self._stream)
        self._no_more = True
        self._wake_receiver()
        self._tell_end()

    def _tell_end(self) -> None:
        if self._consumer is None or not self._no_more or self._inbox or self._end_told or self._draining:
            return
        if self._paused and self._error is None:
            return  # in order: after the messages that a paused consumer will ask for
        self._end_told = True
        try:
            self._consumer.on_end(self._error)
        except Exception:  # as above
            logger.exception("%s: the consumer of a call failed at its end", self.method.path)

    def _raise_error(self) -> None:
        error = self._error
        if error is not None:
            # A fresh one each time: an exception raised twice collects two tracebacks.
            raise RpcError(error.code, error.message, error.trailing_metadata)

    # --- sending ---

    async def send(self, message: Message) -> None:
        payload = self._encode(message)
        # As `yield_sometimes`, without its coroutine: this is once per message.
        if self._connection.turn_is_over():
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._engine.has_room(self._stream, len(payload)) and not self.over:
            await self._wait_taken()
        if self.over or self._sending_done:
            self._check_open()
        self._put(payload)

    def send_nowait(self, message: Message) -> None:
        payload = self._encode(message)
        if not self._engine.has_room(self._stream, len(payload)):
            raise trio.WouldBlock
        self._put(payload)

    async def _wait_taken(self) -> None:
        """Wait until the peer has taken something, or the call is over."""
        self._stream.watched = True
        task = trio.lowlevel.current_task()
        self._senders.append(task)

        def abort(_: Any) -> trio.lowlevel.Abort:
            # Called in the task that cancels, which is another one.
            self._senders.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _encode(self, message: Message) -> bytes:
        if type(message) is not self._send_type:
            raise LocalProtocolError(
                f"{self.method.path}: expected a {self._send_type.__name__}, got {type(message).__name__}"
            )
        if self.over or self._sending_done:
            self._check_open()
        payload: bytes = message.SerializeToString()
        limit = self._connection.config.max_send_message_bytes
        if limit is not None and len(payload) > limit:
            raise RpcError(
                StatusCode.RESOURCE_EXHAUSTED, f"message of {len(payload)} bytes is larger than {limit} allowed to send"
            )
        return compress(self._compression, payload) if self._compression else payload

    def _check_open(self) -> None:
        if self.over:
            self._raise_error()
            raise RpcError(StatusCode.CANCELLED, "the call has ended")
        if self._sending_done:
            raise LocalProtocolError(f"{self.method.path}: this side has finished sending")

    def _put(self, payload: bytes) -> None:
        if self._sent is not None:
            self._remember(self._sent, payload)
        if self._compression and type(payload) is CompressedMessage:
            self._engine.send_compressed(self._stream, payload)
        else:
            self._engine.send_message(self._stream, payload)
        if self._hold:
            return
        if self._answering and not self._inbox:
            # Message by message: nothing will follow before the peer has this one.
            self._answering = False
            self._connection.flush_soon()
        else:
            self._connection.wake()

    def _remember(self, sent: Sent, payload: bytes) -> None:
        """Keep what is sent, or nothing any more."""
        if sent.has_room(len(payload)):
            sent.add(payload)
        else:
            self._keep_nothing()

    def _keep_nothing(self) -> None:
        """The call will not be made again."""
        if self._sent is not None:
            self._sent.drop()
            self._sent = None

    def on_room(self) -> None:
        """The outbox has shrunk."""
        senders, self._senders = self._senders, deque()
        for task in senders:
            trio.lowlevel.reschedule(task)

    # --- the end ---

    def on_broken(self, code: StatusCode, message: str) -> None:
        """End the call: what the peer sent, or what was made of it, cannot be used."""
        raise NotImplementedError

    def _finish(self, error: RpcError | None, *, drop: bool) -> None:
        """The call has its status."""
        self.over = True
        self._no_more_messages(error, drop=drop)
        self.on_room()
