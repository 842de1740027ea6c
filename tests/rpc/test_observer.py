"""An observer hears of every call once, with the status that its caller was told."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import PREFACE, RawPeer, request_headers, settings
from tests.rpc.test_liveness import MemoryListener
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, RunningServer, open_listeners, serve
from trio_cogment.testing.conformance.channel import COUNT, ECHO_ONE, FAIL, FLOOD, NOWHERE, WAIT, CheckService


class Seen:
    """Notes everything."""

    def __init__(self) -> None:
        self.shapes: dict[str, str] = {}
        self.started: list[str] = []
        self.ended: list[tuple[str, StatusCode, float]] = []
        self.news = trio.Event()

    def method(self, path: str, shape: str) -> Watched:
        name = path.rpartition("/")[2]
        self.shapes[name] = shape
        return Watched(self, name)

    def outcomes(self) -> list[tuple[str, StatusCode]]:
        return [(name, code) for name, code, _ in self.ended]

    async def wait_ended(self, count: int) -> None:
        while len(self.ended) < count:
            self.news = trio.Event()
            await self.news.wait()


class Watched:
    def __init__(self, seen: Seen, name: str) -> None:
        self._seen = seen
        self._name = name

    def started(self) -> None:
        self._seen.started.append(self._name)

    def ended(self, code: StatusCode, seconds: float) -> None:
        self._seen.ended.append((self._name, code, seconds))
        self._seen.news.set()


async def started(nursery: trio.Nursery, service: CheckService, seen: Seen) -> RunningServer:
    listeners = await open_listeners("127.0.0.1")
    serving = await nursery.start(partial(serve, [service.service()], listeners, observer=seen))
    assert isinstance(serving, RunningServer)
    return serving


async def test_every_call_is_told_once_with_its_status() -> None:
    service, seen = CheckService(), Seen()
    async with trio.open_nursery() as nursery:
        serving = await started(nursery, service, seen)
        assert {name: seen.shapes[name] for name in ("EchoOne", "Count", "Sum", "Echo")} == {
            "EchoOne": "unary",
            "Count": "server_stream",
            "Sum": "client_stream",
            "Echo": "bidi_stream",
        }
        async with Channel("127.0.0.1", serving.port) as channel:
            await channel.unary(ECHO_ONE, Action(tick_id=1))
            for kind in ("known", "bug", "other"):
                with pytest.raises(RpcError):
                    await channel.unary(FAIL, Action(content=kind.encode()))
            with pytest.raises(RpcError) as caught:
                await channel.unary(NOWHERE, Action())
            assert caught.value.code is StatusCode.UNIMPLEMENTED
            async with channel.call(COUNT) as call:
                await call.send(Action(tick_id=3))
                await call.done_sending()
                assert len([reply async for reply in call]) == 3
            with trio.fail_after(30):
                await seen.wait_ended(5)
        nursery.cancel_scope.cancel()
    assert seen.started == ["EchoOne", "Fail", "Fail", "Fail", "Count"]
    assert seen.outcomes() == [
        ("EchoOne", StatusCode.OK),
        ("Fail", StatusCode.NOT_FOUND),
        ("Fail", StatusCode.UNKNOWN),
        ("Fail", StatusCode.DATA_LOSS),
        ("Count", StatusCode.OK),
    ]


async def test_calls_that_are_given_up(autojump_clock: trio.testing.MockClock) -> None:
    """By a deadline, by the caller, and by the server; what they lasted is told on Trio's clock."""
    service, seen = CheckService(), Seen()
    async with trio.open_nursery() as nursery:
        listener = MemoryListener()
        serving = await nursery.start(partial(serve, [service.service()], [listener], observer=seen))
        await trio.sleep(1000)
        async with Channel.over(listener.connect) as channel:
            with pytest.raises(RpcError):
                async with channel.call(WAIT, timeout=7) as call:
                    await call.receive()
            await seen.wait_ended(1)
            assert seen.ended[0][1] is StatusCode.DEADLINE_EXCEEDED
            assert seen.ended[0][2] == pytest.approx(7, abs=0.01)
            async with channel.call(WAIT):
                await service.entered.wait()
            await seen.wait_ended(2)
            async with channel.call(WAIT) as call:
                nursery.start_soon(serving.drain, 3)
                with pytest.raises(RpcError):
                    await call.receive()
            await seen.wait_ended(3)
    assert seen.outcomes()[1:] == [("Wait", StatusCode.CANCELLED), ("Wait", StatusCode.UNAVAILABLE)]


async def test_a_server_that_is_cancelled_ends_a_call_as_its_caller_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its handlers end before their callers are told anything."""
    service, seen = CheckService(), Seen()
    listener = MemoryListener()
    told: list[RpcError] = []

    async def call_it(channel: Channel) -> None:
        with pytest.raises(RpcError) as caught:
            async with channel.call(WAIT) as call:
                await call.receive()
        told.append(caught.value)

    async with (
        Channel.over(listener.connect) as channel,
        trio.open_nursery() as callers,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(partial(serve, [service.service()], [listener], observer=seen))
        callers.start_soon(call_it, channel)
        await service.entered.wait()
        nursery.cancel_scope.cancel()
    assert [error.code for error in told] == [StatusCode.UNAVAILABLE]
    assert seen.outcomes() == [("Wait", StatusCode.UNAVAILABLE)]


async def test_a_call_whose_connection_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    service, seen = CheckService(), Seen()
    listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, [service.service()], [listener], observer=seen))
        peer = RawPeer(await listener.connect())
        await peer.send(PREFACE, settings(), peer.headers(1, request_headers(path=WAIT.path.encode())))
        await service.entered.wait()
        await trio.aclose_forcefully(peer.stream)
        await seen.wait_ended(1)
        nursery.cancel_scope.cancel()
    assert seen.outcomes() == [("Wait", StatusCode.UNAVAILABLE)]


async def test_a_caller_that_leaves_before_it_has_read_the_answer() -> None:
    service, seen = CheckService(), Seen()
    async with trio.open_nursery() as nursery:
        serving = await started(nursery, service, seen)
        async with Channel("127.0.0.1", serving.port) as channel:
            with trio.fail_after(10):
                async with channel.call(FLOOD) as call:
                    await call.send(Action(tick_id=1024))
                    await call.done_sending()
                    await service.flood_full.wait()
                await seen.wait_ended(1)
        nursery.cancel_scope.cancel()
    assert seen.outcomes() == [("Flood", StatusCode.CANCELLED)]


async def test_calls_are_the_same_without_an_observer() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        serving = await nursery.start(serve, [CheckService().service()], listeners)
        async with Channel("127.0.0.1", serving.port) as channel:
            assert (await channel.unary(ECHO_ONE, Action(tick_id=4))).tick_id == 4
        nursery.cancel_scope.cancel()
