"""Calls with one request and one response that no task waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
from trio_cogment.config import RpcConfig
from trio_cogment.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.host import Host
from trio_cogment.rpc import (
    CallOpener,
    InProcessChannel,
    ServerCall,
    WithMetadata,
    bind,
    methods_of,
    open_channel,
    open_listeners,
    serve,
)
from trio_cogment.services import SERVICES, ServiceKind

SERVICE = SERVICES[ServiceKind.LIFECYCLE].descriptor()
VERSION = methods_of(SERVICE)["Version"]
ELSEWHERE = methods_of(SERVICES[ServiceKind.DIRECTORY].descriptor())["Version"]


class Lifecycle:
    """Answers `Version` as it is told."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.seconds = 0.0

    async def Version(self, _request: VersionRequest, _call: ServerCall) -> VersionInfo:
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return VersionInfo(versions=[VersionInfo.Version(name="a", version="1")])


@asynccontextmanager
async def connected(service: Lifecycle) -> AsyncIterator[CallOpener]:
    """Give a channel over a socket that has made a call before."""
    async with trio.open_nursery() as nursery:
        running: Any = await nursery.start(serve, [bind(SERVICE, service)], await open_listeners("127.0.0.1"))
        async with open_channel(Host(), "127.0.0.1", running.port) as channel:
            assert channel.unary_nowait(VERSION, VersionRequest(), print) is None
            await channel.unary(VERSION, VersionRequest())
            yield channel
        nursery.cancel_scope.cancel()


class Reply:
    """What has come, once."""

    def __init__(self) -> None:
        self.came = trio.Event()
        self.found: list[tuple[Any, RpcError | None]] = []

    def take(self, reply: Any, error: RpcError | None) -> None:
        self.found.append((reply, error))
        self.came.set()

    async def wait(self) -> tuple[Any, RpcError | None]:
        with trio.fail_after(30):
            await self.came.wait()
        await trio.testing.wait_all_tasks_blocked()
        (found,) = self.found
        return found


async def test_the_reply_is_brought() -> None:
    async with connected(Lifecycle()) as channel:
        for _ in range(3):
            reply = Reply()
            assert channel.unary_nowait(VERSION, VersionRequest(), reply.take) is not None
            found, error = await reply.wait()
            assert (found.versions[0].name, error) == ("a", None)


async def test_an_error_is_brought() -> None:
    service = Lifecycle()
    async with connected(service) as channel:
        service.error = NotFoundError("nothing here")
        reply = Reply()
        channel.unary_nowait(VERSION, VersionRequest(), reply.take)
        found, error = await reply.wait()
        assert found is None
        assert error is not None
        assert (error.code, error.message) == (StatusCode.NOT_FOUND, "nothing here")


async def test_a_timeout_and_a_cancelled_call_are_errors() -> None:
    service = Lifecycle()
    async with connected(service) as channel:
        service.seconds = 60
        late, left = Reply(), Reply()
        channel.unary_nowait(VERSION, VersionRequest(), late.take, timeout=0.05)
        call = channel.unary_nowait(VERSION, VersionRequest(), left.take)
        assert call is not None
        call.cancel()
        for reply, code in ((left, StatusCode.CANCELLED), (late, StatusCode.DEADLINE_EXCEEDED)):
            found, error = await reply.wait()
            assert found is None
            assert error is not None
            assert error.code is code


async def test_a_lost_server_is_an_error() -> None:
    service = Lifecycle()
    reply = Reply()
    async with connected(service) as channel:
        service.seconds = 60
        channel.unary_nowait(VERSION, VersionRequest(), reply.take)
    found, error = await reply.wait()
    assert found is None
    assert error is not None
    assert error.code is StatusCode.UNAVAILABLE


async def test_within_the_process_a_reply_is_brought_by_the_handler() -> None:
    service = Lifecycle()
    async with InProcessChannel([bind(SERVICE, service)]) as channel:
        reply, named, refused, unserved = Reply(), Reply(), Reply(), Reply()
        assert channel.unary_nowait(VERSION, VersionRequest(), reply.take) is not None
        found, error = await reply.wait()
        assert (found.versions[0].name, error) == ("a", None)
        assert WithMetadata(channel, {"x": "y"}).unary_nowait(VERSION, VersionRequest(), named.take) is not None
        assert (await named.wait())[1] is None
        service.error = NotFoundError("nothing here")
        channel.unary_nowait(VERSION, VersionRequest(), refused.take)
        error = (await refused.wait())[1]
        assert error is not None
        assert (error.code, error.message) == (StatusCode.NOT_FOUND, "nothing here")
        channel.unary_nowait(ELSEWHERE, VersionRequest(), unserved.take)
        error = (await unserved.wait())[1]
        assert error is not None
        assert error.code is StatusCode.UNIMPLEMENTED


async def test_within_the_process_a_call_can_be_cancelled() -> None:
    service = Lifecycle()
    service.seconds = 60
    async with InProcessChannel([bind(SERVICE, service)]) as channel:
        reply = Reply()
        call = channel.unary_nowait(VERSION, VersionRequest(), reply.take)
        assert call is not None
        call.cancel()
        found, error = await reply.wait()
        assert found is None
        assert error is not None
        assert error.code is StatusCode.CANCELLED


async def test_within_the_process_a_timeout_or_a_full_house_would_wait() -> None:
    config = RpcConfig(max_concurrent_streams=1, max_channel_connections=1)
    service = Lifecycle()
    service.seconds = 60
    async with InProcessChannel([bind(SERVICE, service)], config=config) as channel:
        assert channel.unary_nowait(VERSION, VersionRequest(), Reply().take, timeout=1) is None
        assert channel.unary_nowait(VERSION, VersionRequest(), Reply().take) is not None
        assert channel.unary_nowait(VERSION, VersionRequest(), Reply().take) is None
