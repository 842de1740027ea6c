"""Every transport against the same conformance kit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Service

from trio_cogment.rpc import CallOpener, Channel, open_listeners, serve, serve_stream
from trio_cogment.rpc.inprocess import InProcessChannel
from trio_cogment.testing.check_channel import CASES, CheckService, MakeChannel, check_case


@asynccontextmanager
async def over_tcp(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_memory(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve_stream, services, theirs)
            return ours

        async with Channel.over(connect) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_lockstep(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.lockstep_stream_pair()
            nursery.start_soon(serve_stream, services, theirs)
            return ours

        async with Channel.over(connect) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def in_process(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with InProcessChannel(services) as channel:
        yield channel


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("make", [over_tcp, over_memory, over_lockstep, in_process], ids=lambda make: make.__name__)
async def test_conformance(
    make: MakeChannel, case: Callable[[CallOpener, CheckService], Awaitable[None]], caplog: Any
) -> None:
    await check_case(make, case)
