"""Items of an asynchronous source through a channel, for programs that are not Trio's: `trio_cogment.sync` and `.aio`.

A task of Trio reads the source. The other side takes all items that are there at once: each turn between the two
costs more than an item.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, TypeVar

import trio

T = TypeVar("T")

#: Items that an iteration fetches ahead.
ITEMS_AHEAD = 64


async def fetch_items(source: Callable[[], Any], send: trio.MemorySendChannel[Any], begun: trio.Event) -> None:
    """Send the items of a source, and close the channel at its end.

    Args:
        source: returns an asynchronous iterable, or a context manager that gives one.
        send: where the items go.
        begun: set when the source is open, or has failed to open.
    """
    try:
        with send:
            async with _entered(source()) as items:
                begun.set()
                async for item in items:
                    await send.send(item)
    finally:
        begun.set()


async def take_items(receive: trio.MemoryReceiveChannel[T]) -> list[T]:
    """Return the next items, one at least; none at the end."""
    items: list[T] = []
    try:
        items.append(await receive.receive())
        while True:
            items.append(receive.receive_nowait())
    except (trio.WouldBlock, trio.EndOfChannel):
        return items


def _entered(source: Any) -> AbstractAsyncContextManager[AsyncIterable[Any]]:
    if hasattr(source, "__aenter__"):
        entered: AbstractAsyncContextManager[AsyncIterable[Any]] = source
        return entered
    # Only generators have to be closed.
    return aclosing(source) if hasattr(source, "aclose") else nullcontext(source)
