"""Runners of blocking functions: in worker threads, or on the spot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")

#: What Python 3.12 and later raise, then.
_NO_THREADS_ANY_MORE = "can't create new thread at interpreter shutdown"


class Runner(Protocol):
    """Runs a blocking function to its end, and returns or raises what it does.

    `trio.Cancelled` may come before the function has begun, never after.
    """

    async def __call__(self, function: Callable[..., T], *args: object) -> T:
        """See the class."""


async def run_inline(function: Callable[..., T], *args: object) -> T:
    """Run a function in this very task: a `Runner` for tests, and for where no thread can be started any more."""
    await trio.lowlevel.checkpoint()
    return function(*args)


class ThreadRunner:
    """Runs functions in worker threads.

    Args:
        threads: how many at a time, `math.inf` for any number; more wait.
        without_threads: runs a function when the interpreter ends, and starts no threads any more. A program that is
            closed then has nothing else to do, so by default the function runs in the calling task.
    """

    def __init__(self, threads: float, *, without_threads: Runner = run_inline) -> None:
        self._limiter = trio.CapacityLimiter(threads)
        self._without_threads = without_threads

    async def __call__(self, function: Callable[..., T], *args: object) -> T:
        """See `Runner`."""
        try:
            return await trio.to_thread.run_sync(function, *args, limiter=self._limiter)
        except RuntimeError as error:
            if str(error) != _NO_THREADS_ANY_MORE:
                raise
        return await self._without_threads(function, *args)


def inline_runner(_threads: int) -> Runner:
    """Return `run_inline`, as `Host.runner` of a test. Simulations have `trio_cogment.testing.sim.world.SimRunner`."""
    return run_inline
