"""A call into Trio: one asynchronous function, its cancellation and its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, ClassVar, Generic, TypeVar

import trio

from trio_cogment.base.errors import FailedPreconditionError

T = TypeVar("T")


async def result_of(future: Future[T]) -> T:
    """Wait in Trio for a future of another thread; return its result, or raise its exception.

    After `Cancelled` it still runs.
    """
    token, done = trio.lowlevel.current_trio_token(), trio.Event()

    def on_done(_future: Future[T]) -> None:
        with suppress(trio.RunFinishedError):  # nobody waits any more
            token.run_sync_soon(done.set)

    future.add_done_callback(on_done)
    await done.wait()
    return future.result()


def closed(noun: str) -> FailedPreconditionError:
    """Return the error of whoever uses a bridge after its end."""
    return FailedPreconditionError(f"the {noun} is closed")


def forked(noun: str) -> FailedPreconditionError:
    """Return the error of whoever uses a bridge of the process that this one was forked from."""
    text = f"the {noun} was made before this process was forked: make it in the process that uses it"
    return FailedPreconditionError(text)


class Call(Generic[T]):
    """A call of an asynchronous function.

    Args:
        function: what is called.
        args: its arguments.
        kwargs: its arguments by name.
        on_end: called in Trio's thread when it has ended, or will never begin.
        noun: of what is open in Trio, for errors.

    Attributes:
        scope: cancels it; for Trio's thread.
    """

    #: What is raised where the call is waited for, and not in Trio.
    FOR_CALLER: ClassVar[tuple[type[BaseException], ...]] = (Exception,)

    def __init__(
        self,
        function: Callable[..., Awaitable[T]],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        on_end: Callable[[], object] = lambda: None,
        noun: str,
    ) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self._on_end = on_end
        self._noun = noun
        self.scope = trio.CancelScope()
        self._returned = self._over = False
        self._result: T
        self._failure: BaseException | None = None

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over

    def result(self) -> T:
        """Return what the function returned, or raise what it raised, with its traceback.

        Raises:
            FailedPreconditionError: it was cancelled with everything else, or before it began.
        """
        if self._returned:
            return self._result
        try:
            raise self._failure or FailedPreconditionError(f"the {self._noun} was closed before the call returned")
        finally:
            del self  # its failure's traceback would keep it, and it its failure

    def start_in(self, nursery: trio.Nursery) -> None:
        """Begin, in a task that raises nothing but what Trio needs."""
        nursery.start_soon(self._run, name=f"{getattr(self._function, '__qualname__', self._function)}, called")

    def refuse(self) -> None:
        """End it before it begins: there is no place for it any more."""
        self._end()

    async def _run(self) -> None:
        try:
            with self.scope:
                self._result = await self._function(*self._args, **self._kwargs)
                self._returned = True
        except self.FOR_CALLER as error:
            self._failure = error
        finally:
            self._end()

    def _end(self) -> None:
        self._over = True
        self._on_end()
