"""A channel that several share is closed when nobody has used it for a while, however its use has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from trio_cogment.rpc import CallOpener, InProcessChannel, SharedChannels


@pytest.mark.parametrize("fails", [False, True])
async def test_it_is_closed_half_a_minute_after_its_last_use(
    fails: bool, autojump_clock: trio.testing.MockClock
) -> None:
    closed = trio.Event()

    @asynccontextmanager
    async def make(_key: str) -> AsyncIterator[CallOpener]:
        async with InProcessChannel([]) as channel:
            yield channel
        closed.set()

    async with trio.open_nursery() as nursery:
        channels = SharedChannels(nursery, make)
        try:
            async with channels.open("a", "somewhere"):
                assert not fails, "what was done with it has failed"
        except AssertionError:
            assert fails
        await trio.sleep(29)
        assert not closed.is_set()
        with trio.fail_after(2):
            await closed.wait()


async def test_once_it_is_abandoned_it_is_closed_after_its_last_use(autojump_clock: trio.testing.MockClock) -> None:
    """And at the deadline at the latest; the nearest one counts, and one that is opened afterwards has it, too."""
    closed: list[tuple[str, float]] = []

    @asynccontextmanager
    async def make(key: str) -> AsyncIterator[CallOpener]:
        try:
            async with InProcessChannel([]) as channel:
                yield channel
        finally:
            closed.append((key, trio.current_time()))

    async def use(key: str, seconds: float) -> None:
        async with channels.open(key, key):
            await trio.sleep(seconds)

    async with trio.open_nursery() as users:
        async with trio.open_nursery() as nursery:
            channels = SharedChannels(nursery, make)
            users.start_soon(use, "unused", 0)
            users.start_soon(use, "short", 12)
            users.start_soon(use, "long", 1000)
            await trio.sleep(10)
            assert closed == []
            channels.abandon(50)
            channels.abandon(40)
            channels.abandon(60)
            await trio.sleep(1)
            assert closed == [("unused", 10)]
            users.start_soon(use, "late", 1000)
            users.start_soon(use, "late, short", 5)
            nursery.cancel_scope.cancel()
        assert closed[1:3] == [("short", 12), ("late, short", 16)]
        assert sorted(closed[3:]) == [("late", 40), ("long", 40)]
        users.cancel_scope.cancel()
