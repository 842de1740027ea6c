"""Messages that take long to decode: they rest, others do not wait for them, and too many entries are refused."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service

from tests.rpc.raw_peer import DATA, HEADERS, WINDOW_UPDATE, RawPeer, encode, frame, message
from tests.rpc.test_channel import OK_HEADERS, RawServer
from trio_cogment.api.common_pb2 import Action, Reward
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.budget.turns import LARGE_BYTES, measure_turns_by, turns_of_run
from trio_cogment.rpc import Channel, Method, ServerCall, serve_stream

SLOW_SECONDS = 0.1
LARGE = Action(content=bytes(LARGE_BYTES))
SMALL = Action(tick_id=1)
TAKEN = Method("/test.Slow/Taken", Cardinality.STREAM_UNARY, Action, Action)
PUSHED = Method("/test.Slow/Pushed", Cardinality.STREAM_UNARY, Action, Action)
GIVEN = Method("/test.Slow/Given", Cardinality.STREAM_UNARY, Reward, Action)


class Server:
    """Notes when it gets what."""

    def __init__(self) -> None:
        self.began = trio.current_time()
        self.got: list[tuple[float, int]] = []

    def on_message(self, message: Action) -> None:
        self.got.append((round(trio.current_time() - self.began, 3), len(message.content)))

    def on_end(self, error: RpcError | None) -> None:
        self.ended.set()

    async def taken(self, call: ServerCall) -> None:
        async for one in call:
            self.on_message(one)
        await call.send(SMALL)

    async def pushed(self, call: ServerCall) -> None:
        self.ended = trio.Event()
        call.set_consumer(self)
        await self.ended.wait()
        await call.send(SMALL)

    async def given(self, call: ServerCall) -> None:
        async for _ in call:
            pass
        await call.send(SMALL)

    def service(self) -> Service:
        service = Service("test.Slow")
        for method, function in ((TAKEN, self.taken), (PUSHED, self.pushed), (GIVEN, self.given)):
            name = method.path.rpartition("/")[2]
            signature = RPCSignature(method.cardinality, method.request_type, method.response_type)
            service.add_method(name, function, signature)
        return service


@asynccontextmanager
async def slow_server(config: RpcConfig | None = None) -> AsyncIterator[tuple[Server, Channel]]:
    """A server in memory, where everything that is measured takes long."""
    measured = 0.0

    def clock() -> float:
        nonlocal measured
        measured += SLOW_SECONDS
        return measured

    measure_turns_by(clock)
    server = Server()
    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(lambda: serve_stream([server.service()], theirs, config=config))
            return ours

        async with Channel.over(connect) as channel:
            yield server, channel


@pytest.mark.parametrize("method", [TAKEN, PUSHED])
async def test_they_come_one_at_a_time_with_rests_and_in_order(method: Method, autojump_clock: object) -> None:
    async with slow_server() as (server, channel), channel.call(method) as call:
        for one in (LARGE, LARGE, SMALL, LARGE, SMALL):
            await call.send(one)
        await call.done_sending()
        assert await call.receive() == SMALL
    size, rest = LARGE_BYTES, 2 * SLOW_SECONDS
    times = [time for time, _ in server.got]
    assert [got for _, got in server.got] == [size, size, 0, size, 0]
    assert times == pytest.approx([0, rest, rest, 2 * rest, 2 * rest])


async def test_several_calls_share_the_rests(autojump_clock: object) -> None:
    async with slow_server() as (server, channel):

        async def one() -> None:
            async with channel.call(TAKEN) as call:
                await call.send(LARGE)
                await call.done_sending()
                await call.receive()

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(one)
    times = [time for time, _ in server.got]
    assert times == pytest.approx([2 * SLOW_SECONDS * number for number in range(4)])


async def test_a_call_that_ends_while_it_waits(autojump_clock: object) -> None:
    async with slow_server() as (server, channel):
        async with channel.call(TAKEN) as call:
            await call.send(LARGE)
            await trio.testing.wait_all_tasks_blocked()
        async with channel.call(TAKEN) as call:
            await call.send(LARGE)
            await trio.testing.wait_all_tasks_blocked()
        async with channel.call(TAKEN) as call:
            await call.send(SMALL)
            await call.done_sending()
            assert await call.receive() == SMALL
        await trio.sleep(1)
    assert [size for _, size in server.got] == [LARGE_BYTES, 0]


@pytest.mark.parametrize("method", [TAKEN, PUSHED])
async def test_compressed_ones_wait_as_well(method: Method, autojump_clock: object) -> None:
    async with slow_server() as (server, channel), channel.call(method, compression="gzip") as call:
        for _ in range(3):
            await call.send(LARGE)
        await call.done_sending()
        assert await call.receive() == SMALL
    assert [size for _, size in server.got] == [LARGE_BYTES] * 3
    if method is PUSHED:
        assert [time for time, _ in server.got] == pytest.approx([0, 2 * SLOW_SECONDS, 4 * SLOW_SECONDS])
        assert turns_of_run().slow
    assert len(gzip.compress(LARGE.SerializeToString())) < LARGE_BYTES / 100


@pytest.mark.parametrize("compression", ["", "gzip"])
async def test_too_many_entries_are_refused(compression: str, autojump_clock: object) -> None:
    reward = Reward()
    for _ in range(LARGE_BYTES // 2):
        reward.sources.add()
    config = RpcConfig(max_message_entries=len(reward.sources) - 1)
    for allowed in (False, True):
        if allowed:
            config = RpcConfig(max_message_entries=len(reward.sources))
        async with slow_server(config) as (_, channel), channel.call(GIVEN, compression=compression) as call:
            await call.send(reward)
            await call.done_sending()
            if allowed:
                assert await call.receive() == SMALL
            else:
                with pytest.raises(RpcError, match="max_message_entries is") as caught:
                    await call.receive()
                assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("ends", ["cancelled", "deadline"])
async def test_a_caller_whose_call_ends_while_it_waits_is_told(ends: str, autojump_clock: object) -> None:
    """When the rest is over; the message that waited is not decoded any more."""
    measured = itertools.count(step=SLOW_SECONDS)
    measure_turns_by(lambda: next(measured))
    server = RawServer()
    timeout = 0.15 if ends == "deadline" else None
    async with Channel.over(server.connect) as channel, channel.call(TAKEN, timeout=timeout) as call:
        peer = await server.receive.receive()
        await call.send(SMALL)
        await peer.send(frame(HEADERS, 4, 1, encode(OK_HEADERS)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_twice, peer, message(LARGE.SerializeToString()))
            assert await call.receive() == LARGE
            began = trio.current_time()
            if timeout is None:

                async def cancel() -> None:
                    await trio.sleep(SLOW_SECONDS)
                    call.cancel()

                nursery.start_soon(cancel)
            with pytest.raises(RpcError) as caught:
                await call.receive()
            nursery.cancel_scope.cancel()
        code = StatusCode.CANCELLED if timeout is None else StatusCode.DEADLINE_EXCEEDED
        assert caught.value.code is code
        assert trio.current_time() - began == pytest.approx(2 * SLOW_SECONDS)


async def send_twice(peer: RawPeer, data: bytes) -> None:
    """Send a large message two times on stream 1, as the windows allow; then read on."""
    sent = 0

    def granted(where: int) -> int:
        updates = (payload for kind, _, stream, payload in peer.frames if (kind, stream) == (WINDOW_UPDATE, where))
        return (65_536 if where else 65_535) + sum(int.from_bytes(payload, "big") for payload in updates)

    for _ in range(2):
        for start in range(0, len(data), 16_000):
            piece = data[start : start + 16_000]
            while min(granted(0), granted(1)) - sent < len(piece):
                await peer.pump()
            await peer.send(frame(DATA, 0, 1, piece))
            sent += len(piece)


@pytest.mark.parametrize(("size", "waits"), [(LARGE_BYTES - 1, False), (LARGE_BYTES, True)])
@pytest.mark.parametrize("method", [TAKEN, PUSHED])
async def test_messages_are_slow_from_a_size_on(size: int, waits: bool, method: Method, autojump_clock: object) -> None:
    other = Action(content=bytes(size - 4))
    assert other.ByteSize() == size
    async with slow_server() as (server, channel), channel.call(method) as call:
        await call.send(LARGE)
        await call.send(other)
        await call.done_sending()
        assert await call.receive() == SMALL
    assert [time for time, _ in server.got] == pytest.approx([0, 2 * SLOW_SECONDS if waits else 0])
