"""Trio as a guest of a running asyncio loop, and calls from one to the other (Trio's reference, "Using guest mode").

Both run in the same thread, by turns. A call creates a task on the other side and waits for its end; cancelling either
side cancels the other, and waits until it has cleaned up.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import trio
from outcome import Error, Outcome

from trio_cogment.sdk.bridges.call import Call, closed
from trio_cogment.sdk.bridges.guest import GuestRun

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

#: How long a cancelled coroutine of asyncio may take to end.
_CANCELLATION_SECONDS = 10.0


class Guest(GuestRun, Generic[V]):
    """A Trio program in asyncio's thread, with an asynchronous context manager open; itself one, of asyncio.

    If the Trio program ends by itself, the block is cancelled and left with the exception that ended it. So it is with
    Control-C where the loop does not handle it: Trio gets it.

    Args:
        opened: what is opened, in Trio.
    """

    def __init__(self, opened: AbstractAsyncContextManager[V]) -> None:
        super().__init__()
        self._opened = opened
        self._open = False
        self._ending = False
        self._block_cancelled = False

    async def __aenter__(self) -> V:
        self._loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task()
        # Coroutines of participants run in the context of whoever opened it, not in that of a task of Trio.
        self._context = contextvars.copy_context()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[V] = self._loop.create_future()
        self._start_run(self._loop.call_soon_threadsafe)
        ready = self._ready
        try:
            either: set[asyncio.Future[Any]] = {ready, self._ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ready.done():  # cancelled, or it cannot be opened
                ready.cancel()
                await self._end()
        if ready.cancelled():
            self._ended.result()
        return ready.result()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()
        if self._block_cancelled and self._owner is not None:
            if kind is not asyncio.CancelledError:
                # The block ended before the cancellation reached it.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            self._owner.uncancel()
        self._ended.result()

    @property
    def closed(self) -> bool:
        """Whether it has been closed, or has ended by itself."""
        return not self._open

    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in Trio, from asyncio; return its result or raise its exception, with its traceback.

        When the task that waits is cancelled, so is the function, and it has ended when this raises `CancelledError`.

        Raises:
            FailedPreconditionError: it is closed, or was closed before the function returned.
        """
        if self.closed:
            raise closed("platform")
        over: asyncio.Future[None] = self._loop.create_future()
        call = Call(function, args, kwargs, on_end=partial(over.set_result, None), noun="platform")
        self.soon(lambda: call.start_in(self._calls) if self._open else call.refuse())
        await _wait(over, on_cancel=lambda: self.soon(call.scope.cancel))
        return call.result()

    async def from_trio(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run a coroutine function in asyncio, from Trio; return, or raise its exception.

        After `Cancelled` the coroutine has been cancelled, and has ended unless it took longer than
        `_CANCELLATION_SECONDS`.
        """
        task = self._loop.create_task(function(*args), context=self._context.copy())
        ended = trio.Event()
        task.add_done_callback(lambda _: self.soon(ended.set))
        try:
            await ended.wait()
        finally:
            if not task.done():
                # In asyncio's turn, not in the middle of Trio's.
                self._loop.call_soon(task.cancel)
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _CANCELLATION_SECONDS):
                    await ended.wait()
                if task.done() and not task.cancelled():
                    task.result()
        if task.cancelled():
            raise RuntimeError(f"{function!r} was cancelled by its own program")
        task.result()

    # Private

    async def _hold(self, beside: trio.Nursery) -> None:
        # Participants call until the platform has closed, so these calls end after it.
        self._calls = beside
        try:
            async with self._opened as value:
                if not self._ready.done():  # cancelled meanwhile
                    self._open = True
                    self._ready.set_result(value)
                    await trio.sleep_forever()
        finally:
            self._open = False

    def _done(self, ended: Outcome[None]) -> None:
        was_open = self._ready.done() and not self._ready.cancelled()
        if isinstance(ended, Error):
            # Whoever closes it gets the exception, whatever it is.
            self._ended.set_exception(_interrupt_in(ended.error) or ended.error)
            self._ended.exception()  # seen, if nobody asks
            if was_open and not self._ending and self._owner is not None:
                self._block_cancelled = self._owner.cancel()
        else:
            self._ended.set_result(None)

    async def _end(self) -> None:
        """Cancel the Trio program and wait for its end, also when this task is cancelled meanwhile."""
        self._ending = True
        self.soon(self._scope.cancel)
        await _wait(self._ended, on_cancel=lambda: None)


def _interrupt_in(error: BaseException) -> BaseException | None:
    """Return the KeyboardInterrupt or SystemExit in a group, which asyncio raises out of its loop; None without one."""
    if not isinstance(error, BaseExceptionGroup):
        return None
    found: BaseException | None = error.subgroup((KeyboardInterrupt, SystemExit))
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _wait(future: asyncio.Future[Any], *, on_cancel: Callable[[], None]) -> None:
    """Wait until a future is done, however often this task is cancelled; raise `CancelledError` then."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # seen
        raise cancelled
