"""Methods that wait, made of asynchronous ones, and iteration: their arguments and results are the same."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio

from trio_cogment.sdk.bridges.thread import Caller, ThreadCall, TrioThread
from trio_cogment.sdk.item_stream import ITEMS_AHEAD, fetch_items, take_items
from trio_cogment.sdk.session_views import View

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[View[A, Any], P], T]:
    """Return a method that calls an asynchronous one and waits for its result."""

    @functools.wraps(method)
    def call(view: View[A, Caller], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return view._caller.call(method, view._target, *args, **kwargs)

    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterable[T]],
) -> Callable[Concatenate[View[A, Any], P], Items[T]]:
    """Return a method that gives the items of an asynchronous iteration."""

    @functools.wraps(method)
    def call(view: View[A, TrioThread[Any]], /, *args: P.args, **kwargs: P.kwargs) -> Items[T]:
        return Items(view._caller, functools.partial(method, view._target, *args, **kwargs))

    return call


def watching(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[AsyncIterable[T]]],
) -> Callable[Concatenate[View[A, Any], P], Items[T]]:
    """Return a method that gives the items of an iteration which an asynchronous context manager opens."""

    @functools.wraps(method)
    def call(view: View[A, TrioThread[Any]], /, *args: P.args, **kwargs: P.kwargs) -> Items[T]:
        return Items(view._caller, functools.partial(method, view._target, *args, **kwargs))

    return call


class Items(Iterator[T]):
    """Items of a Trio program, as an iterator; also a context manager, which ends the iteration.

    The iteration begins when the block is entered or, without one, when the first item is requested. Leaving a loop
    early, `close` ends it; so does the garbage collector.
    """

    def __init__(self, thread: TrioThread[Any], source: Callable[[], Any]) -> None:
        self._thread = thread
        self._source = source
        self._fetching: ThreadCall[None] | None = None
        self._closed = False
        self._send, self._receive = trio.open_memory_channel[T](ITEMS_AHEAD)
        self._begun = trio.Event()
        self._fetched: deque[T] = deque()

    def __enter__(self) -> Items[T]:
        if not self._closed:
            self._begin()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Items[T]:
        return self

    def __next__(self) -> T:
        if self._closed:
            raise StopIteration
        fetching = self._begin()
        if not self._fetched:
            self._fetched.extend(self._thread.call(take_items, self._receive))
        if self._fetched:
            return self._fetched.popleft()
        fetching.wait()  # raises what ended the iteration
        raise StopIteration

    def close(self) -> None:
        """End the iteration; nothing is fetched any more."""
        self._closed = True
        self._fetched.clear()
        if self._fetching is not None:
            self._fetching.cancel()

    def __del__(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    def _begin(self) -> ThreadCall[None]:
        if self._fetching is None:
            self._fetching = self._thread.start(fetch_items, self._source, self._send, self._begun)
            self._thread.call(self._begun.wait)
            if self._fetching.is_over():
                self._fetching.wait()  # raises what opening has raised
        return self._fetching
