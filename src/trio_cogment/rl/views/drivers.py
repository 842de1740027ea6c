"""Drivers of a view's ordinary functions: Trio in their own thread by turns, or in a thread where it always runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import trio

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rl.views import pump as pumps
from trio_cogment.sdk.bridges.call import closed
from trio_cogment.sdk.bridges.thread import TrioThread

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class Driver(Protocol[V_co]):
    """Runs Trio with an asynchronous context manager open, until `close`.

    A KeyboardInterrupt may come out of every method that waits; what it waited for has been cancelled, or goes on.
    All methods raise `FailedPreconditionError` where they cannot work: in a forked process, after the end, and for
    `PumpDriver` in another thread.
    """

    @property
    def value(self) -> V_co:
        """What the context manager gave."""

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an asynchronous function to its end."""

    def exchange(self, act: Callable[[], None], ready: Callable[[], bool]) -> None:
        """Call a plain function in Trio's thread, and wait until `ready` says that what follows from it is there.

        Whatever changes what `ready` says calls `notify` in Trio's thread.
        """

    def notify(self) -> None:
        """Let a waiting `exchange` look again."""

    def let_run(self) -> None:
        """Let Trio's tasks run for a moment, if they do not anyway."""

    def exposed(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function, in Trio's thread, in which Control-C may be raised."""

    def abandon(self) -> None:
        """Close, if that can be done where this is called; otherwise begin to. From any thread, at any moment."""

    def close(self) -> None:
        """Close what is open, and wait for that; closing again is harmless."""


def nothing() -> None:
    """Do nothing: for an `exchange` that only waits."""


def at_once() -> bool:
    """Say that it is there: for an `exchange` that does not wait."""
    return True


def open_driver(opened: AbstractAsyncContextManager[V], *, thread: bool | None = None) -> Driver[V]:
    """Run Trio with a context manager open.

    Args:
        opened: what is opened.
        thread: in a thread of its own; by default only if Trio runs in this thread already.

    Raises whatever opening raises.
    """
    if not thread:
        pump = pumps.acquire()
        if pump is not None:
            return PumpDriver(pump, opened)
        if thread is False:
            raise FailedPreconditionError(
                "thread=False: expected a thread in which Trio does not run; a view in a Trio program needs its own"
            )
    return ThreadDriver(opened)


class PumpDriver(Generic[V]):
    """See `Driver`; this one needs no thread, and stands still while nobody waits."""

    def __init__(self, pump: pumps.Pump, opened: AbstractAsyncContextManager[V]) -> None:
        self._pump = pump
        self._opened = opened
        self._closing = trio.Event()
        self._scope = trio.CancelScope()
        self._open = self._over = self._closed = self._abandoned = False
        self._failure: Exception | None = None
        self.let_run = pump.turn
        self.exposed = pump.exposed
        self.notify = pump.stay_awake
        pump.nursery.start_soon(self._hold, name="platform of a view")
        try:
            pump.wait(lambda: self._open or self._over)
            self._raise_failure()
        except BaseException:  # Control-C, too: nobody else would close it
            self.close()
            raise

    @property
    def value(self) -> V:
        """See `Driver.value`."""
        return self._value

    async def _hold(self) -> None:
        try:
            with self._scope:
                async with self._opened as self._value:
                    self._open = True
                    self.notify()
                    await self._closing.wait()
        except Exception as error:  # noqa: BLE001  whoever opens or closes it gets the exception
            self._failure = error
        finally:
            self._open, self._over = False, True
            self.notify()
            if self._abandoned and not self._closed:
                # Its pump cannot end from within a task. It does with the next view that is closed, or at the end.
                self._closed = True
                self._pump.users -= 1

    def _check(self) -> None:
        if not self._open:
            self._raise_failure()
            raise closed("view")
        self._pump.check_here()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Driver.call`."""
        self._check()
        return self._pump.call(function, *args, **kwargs)

    def exchange(self, act: Callable[[], None], ready: Callable[[], bool]) -> None:
        """See `Driver.exchange`."""
        pump = self._pump
        if not self._open or not pump.is_usable():
            self._check()
        # As `Pump.protecting`, without its calls: this is once per step.
        before, pump.protected = pump.protected, True
        try:
            act()
            if not ready():
                pump.wait(lambda: self._over or ready())
        finally:
            pump.protected = before
        if pump.interrupted:
            pump.raise_interrupt()
        if self._over:
            self._check()

    def abandon(self) -> None:
        """See `Driver.abandon`."""
        if not self._pump.is_of_this_process():
            return  # what wakes it up is shared with the process that made it
        if self._pump.is_at_rest():
            self.close()
            return
        self._abandoned = True
        self._pump.soon(self._closing.set)

    def close(self) -> None:
        """See `Driver.close`."""
        if self._closed:
            return
        if not self._over:
            self._pump.check_here()
            self._closing.set()
            try:
                self._pump.wait(lambda: self._over)
            except KeyboardInterrupt:
                self._scope.cancel()
                self._pump.wait(lambda: self._over)
                self._release()
                raise
        self._release()
        self._raise_failure()

    def _release(self) -> None:
        self._closed = True
        if self._pump.is_usable():
            self._pump.release()


class ThreadDriver(TrioThread[V]):
    """See `Driver`; this one may be used from any thread, one at a time, also from within Trio, which it blocks.

    When the interpreter ends and nobody has closed it, it is closed then.
    """

    def __init__(self, opened: AbstractAsyncContextManager[V]) -> None:
        super().__init__(opened, "trio-cogment view", noun="view")

    def let_run(self) -> None:
        """See `Driver.let_run`."""

    def exposed(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """See `Driver.exposed`."""
        return function(*args, **kwargs)
