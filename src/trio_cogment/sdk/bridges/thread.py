"""Trio in a thread of its own, and calls into it from others."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import trio
from outcome import Error, Outcome, capture

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rpc import OwnNursery
from trio_cogment.sdk.bridges.call import Call, closed, forked

P = ParamSpec("P")
T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)

#: How often a wait looks whether the thread of Trio still lives. Not all systems let Control-C interrupt a wait that
#: has no end.
_LOOK_SECONDS = 1.0
#: How long the end of the interpreter waits for what nobody has closed.
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


class TrioThread(Generic[V_co]):
    """A thread in which Trio runs, with an asynchronous context manager open as long as the thread lives.

    Every method may be called from any other thread; `exchange` by one at a time. When the interpreter ends and nobody
    has called `close`, it is called then.

    Args:
        opened: what is opened.
        name: of the thread, for debuggers.
        noun: of what is opened, for errors.

    Attributes:
        value: what the context manager gave.

    Raises whatever opening raises.
    """

    value: V_co

    def __init__(self, opened: AbstractAsyncContextManager[V_co], name: str, *, noun: str = "platform") -> None:
        self._opened = opened
        self._noun = noun
        self._pid = os.getpid()
        self._failure: BaseException | None = None
        self._taking_failure = threading.Lock()
        #: For `exchange`.
        self._changed = threading.Event()
        #: Python 3.11 takes a thread for ended when Control-C interrupts `join`.
        self._ended = threading.Event()
        self._open = self._closed = False
        # The end of the interpreter would wait for any other thread before it calls `_close_at_exit`.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        try:
            while not (self._open or self._ended.is_set()):
                self._changed.wait(_LOOK_SECONDS)
                self._changed.clear()
            self._raise_failure()
        except BaseException:  # Control-C, too: nobody else would close it
            self.abandon()
            raise
        atexit.register(self._close_at_exit)

    @property
    def closed(self) -> bool:
        """Whether it has been closed, or has ended by itself."""
        return self._closed or not self._open

    # Calls

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in Trio; return its result or raise its exception, with its traceback.

        An exception that is raised in the waiting thread, such as KeyboardInterrupt, cancels the function.

        Raises:
            FailedPreconditionError: it is closed, or was closed before the function returned; or this is the thread of
                Trio, or a process that was forked from its own.
        """
        call = self.start(function, *args, **kwargs)
        try:
            return call.wait()
        finally:
            call.cancel()  # changes nothing if it is over

    def start(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> ThreadCall[T]:
        """Start a function in Trio.

        Raises:
            FailedPreconditionError: as for `call`.
        """
        self._check()
        call = ThreadCall[T](self, function, args, kwargs)
        self._soon(lambda: call.start_in(self._nursery) if self._open else call.refuse())
        return call

    def exchange(self, act: Callable[[], None], ready: Callable[[], bool]) -> None:
        """Call a plain function in Trio's thread, and wait until `ready` says that what follows from it is there.

        It costs less than `call`: no task is started. Whatever changes what `ready` says calls `notify` in Trio's
        thread.

        Raises:
            FailedPreconditionError: as for `call`.
        """
        self._check()
        done: list[Outcome[None]] = []

        def run() -> None:
            done.append(capture(act))
            self._changed.set()

        self._soon(run)
        while True:
            self._changed.clear()
            if done and (isinstance(done[0], Error) or ready()):
                break
            if self._ended.is_set() or not self._changed.wait(_LOOK_SECONDS):
                self._check()
        done[0].unwrap()

    def notify(self) -> None:
        """Let a waiting `exchange` look again."""
        self._changed.set()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise forked(self._noun)
        self._refuse_own_thread()
        if self.closed:
            raise closed(self._noun)

    def _refuse_own_thread(self) -> None:
        # When a thread has ended, another may get its number.
        if threading.get_ident() == self._thread.ident and not self._ended.is_set():
            raise FailedPreconditionError(
                f"a blocking call in the {self._noun}'s own thread would wait for itself; "
                "await the asynchronous function"
            )

    def _soon(self, function: Callable[[], object]) -> None:
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:  # just now
            raise closed(self._noun) from None

    # Its end

    def abandon(self) -> None:
        """Begin to close, without waiting. From any thread, at any moment."""
        self._closed = True
        if self._open and os.getpid() == self._pid:
            try:
                self._token.run_sync_soon(self._stop.set)
            except trio.RunFinishedError:
                pass  # it has ended already

    def close(self) -> None:
        """Cancel what still runs, close what was opened, and wait for the end of the thread.

        Closing again is harmless. It waits, too, if the first time was interrupted or is another thread's.

        Raises:
            FailedPreconditionError: it is called in the thread of Trio, which would wait for itself, or in a process
                that was forked from its own.

        The first call raises whatever ended the Trio program early, or closing raises.
        """
        if os.getpid() != self._pid:
            raise forked(self._noun)
        self._refuse_own_thread()
        self.abandon()
        self._ended.wait()
        self._thread.join()
        atexit.unregister(self._close_at_exit)
        self._raise_failure()

    def _raise_failure(self) -> None:
        with self._taking_failure:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _close_at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.abandon()
            self._ended.wait(_EXIT_SECONDS)

    # In the thread

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001  whoever opens or closes it gets the exception, whatever it is
            self._failure = error
        finally:
            self._open = False
            self._ended.set()
            self._changed.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with self._opened as self.value, OwnNursery() as self._nursery:
            self._open = True
            try:
                self._changed.set()
                if not self._closed:  # it may have been abandoned before it was open
                    await self._stop.wait()
            finally:
                self._open = False
            self._nursery.cancel_scope.cancel()


class ThreadCall(Call[T]):
    """A call of a `TrioThread`, for the thread that has made it."""

    FOR_CALLER = (Exception, SystemExit)  # `sys.exit` ends the script that waits

    def __init__(
        self,
        thread: TrioThread[Any],
        function: Callable[..., Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._ended = threading.Event()
        super().__init__(function, args, kwargs, on_end=self._ended.set, noun=thread._noun)
        self._thread = thread

    def wait(self) -> T:
        """Wait for its end; return what the function returned, or raise what it raised.

        Raises:
            FailedPreconditionError: it was cancelled with everything else.
        """
        while not self._ended.wait(_LOOK_SECONDS):
            if self._thread._ended.is_set():
                break
        return self.result()

    def cancel(self) -> None:
        """Cancel it, if it is not over, without waiting for its end."""
        if not self.is_over() and os.getpid() == self._thread._pid:
            try:
                self._thread._token.run_sync_soon(self.scope.cancel)
            except trio.RunFinishedError:
                pass  # so has it
