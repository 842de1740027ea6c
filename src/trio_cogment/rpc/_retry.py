"""What a client keeps to make a call again that its server has not looked at ("transparent retry", gRPC's A6).

A stream that was refused (RST_STREAM with REFUSED_STREAM), or that is above the last one that a GOAWAY names, has had
no effect (RFC 9113, 6.8 and 8.7). Its call goes on on another stream, once, as long as all that it has sent is still
here: until the response's headers have come, and within the limits of an outbox. A GOAWAY does not count on a
connection that was there before the first refusal: after a partition, all that a channel has may go, one by one.
"""

from __future__ import annotations

from collections.abc import Collection

from trio_cogment.config import RpcConfig
from trio_cogment.rpc import _wire
from trio_cogment.rpc._streams import Stream


class Budget:
    """What the calls of one channel may keep together.

    Attributes:
        left: bytes.
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class ReplayBuffer:
    """The messages that one call has sent.

    Attributes:
        payloads: as they were on the wire, without prefixes.
    """

    __slots__ = ("_budget", "_config", "_size", "payloads")

    def __init__(self, budget: Budget, config: RpcConfig) -> None:
        self._budget = budget
        self._config = config
        self._size = 0
        self.payloads: list[bytes] = []

    def has_room(self, size: int) -> bool:
        """Whether one more of this size may be kept; a first one may be larger than an outbox."""
        if size > self._budget.left:
            return False
        if not self.payloads:
            return True
        config = self._config
        return len(self.payloads) < config.call_outbox_messages and self._size + size <= config.call_outbox_bytes

    def add(self, payload: bytes) -> None:
        """Keep one more."""
        self.payloads.append(payload)
        self._size += len(payload)
        self._budget.left -= len(payload)

    def drop(self) -> None:
        """Keep nothing any more."""
        self._budget.left += self._size
        self._size = 0
        self.payloads.clear()


class BufferOnlyEngine:
    """The engine of a call between its two streams: what is sent meanwhile goes to the replay buffer alone."""

    out_size = 0

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer

    def has_room(self, stream: Stream, size: int) -> bool:
        """Whether the buffer takes one more; it has to be sent again."""
        return self._buffer.has_room(size)

    def send_message(self, stream: Stream, payload: bytes) -> None:
        """It has been kept."""

    def send_compressed(self, stream: Stream, payload: bytes) -> None:
        """It has been kept."""

    def end(self, stream: Stream, trailers: _wire.RawHeaders) -> None:
        """The call knows that it has finished sending."""

    def reset(self, stream: Stream, code: int) -> None:
        """There is no stream."""

    def keep(self, stream: Stream, sizes: Collection[int]) -> None:
        """Nothing has come."""

    def forget(self, stream: Stream) -> None:
        """Nothing has come."""

    def consumed(self, stream: Stream, size: int) -> None:
        """Nothing has come."""
