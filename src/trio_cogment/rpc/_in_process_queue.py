"""One direction of a call within a process: an inbox that is bounded, and the senders that wait until it has room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import trio

from trio_cogment.base.errors import RpcError
from trio_cogment.base.recount import Count
from trio_cogment.rpc._fairness import OPERATIONS_PER_CHECKPOINT
from trio_cogment.rpc._inbox import Inbox
from trio_cogment.rpc.calls import UNKNOWN_SIZE


class MessageQueue(Inbox):
    """A bounded queue from the tasks that send to the one that receives; see `_inbox` for how items leave it.

    Items are bounded by their number and their total size, but an empty queue takes an item of any size. So sizes
    matter only while something waits: where every item is taken before the next one comes, none is ever measured,
    which for a protobuf message costs nearly as much as copying it.

    Args:
        max_items: items that wait at most; one more makes `wait_room` wait.
        max_bytes: their total size; a single one may be larger.
        size_of: measures an item.
        on_consumer_failed: called when a consumer raised; the queue is aborted in any case.
        name: of the call, for logs.

    Attributes:
        takes_shared: see `Call.accept_shared`.
    """

    __slots__ = (
        "_bytes",
        "_max_bytes",
        "_max_items",
        "_senders",
        "_sent",
        "_size_of",
        "_sizes",
        "_taken",
        "on_consumer_failed",
        "takes_shared",
    )

    def __init__(
        self,
        max_items: int,
        max_bytes: int,
        *,
        size_of: Callable[[Any], int],
        on_consumer_failed: Callable[[RpcError], None],
        name: str = "",
    ) -> None:
        super().__init__(None, name)
        self.on_consumer_failed = on_consumer_failed
        self.takes_shared = False
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._size_of = size_of
        # An empty deque takes 760 bytes, and most queues never need these two.
        self._sizes: deque[int] | None = None  # of the items; a single one need not have been measured
        self._bytes = 0  # the sum of `_sizes`
        self._senders: deque[trio.lowlevel.Task] | None = None
        self._sent = 0
        self._taken = 0

    # --- senders ---

    def put_together_nowait(self, items: Sequence[Any], size: int = UNKNOWN_SIZE) -> None:
        """Deliver or queue several items, for which there has to be room as for one; see `put_nowait`.

        Args:
            items: in order.
            size: of all.

        Raises:
            trio.WouldBlock: the queue is full; none was taken.
        """
        if self.items and not self.ended:
            if size == UNKNOWN_SIZE:
                size = sum(map(self._size_of, items))
            if not self._admits(size):
                raise trio.WouldBlock
        for item in items:
            consumer = self.direct
            if consumer is None:
                self.put_nowait(item, must_fit=False)
                continue
            try:
                consumer.on_message(item)
            except Exception:  # noqa: BLE001  as in `put_nowait`
                self.consumer_failed()

    def put_nowait(self, item: Any, size: int = UNKNOWN_SIZE, *, must_fit: bool = True) -> None:
        """Deliver or queue one item; after the end it is dropped.

        Raises:
            trio.WouldBlock: the queue is full, and the item must fit.
        """
        consumer = self.direct
        if consumer is not None:
            try:
                consumer.on_message(item)
            except Exception:  # noqa: BLE001  the boundary between a call and its consumer: it ends the call
                self.consumer_failed()
            return
        if self.ended:
            return
        items = self.items
        if items:
            if size == UNKNOWN_SIZE:
                size = self._size_of(item)
            if not self._admits(size) and must_fit:
                raise trio.WouldBlock
            assert self._sizes is not None
            self._sizes.append(size)
            self._bytes += size
        items.append(item)
        task = self._receiver
        if task is not None:  # as `put`, without its call: this is once per message
            self._receiver = None
            trio.lowlevel.reschedule(task)

    def _admits(self, size: int) -> bool:
        """Whether an item of this size may be put now."""
        items = self.items
        if not items:
            return True
        if not self._sizes:  # the first one came when nothing waited
            self._bytes = self._size_of(items[0])
            self._sizes = deque([self._bytes])
        return len(items) < self._max_items and self._bytes + size <= self._max_bytes

    def is_busy(self) -> bool:
        """Tell whether a sender must `wait_room` first: something waits, or it is time to let others run."""
        self._sent += 1
        return self._sent >= OPERATIONS_PER_CHECKPOINT or bool(self.items)

    async def wait_room(self, size: int) -> None:
        """Return when `put_nowait` will not block for an item of this size (or nothing can be put any more).

        Senders that wait get their turns in the order in which they came, so that a large item is not overtaken for
        ever by small ones.

        Each item that is taken wakes one sender, the first. It runs only in the scheduler's next round, and may find
        that its item is still too large, or that the room is gone. Then it goes back to the head of the line, not to
        its end. If there is room, it wakes the next one, since one large item may leave room for several small ones.
        The caller puts its item without a checkpoint in between, so the next sender finds it counted.
        """
        if self._sent >= OPERATIONS_PER_CHECKPOINT:
            self._sent = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        if not self._senders and self._admits(size):
            return
        if self._senders is None:
            self._senders = deque()
        senders = self._senders
        must_wait = True
        add = senders.append
        while must_wait and not self.ended:
            task = trio.lowlevel.current_task()
            add(task)

            def forget(_: Any, task: trio.lowlevel.Task = task) -> trio.lowlevel.Abort:
                senders.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(forget)
            must_wait = not self._admits(size)
            add = senders.appendleft  # it was this one's turn, and is again
        if senders:  # there may be room for the next one too
            trio.lowlevel.reschedule(senders.popleft())

    def on_end(self) -> None:
        """See `Inbox.on_end`: also wake the senders that wait for room."""
        Inbox.on_end(self)
        if not self.items:  # it was aborted, if anything had been waiting
            self._sizes = None
            self._bytes = 0
        while self._senders:
            trio.lowlevel.reschedule(self._senders.popleft())

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        sizes = self._sizes or ()
        yield Count("bytes of a queue in process", self._bytes, sum(sizes), None)
        # One that waits alone need not have been measured.
        unmeasured = len(self.items) - len(sizes)
        yield Count("items without a size", unmeasured, min(max(unmeasured, 0), 1), None)

    # --- what the inbox asks for ---

    def take(self, item: Any) -> Any:
        """See `InboxOwner.take`."""
        if self._sizes:
            self._bytes -= self._sizes.popleft()
        if self._senders:
            trio.lowlevel.reschedule(self._senders.popleft())
        return item

    def turn_is_over(self) -> bool:
        """See `InboxOwner.turn_is_over`."""
        self._taken += 1
        if self._taken < OPERATIONS_PER_CHECKPOINT:
            return False
        self._taken = 0
        return True
