"""gRPC-Web, as bytes, as text and over HTTP/2, and gRPC over WebSockets: the conformance kit of every transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing
from purerpc import Service

from tests.web.clients import Forward, channel_over, over_http, over_http2, over_websocket
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import CallOpener, open_listeners, serve, serve_stream
from trio_cogment.testing.conformance.channel import CASES, CheckService, MakeChannel, check_case
from trio_cogment.web import WebSide


@asynccontextmanager
async def over_tcp(forward: Forward, services: list[Service]) -> AsyncIterator[CallOpener]:
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        # Each call has a connection here.
        config = RpcConfig(max_peer_connections=5000)
        serving = await nursery.start(partial(serve, web=WebSide(), config=config), services, listeners)

        async def connect() -> trio.abc.Stream:
            return await trio.open_tcp_stream("127.0.0.1", serving.port)

        async with channel_over(connect, services, forward) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_memory(forward: Forward, services: list[Service]) -> AsyncIterator[CallOpener]:
    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(partial(serve_stream, web=WebSide()), services, theirs)
            return ours

        async with channel_over(connect, services, forward) as channel:
            yield channel
        nursery.cancel_scope.cancel()


#: A thousand calls at once are a thousand connections here.
_PATIENCE_SECONDS = 60.0

MAKES = {
    "tcp-bytes": partial(over_tcp, over_http),
    "tcp-http2": partial(over_tcp, over_http2),
    "tcp-websocket": partial(over_tcp, over_websocket),
    "memory-bytes": partial(over_memory, over_http),
    "memory-http2": partial(over_memory, over_http2),
    "memory-text": partial(over_memory, partial(over_http, text=True)),
    "memory-websocket": partial(over_memory, over_websocket),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())
async def test_conformance(make: MakeChannel, case: Callable[[CallOpener, CheckService], Awaitable[None]]) -> None:
    await check_case(make, case, patience=_PATIENCE_SECONDS)
