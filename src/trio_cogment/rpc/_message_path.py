"""The usual way of a call's messages over HTTP/2: from the reader to a consumer, and straight into the output.

What is unusual is left to the call: a message that does not decode, that has to wait or to take its turn, that is
compressed, held back, or kept for a retry. This is an object of its own because most messages need nothing else of
their call, and because it can be compiled: the classes of the calls cannot, for they have two bases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message

from trio_cogment.base.shared_message import LOCATED_BYTES, SharedMessage, locator
from trio_cogment.budget.turns import LARGE_BYTES
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import MAX_WINDOW, MESSAGE_HEADER
from trio_cogment.rpc._inbox import Inbox
from trio_cogment.rpc._streams import PREFIX_BYTES, Stream
from trio_cogment.rpc.calls import UNKNOWN_SIZE

#: Messages up to this size may go without asking for room: the output takes no more of them than it may without a loan,
#: and with its prefix one is in the smallest frame that a peer may insist on (RFC 9113, 4.2).
SHORT_BYTES: Final = 16 * 1024 - PREFIX_BYTES


class UnusualMessages(Protocol):
    """What a call does with the other messages."""

    def on_undecodable(self, bad: Exception) -> None:
        """End the call: this was made of a message that came."""

    def send_unusual(self, message: Message) -> None:
        """Send a message, or raise what `Call.send_nowait` does."""

    def send_payload(self, payload: bytes) -> None:
        """As `send_unusual`, for one that is serialised, and neither compressed, held back, nor kept."""

    def send_unusual_shared(self, message: SharedMessage) -> None:
        """As `send_unusual`, for one that is shared."""


class MessagePath:
    """See the module.

    Args:
        call: what is unusual is left to it.
        inbox: of the call.
        receive_type: of the messages that come.

    Attributes:
        sends: messages of this type may be sent, and as they are: after the headers; the call sets it. None: none may.
        packs: messages that come may be compressed; the call sets it.
        answering: a message has been received since the last one was sent.
        locate: makes a shared message of a large one (`shared_message.locator`); None: nothing does, or nobody takes
            it.
    """

    __slots__ = (
        "_call", "_decode", "_inbox", "_longest", "_most", "_output", "_receive_type", "_stream", "_wake", "_window",
        "answering", "locate", "packs", "sends",
    )  # fmt: skip

    def __init__(self, call: UnusualMessages, inbox: Inbox, receive_type: type[Message]) -> None:
        self._call = call
        self._inbox = inbox
        self._decode: Callable[[Any], Any] = receive_type.FromString  # of bytes
        self._receive_type = receive_type
        self._longest = self._most = 0
        self.locate: Callable[[bytes | memoryview], SharedMessage | None] | None = None
        self.sends: type[Message] | None = None
        self.packs = False
        self.answering = False

    def connect(self, stream: Stream, engine: Engine, wake: Callable[[], None]) -> None:
        """Use this stream from now on, and bring its messages here; `wake` has the engine's output sent soon."""
        self._stream = stream
        self._output = engine.output
        self._window = engine.window
        self._wake = wake
        limit = engine.config.max_send_message_bytes
        self._most = MAX_WINDOW if limit is None else limit
        self._longest = min(self._most, SHORT_BYTES)
        stream.path = self
        stream.views = self.locate is not None

    def accept_shared(self) -> None:
        """See `Call.accept_shared`; `connect` may follow."""
        self.locate = locator(self._receive_type)

    def accept_encoded(self) -> None:
        """See `Call.accept_encoded`."""
        self._decode = bytes

    def on_payload(self, payload: bytes | memoryview) -> None:
        """Take a message from the reader, which is not decoded yet; of a view nothing is kept."""
        inbox = self._inbox
        consumer = inbox.direct
        if consumer is None:
            inbox.put(bytes(payload) if isinstance(payload, memoryview) else payload)
            return
        size = len(payload)
        try:
            message = self._large(payload) if size >= LOCATED_BYTES or self.packs else self._decode(payload)
        except DecodeError as bad:
            self._call.on_undecodable(bad)
            return
        if message is None:
            inbox.put(bytes(payload) if isinstance(payload, memoryview) else payload)
            inbox.drain()
            return
        # As `ReceiveWindow.consumed`, where nothing is due.
        stream, window = self._stream, self._window
        stream.held -= size + PREFIX_BYTES
        if stream.recv_window < stream.low_window or window.withheld:
            window.settle_stream(stream)
        try:
            consumer.on_message(message)
        except Exception:  # noqa: BLE001  the boundary of the call: the others of its connection go on
            inbox.consumer_failed()

    def _large(self, payload: bytes | memoryview) -> Any:
        """Return a message that is large or may be compressed; None: the inbox takes it, and decodes it in its turn."""
        if self.packs:
            return None
        message = None if self.locate is None else self.locate(payload)
        return self._decode(bytes(payload)) if message is None and len(payload) < LARGE_BYTES else message

    def send_nowait(self, message: Message | SharedMessage, size: int = UNKNOWN_SIZE) -> None:
        """See `Call.hand_over_nowait`."""
        if type(message) is not self.sends:
            if isinstance(message, SharedMessage):
                self.send_shared_nowait(message)
            else:
                self._call.send_unusual(message)
            return
        payload: bytes = message.SerializeToString()
        if (  # as `put`, without its call
            not self.answering and len(payload) <= self._longest and self._output.send_at_once(self._stream, payload)
        ):
            self._wake()
        else:
            self._call.send_payload(payload)

    def send_shared_nowait(self, message: SharedMessage) -> None:
        """See `Call.send_shared_nowait`."""
        wake = self.put_shared(message)
        if wake is not None:
            wake()
        else:
            self._call.send_unusual_shared(message)

    def put_shared(self, message: SharedMessage) -> Callable[[], None] | None:
        """See `Call.put_shared`."""
        # This is the hot path: once per actor and tick. So it is `SendQueue.send_at_once` without its call.
        if self.answering or message.kind is not self.sends:
            return None
        payload = message.encoded  # most often there has been another receiver before
        length = len(payload) if payload else message.ByteSize()
        if length > self._longest:
            return self._wake if not payload and length <= self._most and self._put_large(message) else None
        size = length + PREFIX_BYTES
        stream, output = self._stream, self._output
        if size > stream.send_window or size > output.window or stream.outbox or output.out_size >= output._mark:
            return None
        header = MESSAGE_HEADER.pack(size << 8, 0, stream.id, 0, length)
        output._out.append(header + (payload or message.payload()))
        stream.send_window -= size
        output.window -= size
        output.out_size += size + 9
        return self._wake

    def _put_large(self, message: SharedMessage) -> bool:
        tails = message.tails
        return len(tails) == 1 and self._output.send_large_at_once(self._stream, message.head, tails[0])

    def put(self, payload: bytes) -> bool:
        """Put a message into the output if that is all there is to it, and return whether it was."""
        return (
            self.sends is not None
            and len(payload) <= self._longest
            and self._output.send_at_once(self._stream, payload)
        )
