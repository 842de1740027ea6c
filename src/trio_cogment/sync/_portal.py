"""Calls into a Trio program that runs in a thread of its own, and iteration over what it yields."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import trio
from anyio.from_thread import BlockingPortal

from trio_cogment.errors import FailedPreconditionError
from trio_cogment.sdk.item_stream import ITEMS_AHEAD, fetch_items, take_items

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: How long the end of the interpreter waits for a platform that nobody has closed.
_EXIT_SECONDS = 10.0


class Caller(Protocol):
    """Calls asynchronous functions from another thread."""

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in Trio, and return its result or raise its exception."""


class FromWorkerThread:
    """Calls from a worker thread in which a participant runs; the end of its trial raises `trio.Cancelled` there."""

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Caller`."""
        return trio.from_thread.run(partial(_awaited, function, *args, **kwargs))


async def _awaited(function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return await function(*args, **kwargs)


class TrioThread(Generic[T_co]):
    """A thread in which Trio runs, with an asynchronous context manager open as long as the thread lives.

    Every method may be called from any other thread. When the interpreter ends and nobody has called `close`, it is
    called then.

    Args:
        opened: what is opened.
        name: of the thread, for debuggers.

    Raises whatever opening raises.
    """

    def __init__(self, opened: AbstractAsyncContextManager[T_co], name: str) -> None:
        self._opened = opened
        self._ready: Future[tuple[BlockingPortal, T_co]] = Future()
        self._failure: BaseException | None = None
        self._closing = threading.Lock()
        #: Python 3.11 takes a thread for ended when Control-C interrupts `join`.
        self._ended = threading.Event()
        self._closed = False
        # The end of the interpreter would wait for any other thread before it calls `_close_at_exit`.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._portal: BlockingPortal | None = None
        self._thread.start()
        try:
            self._portal, self.value = self._ready.result()
        finally:
            if self._portal is None:  # Control-C, or it cannot be opened
                self._abandon()
        atexit.register(self._close_at_exit)

    @property
    def closed(self) -> bool:
        """Whether it has been closed, or has ended by itself."""
        return self._closed or self._ended.is_set()

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in Trio; return its result or raise its exception, with its traceback.

        An exception that is raised in the waiting thread, such as KeyboardInterrupt, cancels the function.

        Raises:
            FailedPreconditionError: it is closed, or was closed before the function returned.
        """
        future = self.start(function, *args, **kwargs)
        try:
            return future.result()
        except CancelledError:
            raise FailedPreconditionError("the platform was closed before the call returned") from None
        finally:
            future.cancel()  # changes nothing if it is done

    def start(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a function in Trio; cancelling the future that is returned cancels it.

        Raises:
            FailedPreconditionError: it is closed.
        """
        self._refuse_own_thread()
        if self.closed:
            raise FailedPreconditionError("the platform is closed")
        assert self._portal is not None
        try:
            return self._portal.start_task_soon(partial(_awaited, function, *args, **kwargs))
        except RuntimeError:  # closed by another thread just now
            raise FailedPreconditionError("the platform is closed") from None

    def close(self) -> None:
        """Cancel what still runs, close what was opened, and wait for the end of the thread.

        Closing again is harmless. It waits, too, if the first time was interrupted or is another thread's.

        Raises:
            FailedPreconditionError: it is called in the thread of Trio, which would wait for itself.

        The first call raises whatever ended the Trio program early, or closing raises.
        """
        self._refuse_own_thread()
        self._closed = True
        self._stop()
        self._ended.wait()
        self._thread.join()
        atexit.unregister(self._close_at_exit)
        with self._closing:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _refuse_own_thread(self) -> None:
        if threading.get_ident() == self._thread.ident:
            text = "a blocking call in the platform's own thread would wait for itself; await the asynchronous function"
            raise FailedPreconditionError(text)

    def _abandon(self) -> None:
        self._closed = True
        if self._ready.done() and self._ready.exception() is None:
            self._portal, _ = self._ready.result()
            self._stop()

    def _stop(self) -> None:
        assert self._portal is not None
        try:
            self._portal.start_task_soon(partial(self._portal.stop, cancel_remaining=True))
        except RuntimeError:
            pass  # it has ended by itself

    def _close_at_exit(self) -> None:
        self._closed = True
        self._stop()
        self._ended.wait(_EXIT_SECONDS)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001  whoever closes it gets the exception, whatever it is
            if self._ready.done():
                self._failure = error
            else:
                self._ready.set_exception(error)
        finally:
            self._ended.set()

    async def _main(self) -> None:
        async with self._opened as value, BlockingPortal() as portal:
            self._ready.set_result((portal, value))
            if not self._closed:  # it may have been abandoned before it was open
                await portal.sleep_until_stopped()


class Items(Iterator[T]):
    """Items of a Trio program, as an iterator; also a context manager, which ends the iteration.

    The iteration begins when the block is entered or, without one, when the first item is requested. Leaving a loop
    early, `close` ends it; so does the garbage collector.
    """

    def __init__(self, thread: TrioThread[Any], source: Callable[[], Any]) -> None:
        self._thread = thread
        self._source = source
        self._future: Future[None] | None = None
        self._send, self._receive = trio.open_memory_channel[T](ITEMS_AHEAD)
        self._begun = trio.Event()
        self._fetched: deque[T] = deque()

    def __enter__(self) -> Items[T]:
        self._begin()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Items[T]:
        return self

    def __next__(self) -> T:
        future = self._begin()
        if not self._fetched:
            if future.cancelled():
                raise StopIteration
            self._fetched.extend(self._thread.call(take_items, self._receive))
        if self._fetched:
            return self._fetched.popleft()
        future.result()  # raises what ended the iteration
        raise StopIteration

    def close(self) -> None:
        """End the iteration; nothing is fetched any more."""
        self._fetched.clear()
        if self._future is not None:
            self._future.cancel()
        else:
            self._future = Future()
            self._future.cancel()

    def __del__(self) -> None:
        if self._future is not None:
            self._future.cancel()

    def _begin(self) -> Future[None]:
        if self._future is None:
            self._future = self._thread.start(fetch_items, self._source, self._send, self._begun)
            self._thread.call(self._begun.wait)
            if self._future.done() and not self._future.cancelled():
                self._future.result()
        return self._future
