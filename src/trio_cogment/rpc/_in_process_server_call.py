"""The handler's end of a call within a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio
from google.protobuf.message import Message
from typing_extensions import override

from trio_cogment.access import THIS_PROCESS
from trio_cogment.base.errors import LocalProtocolError, RpcError
from trio_cogment.base.shared_message import SharedMessage
from trio_cogment.rpc._compression import checked_encoding
from trio_cogment.rpc._in_process_call import UNLIMITED_BYTES, End, Exchange, max_bytes
from trio_cogment.rpc.calls import IN_PROCESS, MetadataLike, ServedAtOnce, ServerCall
from trio_cogment.rpc.metadata import Metadata


class InProcessServerCall(End, ServerCall):
    """The handler's end."""

    peer = IN_PROCESS
    identity = THIS_PROCESS

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.method = exchange.method
        self.metadata = exchange.metadata
        self.deadline = exchange.scope.deadline
        self._incoming = exchange.requests
        self._outgoing = exchange.responses
        self._outgoing_type = exchange.method.response_type
        self._max_bytes = max_bytes(exchange.config)
        self._measured = self._max_bytes < UNLIMITED_BYTES
        self._headers_sent = False

    def _put(self, message: Message | SharedMessage, size: int) -> None:
        super()._put(message, size)
        if not self._headers_sent:
            self._sent_first()

    def _put_together(self, messages: Sequence[Message | SharedMessage], size: int) -> None:
        super()._put_together(messages, size)
        if not self._headers_sent:
            self._sent_first()

    def _sent_first(self) -> None:
        self._headers_sent = True
        self._plain = not self._measured and not self._exchange.borrows
        self._exchange.send_headers()

    @override
    def set_initial_metadata(self, metadata: MetadataLike) -> None:
        if self._exchange.headers_sent.is_set():
            raise LocalProtocolError(f"{self.method.path}: the response headers have been sent")
        self._exchange.initial_metadata = Metadata(metadata)

    @override
    def set_trailing_metadata(self, metadata: MetadataLike) -> None:
        self._exchange.trailing_metadata = Metadata(metadata)

    @override
    def set_compression(self, compression: str) -> None:
        checked_encoding(compression)
        if self._exchange.headers_sent.is_set():
            raise LocalProtocolError(f"{self.method.path}: the response headers have been sent")

    @override
    async def send_initial_metadata(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._exchange.send_headers()


class CallServedAtOnce(InProcessServerCall, ServedAtOnce):
    """The end of a service that has taken the call without a task."""

    def __init__(self, exchange: Exchange, on_finished: Callable[[CallServedAtOnce], None]) -> None:
        super().__init__(exchange)
        self._on_finished: Callable[[CallServedAtOnce], None] | None = on_finished

    @override
    def finish(self, error: RpcError | None = None) -> None:
        told, self._on_finished = self._on_finished, None
        if told is not None:
            told(self)
            self._exchange.finish(error)
