"""The writer of a connection, over a byte stream that takes what it is told to take."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import request_headers
from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._writer import Writer


class SlowByteStream(ByteStream):
    """Takes `room` bytes without waiting."""

    def __init__(self) -> None:
        self.room = 2**30
        self.sent = b""
        self.waits = 0
        self.broken = False
        self.opened = trio.Event()

    async def receive_some(self) -> bytes:
        raise NotImplementedError

    async def send_all(self, data: bytes) -> None:
        self.waits += 1
        if self.broken:
            raise trio.BrokenResourceError
        if self.room < len(data):
            await self.opened.wait()
        self.sent += data

    def send_now(self, data: bytes) -> int:
        if self.broken:
            raise trio.BrokenResourceError
        taken = data[: self.room]
        self.sent += taken
        self.room -= len(taken)
        return len(taken)

    async def aclose(self) -> None:
        raise NotImplementedError


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Engine, SlowByteStream, Writer]]:
    """A writer that has sent the engine's preface and has nothing to do."""
    engine, byte_stream = Engine(client_side=True, config=RpcConfig()), SlowByteStream()
    writer = Writer(engine.output, byte_stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()
        byte_stream.sent, byte_stream.waits = b"", 0
        yield engine, byte_stream, writer
        nursery.cancel_scope.cancel()


def pings(data: bytes) -> list[bytes]:
    assert len(data) % 17 == 0
    return [data[start + 9 : start + 17] for start in range(0, len(data), 17)]


async def test_woken_it_sends_what_has_gathered_in_one_piece() -> None:
    async with running() as (engine, byte_stream, writer):
        for number in range(3):
            engine.ping(bytes([number] * 8))
            writer.wake()
        assert byte_stream.sent == b""
        await trio.testing.wait_all_tasks_blocked()
        assert byte_stream.waits == 1
        assert pings(byte_stream.sent) == [bytes([number] * 8) for number in range(3)]


async def test_flush_sends_at_once_and_leaves_the_rest_to_the_task() -> None:
    async with running() as (engine, byte_stream, writer):
        engine.ping(b"at once!")
        writer.flush_soon()
        assert pings(byte_stream.sent) == [b"at once!"]
        byte_stream.room = 10
        engine.ping(b"in parts")
        writer.flush()
        assert len(byte_stream.sent) == 27
        await trio.testing.wait_all_tasks_blocked()
        # The task waits for the socket now: nothing may overtake the rest of the frame.
        byte_stream.room = 0
        engine.ping(b"behind..")
        writer.flush()
        byte_stream.room = 2**30
        byte_stream.opened.set()
        await trio.testing.wait_all_tasks_blocked()
        writer.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert pings(byte_stream.sent) == [b"at once!", b"in parts", b"behind.."]


async def test_large_output_that_is_sent_in_parts_arrives_whole_and_in_order() -> None:
    async with running() as (engine, byte_stream, writer):
        for room in (0, 1, 17, 18, 30_000, 40_017, 40_018, 100_000):
            byte_stream.sent, byte_stream.room = b"", room
            engine.ping(b"in front")
            engine.output.write(bytes(40_000))
            engine.ping(b"  behind")
            writer.flush()
            assert len(byte_stream.sent) == min(room, 40_034)
            byte_stream.room = 2**30
            await trio.testing.wait_all_tasks_blocked()
            assert pings(byte_stream.sent[:17]) == [b"in front"]
            assert byte_stream.sent[17:-17] == bytes(40_000)
            assert pings(byte_stream.sent[-17:]) == [b"  behind"]


async def test_a_call_that_is_told_of_room_sends_behind_what_was_taken() -> None:
    async with running() as (engine, byte_stream, writer):

        class Call:
            def on_room(self) -> None:
                engine.ping(b"the next")
                writer.flush_soon()

        cast(Any, engine.output.rooms).append(SimpleNamespace(call=Call()))
        byte_stream.room = 0
        engine.ping(b"waits...")
        writer.flush()
        byte_stream.room = 2**30
        await trio.testing.wait_all_tasks_blocked()
        assert pings(byte_stream.sent) == [b"waits...", b"the next"]


async def test_what_is_sent_is_told_each_time_if_that_is_asked_for() -> None:
    class Told:
        loan = BytePool().loan()
        streams = (None,)
        left: ClassVar[list[bytes]] = [b"two", b"one"]
        sizes: ClassVar[list[int]] = []

        @property
        def out_size(self) -> int:
            return len(self.left)

        def take_output(self) -> bytes:
            return self.left.pop() if self.left else b""

        def take_pieces(self) -> list[bytes | memoryview]:
            raise NotImplementedError

        def sent(self) -> None:
            self.sizes.append(len(self.left))

        rooms = ()

        def take_rooms(self) -> tuple[()]:
            return self.rooms

    output = Told()
    writer = Writer(output, SlowByteStream(), exact=True)
    writer.finish()
    await writer.run()
    assert output.sizes == [1, 0]


async def test_in_a_batch_nothing_is_sent_before_its_end() -> None:
    async with running() as (engine, byte_stream, writer):
        writer.in_batch = True
        engine.ping(b"waiting.")
        writer.wake()
        writer.flush_soon()
        await trio.testing.wait_all_tasks_blocked()
        assert byte_stream.sent == b""
        writer.in_batch = False
        writer.flush()
        assert pings(byte_stream.sent) == [b"waiting."]


@pytest.mark.parametrize(("calls", "at_once"), [(0, True), (1, True), (2, False)])
async def test_only_a_single_call_has_nobody_to_share_a_system_call_with(calls: int, at_once: bool) -> None:
    async with running() as (engine, byte_stream, writer):
        for _ in range(calls):
            engine.open_request(request_headers())
        engine.take_output()
        engine.ping(b"at once?")
        writer.flush_soon()
        assert bool(byte_stream.sent) is at_once
        await trio.testing.wait_all_tasks_blocked()
        assert pings(byte_stream.sent) == [b"at once?"]


@pytest.mark.parametrize(
    ("room", "borrowed", "exact", "told"),
    [(100, 10, False, 1), (100, 0, True, 1), (100, 0, False, 0), (99, 10, False, 0), (99, 0, True, 0)],
)
async def test_a_flush_tells_that_all_was_sent_to_whom_it_matters(
    room: int, borrowed: int, exact: bool, told: int
) -> None:
    class Told:
        loan = BytePool().loan()
        streams = rooms = ()
        out = b""
        times = 0

        @property
        def out_size(self) -> int:
            return len(self.out)

        def take_output(self) -> bytes:
            out, self.out = self.out, b""
            return out

        def take_pieces(self) -> list[bytes | memoryview]:
            raise NotImplementedError

        def sent(self) -> None:
            self.times += 1

        def take_rooms(self) -> tuple[()]:
            return ()

    output, byte_stream = Told(), SlowByteStream()
    writer = Writer(output, byte_stream, exact=exact)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await trio.testing.wait_all_tasks_blocked()
        output.out = bytes(100)
        output.loan.set(borrowed)
        byte_stream.room = room
        writer.flush()
        assert output.times == told
        nursery.cancel_scope.cancel()


async def test_it_finishes_when_everything_has_been_sent() -> None:
    engine, byte_stream = Engine(client_side=True, config=RpcConfig()), SlowByteStream()
    writer = Writer(engine.output, byte_stream)
    writer.finish()
    engine.ping(b"the last")
    await writer.run()
    assert byte_stream.sent.endswith(b"the last")


async def test_a_broken_pipe_ends_it() -> None:
    engine, byte_stream = Engine(client_side=True, config=RpcConfig()), SlowByteStream()
    writer = Writer(engine.output, byte_stream)

    async def run() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await writer.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        byte_stream.broken = True
        engine.ping(b"nowhere!")
        writer.flush()  # leaves it to the task, which meets it again


@pytest.mark.parametrize(("size", "turns"), [(16 * 1024, []), (16 * 1024 + 1, [16 * 1024 + 1])])
async def test_large_output_waits_for_its_turn(size: int, turns: list[int]) -> None:
    engine, byte_stream = Engine(client_side=True, config=RpcConfig()), SlowByteStream()
    engine.take_output()
    taken: list[int] = []

    async def turn(size: int) -> None:
        taken.append(size)
        await trio.lowlevel.checkpoint()

    writer = Writer(engine.output, byte_stream, turn)
    engine._send_queue.write(bytes(size))
    writer.finish()
    await writer.run()
    assert (taken, len(byte_stream.sent)) == (turns, size)


@pytest.mark.parametrize(("mebibytes", "at_once"), [(0.75, True), (3, False)])
async def test_more_than_the_output_takes_goes_on_without_a_task_switch(mebibytes: float, at_once: bool) -> None:
    """As far as the socket takes it, but no more than a mebibyte: others may have something to do, too."""
    async with running() as (engine, byte_stream, writer):
        stream = engine.open_request(request_headers())
        stream.send_window = engine.output.window = 2**30
        size = int(mebibytes * 2**20)
        engine.send_message(stream, bytes(size))
        writer.flush()
        assert (len(byte_stream.sent) > size) is at_once
        assert byte_stream.waits == 0
        assert len(byte_stream.sent) >= min(size, 2**20)
        await trio.testing.wait_all_tasks_blocked()
        assert len(byte_stream.sent) > size


async def test_what_the_socket_does_not_take_of_it_is_left_to_the_task() -> None:
    async with running() as (engine, byte_stream, writer):
        stream = engine.open_request(request_headers())
        stream.send_window = engine.output.window = 2**30
        engine.send_message(stream, bytes(2**20))
        byte_stream.room = 300_000
        writer.flush()
        assert len(byte_stream.sent) == 300_000
        byte_stream.room = 2**30
        byte_stream.opened.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(byte_stream.sent) > 2**20
