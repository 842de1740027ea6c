"""Shared parts of server and client calls over HTTP/2: an inbox, and sending through the engine.

The inbox holds messages that are not decoded yet, and has no bound of its own: the stream's flow-control window is the
bound (RFC 9113, 5.2). What a message has used of the window is given back only when the message is taken. So a call
that nobody reads stops its own peer after one window, while other calls of the connection go on.

When output leaves is decided per message, because a system call costs as much as the rest of a small message:

* The only message of a unary side is held back (`_hold`) until the side ends or the call is waited for, so that
  headers, message and END_STREAM go out in one piece.
* An answer, a message that is sent after one was received, goes out at once (`flush_soon`): in a dialogue, nothing
  follows before the peer has it.
* Other messages only wake the writer, and share a system call with what follows.

The usual way of a message is a part of its own, see `_message_path`.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import trio
from google.protobuf.message import DecodeError, Message

from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.base.shared_message import LOCATED_BYTES, SharedMessage
from trio_cogment.budget.turns import LARGE_BYTES, turns_of_run
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._call_protocols import Transport
from trio_cogment.rpc._compressed_message import CompressedMessage
from trio_cogment.rpc._compression import compress
from trio_cogment.rpc._entries import check_entries
from trio_cogment.rpc._inbox import Inbox
from trio_cogment.rpc._message_path import MessagePath
from trio_cogment.rpc._retry import ReplayBuffer
from trio_cogment.rpc._streams import BadMessageError, Stream
from trio_cogment.rpc.calls import UNKNOWN_SIZE, Call, Consumer, Method


class CallOutput(Protocol):
    """What waits to be sent on the connection of a call."""

    out_size: int


class CallEngine(Protocol):
    """What both ends of a call use of an engine; a client's call that waits for its second stream has another one."""

    @property
    def output(self) -> CallOutput:
        """What waits to be sent; an attribute, as its size is asked for with every message."""

    def has_room(self, stream: Stream, size: int, tails: tuple[bytes, ...] = ()) -> bool:
        """Whether a message may be sent now; `tails` are what it shares with others."""

    def give_up(self, stream: Stream) -> None:
        """Say that nobody waits for the room that `has_room` has refused."""

    def send_message(self, stream: Stream, payload: bytes) -> None:
        """Send a message, or queue it."""

    def send_compressed(self, stream: Stream, payload: bytes) -> None:
        """As `send_message`, for one that is compressed."""

    def send_shared(self, stream: Stream, head: bytes, tails: tuple[bytes, ...]) -> None:
        """As `send_message`, for one in pieces, of which only the first is copied."""

    def end(self, stream: Stream, trailers: _grpc_headers.RawHeaders) -> None:
        """Close this side of the stream."""

    def reset(self, stream: Stream, code: int) -> None:
        """End the stream at once."""

    def consumed(self, stream: Stream, size: int) -> None:
        """Give back the credit of a message that has been taken."""

    def keep(self, stream: Stream, sizes: Collection[int]) -> None:
        """Messages of a stream that is over may still be taken."""

    def forget(self, stream: Stream) -> None:
        """Nothing more will be taken of a stream that is over."""


class Http2Call(Call):
    """See `Call`.

    Attributes:
        over: the call has its status; nothing can be sent any more.
        account: of the other end, under which it is remembered that its messages take long to decode.
    """

    _connection: Transport
    _engine: CallEngine
    _stream: Stream
    _hold: bool  # this side sends a single message
    _may_wait = True  # a task receives, so that what takes long to decode can wait for its turn
    _unpacks_in_turns = False  # those that are always wait for their turn, if they may
    _packed: CompressedMessage | None = None  # was taken from the inbox, and waits for its turn
    _compression = ""  # the encoding of the messages that are sent
    _replay: ReplayBuffer | None = None  # of a client's call that can still be made again

    def __init__(self, method: Method, receive_type: type[Message], send_type: type[Message]) -> None:
        self.method = method
        self.over = False
        self._decode: Callable[[bytes], Any] = receive_type.FromString
        self._plain_decode: Callable[[bytes], Any] = self._decode
        self._send_type = send_type
        self._inbox = Inbox(self, method.path)
        self._path = MessagePath(self, self._inbox, receive_type)
        self._status: RpcError | None = None
        self._sending_done = False
        self._senders: deque[trio.lowlevel.Task] = deque()

        # Once per message of a trial: without a function of this class in between.
        self.hand_over_nowait = self._path.send_nowait  # type: ignore[method-assign]  # of the same signature
        self.send_shared_nowait = self._path.send_shared_nowait  # type: ignore[method-assign]  # likewise
        self.put_shared = self._path.put_shared  # type: ignore[method-assign]  # likewise

    @property
    @abc.abstractmethod
    def account(self) -> str:
        """See the attribute."""

    def _choose_path(self) -> None:
        """Say whether messages are sent the usual way; called when anything has changed of what that depends on."""
        if self._hold:
            return  # a single message is held back: it never is
        is_unusual = (
            self.over
            or self._sending_done
            or self._compression
            or self._replay is not None
            or not self._stream.headers_sent
        )
        self._path.sends = None if is_unusual else self._send_type

    # --- receiving ---

    async def receive(self) -> Any:
        inbox = self._inbox
        if self._engine.output.out_size:
            self._connection.wake()  # a request that is held back must go out now, or no answer comes
        message = await inbox.get() if self._packed is None else self._packed
        if isinstance(message, bytes):
            message = await self._decoded_in_turn(message)
        if message is not None:
            self._path.answering = True
            if self._engine.output.out_size:  # as `_send_output`, without its call: this is once per message
                self._connection.wake()
        return message

    def flush_next(self) -> None:
        self._path.answering = True

    def accept_shared(self) -> None:
        self._path.accept_shared()
        self._stream.views = self._path.locate is not None

    def accept_encoded(self) -> None:
        if not self._path.packs:
            self._decode = bytes
            self._path.accept_encoded()

    def set_consumer(self, consumer: Consumer) -> None:
        self._may_wait = False
        self._inbox.set_consumer(consumer)
        self._send_output()

    def pause(self) -> None:
        self._inbox.pause()

    def resume(self) -> None:
        self._inbox.resume()
        self._send_output()

    def _send_output(self) -> None:
        """Send what is held back, and the WINDOW_UPDATEs that taking messages may have brought about."""
        if self._engine.output.out_size:
            self._connection.wake()

    # --- what the inbox asks for ---

    def take(self, payload: bytes) -> Any:
        """See `InboxOwner.take`: decode the message, and give its part of the stream's window back to the peer.

        A large one that has to wait for its turn stays in the inbox, and is returned as it is.
        """
        if len(payload) >= LARGE_BYTES and self._may_wait and turns_of_run().waits(payload, self.account):
            self._inbox.items.appendleft(payload)
            return payload
        return self._decoded(payload)

    def _decoded(self, payload: bytes) -> Any:
        try:
            locate = self._path.locate if len(payload) >= LOCATED_BYTES and not self._path.packs else None
            message = None if locate is None else locate(payload)
            if message is not None:
                pass  # without its payload
            elif len(payload) < LARGE_BYTES:
                message = self._decode(payload)
            else:
                message = turns_of_run().decode_large(payload, self._decode_large, self.account)
        except (DecodeError, BadMessageError) as bad:
            raise self._unreadable(bad) from None
        self._engine.consumed(self._stream, len(payload))
        return message

    async def _decoded_in_turn(self, payload: bytes) -> Any:
        """Return a message, decoded in its turn. After `Cancelled` it is not lost."""
        turns = turns_of_run()
        if type(payload) is not CompressedMessage:
            await turns.large_turn()
            items = self._inbox.items
            if not items or items[0] is not payload:
                return await self.receive()  # the call has ended meanwhile
            return self._decoded(items.popleft())
        self._packed = payload
        try:
            message = await turns.unpack(len(payload), lambda: self._decode_large(payload))
            self._packed = None
            return message
        except (DecodeError, BadMessageError) as bad:
            raise self._unreadable(bad) from None

    def _decode_any(self, payload: bytes) -> Any:
        """Decode a message of a call with compression, or return it as it is, to be unpacked in a turn."""
        if type(payload) is not CompressedMessage:
            return self._plain_decode(payload)
        if self._may_wait and self._unpacks_in_turns:
            return payload
        return turns_of_run().decode_large(payload, self._decode_large, self.account)

    def _decode_large(self, payload: bytes) -> Any:
        message = self._plain_decode(payload)
        check_entries(message, self._connection.config.max_message_entries)
        return message

    def on_undecodable(self, bad: Exception) -> None:
        """See `UnusualMessages.on_undecodable`."""
        self._unreadable(bad)

    def _unreadable(self, bad: Exception) -> RpcError:
        """End the call because of a message."""
        error = RpcError(StatusCode.INTERNAL, f"{self.method.path}: undecodable message")
        if isinstance(bad, BadMessageError):
            error = RpcError(bad.code, f"{self.method.path}: {bad.message}")
        self.on_broken(error.code, error.message)
        self._drop_unread(error)  # the peer may have ended the call already; what waits is not delivered either
        self._connection.wake()
        return error

    def defers(self, payload: bytes) -> bool:
        """See `InboxOwner.defers`."""
        turns = turns_of_run()
        if not turns.waits(payload, self.account):
            return False
        turns.after_rest(self._go_on)
        return True

    def _go_on(self) -> None:
        self._inbox.go_on()
        self._send_output()

    def turn_is_over(self) -> bool:
        """See `InboxOwner.turn_is_over`."""
        return self._connection.turn_is_over()

    def on_consumer_failed(self, error: RpcError) -> None:
        """See `InboxOwner.on_consumer_failed`."""
        self.on_broken(error.code, error.message)

    def _drop_unread(self, error: RpcError) -> None:
        """End the call for whoever receives, at once."""
        self._engine.forget(self._stream)
        self._inbox.abort(error)

    # --- sending ---

    async def send(self, message: Message) -> None:
        compression, payload = self._compression, self._encode(message)
        # As `yield_sometimes`, without the cost of a coroutine for every message.
        if self._connection.turn_is_over():
            await trio.lowlevel.checkpoint()
            if self.over or self._sending_done:
                self._check_open()
            if compression != self._compression:
                await self.send(message)  # what is announced is what the handler has chosen meanwhile
                return
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        if self._path.put(payload):
            self._announce()
            return
        while not self._engine.has_room(self._stream, len(payload)) and not self.over:
            await self._wait_taken()
        if self.over or self._sending_done:
            self._check_open()
        if compression != self._compression:
            await self.send(message)
            return
        self._put(payload)

    def send_nowait(self, message: Message, size: int = UNKNOWN_SIZE) -> None:
        self._path.send_nowait(message, size)

    def send_unusual(self, message: Message) -> None:
        """See `UnusualMessages.send_unusual`."""
        self._put_nowait(self._encode(message))

    def send_payload(self, payload: bytes) -> None:
        """See `UnusualMessages.send_payload`."""
        self._check_size(payload)
        self._put_nowait(payload)

    def _put_nowait(self, payload: bytes) -> None:
        if not self._engine.has_room(self._stream, len(payload)):
            self._leave_room()
            raise trio.WouldBlock
        self._put(payload)

    async def send_together(self, messages: Sequence[Message | SharedMessage]) -> None:
        compression, payloads = self._compression, [self._encode(message) for message in messages]
        size = sum(map(len, payloads))
        await self._connection.yield_sometimes()
        while not self._engine.has_room(self._stream, size) and not self.over:
            await self._wait_taken()
        if self.over or self._sending_done:
            self._check_open()
        if compression != self._compression:
            await self.send_together(messages)
            return
        self._put(*payloads)

    def send_together_nowait(self, messages: Sequence[Message | SharedMessage]) -> None:
        payloads = [self._encode(message) for message in messages]
        if not self._engine.has_room(self._stream, sum(map(len, payloads))):
            self._leave_room()
            raise trio.WouldBlock
        self._put(*payloads)

    def _copies(self, message: SharedMessage) -> bool:
        """Whether a message has to be put together before it is sent; refuse one that cannot be sent."""
        limit = self._connection.config.max_send_message_bytes
        if (
            self._compression
            or self._replay is not None
            or message.kind is not self._send_type
            or (limit is not None and message.ByteSize() > limit)
        ):
            return True
        if self.over or self._sending_done:
            self._check_open()
        return False

    async def send_shared(self, message: SharedMessage) -> None:
        if self._copies(message):
            await self.send(message.whole())
            return
        await self._connection.yield_sometimes()
        while not self._engine.has_room(self._stream, message.ByteSize(), message.tails) and not self.over:
            await self._wait_taken()
        if self.over or self._sending_done:
            self._check_open()
        self._put_shared(message)

    def send_unusual_shared(self, message: SharedMessage) -> None:
        """See `UnusualMessages.send_unusual_shared`."""
        if self._copies(message):
            self.send_nowait(message.whole())
            return
        if not self._engine.has_room(self._stream, message.ByteSize(), message.tails):
            self._leave_room()
            raise trio.WouldBlock
        self._put_shared(message)

    def _put_shared(self, message: SharedMessage) -> None:
        self._engine.send_shared(self._stream, message.head, message.tails)
        self._connection.wake()

    def _leave_room(self) -> None:
        """Leave the room that there will be to others, unless a task waits for it."""
        if not self._senders:
            self._engine.give_up(self._stream)

    async def _wait_taken(self) -> None:
        """Wait until the peer has taken something, or the call is over."""
        self._stream.watched = True
        task = trio.lowlevel.current_task()
        self._senders.append(task)

        def abort(_: Any) -> trio.lowlevel.Abort:
            # This runs in the task that cancels, not in the one that is cancelled.
            self._senders.remove(task)
            self._leave_room()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _encode(self, message: Message | SharedMessage) -> bytes:
        kind = message.kind if isinstance(message, SharedMessage) else type(message)
        if kind is not self._send_type:
            raise LocalProtocolError(f"{self.method.path}: expected a {self._send_type.__name__}, got {kind.__name__}")
        if self.over or self._sending_done:
            self._check_open()
        payload = message.payload() if isinstance(message, SharedMessage) else message.SerializeToString()
        self._check_size(payload)
        return compress(self._compression, payload) if self._compression else payload

    def _check_size(self, payload: bytes) -> None:
        limit = self._connection.config.max_send_message_bytes
        if limit is not None and len(payload) > limit:
            raise RpcError(
                StatusCode.RESOURCE_EXHAUSTED, f"message of {len(payload)} bytes is larger than {limit} allowed to send"
            )

    def _check_open(self) -> None:
        if self.over:
            self._raise_status()
            raise RpcError(StatusCode.CANCELLED, "the call has ended")
        if self._sending_done:
            raise LocalProtocolError(f"{self.method.path}: this side has finished sending")

    def _put(self, *payloads: bytes) -> None:
        if self._replay is not None:
            self._remember(self._replay, payloads)
        for payload in payloads:
            if self._compression and type(payload) is CompressedMessage:
                self._engine.send_compressed(self._stream, payload)
            else:
                self._engine.send_message(self._stream, payload)
        if not self._hold:
            self._announce()

    def _announce(self) -> None:
        """Have sent what has been put into the output."""
        if self._path.answering and not self._inbox.items:
            # A dialogue: nothing will follow before the peer has this message.
            self._path.answering = False
            self._connection.flush_soon()
        else:
            self._connection.wake()

    def _remember(self, replay: ReplayBuffer, payloads: Sequence[bytes]) -> None:
        """Keep what is sent, or nothing any more.

        While the call has no stream, these are all that there is of it, and `BufferOnlyEngine.has_room` has said that
        there is room: for all of them as if they were one.
        """
        if replay.has_room(sum(map(len, payloads))):
            for payload in payloads:
                replay.add(payload)
        else:
            self._keep_nothing()

    def _keep_nothing(self) -> None:
        """The call will not be made again."""
        if self._replay is not None:
            self._replay.drop()
            self._replay = None
            self._choose_path()

    def on_room(self) -> None:
        """The outbox has shrunk."""
        senders, self._senders = self._senders, deque()
        for task in senders:
            trio.lowlevel.reschedule(task)

    # --- the end ---

    @abc.abstractmethod
    def on_broken(self, code: StatusCode, message: str) -> None:
        """End the call: what the peer sent, or what was made of it, cannot be used."""

    def _finish(self, error: RpcError | None, *, drop: bool) -> None:
        """The call has its status; with `drop`, what has not been read is lost."""
        self.over = True
        self._choose_path()
        self._status = error
        if drop and error is not None:
            self._drop_unread(error)
        else:
            self._inbox.finish(error)
        self.on_room()

    def _raise_status(self) -> None:
        """Raise what the call has ended with, if that is an error."""
        error = self._status
        if error is not None:
            raise RpcError(error.code, error.message, error.trailing_metadata)
