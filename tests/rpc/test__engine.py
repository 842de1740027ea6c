"""The engine without I/O: any bytes in any split, two engines back to back, and the traps of flow control."""

from __future__ import annotations

import itertools
import random
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.rpc.raw_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PREFACE,
    RST,
    SETTINGS,
    WINDOW_UPDATE,
    encode,
    frame,
    message,
    request_headers,
    settings,
)
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.budget.memory import ConnectionMemory
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import Kind
from trio_cogment.rpc.metadata import Metadata

SMALL = RpcConfig(
    stream_window_bytes=300, connection_window_bytes=70_000, max_receive_message_bytes=2000, max_frame_bytes=16384
)


def events_of(engine: Engine, chunks: list[bytes]) -> list[tuple[Any, ...]]:
    """Feed chunks, take every message at once, and return what can be compared."""
    seen: list[tuple[Any, ...]] = []
    for chunk in chunks:
        for kind, stream, value in engine.receive_data(chunk):
            if kind is Kind.MESSAGE:
                engine.consumed(stream, len(value))
            if kind is Kind.BROKEN:
                engine.finish_now(stream, _grpc_headers.trailer_headers(value.code, value.message, (), alone=b"200"))
                value = (value.code, value.message)
            seen.append((kind, stream and stream.id, value))
    return seen


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]


good_block = encode(request_headers())
frames = st.one_of(
    st.builds(
        frame,
        st.integers(0, 12),
        st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 0x20, 0x24, 0xFF]),
        st.sampled_from([0, 1, 1, 3, 3, 5, 2, 2**31 - 1]),
        st.one_of(st.binary(max_size=40), st.just(good_block), st.binary(max_size=30).map(message)),
    ),
    st.builds(lambda s: frame(HEADERS, END_HEADERS, s, good_block), st.sampled_from([1, 3, 5, 7])),
    st.builds(
        lambda s, f, payload: frame(DATA, f, s, payload),
        st.sampled_from([1, 3, 5]),
        st.sampled_from([0, END_STREAM, PADDED]),
        st.lists(st.binary(max_size=100).map(message), max_size=3).map(b"".join),
    ),
    st.builds(lambda v: settings({4: v}), st.integers(0, 2**31 - 1)),
    st.builds(
        lambda s, n: frame(WINDOW_UPDATE, 0, s, n.to_bytes(4, "big")), st.sampled_from([0, 1, 3]), st.integers(0, 2**31)
    ),
    st.builds(lambda s: frame(RST, 0, s, b"\0\0\0\x08"), st.sampled_from([1, 3, 5])),
)


@hypothesis.given(st.lists(frames, max_size=12), st.lists(st.integers(0, 2000), max_size=8), st.booleans())
@hypothesis.example(
    [
        frame(HEADERS, END_HEADERS, 5, good_block),
        frame(DATA, 0, 5, b"\x83" + bytes(8)),
        frame(RST, 0, 5, b"\0\0\0\x08"),
    ],
    [],
    False,
)
@hypothesis.settings(max_examples=300)
def test_any_frames_in_any_split(parts: list[bytes], cuts: list[int], client: bool) -> None:
    data = (b"" if client else PREFACE) + settings() + b"".join(parts)
    runs = []
    for chunks in ([data], split(data, cuts), [data[i : i + 1] for i in range(len(data))]):
        engine = Engine(client_side=client, config=SMALL)
        if client:
            for _ in range(2):
                engine.open_request(request_headers())
        seen = events_of(engine, chunks)
        runs.append((merged(seen), str(engine.fault), engine.goaway_received))
    assert runs[0] == runs[1] == runs[2]


def merged(seen: list[tuple[Any, ...]]) -> list[str]:
    return [repr(event) for event in seen]


@hypothesis.given(st.binary(max_size=300), st.booleans(), st.booleans())
@hypothesis.example(b"\x16\x03", False, False)  # the beginning of TLS
@hypothesis.settings(max_examples=300)
def test_any_bytes_never_raise(data: bytes, client: bool, opened: bool) -> None:
    if opened:
        data = (b"" if client else PREFACE) + settings() + data
    whole, single = (Engine(client_side=client, config=SMALL) for _ in range(2))
    first = events_of(whole, [data])
    second = events_of(single, [data[i : i + 1] for i in range(len(data))])
    assert merged(first) == merged(second)
    assert str(whole.fault) == str(single.fault)


class Pair:
    """A client's and a server's engine, and everything the server got."""

    def __init__(self, config: RpcConfig = SMALL) -> None:
        self.client = Engine(client_side=True, config=config)
        self.server = Engine(client_side=False, config=config)
        self.events: list[tuple[Kind, Any, Any]] = []
        self.client_events: list[tuple[Kind, Any, Any]] = []
        self.run()

    def run(self, *, consume: bool = True) -> None:
        while self.client.out_size or self.server.out_size:
            for event in self.server.receive_data(self.client.take_output()):
                self.events.append(event)
                if event[0] is Kind.MESSAGE and consume:
                    self.server.consumed(event[1], len(event[2]))
            for event in self.client.receive_data(self.server.take_output()):
                self.client_events.append(event)
                if event[0] is Kind.MESSAGE and consume:
                    self.client.consumed(event[1], len(event[2]))
        assert self.client.fault is None
        assert self.server.fault is None

    def request(self) -> Any:
        headers = _grpc_headers.request_headers("/a/b", scheme="http", authority="x", timeout=None, metadata=Metadata())
        return self.client.open_request(headers)

    def messages(self) -> list[bytes]:
        return [value for kind, _, value in self.events if kind is Kind.MESSAGE]


def test_a_call_in_full() -> None:
    pair = Pair()
    stream = pair.request()
    pair.client.send_message(stream, b"one")
    pair.client.end(stream, [])
    pair.run()
    kinds = [kind for kind, _, _ in pair.events]
    assert kinds == [Kind.SETTINGS, Kind.REQUEST, Kind.MESSAGE, Kind.HALF_CLOSED]
    server_stream = pair.events[1][1]
    pair.server.send_headers(server_stream, _grpc_headers.RESPONSE_HEADERS)
    pair.server.send_message(server_stream, b"two")
    pair.server.end(server_stream, _grpc_headers.trailer_headers(StatusCode.OK, "", ()))
    pair.run()
    kinds = [kind for kind, _, _ in pair.client_events]
    assert kinds == [Kind.SETTINGS, Kind.RESPONSE, Kind.MESSAGE, Kind.STATUS]
    assert not pair.client.streams
    assert not pair.server.streams


@pytest.mark.parametrize("size", [0, 1, 294, 295, 296, 299, 300, 301, 1999, 2000])
def test_messages_around_and_above_the_window(size: int) -> None:
    pair = Pair()
    stream = pair.request()
    sent = [bytes([number]) * size for number in range(20)]
    for payload in sent:
        pair.client.send_message(stream, payload)
    pair.client.end(stream, [])
    pair.run()
    assert pair.messages() == sent
    assert pair.events[-1][0] is Kind.HALF_CLOSED


@hypothesis.given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2000)), max_size=40), st.randoms())
@hypothesis.settings(max_examples=100)
def test_streams_side_by_side_keep_order_and_end(plan: list[tuple[int, int]], chance: random.Random) -> None:
    pair = Pair()
    streams = [pair.request() for _ in range(4)]
    sent: dict[int, list[bytes]] = {stream.id: [] for stream in streams}
    for number, (which, size) in enumerate(plan):
        payload = bytes([number]) * size
        sent[streams[which].id].append(payload)
        pair.client.send_message(streams[which], payload)
        if chance.random() < 0.3:
            pair.run()
    for stream in streams:
        pair.client.end(stream, [])
    pair.run()
    got: dict[int, list[bytes]] = {stream.id: [] for stream in streams}
    for kind, stream, value in pair.events:
        if kind is Kind.MESSAGE:
            got[stream.id].append(value)
    assert got == sent
    assert sum(kind is Kind.HALF_CLOSED for kind, _, _ in pair.events) == 4


def test_a_receiver_that_takes_nothing_stops_only_its_stream() -> None:
    pair = Pair()
    slow, fast = pair.request(), pair.request()
    for _ in range(100):
        pair.client.send_message(slow, bytes(95))
    pair.run(consume=False)
    held = pair.messages()
    assert sum(len(payload) + 5 for payload in held) <= 300
    assert slow.outbox
    pair.client.send_message(fast, b"quick")
    pair.run(consume=False)
    assert pair.messages()[-1] == b"quick"
    slow_stream = next(stream for kind, stream, _ in pair.events if kind is Kind.REQUEST)
    for payload in held:
        pair.server.consumed(slow_stream, len(payload))
    pair.run()
    assert not slow.outbox or len(pair.messages()) > len(held) + 1


def test_output_stays_below_the_high_water_mark() -> None:
    config = RpcConfig(write_high_water_bytes=10_000, max_receive_message_bytes=10**8)
    pair = Pair(config)
    stream = pair.request()
    pair.run()
    pair.client.receive_data(frame(WINDOW_UPDATE, 0, 0, (2**30).to_bytes(4, "big")))
    pair.client.receive_data(frame(WINDOW_UPDATE, 0, stream.id, (2**30).to_bytes(4, "big")))
    for _ in range(1000):
        pair.client.send_message(stream, bytes(1000))
    assert pair.client.out_size < 10_000 + 17_000
    assert len(stream.outbox) > 900


def test_reset_and_goaway() -> None:
    pair = Pair()
    first, second = pair.request(), pair.request()
    pair.run()
    pair.client.reset(first, 8)
    pair.run()
    assert pair.events[-1][0] is Kind.RESET
    pair.server.go_away(0)
    pair.run()
    assert pair.client.exhausted()
    assert not second.closed
    pair.client.send_message(second, b"still works")
    pair.run()
    assert pair.messages() == [b"still works"]


def test_goaway_fails_what_the_peer_never_saw() -> None:
    engine = Engine(client_side=True, config=SMALL)
    first, second = (engine.open_request(request_headers()) for _ in range(2))
    goaway = frame(7, 0, 0, first.id.to_bytes(4, "big") + bytes(4))
    events = engine.receive_data(settings() + goaway)
    assert [(kind, stream and stream.id) for kind, stream, _ in events] == [
        (Kind.SETTINGS, None),
        (Kind.GOAWAY, None),
        (Kind.RESET, second.id),
    ]
    assert not first.closed


def test_nothing_is_sent_on_a_stream_that_is_over() -> None:
    pair = Pair()
    stream = pair.request()
    pair.run()
    pair.client.reset(stream, 8)
    pair.run()
    pair.client.send_message(stream, b"late")
    pair.client.end(stream, [])
    pair.client.reset(stream, 8)
    pair.client.consumed(stream, 1000)
    assert pair.client.take_output() == b""


def test_settings_are_ours() -> None:
    engine = Engine(client_side=False, config=RpcConfig())
    out = engine.take_output()
    assert out[3] == SETTINGS
    assert (3).to_bytes(2, "big") + (1000).to_bytes(4, "big") in out


@pytest.mark.parametrize(
    "wrong",
    [{"max_frame_bytes": 1000}, {"max_frame_bytes": 2**24}, {"stream_window_bytes": 0}, {"stream_window_bytes": 2**31}],
)
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RpcConfig(**wrong)


@pytest.mark.parametrize("client_side", [False, True])
def test_what_each_side_says_first(client_side: bool) -> None:
    """A server bounds the calls; a client opens none to it, and wants nothing pushed."""
    config = RpcConfig(
        max_concurrent_streams=7,
        stream_window_bytes=70_000,
        connection_window_bytes=80_000,
        max_frame_bytes=20_000,
        max_header_list_bytes=9_000,
    )
    out = Engine(client_side=client_side, config=config).take_output()
    if client_side:
        assert out.startswith(PREFACE)
        out = out[len(PREFACE) :]
    own = {2: 0} if client_side else {3: 7}
    values = {4: 70_000, 5: 20_000, 6: 9_000}
    size = int.from_bytes(out[:3], "big")
    assert out[3:9] == bytes([4, 0, 0, 0, 0, 0])
    said = out[9 : 9 + size]
    pairs = [said[at : at + 6] for at in range(0, size, 6)]
    assert {int.from_bytes(pair[:2], "big"): int.from_bytes(pair[2:], "big") for pair in pairs} == own | values
    assert len(pairs) == 4
    assert out[9 + size :] == frame(WINDOW_UPDATE, 0, 0, (80_000 - 65_535).to_bytes(4, "big"))


def test_the_call_that_has_been_open_for_longest() -> None:
    engine = Engine(client_side=False, config=RpcConfig())
    engine.receive_data(PREFACE + settings())
    assert engine.oldest == 0
    for number in (1, 3, 5):
        engine.receive_data(frame(HEADERS, END_HEADERS, number, encode(request_headers())))
        assert engine.oldest == 1
    for number, oldest in ((3, 1), (1, 5), (5, 0)):
        engine.receive_data(frame(RST, 0, number, bytes(4)))
        assert engine.oldest == oldest


def test_what_is_borrowed_is_settled_in_both_directions() -> None:
    """Taking small messages gives nothing back by itself: that is done when somebody waits for memory."""
    memory = ConnectionMemory()
    memory.messages.total = memory.windows.total = 2**24
    engine = Engine(client_side=False, config=RpcConfig(), memory=memory)
    engine.receive_data(PREFACE + settings({4: 0}))
    events: list[Any] = []
    for number in range(1, 1001, 2):
        events += engine.receive_data(frame(HEADERS, END_HEADERS, number, encode(request_headers())))
        events += engine.receive_data(frame(DATA, 0, number, message(bytes(2000))))
    streams = list(engine.streams.values())
    assert engine.loan.size == 0
    received = memory.messages.used
    assert received > 0
    for stream in streams:
        assert engine.has_room(stream, 2000)
        engine.send_message(stream, bytes(2000))
    for kind, stream, value in events:
        if kind is Kind.MESSAGE:
            engine.consumed(stream, len(value))
    assert memory.messages.used == received + engine.loan.size
    engine.settle()
    assert memory.messages.used == engine.loan.size > 0
    for stream in streams:
        engine.reset(stream, 8)
    engine.take_output()
    engine.sent()
    engine.settle()
    assert memory.messages.used == 0


@pytest.mark.parametrize("by_peer", [False, True])
def test_a_call_that_is_over_sends_nothing_when_its_turn_would_have_come(by_peer: bool) -> None:
    """Neither what it had queued nor its end, though only the connection's window was in the way."""
    engine = Engine(client_side=False, config=RpcConfig())
    calls = [frame(HEADERS, END_HEADERS, number, encode(request_headers())) for number in (1, 3)]
    engine.receive_data(b"".join([PREFACE, settings({4: 2**20}), *calls]))
    first, second = engine.streams.values()
    for stream in (first, second):
        engine.send_headers(stream, _grpc_headers.RESPONSE_HEADERS)
        engine.send_message(stream, bytes(65_535 - 5))
        engine.end(stream, _grpc_headers.trailer_headers(StatusCode.OK, "", Metadata()))
    while engine.take_output():
        pass
    assert second.outbox
    if by_peer:
        engine.receive_data(frame(RST, 0, second.id, (8).to_bytes(4, "big")))
    else:
        engine.reset(second, 8)
        engine.take_output()
    engine.receive_data(frame(WINDOW_UPDATE, 0, 0, (2**20).to_bytes(4, "big")))
    assert engine.take_output() == b""
