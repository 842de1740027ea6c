"""Calls with one request and one response that no task waits for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.test_liveness import MemoryListener
from trio_cogment.api.common_pb2 import Action, VersionInfo, VersionRequest
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import (
    CallOpener,
    Channel,
    InProcessChannel,
    Method,
    ServerCall,
    WithMetadata,
    bind,
    methods_of,
    open_channel,
    open_listeners,
    serve,
)
from trio_cogment.testing.conformance.channel import ECHO_ONE, WAIT, CheckService

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


async def test_what_would_have_to_wait_leaves_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """A request for which no room is left is not sent: the server hears of no call."""
    service = CheckService()
    config = RpcConfig(connection_memory_bytes=65_536)
    async with trio.open_nursery() as nursery:
        listener = MemoryListener()
        await nursery.start(serve, [service.service()], [listener])
        async with Channel.over(listener.connect, config=config) as channel:
            async with channel.call(WAIT) as full:
                await service.entered.wait()
                for _ in range(100):
                    with contextlib.suppress(trio.WouldBlock):
                        full.send_nowait(Action(content=bytes(30_000)))
                    await trio.testing.wait_all_tasks_blocked()
                assert channel.unary_nowait(ECHO_ONE, Action(content=bytes(70_000)), print) is None
            reply = Reply()
            assert channel.unary_nowait(ECHO_ONE, Action(tick_id=3), reply.take) is not None
            found, error = await reply.wait()
            assert (found.tick_id, error) == (3, None)
        nursery.cancel_scope.cancel()


async def test_a_request_that_may_not_be_sent_is_refused_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        listener = MemoryListener()
        await nursery.start(serve, [CheckService().service()], [listener])
        async with Channel.over(listener.connect, config=RpcConfig(max_send_message_bytes=100)) as channel:
            await channel.unary(ECHO_ONE, Action())
            told = Reply()
            with pytest.raises(RpcError, match="larger than 100 allowed to send"):
                channel.unary_nowait(ECHO_ONE, Action(content=bytes(200)), told.take)
            await channel.unary(ECHO_ONE, Action())
            assert told.found == []
        nursery.cancel_scope.cancel()


def test_what_opens_calls_need_not_be_able_to_open_them_without_waiting() -> None:
    class Plain(CallOpener):
        def call(self, method: Method, **_: object) -> Any:
            raise NotImplementedError

    plain: Any = Plain()
    assert plain.unary_nowait(ECHO_ONE, Action(), print) is None
    assert plain.call_nowait(ECHO_ONE) is None
