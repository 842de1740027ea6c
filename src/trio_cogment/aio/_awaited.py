"""Coroutines of asyncio, made of asynchronous methods that run in Trio: their arguments and results are the same."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import trio

from trio_cogment.aio._guest import Guest
from trio_cogment.sdk.item_stream import ITEMS_AHEAD, fetch_items, take_items
from trio_cogment.sdk.session_views import View

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


def awaited(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[View[A, Any], P], Coroutine[Any, Any, T]]:
    """Return a coroutine method of asyncio that runs an asynchronous one in Trio."""

    @functools.wraps(method)
    async def call(view: View[A, Guest[Any]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await view._caller.call(method, view._target, *args, **kwargs)

    return call


def iterated(
    method: Callable[Concatenate[A, P], AsyncIterable[T]],
) -> Callable[Concatenate[View[A, Any], P], Items[T]]:
    """Return a method of asyncio that gives the items of an asynchronous iteration in Trio."""

    @functools.wraps(method)
    def call(view: View[A, Guest[Any]], /, *args: P.args, **kwargs: P.kwargs) -> Items[T]:
        return Items(view._caller, functools.partial(method, view._target, *args, **kwargs))

    return call


def watched(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[AsyncIterable[T]]],
) -> Callable[Concatenate[View[A, Any], P], Items[T]]:
    """Return a method of asyncio that gives the items of an iteration which a context manager opens in Trio."""

    @functools.wraps(method)
    def call(view: View[A, Guest[Any]], /, *args: P.args, **kwargs: P.kwargs) -> Items[T]:
        return Items(view._caller, functools.partial(method, view._target, *args, **kwargs))

    return call


class Items(Generic[T]):
    """Items of a Trio program, for an `async with` block of asyncio, which gives an asynchronous iterator.

    The block begins the iteration, and leaving it ends it.
    """

    def __init__(self, guest: Guest[Any], source: Callable[[], Any]) -> None:
        self._guest = guest
        self._block = _block(guest, source)

    async def __aenter__(self) -> AsyncGenerator[T, None]:
        return await self._block.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._block.__aexit__(*error)


@asynccontextmanager
async def _block(guest: Guest[Any], source: Callable[[], Any]) -> AsyncIterator[AsyncGenerator[Any, None]]:
    send, receive = trio.open_memory_channel[Any](ITEMS_AHEAD)
    begun = trio.Event()
    fetching = asyncio.ensure_future(guest.call(fetch_items, source, send, begun))
    try:
        await guest.call(begun.wait)
        if fetching.done():
            fetching.result()
        async with aclosing(_items(guest, receive, fetching)) as items:
            yield items
    finally:
        fetching.cancel()
        await asyncio.wait({fetching})
        if not fetching.cancelled():
            fetching.exception()  # seen


async def _items(
    guest: Guest[Any], receive: trio.MemoryReceiveChannel[Any], fetching: Any
) -> AsyncGenerator[Any, None]:
    while items := await guest.call(take_items, receive):
        for item in items:
            yield item
    await fetching  # raises what ended the iteration
