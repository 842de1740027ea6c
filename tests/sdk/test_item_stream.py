"""Items through a channel: all that are there at once, none at the end, and sources that are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from trio_cogment.sdk.item_stream import fetch_items, take_items


async def test_items_come_in_order_and_together_and_the_end_is_empty() -> None:
    closed = trio.Event()

    @asynccontextmanager
    async def source() -> AsyncIterator[AsyncIterator[int]]:
        async def items() -> AsyncIterator[int]:
            for number in range(5):
                yield number

        try:
            yield items()
        finally:
            closed.set()

    send, receive = trio.open_memory_channel[int](3)
    begun, taken = trio.Event(), list[list[int]]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch_items, source, send, begun)
        await begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        while items := await take_items(receive):
            taken.append(items)
    assert closed.is_set()
    assert [item for items in taken for item in items] == list(range(5))
    assert len(taken[0]) >= 3


async def test_a_source_that_does_not_open_is_not_waited_for() -> None:
    def source() -> AsyncIterator[int]:
        raise ZeroDivisionError

    send, receive = trio.open_memory_channel[int](1)
    begun = trio.Event()
    with pytest.raises(ZeroDivisionError):
        await fetch_items(source, send, begun)
    assert begun.is_set()
    assert await take_items(receive) == []
