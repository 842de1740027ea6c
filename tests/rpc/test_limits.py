"""Floods, sizes and what one connection may hold: each limit of `RpcConfig`, reached and not reached."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service

from tests.rpc.raw_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST,
    WINDOW_UPDATE,
    RawPeer,
    encode,
    frame,
    message,
    raw_client,
    request_headers,
    settings,
)
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import ServerCall, _grpc_headers, serve_stream
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import Kind
from trio_cogment.rpc._streams import Stream
from trio_cogment.testing.conformance.channel import CheckService

PATH = b"/trio_cogment.testing.Check/"
GOOD = Action(tick_id=3, content=b"good").SerializeToString()
ANSWER = Observation(tick_id=3, content=b"good").SerializeToString()
CALM = 11
LIMITED = RpcConfig(max_resets=20, max_pings=20, max_settings=20, max_empty_frames=20, flood_interval_seconds=1)


def goaways(peer: RawPeer) -> list[tuple[int, bytes]]:
    return [(int.from_bytes(payload[4:8], "big"), payload[8:]) for kind, _, _, payload in peer.frames if kind == GOAWAY]


def reset_calls(peer: RawPeer, first: int, count: int, path: bytes = b"Wait") -> list[bytes]:
    """Calls that are reset at once (CVE-2023-44487)."""
    return [
        piece
        for number in range(count)
        for piece in (
            peer.headers(first + 2 * number, request_headers(path=PATH + path)),
            frame(RST, 0, first + 2 * number, b"\0\0\0\x08"),
        )
    ]


def spoilt_calls(peer: RawPeer, first: int, count: int) -> list[bytes]:
    """Calls that we have to reset (CVE-2025-8671)."""
    return [
        piece
        for number in range(count)
        for piece in (
            peer.headers(first + 2 * number, request_headers(path=PATH + b"Wait")),
            frame(WINDOW_UPDATE, 0, first + 2 * number, bytes(4)),
        )
    ]


FLOODS: list[tuple[str, Any, bytes]] = [
    ("rapid reset", reset_calls, b"too many calls reset"),
    ("resets we are made to send", spoilt_calls, b"too many calls reset"),
    ("PING", lambda peer, first, count: [frame(PING, 0, 0, bytes(8))] * count, b"too_many_pings"),
    ("SETTINGS", lambda peer, first, count: [settings({4: 70_000})] * count, b"too many SETTINGS"),
    ("empty DATA", lambda peer, first, count: [frame(DATA, 0, 1)] * count, b"without content"),
    ("padding only", lambda peer, first, count: [frame(DATA, 8, 1, b"\1\0")] * count, b"without content"),
    ("PRIORITY", lambda peer, first, count: [frame(PRIORITY, 0, 1, bytes(5))] * count, b"without content"),
    ("unknown frames", lambda peer, first, count: [frame(99, 0, 0, b"x")] * count, b"without content"),
    ("PING answers", lambda peer, first, count: [frame(PING, 1, 0, bytes(8))] * count, b"without content"),
    (
        "empty CONTINUATION",
        lambda peer, first, count: [
            frame(HEADERS, 0, first),
            *[frame(CONTINUATION, 0, first)] * count,
            frame(CONTINUATION, END_HEADERS, first, encode(request_headers())),
        ],
        b"without content",
    ),
]


@pytest.mark.parametrize(("flood", "text"), [f[1:] for f in FLOODS], ids=[f[0] for f in FLOODS])
async def test_a_flood_ends_its_connection(flood: Any, text: bytes, autojump_clock: trio.testing.MockClock) -> None:
    async with raw_client([CheckService().service()], config=LIMITED) as peer:
        await peer.send(peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        before = 20 - (text == b"too many SETTINGS")  # one came with the preface
        await peer.send(*flood(peer, 3, before))
        assert await peer.echo(1, GOOD) == ANSWER  # as much as is allowed
        assert goaways(peer) == []
        began = trio.current_time()
        await peer.send(*flood(peer, 1001, 3))  # the first PING after data is not counted, here and above
        await peer.until(lambda: False)
        assert trio.current_time() - began <= 1
        ((code, why),) = goaways(peer)
        assert code == CALM
        assert text in why


@pytest.mark.parametrize("flood", [f[1] for f in FLOODS[:9]], ids=[f[0] for f in FLOODS[:9]])
async def test_the_same_in_more_time_is_no_flood(flood: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with raw_client([CheckService().service()], config=LIMITED) as peer:
        await peer.send(peer.headers(1, request_headers()))
        for turn in range(5):
            await peer.send(*flood(peer, 3 + 100 * turn, 19))
            await trio.sleep(LIMITED.flood_interval_seconds + 0.1)
        assert await peer.echo(1, GOOD) == ANSWER
        assert goaways(peer) == []


async def test_resets_after_a_first_answer_are_no_flood() -> None:
    async with raw_client([CheckService().service()], config=LIMITED) as peer:
        for number in range(100):
            stream = 1 + 2 * number
            await peer.send(peer.headers(stream, request_headers()))
            assert await peer.echo(stream, GOOD) == ANSWER
            await peer.send(frame(RST, 0, stream, b"\0\0\0\x08"))
        await peer.send(peer.headers(301, request_headers()))
        assert await peer.echo(301, GOOD) == ANSWER


async def test_pings_between_messages_are_no_flood() -> None:
    async with raw_client([CheckService().service()], config=LIMITED) as peer:
        await peer.send(peer.headers(1, request_headers()))
        for _ in range(100):  # as gRPC for Go measures round trips
            await peer.send(frame(PING, 0, 0, bytes(8)))
            assert await peer.echo(1, GOOD) == ANSWER


def test_defaults_of_the_reset_limit() -> None:
    now = [0.0]
    engine = Engine(client_side=False, config=RpcConfig(), clock=lambda: now[0])
    engine.receive_data(PREFACE + settings())
    block = encode(request_headers())
    stream = 1
    for _ in range(200):
        engine.receive_data(frame(HEADERS, END_HEADERS, stream, block) + frame(RST, 0, stream, b"\0\0\0\x08"))
        stream += 2
        now[0] += 0.04
    assert engine.fault is None
    assert not engine.streams
    engine.receive_data(frame(HEADERS, END_HEADERS, stream, block) + frame(RST, 0, stream, b"\0\0\0\x08"))
    assert engine.fault is not None


def test_answers_that_nobody_reads_are_bounded() -> None:
    """20,000 PINGs (CVE-2019-9512), with DATA between them so that no rate is exceeded."""
    engine = Engine(client_side=False, config=RpcConfig())
    engine.receive_data(PREFACE + settings() + frame(HEADERS, END_HEADERS, 1, encode(request_headers())))
    largest = 0
    for _ in range(200_000):
        engine.receive_data(frame(PING, 0, 0, bytes(8)) + frame(DATA, 0, 1, message(b"")))
        largest = max(largest, engine.out_size)
        if engine.fault is not None:
            break
    assert engine.fault is not None
    assert largest <= RpcConfig().max_control_output_bytes + 1000


def test_what_an_honest_peer_has_not_read_yet_is_no_flood() -> None:
    """Calls that end together say much at once, more than answers may: 3 KB of trailers each, while PINGs come."""
    count = RpcConfig().max_concurrent_streams
    engine = Engine(client_side=False, config=RpcConfig(max_control_output_bytes=1024))
    engine.receive_data(PREFACE + settings())
    engine.take_output()
    block = encode(request_headers())
    first = next(
        stream for kind, stream, _ in engine.receive_data(frame(HEADERS, END_HEADERS, 1, block)) if kind is Kind.REQUEST
    )
    streams = [first]
    for number in range(3, 2 * count, 2):
        events = engine.receive_data(frame(HEADERS, END_HEADERS | 1, number, block))
        streams.append(next(stream for kind, stream, _ in events if kind is Kind.REQUEST))
    assert len(streams) == count
    for stream in streams[1:]:
        engine.send_headers(stream, _grpc_headers.RESPONSE_HEADERS)
        engine.end(stream, [(b"grpc-status", b"0"), (b"x", b"%05d" % stream.id + b"y" * 3000)])
    assert engine.out_size > 2_000_000
    engine.receive_data(frame(PING, 0, 0, bytes(8)) + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") * 3)
    assert engine.fault is None
    while engine.take_output():
        pass
    engine.receive_data(frame(PING, 0, 0, bytes(8)) * 50)
    engine.take_output()
    engine.receive_data(frame(PING, 0, 0, bytes(8)) * 50)  # taken answers do not count
    assert engine.fault is None


@pytest.mark.parametrize(
    "path", [b"/trio_cogment.testing.Check/Fail", b"/no/Thing", b"none"], ids=["failing", "unknown", "malformed"]
)
async def test_calls_whose_ends_nobody_reads_are_bounded(path: bytes) -> None:
    """A peer that reads nothing can open ever more calls; what they say at their ends would pile up."""
    service, stuck = CheckService(), Stuck()
    config = RpcConfig(
        max_concurrent_streams=10, max_control_output_bytes=10_000, farewell_timeout_seconds=0.001, max_resets=10**6
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_stream_with, [service.service()], stuck, config)
            peer = RawPeer(stuck.other)
            await peer.send(PREFACE, settings())
            stuck.opened = trio.Event()
            number = 1
            while not stuck.closed and number < 20_000:
                headers = peer.headers(number, request_headers(path=path))
                await peer.send(headers, frame(DATA, 1, number, message(b"")))
                await trio.testing.wait_all_tasks_blocked()
                number += 2
            assert number < 2000


async def test_a_ping_flood_of_a_peer_that_does_not_read() -> None:
    stuck = Stuck()
    config = RpcConfig(max_control_output_bytes=10_000, farewell_timeout_seconds=0.001, max_pings=10**6)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_stream_with, [CheckService().service()], stuck, config)
            peer = RawPeer(stuck.other)
            await peer.send(PREFACE, settings())
            await trio.testing.wait_all_tasks_blocked()
            stuck.opened = trio.Event()
            sent = 0
            while not stuck.closed and sent < 10_000:
                await peer.send(frame(PING, 0, 0, bytes(8)))
                await trio.testing.wait_all_tasks_blocked()
                sent += 1
            assert sent < 1000


class Stuck(trio.abc.Stream):
    """A stream on which nothing can be sent for as long as `opened` is not set."""

    def __init__(self) -> None:
        self.other, self._stream = trio.testing.memory_stream_pair()
        self.opened = trio.Event()
        self.opened.set()
        self.closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.opened.wait()
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.opened.wait()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        self.closed = True
        await self._stream.aclose()


async def serve_stream_with(services: list[Any], stream: trio.abc.Stream, config: RpcConfig) -> None:
    await serve_stream(services, stream, config=config)


# --- sizes ---


async def test_length_prefix_alone_refuses_a_message() -> None:
    """B2, and "length prefix 40 MiB": refused before any of it is sent, and the neighbour notices nothing."""
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()), peer.headers(3, request_headers()))
        await peer.send(frame(DATA, 0, 3, b"\0" + (40 * 2**20).to_bytes(4, "big")))
        answer = await peer.until_over(3)
        assert answer.status == 8
        assert await peer.echo(1, GOOD) == ANSWER
        assert not any(kind == WINDOW_UPDATE and stream == 3 for kind, _, stream, _ in peer.frames)


@pytest.mark.parametrize("size", [16_000, 60_000, 70_000, 400_000])
async def test_header_bytes_are_enforced_on_the_stream(size: int) -> None:
    """B12: what is announced is enforced, in one frame or in several; beyond a bound a block is not even decoded."""
    config = RpcConfig(max_header_list_bytes=15_000)
    async with raw_client([CheckService().service()], config=config) as peer:
        await peer.send(peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        block = bytes(peer.encoder.encode(request_headers(x=b"x" * size), huffman=False))
        pieces = [block[start : start + 16_384] for start in range(0, len(block), 16_384)]
        frames = [frame(CONTINUATION, 0, 3, piece) for piece in pieces[1:]]
        await peer.send(frame(HEADERS, 0, 3, pieces[0]), *frames)
        if size < 65_536:  # what is larger is refused before it ends
            await peer.send(frame(CONTINUATION, END_HEADERS, 3))
        if size < 65_536:
            answer = await peer.until_over(3)
            assert answer.status == 8
            assert answer.field(b":status") == b"431"
            assert await peer.echo(1, GOOD) == ANSWER
        else:
            await peer.until(lambda: False)
            assert goaways(peer)[0][0] == CALM


def test_response_header_bytes_are_enforced() -> None:
    engine = Engine(client_side=True, config=RpcConfig(max_header_list_bytes=1000))
    stream = engine.open_request(request_headers())
    large = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"x", b"a" * 1000)]
    events = engine.receive_data(settings() + frame(HEADERS, END_HEADERS, stream.id, encode(large)))
    kind, where, error = events[-1]
    assert (kind, where) == (Kind.BROKEN, stream)
    assert "larger than 1000 bytes" in error.message


def test_response_headers_may_be_as_large_as_the_limit() -> None:
    large = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"x", b"a" * 1000)]
    size = sum(len(name) + len(value) + 32 for name, value in large)  # RFC 9113, 10.5.1
    for limit, expected in ((size - 1, Kind.BROKEN), (size, Kind.RESPONSE), (size + 1, Kind.RESPONSE)):
        engine = Engine(client_side=True, config=RpcConfig(max_header_list_bytes=limit))
        stream = engine.open_request(request_headers())
        events = engine.receive_data(settings() + frame(HEADERS, END_HEADERS, stream.id, encode(large)))
        assert events[-1][:2] == (expected, stream)


RANGES = [
    ("max_frame_bytes", 1000),
    ("max_frame_bytes", 2**24),
    ("stream_window_bytes", 0),
    ("stream_window_bytes", 4),
    ("connection_window_bytes", 2**31),
    ("max_concurrent_streams", 0),
    ("max_header_list_bytes", 2**20),
    ("connection_memory_bytes", 1000),
    ("max_resets", 0),
    ("max_pings", -1),
    ("flood_interval_seconds", 0),
    ("handshake_timeout_seconds", 0),
    ("keepalive_seconds", -1),
    ("keepalive_timeout_seconds", float("nan")),
    ("idle_timeout_seconds", float("inf")),
    ("max_send_message_bytes", 2**32),
]


@pytest.mark.parametrize(("name", "value"), RANGES)
def test_impossible_limits_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        RpcConfig(**{name: value})


def test_every_limit_is_documented_with_its_default() -> None:
    text = (Path(__file__).parents[2] / "docs" / "rpc-limits.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", text, re.MULTILINE))
    for field in dataclasses.fields(RpcConfig):
        assert field.name in documented, f"docs/rpc-limits.md: {field.name} is missing"
        shown = documented[field.name].replace(",", "")
        value = field.default
        assert shown == ("none" if value is None else f"{value:g}" if isinstance(value, float) else str(value))


# --- memory ---


class Receiver:
    """A server's engine, fed as a peer may that keeps to every window, with messages that nobody has taken yet."""

    def __init__(self, config: RpcConfig) -> None:
        self.engine = Engine(client_side=False, config=config)
        self.engine.receive_data(PREFACE + settings({4: 2**31 - 1}))
        self.windows = {0: 65_535}
        self.initial = config.stream_window_bytes
        self.streams: dict[int, Stream] = {}
        self.messages: list[tuple[Stream, bytes]] = []
        self.unsent: dict[int, memoryview] = {}
        self.collect()

    def collect(self) -> None:
        out = self.engine.take_output()
        while out:
            size = int.from_bytes(out[:3], "big")
            if out[3] == WINDOW_UPDATE:
                self.windows[int.from_bytes(out[5:9], "big")] += int.from_bytes(out[9:13], "big")
            out = out[9 + size :]

    def feed(self, data: bytes) -> None:
        for kind, stream, value in self.engine.receive_data(data):
            if kind is Kind.REQUEST:
                self.streams[stream.id] = stream
            elif kind is Kind.MESSAGE:
                self.messages.append((stream, value))
        assert self.engine.fault is None
        self.collect()

    def open(self, number: int) -> None:
        block = encode([(b":path", b"/a/b"), *[h for h in request_headers() if h[0] != b":path"]])
        self.windows[number] = self.initial
        self.feed(frame(HEADERS, END_HEADERS, number, block))

    def push(self, number: int, payload: bytes) -> None:
        self.unsent[number] = memoryview(bytes(self.unsent.get(number, b"")) + message(payload))

    def send(self) -> None:
        """Send whatever windows allow, in turns."""
        moved = True
        while moved:
            moved = False
            for number in list(self.unsent):
                data = self.unsent[number]
                room = min(self.windows[0], self.windows[number], 16_384, len(data))
                if room > 0:
                    moved = True
                    self.windows[0] -= room
                    self.windows[number] -= room
                    self.unsent[number] = data[room:]
                    self.feed(frame(DATA, 0, number, bytes(data[:room])))
                if not self.unsent[number]:
                    del self.unsent[number]

    def held(self) -> int:
        return sum(stream.held for stream in self.streams.values() if not stream.closed)

    def take(self) -> tuple[Stream, bytes]:
        stream, payload = self.messages.pop(0)
        self.engine.consumed(stream, len(payload))
        self.collect()
        return stream, payload


MIB = 2**20


def test_a_stream_holds_its_window_or_one_large_message() -> None:
    """B11: the window until the handler reads; a large message passes whole, the next one waits."""
    receiver = Receiver(RpcConfig())
    receiver.open(1)
    for _ in range(1000):
        receiver.push(1, bytes(995))
    receiver.send()
    assert receiver.held() <= 64 * 1024 + 1000
    receiver.open(3)
    for _ in range(4):
        receiver.push(3, bytes(3 * MIB))
    receiver.send()
    assert receiver.streams[3].held == 3 * MIB + 5
    for _ in range(4 + 1000):
        receiver.take()
        receiver.send()
    assert not receiver.unsent
    assert receiver.engine.window.granted == 0


def test_large_messages_share_one_budget_in_order() -> None:
    receiver = Receiver(RpcConfig())
    numbers = range(1, 41, 2)
    for number in numbers:
        receiver.open(number)
        receiver.push(number, bytes([number]) * (4 * MIB))
    receiver.send()
    whole = [stream.id for stream, _ in receiver.messages]
    assert whole == [1, 3, 5, 7]  # four of four MiB less the window are within 16 MiB
    assert receiver.held() <= 16 * MIB + len(numbers) * 64 * 1024
    order = []
    while receiver.messages:
        stream, payload = receiver.take()
        assert payload == bytes([stream.id]) * (4 * MIB)
        order.append(stream.id)
        assert receiver.held() <= 17 * MIB + len(numbers) * 64 * 1024
        receiver.send()
    assert order == list(numbers)
    assert receiver.engine.window.granted == 0


def test_one_message_larger_than_the_budget_passes_at_a_time() -> None:
    receiver = Receiver(RpcConfig(max_receive_message_bytes=64 * MIB))
    for number in (1, 3):
        receiver.open(number)
        receiver.push(number, bytes(40 * MIB))
    receiver.send()
    assert [stream.id for stream, _ in receiver.messages] == [1]
    assert receiver.held() <= 40 * MIB + 16 * MIB
    receiver.open(5)
    receiver.push(5, b"small")
    receiver.send()
    assert receiver.messages[-1][1] == b"small"
    receiver.take()
    receiver.send()
    assert receiver.messages[-1][0].id == 3


def test_a_grant_returns_when_its_stream_ends() -> None:
    receiver = Receiver(RpcConfig(max_receive_message_bytes=64 * MIB))
    for number in (1, 3, 5):
        receiver.open(number)
        receiver.push(number, bytes(20 * MIB))
    for number in (1, 3, 5):  # each begins
        data = receiver.unsent[number]
        receiver.unsent[number] = data[100:]
        receiver.windows[0] -= 100
        receiver.windows[number] -= 100
        receiver.feed(frame(DATA, 0, number, bytes(data[:100])))
    del receiver.unsent[1], receiver.unsent[3]
    receiver.feed(frame(RST, 0, 3, b"\0\0\0\x08"))  # in the queue
    receiver.feed(frame(RST, 0, 1, b"\0\0\0\x08"))  # has the grant
    receiver.send()
    assert [stream.id for stream, _ in receiver.messages] == [5]


def test_a_connection_holds_its_budget_and_goes_on_when_something_is_taken() -> None:
    receiver = Receiver(RpcConfig())
    for number in range(1, 2000, 2):
        receiver.open(number)
        for _ in range(10):
            receiver.push(number, bytes(10_000))
    receiver.send()
    assert receiver.unsent
    assert receiver.held() <= 16 * MIB
    taken = 0
    while receiver.messages:
        receiver.take()
        taken += 1
        if taken % 20 == 0 or not receiver.messages:
            receiver.send()
            assert receiver.held() <= 16 * MIB
    assert taken == 10_000


def test_pieces_alone_never_stop_a_connection() -> None:
    """A thousand calls that each have begun a message larger than a window: nobody could take anything."""
    receiver = Receiver(RpcConfig())
    for number in range(1, 2000, 2):
        receiver.open(number)
        receiver.push(number, bytes(100_000))
    receiver.send()
    taken = 0
    while receiver.messages:
        receiver.take()
        taken += 1
        receiver.send()
    assert taken == 1000


def test_what_a_peer_does_not_take_is_bounded_for_the_connection() -> None:
    """B11, outbound: with many calls, too; one that is read goes on."""
    config = RpcConfig()
    engine = Engine(client_side=False, config=config)
    events = engine.receive_data(PREFACE + settings({4: 10}))
    for number in range(1, 200, 2):
        block = encode(request_headers())
        if number == 1:
            first = block
        events += engine.receive_data(frame(HEADERS, END_HEADERS, number, first))
    streams = [stream for kind, stream, _ in events if kind is Kind.REQUEST]
    engine.take_output()
    queued = 0
    for stream in streams:
        while engine.has_room(stream, 100_000):
            engine.send_message(stream, bytes(100_000))
            queued += 100_005
        stream.watched = True
    assert config.connection_memory_bytes <= queued + 200_000
    assert queued <= config.connection_memory_bytes + 100_005
    last = streams[-1]
    assert not last.outbox
    engine.receive_data(frame(WINDOW_UPDATE, 0, last.id, (200_000).to_bytes(4, "big")))
    assert not engine.has_room(last, 100_000)  # the connection's window is shut
    engine.receive_data(frame(WINDOW_UPDATE, 0, 0, (200_000).to_bytes(4, "big")))
    assert last in engine.take_rooms()
    assert engine.has_room(last, 100_000)
    for stream in streams:
        engine.reset(stream, 8)
    assert engine._send_queue._queued == 0


async def ends_at_once(call: ServerCall) -> None:
    pass


@pytest.mark.parametrize("path", [b"/no/Thing", b"/t.T/EndsAtOnce"])
async def test_data_for_nobody_uses_up_nothing(path: bytes) -> None:
    """B6: 30 MiB to an unknown method, or to a handler that has ended; then a normal call."""
    brief = Service("t.T")
    brief.add_method("EndsAtOnce", ends_at_once, RPCSignature(Cardinality.STREAM_STREAM, Action, Observation))
    async with raw_client([CheckService().service(), brief]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        window = 65_535
        sent = stream = 0
        number = 3
        seen = 0
        while sent < 30 * MIB:
            if not stream:
                stream, number = number, number + 2
                await peer.send(peer.headers(stream, request_headers(path=path)))
                assert (await peer.until_over(stream)).status == (12 if path == b"/no/Thing" else 0)
            if window >= 16_384:
                await peer.send(frame(DATA, 0, stream, bytes(16_384)))
                sent += 16_384
                window -= 16_384
                stream = stream if sent % MIB else 0
            else:
                await peer.pump()
            for kind, _, where, payload in peer.frames[seen:]:
                if (kind, where) == (WINDOW_UPDATE, 0):
                    window += int.from_bytes(payload, "big")
            seen = len(peer.frames)
        assert await peer.echo(1, GOOD) == ANSWER


def test_names_and_values_of_metadata_are_checked_both_ways() -> None:
    """B16: CR, LF, NUL and illegal names; what comes in is refused on its stream (see test_server's table)."""
    from trio_cogment.base.errors import InvalidArgumentError
    from trio_cogment.rpc import Metadata

    for name, value in [
        ("x", "a\nb"),
        ("x", "a\rb"),
        ("x", "a\0b"),
        ("a b", "x"),
        ("", "x"),
        (":path", "x"),
        ("é", ""),
        ("Connection", "close"),
        ("te", "gzip"),
    ]:
        with pytest.raises(InvalidArgumentError):
            Metadata([(name, value)])
    for raw in [(b"x", b"a\nb"), (b"x", b"a\0b"), (b"x\n", b"a"), (b"X", b"a"), (b"", b"a"), (b"x y", b"a")]:
        with pytest.raises(_grpc_headers.BadMetadataError):
            _grpc_headers.decode_metadata([raw])
        response = [(b":status", b"200"), (b"content-type", b"application/grpc"), raw]
        assert isinstance(_grpc_headers.parse_response(response), _grpc_headers.Trailers)
        assert _grpc_headers.parse_trailers([(b"grpc-status", b"0"), raw]).code == 13
