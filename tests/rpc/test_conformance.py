"""Every transport against the same conformance kit."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Service

from tests.helpers import wire_channel
from tests.rpc.tls_files import make_party
from trio_cogment.rpc import (
    CallDetails,
    CallOpener,
    Channel,
    ClientCall,
    ClientCallWrapper,
    ClientInterceptor,
    Handler,
    ServerCall,
    ServerCallWrapper,
    client_tls,
    intercept_channel,
    intercept_services,
    open_listeners,
    open_unix_listener,
    serve,
    serve_stream,
    server_tls,
)
from trio_cogment.rpc.inprocess import InProcessChannel
from trio_cogment.testing import DelayedChannel, Link
from trio_cogment.testing.conformance.channel import CASES, CheckService, MakeChannel, check_case


@asynccontextmanager
async def over_tcp(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_tls(services: list[Service]) -> AsyncIterator[CallOpener]:
    with TemporaryDirectory() as folder:
        party = make_party(Path(folder), "server", "127.0.0.1")
        server, client = server_tls(party.chain, party.key), client_tls(party.roots)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, services, await open_listeners("127.0.0.1", tls=server))
        async with Channel("127.0.0.1", serving.port, tls=client) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_unix(services: list[Service]) -> AsyncIterator[CallOpener]:
    with TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, services, [await open_unix_listener(path)])
            async with Channel.unix(path) as channel:
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


@asynccontextmanager
async def in_process_with_latency(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with DelayedChannel(services, Link(), random.Random) as channel:
        yield channel


class Watching(ClientInterceptor):
    """Passes on calls that it watches."""

    @asynccontextmanager
    async def intercept_call(
        self, details: CallDetails, continuation: Callable[[CallDetails], AbstractAsyncContextManager[ClientCall]]
    ) -> AsyncIterator[ClientCall]:
        async with continuation(details) as call:
            yield ClientCallWrapper(call)


async def watching(call: ServerCall, handler: Handler) -> None:
    await handler(ServerCallWrapper(call))


@asynccontextmanager
async def intercepted(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with over_tcp(intercept_services(services, watching, watching)) as channel:
        yield intercept_channel(channel, Watching(), ClientInterceptor())


@asynccontextmanager
async def intercepted_in_process(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with InProcessChannel(intercept_services(services, watching)) as channel:
        yield intercept_channel(channel, Watching())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize(
    "make",
    [
        *(over_tcp, over_tls, over_unix, wire_channel, over_lockstep, in_process, in_process_with_latency),
        *(intercepted, intercepted_in_process),
    ],
    ids=lambda make: make.__name__,
)
async def test_conformance(
    make: MakeChannel, case: Callable[[CallOpener, CheckService], Awaitable[None]], caplog: Any
) -> None:
    await check_case(make, case)
