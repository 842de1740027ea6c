"""Transparent retries (gRPC's A6): a client's record of calls that its server has not processed.

A stream that was refused (RST_STREAM with REFUSED_STREAM), or whose number is above the last one that a GOAWAY names,
has had no effect (RFC 9113, 6.8 and 8.7). The call is made again on another stream, once, as long as all messages that
it has sent are still in its replay buffer: until the response's headers have come, and within the limits of an outbox.
A GOAWAY on a connection that was open before the first refusal does not count as the one attempt: after a partition,
all connections of a channel may turn out to be closing, one after the other.
"""

from __future__ import annotations

from collections.abc import Collection

from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._streams import Stream


class Budget:
    """What the replay buffers of one channel may hold together.

    Attributes:
        left: bytes that may still be added.
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class ReplayBuffer:
    """The messages that one call has sent, in case it has to be made again.

    Attributes:
        payloads: the messages as they were on the wire, without prefixes.
    """

    __slots__ = ("_budget", "_config", "_size", "payloads")

    def __init__(self, budget: Budget, config: RpcConfig) -> None:
        self._budget = budget
        self._config = config
        self._size = 0
        self.payloads: list[bytes] = []

    def has_room(self, size: int) -> bool:
        """Whether a message of this size may be added; the first one may be larger than an outbox."""
        if size > self._budget.left:
            return False
        if not self.payloads:
            return True
        config = self._config
        return len(self.payloads) < config.call_outbox_messages and self._size + size <= config.call_outbox_bytes

    def add(self, payload: bytes) -> None:
        """Keep one more message."""
        self.payloads.append(payload)
        self._size += len(payload)
        self._budget.left -= len(payload)

    def drop(self) -> None:
        """Empty the buffer, and give its part of the budget back."""
        self._budget.left += self._size
        self._size = 0
        self.payloads.clear()


class BufferOnlyEngine:
    """Stands in for the engine while a call has no stream: it was refused, and the next connection is not ready yet.

    The call goes on as if it had a stream. Its messages are in the replay buffer already, from where the call sends
    them on its new stream; so there is nothing left to do here.
    """

    out_size = 0

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer

    @property
    def output(self) -> BufferOnlyEngine:
        """Nothing waits in it."""
        return self

    def has_room(self, stream: Stream, size: int, tails: tuple[bytes, ...] = ()) -> bool:
        """Whether the buffer takes one more message."""
        return self._buffer.has_room(size)

    def give_up(self, stream: Stream) -> None:
        """Nobody is told of room."""

    def send_message(self, stream: Stream, payload: bytes) -> None:
        """It has been kept."""

    def send_compressed(self, stream: Stream, payload: bytes) -> None:
        """It has been kept."""

    def send_shared(self, stream: Stream, head: bytes, tails: tuple[bytes, ...]) -> None:
        """It has been kept."""

    def end(self, stream: Stream, trailers: _grpc_headers.RawHeaders) -> None:
        """The call knows that it has finished sending."""

    def reset(self, stream: Stream, code: int) -> None:
        """There is no stream."""

    def keep(self, stream: Stream, sizes: Collection[int]) -> None:
        """Nothing has come."""

    def forget(self, stream: Stream) -> None:
        """Nothing has come."""

    def consumed(self, stream: Stream, size: int) -> None:
        """Nothing has come."""
