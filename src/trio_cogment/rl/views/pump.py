"""Trio in the caller's own thread, by turns: it runs only while somebody waits for it.

A view's `step` is an ordinary function. Where everybody who takes part in its trial is in this process, no thread is
needed to call into Trio from there: Trio runs as a guest (Trio's reference, "Using guest mode"), and the host's loop
is `Pump.call`, which runs what Trio has scheduled until the result is there. Between two calls nothing runs, and the
pump's clock stands still: no timeout of a trial elapses while somebody computes gradients.

What a call waits for is mostly there after a few turns. If it is not, for a disk or a peer has to answer, the thread
sleeps until that comes, and costs nothing meanwhile.

Trio can run once in a thread, so all views of a thread share its pump, which ends with the last of them.

Control-C: the main thread gets it at once in its own code and in that of environments (see `exposed`). Within the code
of the platform it is noted, and raised when that has come to a consistent state.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import trio
from outcome import Error, Outcome
from typing_extensions import override

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.sdk.bridges.call import Call, closed, forked
from trio_cogment.sdk.bridges.guest import GuestRun

P = ParamSpec("P")
T = TypeVar("T")

#: After this many turns a waiting call sleeps when nothing can run. Until then it is spared the thread in which a guest
#: waits, which costs about as much as these turns.
_BUSY_TURNS = 8
#: How long the end of the interpreter, or of the last user, waits for the tasks that it has cancelled.
_CLOSE_SECONDS = 30.0

_local = threading.local()
#: All pumps that run, so that none is collected as garbage before its end.
_running: set[Pump] = set()
#: All that there are: the processes that are forked may have them, and must not use them.
_made: weakref.WeakSet[Pump] = weakref.WeakSet()


class _Clock(trio.abc.Clock):
    """Trio's time: it passes only while the pump waits for something."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._since: float | None = None

    def resume(self) -> None:
        self._since = time.perf_counter()

    def pause(self) -> None:
        self._passed = self.current_time()
        self._since = None

    def is_running(self) -> bool:
        """Whether the pump waits for something."""
        return self._since is not None

    @override
    def start_clock(self) -> None: ...

    @override
    def current_time(self) -> float:
        return self._passed if self._since is None else self._passed + time.perf_counter() - self._since

    @override
    def deadline_to_sleep_time(self, deadline: float) -> float:
        return max(0.0, deadline - self.current_time())


class Pump(GuestRun):
    """Trio in this thread; `acquire` gives the thread's.

    Attributes:
        users: how many use it.
        nursery: of its tasks; none of them may raise anything.
        protected: Control-C has to wait.
        interrupted: it has come, and waits.
        forked: this is a process that was forked from the one that made it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forked = False
        self._thread = threading.get_ident()
        self._callbacks: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._clock = _Clock()
        self.users = 0
        self._turning = False
        self._may_sleep = False
        self._asleep = trio.lowlevel.ParkingLot()
        self.protected = False
        self.interrupted = False
        self._ended: Outcome[None] | None = None
        self._catches_interrupts = _catch_interrupts()
        _running.add(self)
        _made.add(self)
        self._start_run(self._callbacks.put, clock=self._clock)
        while not hasattr(self, "nursery"):
            self.turn()

    async def _hold(self, beside: trio.Nursery) -> None:
        beside.start_soon(self._idle)
        async with trio.open_nursery() as self.nursery:
            await trio.sleep_forever()

    async def _idle(self) -> None:
        # While a task can run, a guest does not start a thread to wait in, and there is always a callback for `turn`.
        while True:
            if self._may_sleep:
                await self._asleep.park()
            else:
                await trio.lowlevel.checkpoint()

    def _done(self, ended: Outcome[None]) -> None:
        self._ended = ended
        _running.discard(self)

    # Running

    def is_usable(self) -> bool:
        """Whether it has not ended, and belongs to this process and thread."""
        return self._ended is None and not self.forked and self._thread == threading.get_ident()

    def is_at_rest(self) -> bool:
        """Whether it is usable, nobody waits for it, and it does not run."""
        # In the middle of something that Control-C must not interrupt, nothing else may come either.
        return self.is_usable() and not (self._turning or self.protected or self._clock.is_running())

    def is_of_this_process(self) -> bool:
        """Whether it was not made before this process was forked."""
        return not self.forked

    def wake(self) -> None:
        """Have `wait` look at `interrupted`, should it sleep."""
        self._callbacks.put(_nothing)

    def check_here(self) -> None:
        """See that the caller is where the pump is.

        Raises:
            FailedPreconditionError: it is another process or thread, or the pump has ended.
        """
        if self.is_usable():
            return
        if self.forked:
            raise forked("view")
        if self._thread != threading.get_ident():
            raise FailedPreconditionError(
                "the view was made in another thread: make it in the thread that uses it, or with thread=True"
            )
        raise closed("view")

    def turn(self, seconds: float | None = None) -> None:
        """Let everything run that can, once. Nothing waits, and no time passes for Trio, but for `wait`.

        Args:
            seconds: how long it may sleep where it does.

        Raises:
            FailedPreconditionError: Trio is in the middle of a turn, from which this was called.
        """
        if self._turning:
            raise FailedPreconditionError(
                "a participant of a view waits for another view of the same thread, which cannot run meanwhile: "
                "make one of them with thread=True"
            )
        before, self.protected = self.protected, True
        self._turning = True
        try:
            self._callbacks.get(timeout=seconds)()
        finally:
            self._turning = False
            self.protected = before

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let everything run until `ready` says so; time passes.

        Raises:
            KeyboardInterrupt: Control-C came meanwhile; `ready` may never say so then.
            FailedPreconditionError: the pump has ended.
        """
        turns = 0
        self._clock.resume()
        try:
            while not ready():
                if self.interrupted:
                    break
                if self._ended is not None:
                    self.check_here()
                turns += 1
                self._may_sleep = turns > _BUSY_TURNS
                self.turn()
        finally:
            self._clock.pause()
            self.stay_awake()
        self.raise_interrupt()

    def stay_awake(self) -> None:
        """Do not sleep: what somebody waits for has come. Called in Trio, this spares it the thread of its sleep."""
        if self._may_sleep:
            self._may_sleep = False
            self._asleep.unpark_all()

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an asynchronous function to its end; return its result or raise its exception.

        Raises:
            KeyboardInterrupt: Control-C came meanwhile; the function has been cancelled, and has ended.
            FailedPreconditionError: the pump has ended.
        """
        self.check_here()
        call = Call(function, args, kwargs, on_end=self.stay_awake, noun="view")
        call.start_in(self.nursery)
        try:
            self.wait(call.is_over)
        except KeyboardInterrupt:
            call.scope.cancel()
            self.wait(call.is_over)
            raise
        return call.result()

    # Control-C

    @contextmanager
    def protecting(self) -> Iterator[None]:
        """Only note Control-C in a block, and raise it at its end."""
        before, self.protected = self.protected, True
        try:
            yield
        finally:
            self.protected = before
        self.raise_interrupt()

    def exposed(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function, an environment's, in which Control-C is raised at once."""
        before = self.protected
        try:
            self.protected = False
            return function(*args, **kwargs)
        finally:
            self.protected = before

    def raise_interrupt(self) -> None:
        """Raise the KeyboardInterrupt that has been noted, if there is one."""
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    # Its users

    def release(self) -> None:
        """Count one user less; the last one ends it."""
        self.users -= 1
        if not self.users:
            self.close()

    def close(self) -> None:
        """Cancel all tasks, and run them to their ends; closing again is harmless."""
        if self._ended is None:
            self._scope.cancel()
            self._clock.resume()
            self._may_sleep, deadline = True, time.perf_counter() + _CLOSE_SECONDS
            with suppress(Empty):
                while self._ended is None:
                    self.turn(max(0.0, deadline - time.perf_counter()))
        if self._catches_interrupts and signal.getsignal(signal.SIGINT) is _on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._catches_interrupts = False
        if getattr(_local, "pump", None) is self:
            del _local.pump
        _running.discard(self)
        self.interrupted = False
        if isinstance(self._ended, Error):
            self._ended.unwrap()


def acquire() -> Pump | None:
    """Return the pump of this thread, for one more user; None if Trio is run here by somebody else.

    Whoever is inside of a task cannot pump, even if the pump of this thread runs the task.
    """
    found: Pump | None = getattr(_local, "pump", None)
    if found is not None and found.is_usable() and not trio.lowlevel.in_trio_task():
        found.users += 1
        return found
    if trio.lowlevel.in_trio_run():
        return None
    _local.pump = found = Pump()
    found.users = 1
    return found


def _nothing() -> None:
    pass


def _catch_interrupts() -> bool:
    """Handle Control-C if nobody else does: only the main thread may, and a program's own handler stays."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, _on_interrupt)
    return True


def _on_interrupt(_number: int, _frame: FrameType | None) -> None:
    pump: Pump | None = getattr(_local, "pump", None)
    if pump is None or not pump.protected or pump.interrupted:
        # Whoever presses the keys twice does not want to wait any longer.
        raise KeyboardInterrupt
    pump.interrupted = True
    pump.wake()


def _after_fork() -> None:
    for pump in _made:
        pump.forked = True


if hasattr(os, "register_at_fork"):
    # Asking for the process at every step would be a call of the system for each.
    os.register_at_fork(after_in_child=_after_fork)


def _close_at_exit() -> None:
    pump: Pump | None = getattr(_local, "pump", None)
    if pump is not None and pump.is_usable():
        pump.close()


atexit.register(_close_at_exit)
