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
