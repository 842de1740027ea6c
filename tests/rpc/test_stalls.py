"""Large messages that are announced and do not come: who waits behind them is served all the same."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import DATA, PREFACE, WINDOW_UPDATE, RawPeer, frame, message, request_headers, settings
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc import serve_stream
from trio_cogment.rpc._frames import ErrorCode
from trio_cogment.rpc._stalled_messages import StalledMessages
from trio_cogment.rpc._streams import Stream
from trio_cogment.testing.conformance.channel import CheckService

MIB = 2**20
LARGE = Action(content=bytes(4 * MIB - 5)).SerializeToString()
HOLDERS = (3, 5, 7, 9)
CONFIG = RpcConfig(message_stall_timeout_seconds=20, keepalive_seconds=0)
Clock = trio.testing.MockClock


def granted(peer: RawPeer, stream: int) -> int:
    return sum(
        int.from_bytes(payload, "big")
        for kind, _, where, payload in peer.frames
        if (kind, where) == (WINDOW_UPDATE, stream)
    )


async def announced(peer: RawPeer, *streams: int) -> None:
    """On each of the streams, begin a message of 4 MiB."""
    for stream in streams:
        await peer.send(peer.headers(stream, request_headers()), frame(DATA, 0, stream, message(LARGE)[:1000]))


async def send(peer: RawPeer, stream: int, payload: bytes, *, used: int) -> None:
    """Send the rest of what was announced, as the windows allow; so much of the connection's is used."""
    for start in range(0, len(payload), 16_000):
        end = min(start + 16_000, len(payload))
        for where, needed in ((stream, end + 1000 - 65_536), (0, end + used - 65_535)):
            while granted(peer, where) < needed:
                await peer.pump()
                assert not peer.eof
        await peer.send(frame(DATA, 0, stream, payload[start:end]))


@asynccontextmanager
async def client() -> AsyncIterator[RawPeer]:
    """As `raw_client`, for long times on a virtual clock."""
    async with trio.open_nursery() as nursery:
        ours, theirs = trio.testing.memory_stream_pair()

        async def run() -> None:
            await serve_stream([CheckService().service()], theirs, config=CONFIG)

        nursery.start_soon(run)
        peer = RawPeer(ours)
        await peer.send(PREFACE, settings())
        yield peer
        await trio.aclose_forcefully(ours)


async def test_stalled_messages_lose_their_place(autojump_clock: Clock) -> None:
    """Four use up the connection's memory; the fifth is served when their time is over, and so is everybody else."""
    async with client() as peer:
        await peer.send(peer.headers(1, request_headers()))
        await announced(peer, *HOLDERS)
        await peer.until(lambda: all(granted(peer, stream) > 3 * MIB for stream in HOLDERS))
        began = trio.current_time()
        await announced(peer, 11)
        assert await peer.echo(1, Action(tick_id=1).SerializeToString()) == Observation(tick_id=1).SerializeToString()
        assert not granted(peer, 11)
        for stream in HOLDERS:
            answer = await peer.until_over(stream)
            assert answer.status == 8
            assert b"no further for 20 s" in (answer.field(b"grpc-message") or b"")
        assert 20 <= trio.current_time() - began <= 26
        await peer.send(frame(WINDOW_UPDATE, 0, 0, b"\x01\0\0\0"), frame(WINDOW_UPDATE, 0, 11, b"\x01\0\0\0"))
        await send(peer, 11, message(LARGE)[1000:], used=6000)
        await peer.until(lambda: len(peer.answer(11).data) >= 4 * MIB)
        assert peer.goaway is None


@pytest.mark.parametrize("step", [16 * 1024, 100])
async def test_who_goes_on_keeps_its_place(step: int, autojump_clock: Clock) -> None:
    """A frame in twenty seconds will do, but not a few bytes."""
    async with client() as peer:
        await announced(peer, *HOLDERS)
        await peer.until(lambda: all(granted(peer, stream) > 3 * MIB for stream in HOLDERS))
        await announced(peer, 11)
        for _ in range(6):
            with trio.move_on_after(14):
                await peer.until(lambda: False)
            if not peer.answer(3).headers:
                await peer.send(frame(DATA, 0, 3, bytes(step)))
        assert bool(peer.answer(3).headers) == (step == 100)
        assert peer.answer(5).status == 8


async def test_who_sends_one_after_the_other_over_a_slow_link_loses_nothing(autojump_clock: Clock) -> None:
    """As grpcio does: while enough comes of the first message, those behind it are not to blame."""
    async with client() as peer:
        await announced(peer, *HOLDERS)
        await peer.until(lambda: all(granted(peer, stream) > 3 * MIB for stream in HOLDERS))
        await announced(peer, 11)
        for _ in range(100):
            with trio.move_on_after(1):
                await peer.until(lambda: False)
            await peer.send(frame(DATA, 0, 3, bytes(16_000)))
        assert not any(peer.answer(stream).headers for stream in HOLDERS)
        with trio.move_on_after(50):
            await peer.until(lambda: False)
        assert [peer.answer(stream).status for stream in HOLDERS] == [8] * 4


def test_the_next_message_of_a_stream_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although more is missing of it than was of the one before."""
    streams = [Stream(number, recv_window=0, send_window=0, max_message=0) for number in (1, 3)]

    engine = SimpleNamespace(holders=lambda: streams)
    stalls = StalledMessages(cast("Any", engine), CONFIG.message_stall_timeout_seconds, lambda: None)
    first, second = streams
    ended: list[Stream] = []
    monkeypatch.setattr(stalls, "_end", ended.append)
    first.missing, second.missing = 10_000, 10_000
    assert stalls.look(0) == 5
    first.missing = 100_000
    stalls.look(19)
    stalls.look(20)
    assert ended == [second]
    streams.remove(second)
    stalls.look(38)
    assert ended == [second]
    stalls.look(39)
    assert ended == [second, first]


async def test_who_holds_up_nobody_may_take_any_time(autojump_clock: Clock) -> None:
    async with client() as peer:
        await announced(peer, *HOLDERS)
        await peer.until(lambda: all(granted(peer, stream) > 3 * MIB for stream in HOLDERS))
        with trio.move_on_after(1000):
            await peer.until(lambda: False)
        assert not any(peer.answer(stream).headers for stream in HOLDERS)
        assert not peer.eof


@pytest.mark.parametrize("has_call", [False, True])
def test_a_stalled_message_ends_its_call_or_its_stream(has_call: bool) -> None:
    """To the second, and the peer is told at once."""
    stream = Stream(1, recv_window=0, send_window=0, max_message=0)
    stream.missing = 10_000
    told: list[Any] = []
    if has_call:
        stream.call = SimpleNamespace(on_broken=lambda code, text: told.append((code, text)))
    engine = SimpleNamespace(holders=lambda: [stream], reset=lambda *which: told.append(which))
    stalls = StalledMessages(cast("Any", engine), 20, lambda: told.append("sent"))
    assert [stalls.look(now) for now in (0, 5, 19.9)] == [5, 10, 24.9]
    assert told == []
    assert stalls.look(20) == math.inf
    text = "a message has come no further for 20 s while others waited for its room"
    assert told == [(StatusCode.RESOURCE_EXHAUSTED, text) if has_call else (stream, ErrorCode.CANCEL), "sent"]


@pytest.mark.parametrize(("came", "ends"), [(16_383, True), (16_384, False)])
@pytest.mark.parametrize("others", [0, 16 * 16_384 - 16_384, 16 * 16_384])
def test_enough_of_a_message_or_of_all_together_keeps_it(came: int, ends: bool, others: int) -> None:
    """16 KiB of its own, or sixteen times as many of all, within its patience."""
    waits, goes_on = (Stream(number, recv_window=0, send_window=0, max_message=0) for number in (1, 3))
    waits.missing, goes_on.missing = 10**6, 10**6
    ended: list[Stream] = []
    engine = SimpleNamespace(holders=lambda: [waits, goes_on], reset=lambda stream, _: ended.append(stream))
    stalls = StalledMessages(cast("Any", engine), 20, lambda: None)
    stalls.look(0)
    waits.missing -= came
    goes_on.missing -= others
    stalls.look(20)
    together = came + others >= 16 * 16_384
    assert (waits in ended) is (ends and not together)
    assert (goes_on in ended) is (others == 0 and not together)
