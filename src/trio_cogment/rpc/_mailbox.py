"""A bounded one-way queue between two tasks, and the end of its traffic.

Half the cost of a `trio` memory channel per hop, because it knows that there is one receiver: a deque, and the parked
receiver rescheduled directly. A consumer may take the receiver's place (`calls.Consumer`): then a message costs no task
switch at all.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc.calls import Consumer

_log = logging.getLogger(__name__)

#: A task that only ever sends or receives, and never has to wait, still lets the others run after this many messages.
MESSAGES_PER_CHECKPOINT = 16
#: For `Mailbox.put_nowait`: find the size out if it matters.
UNKNOWN_SIZE = -1


class Mailbox:
    """A bounded queue with one receiver, an orderly end and an abrupt one.

    An empty one takes an item of any size, so sizes matter only while something waits: where every item is taken before
    the next one comes, none is ever measured, which for a protobuf message costs nearly as much as copying it.

    Args:
        max_items: items that wait at most; one more makes `send` wait.
        max_bytes: their total size; a single one may be larger.
        size_of: measures an item.
        on_broken_consumer: called when a consumer raised, after the mailbox was aborted with INTERNAL.
    """

    __slots__ = (
        "_bytes",
        "_consumer",
        "_draining",
        "_end",
        "_items",
        "_max_bytes",
        "_max_items",
        "_on_broken_consumer",
        "_paused",
        "_receiver",
        "_senders",
        "_sent",
        "_size_of",
        "_sizes",
        "_taken",
        "ended",
    )

    def __init__(
        self,
        max_items: int,
        max_bytes: int,
        *,
        size_of: Callable[[Any], int],
        on_broken_consumer: Callable[[], None],
    ) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._on_broken_consumer = on_broken_consumer
        self._items: deque[Any] = deque()
        # An empty deque takes 760 bytes, and most mailboxes never need these two.
        self._sizes: deque[int] | None = None  # of the items; a single one need not have been measured
        self._bytes = 0  # the sum of `_sizes`
        self._receiver: trio.lowlevel.Task | None = None
        self._senders: deque[trio.lowlevel.Task] | None = None
        self._consumer: Consumer | None = None
        self._paused = False
        self._draining = False
        #: True once nothing more can be put.
        self.ended = False
        self._end: RpcError | None = None
        self._sent = 0
        self._taken = 0

    @property
    def end(self) -> RpcError | None:
        """Why it ended; None for an orderly end, or while it has not."""
        return self._end

    def put_nowait(self, item: Any, size: int = UNKNOWN_SIZE) -> None:
        """Deliver or queue one item.

        Raises:
            trio.WouldBlock: the queue is full.
        """
        items = self._items
        if items:
            if size == UNKNOWN_SIZE:
                size = self._size_of(item)
            if not self._admits(size):
                raise trio.WouldBlock
            assert self._sizes is not None
            self._sizes.append(size)
            self._bytes += size
        else:
            consumer = self._consumer
            if consumer is not None and not self._paused:
                self._consume(consumer, item)
                return
        items.append(item)
        receiver = self._receiver
        if receiver is not None:
            self._receiver = None
            trio.lowlevel.reschedule(receiver)

    def _admits(self, size: int) -> bool:
        """Whether an item of this size may be put now."""
        items = self._items
        if not items:
            return True
        if len(items) >= self._max_items:
            return False
        if not self._sizes:  # the first one came when nothing waited
            self._bytes = self._size_of(items[0])
            self._sizes = deque([self._bytes])
        return self._bytes + size <= self._max_bytes

    def is_busy(self) -> bool:
        """Tell whether a sender must `wait_room` first: something waits, or it is time to let others run."""
        self._sent += 1
        return self._sent >= MESSAGES_PER_CHECKPOINT or bool(self._items)

    async def wait_room(self, size: int) -> None:
        """Return when `put_nowait` will not block for an item of this size (or nothing can be put any more).

        Senders that wait get their turns in the order in which they came, so that a large item is not overtaken for
        ever by small ones.
        """
        if self._sent >= MESSAGES_PER_CHECKPOINT:
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

    async def get(self) -> Any:
        """Wait for the next item; None after an orderly end.

        Raises:
            RpcError: the mailbox was aborted, or ended with an error after its last item.
        """
        if self._items or self.ended:
            self._taken += 1
            if self._taken >= MESSAGES_PER_CHECKPOINT:
                self._taken = 0
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.checkpoint_if_cancelled()
        while not self._items:
            if self.ended:
                if self._end is not None:
                    raise RpcError(self._end.code, self._end.message, self._end.trailing_metadata)
                return None
            if self._receiver is not None:
                raise trio.BusyResourceError("another task is already receiving from this call")
            self._receiver = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._forget_receiver)
        return self._pop()

    def _pop(self) -> Any:
        if self._sizes:
            self._bytes -= self._sizes.popleft()
        if self._senders:
            trio.lowlevel.reschedule(self._senders.popleft())
        return self._items.popleft()

    def _forget_receiver(self, _: Any) -> trio.lowlevel.Abort:
        self._receiver = None
        return trio.lowlevel.Abort.SUCCEEDED

    def finish(self, error: RpcError | None = None) -> None:
        """End it: what is queued is still delivered, then the end. A second end changes nothing."""
        if self.ended:
            return
        self.ended = True
        self._end = error
        self._wake_all()
        if self._consumer is not None and not self._paused and not self._items:
            self._tell_end(self._consumer)

    def abort(self, error: RpcError) -> None:
        """End it at once: what is queued is dropped."""
        if self.ended and not self._items:
            return
        self._items.clear()
        self._sizes = None
        self._bytes = 0
        self.ended = False
        self.finish(error)

    def _wake_all(self) -> None:
        if self._receiver is not None:
            receiver, self._receiver = self._receiver, None
            trio.lowlevel.reschedule(receiver)
        while self._senders:
            trio.lowlevel.reschedule(self._senders.popleft())

    def set_consumer(self, consumer: Consumer) -> None:
        """See `calls.Call.set_consumer`."""
        self._consumer = consumer
        self._drain(consumer)

    def pause(self) -> None:
        """See `calls.Call.pause`."""
        self._paused = True

    def resume(self) -> None:
        """See `calls.Call.resume`."""
        self._paused = False
        if self._consumer is not None:
            self._drain(self._consumer)

    def _drain(self, consumer: Consumer) -> None:
        if self._draining:
            return  # a consumer that pauses and resumes while it is given a message: the loop below goes on
        had_end = self.ended
        self._draining = True
        try:
            while self._items and not self._paused:
                self._consume(consumer, self._pop())
        finally:
            self._draining = False
        if had_end and self.ended and not self._items and not self._paused:
            self._tell_end(consumer)

    def _consume(self, consumer: Consumer, item: Any) -> None:
        try:
            consumer.on_message(item)
        except Exception:  # noqa: BLE001  the boundary between a call and whoever consumes it
            _log.exception("the consumer of a call failed")
            self.abort(RpcError(StatusCode.INTERNAL, "the receiver failed"))
            self._on_broken_consumer()

    def _tell_end(self, consumer: Consumer) -> None:
        if self._consumer is None:
            return  # it has been told: it ended the call itself, or failed
        self._consumer = None
        try:
            consumer.on_end(self._end)
        except Exception:  # noqa: BLE001  as above
            _log.exception("the consumer of a call failed at its end")
