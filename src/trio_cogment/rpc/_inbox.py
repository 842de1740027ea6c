"""The inbox of one end of a call: messages that nobody has taken yet, and the call's end. The same on every transport.

Items leave an inbox in one of two ways, and only one of them is used in a call:

* A receiver: a task that calls `Inbox.get`. One task may wait at a time; it is rescheduled directly, which costs half
  of what a memory channel does.
* A consumer (`calls.Consumer`): a callback in the task that brings the message. Where the receiver would only feed a
  state machine, this saves the receiving task and two task switches for every message.

A second receiver, a second consumer and a receiver beside a consumer are programming errors of the caller. They would
share the messages in an order that nobody can rely on, so they raise `LocalProtocolError`.

The end comes after the items that wait (`Inbox.finish`) or instead of them (`Inbox.abort`):

============================ ========================= ==================================
what comes                   a receiver                a consumer
============================ ========================= ==================================
an item                      is woken                  gets it at once; if paused, it waits
the orderly end              gets None after the items told after the items; if paused, on `resume`
an error after the items     gets it after the items   told after the items, also while paused
an abort                     gets it; items are lost   told at once, also while paused; items are lost
============================ ========================= ==================================

A consumer is told the end once, a receiver each time it asks. The first error stays; an abort replaces an orderly end
only where it cuts something off: items that wait, or an end that a paused consumer has not been told.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final, Protocol

import trio

from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc.calls import Consumer

_log = logging.getLogger(__name__)


class InboxOwner(Protocol):
    """What an inbox needs of the transport: how much may wait is decided there."""

    def take(self, item: Any) -> Any:
        """Return the message of an item that leaves the inbox, and make room for others.

        Raises:
            RpcError: the item is not a message. The call has been ended for that.
        """

    def defers(self, item: Any) -> bool:
        """Whether a consumer gets an item, and what comes behind it, only later: when `Inbox.go_on` is called."""

    def turn_is_over(self) -> bool:
        """Whether a receiver that need not wait has to let others run; see `_fairness`."""

    def on_consumer_failed(self, error: RpcError) -> None:
        """End the call: its consumer has raised an exception, which has been logged."""


class _Told:
    """Stands for a consumer that has been told the end."""

    def on_message(self, message: Any) -> None:
        """Nothing comes any more."""

    def on_end(self, error: RpcError | None) -> None:
        """Nor does another end."""


_TOLD: Final = _Told()


class Inbox:
    """See the module.

    Args:
        owner: the transport's part; None if that is a subclass, which would otherwise be a cycle of references.
        name: of the call, for logs.

    Attributes:
        items: what waits. Only `put` adds to it.
        direct: the consumer that takes an item at once; None when items have to wait. A transport that has an item
            gives it to `direct.on_message` itself, so that the most frequent case costs no further function call, and
            calls `consumer_failed` if that raises.
        ended: nothing more can be put.
        end: why; None for an orderly end, or while it has not ended.
    """

    __slots__ = (
        "_consumer",
        "_deferred",
        "_draining",
        "_name",
        "_owner",
        "_paused",
        "_receiver",
        "_told",
        "direct",
        "end",
        "ended",
        "items",
    )

    def __init__(self, owner: InboxOwner | None, name: str) -> None:
        self.items: deque[Any] = deque()
        self.direct: Consumer | None = None
        self.ended = False
        self.end: RpcError | None = None
        self._owner: Any = owner
        self._name = name
        self._consumer: Consumer | None = None
        self._paused = False
        self._deferred = False  # the owner calls `go_on`
        self._draining = False
        self._told = False  # the consumer has been told the end
        self._receiver: trio.lowlevel.Task | None = None

    # --- the transport's side ---

    def put(self, item: Any) -> None:
        """Keep an item that `direct` does not take; after the end it is dropped."""
        if self.ended:
            return
        self.items.append(item)
        task = self._receiver
        if task is not None:  # as `on_end`, without its call: this is once per message
            self._receiver = None
            trio.lowlevel.reschedule(task)

    def finish(self, error: RpcError | None = None) -> None:
        """End it: what waits is delivered first. A second end changes nothing."""
        if not self.ended:
            self.ended = True
            self.end = error
            self.on_end()
            self._tell_end()

    def is_over(self) -> bool:
        """Whether it has ended, and nothing that came before the end is still to be delivered."""
        return self.ended and not self.items and (self._consumer is None or self._told)

    def abort(self, error: RpcError) -> None:
        """End it at once: what waits is dropped. If nothing is cut off by that, an end that has come before stays."""
        if self.is_over():
            return
        self.items.clear()
        self.ended = True
        if self.end is None:
            self.end = error
        self.on_end()
        self._tell_end()

    def consumer_failed(self) -> None:
        """Log the exception that is being handled, which the consumer has raised, and end the call with INTERNAL."""
        _log.exception("%s: the consumer of a call failed", self._name)
        error = RpcError(StatusCode.INTERNAL, "unexpected failure while consuming a message")
        owner: Any = self._owner or self
        owner.on_consumer_failed(error)
        self.abort(error)  # the call may have been over already: what waits is not given to this consumer either

    def on_end(self) -> None:
        """Wake whoever waits for an item, so that it notices the end. A subclass extends it to wake others."""
        if self._receiver is not None:
            task, self._receiver = self._receiver, None
            trio.lowlevel.reschedule(task)

    # --- a receiver ---

    async def get(self) -> Any:
        """Wait for the next message; None after an orderly end.

        Raises:
            RpcError: why it ended otherwise, after the last message.
            LocalProtocolError: another task is waiting here, or there is a consumer.
        """
        if self._consumer is not None or self._receiver is not None:
            self._refuse("receive")
        items = self.items
        owner: Any = self._owner or self
        if items or self.ended:
            if owner.turn_is_over():
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.checkpoint_if_cancelled()
        while not items:
            if self.ended:
                if self.end is None:
                    return None
                # A fresh one each time: an exception that is raised twice collects two tracebacks.
                raise RpcError(self.end.code, self.end.message, self.end.trailing_metadata)
            self._receiver = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._forget_receiver)
            if not items and (self._consumer is not None or self._receiver is not None):
                self._refuse("receive")  # another task was faster after this one had been woken
        return owner.take(items.popleft())

    def _forget_receiver(self, _: Any) -> trio.lowlevel.Abort:
        self._receiver = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _refuse(self, operation: str) -> None:
        other = "has a consumer" if self._consumer is not None else "has a task that waits in receive"
        raise LocalProtocolError(f"{operation}: the call {other}")

    # --- a consumer ---

    def set_consumer(self, consumer: Consumer) -> None:
        """See `calls.Call.set_consumer`."""
        if self._consumer is not None or self._receiver is not None:
            self._refuse("set_consumer")
        self._consumer = consumer
        self.drain()

    def pause(self) -> None:
        """See `calls.Call.pause`."""
        self._paused = True
        self.direct = None

    def resume(self) -> None:
        """See `calls.Call.resume`."""
        self._paused = False
        self.drain()

    def defers(self, item: Any) -> bool:
        """See `InboxOwner.defers`, for a subclass."""
        return False

    def go_on(self) -> None:
        """Give the consumer what was deferred."""
        self._deferred = False
        self.drain(deferred=True)

    def drain(self, *, deferred: bool = False) -> None:
        """Give the consumer what waits, and then the end if it has come.

        A consumer may pause, resume, or end the call while it is given a message. The loop that runs notices all of
        that; a nested one would reorder messages, and need a deeper stack with each.
        """
        consumer = self._consumer
        if consumer is None or self._draining or self._deferred:
            return
        self._draining = True
        owner: Any = self._owner or self
        try:
            while self.items and not self._paused:
                if not deferred and owner.defers(self.items[0]):
                    self._deferred = True
                    self.direct = None
                    return
                deferred = False
                try:
                    message = owner.take(self.items.popleft())
                except RpcError:
                    continue  # the call has been ended, and the inbox with it
                try:
                    consumer.on_message(message)
                except Exception:  # noqa: BLE001  the boundary between a call and its consumer: it ends the call
                    self.consumer_failed()
        finally:
            self._draining = False
        if self.ended:
            self._tell_end()
        elif not self._paused:
            self.direct = consumer

    def _tell_end(self) -> None:
        consumer = self._consumer
        if consumer is None or self._told or self.items or self._draining:
            return
        if self._paused and self.end is None:
            return
        self._told = True
        self.direct = None
        self._consumer = _TOLD  # it has the call, and the call has this: nobody keeps the other
        try:
            consumer.on_end(self.end)
        except Exception:  # noqa: BLE001  as above, but the call is over already
            _log.exception("%s: the consumer of a call failed at its end", self._name)
