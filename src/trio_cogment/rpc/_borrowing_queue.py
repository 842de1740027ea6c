"""One direction of a call within a process that another protocol has brought: what waits there is borrowed.

It is a queue like that of any call within a process, and beside its own bounds it has that of the connection and so of
the server. Where there is plenty, nothing that is taken at once is measured. Where there is not, each message asks for
room before it goes anywhere, also to a consumer: that one adds it to the output of the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import trio

from trio_cogment.base.errors import RpcError
from trio_cogment.budget.waiting_bytes import WaitingBytes
from trio_cogment.rpc._in_process_queue import MessageQueue
from trio_cogment.rpc.calls import UNKNOWN_SIZE


class BorrowingQueue(MessageQueue):
    """See the module, and `MessageQueue`.

    Args:
        max_items: see `MessageQueue`.
        max_bytes: see `MessageQueue`.
        waiting: of the connection, to which this belongs.
        size_of: see `MessageQueue`.
        on_consumer_failed: see `MessageQueue`.
        name: see `MessageQueue`.
    """

    __slots__ = ("_waiting",)

    def __init__(
        self,
        max_items: int,
        max_bytes: int,
        waiting: WaitingBytes,
        *,
        size_of: Callable[[Any], int],
        on_consumer_failed: Callable[[RpcError], None],
        name: str = "",
    ) -> None:
        super().__init__(max_items, max_bytes, size_of=size_of, on_consumer_failed=on_consumer_failed, name=name)
        self._waiting = waiting

    # --- senders ---

    def put_together_nowait(self, items: Sequence[Any], size: int = UNKNOWN_SIZE) -> None:
        """See `MessageQueue.put_together_nowait`."""
        if not self.ended and self._must_ask():
            if size == UNKNOWN_SIZE:
                size = sum(map(self._size_of, items))
            if not self._admits(size):
                raise trio.WouldBlock
        for item in items:
            self.put_nowait(item, must_fit=False)

    def put_nowait(self, item: Any, size: int = UNKNOWN_SIZE, *, must_fit: bool = True) -> None:
        """See `MessageQueue.put_nowait`."""
        if must_fit and not self.ended and self._must_ask():
            if size == UNKNOWN_SIZE:
                size = self._size_of(item)
            if not self._admits(size):
                raise trio.WouldBlock
        if self.direct is not None:
            super().put_nowait(item, size, must_fit=False)
        elif not self.ended:
            if size == UNKNOWN_SIZE:
                size = self._size_of(item)
            if self._sizes is None:
                self._sizes = deque()
            self._sizes.append(size)
            self._bytes += size
            self._waiting.queue(size)
            self.put(item)

    def _must_ask(self) -> bool:
        return bool(self.items) or not self._waiting.is_plentiful()

    def _admits(self, size: int) -> bool:
        items = self.items
        if items and (len(items) >= self._max_items or self._bytes + size > self._max_bytes):
            return False
        return self._waiting.admits(size, self._wake_sender)

    def _wake_sender(self) -> None:
        if self._senders:
            trio.lowlevel.reschedule(self._senders.popleft())

    def is_busy(self) -> bool:
        """See `MessageQueue.is_busy`."""
        return super().is_busy() or not self._waiting.is_plentiful()

    # --- what leaves it ---

    def on_end(self) -> None:
        """See `MessageQueue.on_end`."""
        before = self._bytes
        super().on_end()
        if before != self._bytes:
            self._waiting.queue(self._bytes - before)

    def take(self, item: Any) -> Any:
        """See `InboxOwner.take`."""
        before = self._bytes
        super().take(item)
        self._waiting.queue(self._bytes - before)
        return item
