"""Limits on calls by configuration, the same over HTTP/2 and in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest
import trio
import trio.testing

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener, Channel, ClientCall, InProcessChannel, serve_stream
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, FLOOD, WAIT, CheckService

#: Four calls at a time.
TIGHT = RpcConfig(max_concurrent_streams=2, max_channel_connections=2)


@asynccontextmanager
async def over_memory(config: RpcConfig) -> AsyncIterator[CallOpener]:
    service = CheckService().service()
    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(lambda: serve_stream([service], theirs, config=config))
            return ours

        async with Channel.over(connect, config=config) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def in_process(config: RpcConfig) -> AsyncIterator[CallOpener]:
    async with InProcessChannel([CheckService().service()], config=config) as channel:
        yield channel


Make: TypeAlias = Callable[[RpcConfig], AbstractAsyncContextManager[CallOpener]]
both = pytest.mark.parametrize("make", [over_memory, in_process], ids=lambda make: make.__name__)


async def hold(channel: CallOpener, leave: trio.Event, task_status: trio.TaskStatus[None]) -> None:
    async with channel.call(ECHO) as call:
        await call.send(Action(tick_id=5))
        assert (await call.receive()).tick_id == 5
        task_status.started()
        await leave.wait()
        await call.done_sending()
        assert await call.receive() is None


async def check(channel: CallOpener, number: int = 7) -> None:
    assert await channel.unary(ECHO_ONE, Action(tick_id=number)) == Observation(tick_id=number)


@both
async def test_calls_beyond_the_limit_wait_for_room(make: Make, autojump_clock: trio.testing.MockClock) -> None:
    async with make(TIGHT) as channel, trio.open_nursery() as nursery:
        leave, done = trio.Event(), trio.Event()
        for _ in range(4):
            await nursery.start(hold, channel, leave)

        async def fifth() -> None:
            await check(channel)
            done.set()

        nursery.start_soon(fifth)
        await trio.sleep(10)
        assert not done.is_set()
        leave.set()
        await done.wait()


@both
async def test_waiting_for_room_has_the_calls_deadline(make: Make, autojump_clock: trio.testing.MockClock) -> None:
    async with make(TIGHT) as channel, trio.open_nursery() as nursery:
        leave = trio.Event()
        for _ in range(4):
            await nursery.start(hold, channel, leave)
        began = trio.current_time()
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO_ONE, Action(), timeout=3)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        with trio.move_on_after(3) as scope:
            await channel.unary(ECHO_ONE, Action())
        assert scope.cancelled_caught
        assert trio.current_time() - began == pytest.approx(6)
        leave.set()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):  # who gave up has taken no room along
            await check(channel)


@both
async def test_a_storm_of_calls_gets_through(make: Make, autojump_clock: trio.testing.MockClock) -> None:
    done: list[int] = []

    async def one(number: int) -> None:
        with trio.move_on_after(0 if number % 7 == 0 else 1000):
            await check(channel, number)
            done.append(number)

    async with make(TIGHT) as channel:
        with trio.fail_after(500):
            async with trio.open_nursery() as nursery:
                for number in range(300):
                    nursery.start_soon(one, number)
        assert sorted(done) == [number for number in range(300) if number % 7]


@both
async def test_failed_calls_take_no_room(make: Make, autojump_clock: trio.testing.MockClock) -> None:
    async with make(TIGHT) as channel:
        for _ in range(10):
            with pytest.raises(RpcError) as caught:
                await channel.unary(ECHO_ONE, Action(), metadata={"x": "y" * TIGHT.max_header_list_bytes})
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
            with trio.move_on_after(1):
                async with channel.call(WAIT) as call:
                    await call.receive()
        await check(channel)


@both
async def test_closing_the_channel_ends_who_waits_for_room(make: Make, autojump_clock: trio.testing.MockClock) -> None:
    codes: list[StatusCode] = []

    async def call() -> None:
        with pytest.raises(RpcError) as caught:
            await channel.unary(WAIT, Action())
        codes.append(caught.value.code)

    async with trio.open_nursery() as nursery, make(TIGHT) as channel:
        for _ in range(8):
            nursery.start_soon(call)
        await trio.sleep(1)
    assert codes == [StatusCode.UNAVAILABLE] * 8


def sent_until_full(call: ClientCall, size: int) -> int:
    message = Action(content=bytes(size))
    for number in range(1000):
        try:
            call.send_nowait(message)
        except trio.WouldBlock:
            return number
    raise AssertionError("there is no limit")


@both
@pytest.mark.parametrize(
    ("size", "config", "least", "most"),
    [
        # As many as may wait, and no more; over HTTP/2 the window holds some beside them.
        (1, RpcConfig(call_outbox_messages=10, stream_window_bytes=100), 10, 40),
        (1000, RpcConfig(call_outbox_bytes=20_000, stream_window_bytes=5000), 19, 26),
        (5000, RpcConfig(call_outbox_bytes=1000, stream_window_bytes=1000), 1, 2),
    ],
)
async def test_the_outbox_is_the_configurations(
    make: Make, size: int, config: RpcConfig, least: int, most: int
) -> None:
    async with make(config) as channel, channel.call(WAIT) as call:
        await call.wait_initial_metadata()
        sent = sent_until_full(call, size)
        assert least <= sent <= most
    async with make(config) as channel, channel.call(FLOOD) as call:
        await call.send(Action(tick_id=size))
        await call.done_sending()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert least <= len([reply async for reply in call]) - 1 <= most


@both
async def test_who_waits_for_room_to_send_can_be_cancelled_by_others(
    make: Make, autojump_clock: trio.testing.MockClock
) -> None:
    async with make(RpcConfig(call_outbox_messages=2)) as channel, channel.call(WAIT) as call:
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await call.send(Action(content=bytes(100_000)))
                sent += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(send)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert sent > 0
        call.cancel()
