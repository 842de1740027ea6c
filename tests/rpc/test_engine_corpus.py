"""The engine against real traffic, whole, cut anywhere, and damaged.

A script of calls makes two engines talk; what each received is the corpus. However it is cut, it means the same;
however it is damaged, it gives events or the documented fault, and the same ones whole and byte by byte.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import hypothesis
import hypothesis.strategies as st

from tests.rpc.raw_peer import request_headers
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RemoteProtocolError, StatusCode
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import Event, Kind

CONFIG = RpcConfig(stream_window_bytes=400, max_receive_message_bytes=3000, max_frame_bytes=16_384)

#: For what is read in one piece, before anything could be credited.
REPLAY = dataclasses.replace(CONFIG, stream_window_bytes=2**24, connection_window_bytes=2**24)

#: what happens, on which call (modulo those there are), and a size
Step = tuple[str, int, int]
STEPS = st.tuples(
    st.sampled_from(["open", "send", "send", "send", "end", "answer", "answer", "status", "reset", "refuse", "ping"]),
    st.integers(0, 7),
    st.sampled_from([0, 1, 50, 395, 400, 1000, 2900]),
)


class Talk:
    """Two engines and everything that passed between them."""

    def __init__(self) -> None:
        self.client = Engine(client_side=True, config=CONFIG)
        self.server = Engine(client_side=False, config=CONFIG)
        self.calls: list[Any] = []
        self.answers: dict[int, Any] = {}
        self.to_server = b""
        self.to_client = b""

    def run(self, script: list[Step]) -> None:
        for what, which, size in [("open", 0, 0), *script]:
            self.step(what, which, size)
            self.exchange()

    def step(self, what: str, which: int, size: int) -> None:
        if what == "open":
            path = b"/a/b" if size % 2 else b"a"  # every other one is refused
            self.calls.append(self.client.open_request(request_headers(path=b"/" + path, x=b"y" * size)))
            return
        if what == "ping":
            (self.client if size % 2 else self.server).ping(b"are you?")
            return
        call = self.calls[which % len(self.calls)]
        answer = self.answers.get(call.id)
        if what == "send":
            self.client.send_message(call, bytes(size))
        elif what == "end":
            self.client.end(call, [])
        elif what == "reset":
            self.client.reset(call, 8)
        elif answer is not None and what == "answer":
            if not answer.headers_sent:
                self.server.send_headers(answer, _grpc_headers.RESPONSE_HEADERS)
            if answer.end is None:
                self.server.send_message(answer, bytes(size))
        elif answer is not None and what == "status" and answer.headers_sent:
            self.server.end(answer, _grpc_headers.trailer_headers(StatusCode.OK, "", ()))
        elif answer is not None and what == "refuse":
            self.server.finish_now(answer, _grpc_headers.trailer_headers(StatusCode.ABORTED, "no", (), alone=b"200"))

    def exchange(self) -> None:
        while self.client.out_size or self.server.out_size:
            data = self.client.take_output()
            self.to_server += data
            for kind, stream, value in self.server.receive_data(data):
                if kind is Kind.REQUEST:
                    self.answers[stream.id] = stream
                elif kind is Kind.MESSAGE:
                    self.server.consumed(stream, len(value))
            data = self.server.take_output()
            self.to_client += data
            for kind, stream, value in self.client.receive_data(data):
                if kind is Kind.MESSAGE:
                    self.client.consumed(stream, len(value))
        assert self.client.fault is None
        assert self.server.fault is None


def understand(chunks: list[bytes], talk: Talk, client: bool) -> tuple[list[str], str | None]:
    """Give one side's traffic to a fresh engine; return what it makes of it."""
    engine = Engine(client_side=client, config=REPLAY)
    if client:
        for _ in talk.calls:
            engine.open_request(request_headers())
    seen: list[str] = []
    for chunk in chunks:
        for event in engine.receive_data(chunk):
            seen.append(describe(engine, event))
    assert engine.fault is None or type(engine.fault) is RemoteProtocolError
    return seen, None if engine.fault is None else str(engine.fault)


def describe(engine: Engine, event: Event) -> str:
    kind, stream, value = event
    if kind is Kind.MESSAGE:
        engine.consumed(stream, len(value))
    elif kind is Kind.BROKEN:
        value = (value.code, value.message)  # what the shell then does would come sooner or later by the split
    return repr((kind, stream and stream.id, value))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]


SCRIPTS = st.lists(STEPS, max_size=15)
CUTS = st.lists(st.integers(0, 2**16), max_size=10)


@hypothesis.given(SCRIPTS, CUTS, st.booleans())
@hypothesis.settings(max_examples=100)
def test_valid_traffic_means_the_same_in_any_split(script: list[Step], cuts: list[int], client: bool) -> None:
    talk = Talk()
    talk.run(script)
    data = talk.to_client if client else talk.to_server
    whole = understand([data], talk, client)
    assert understand(pieces(data, cuts), talk, client) == whole
    assert understand([data[i : i + 1] for i in range(len(data))], talk, client) == whole
    assert client or whole[1] is None


DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "drop", "insert", "repeat"]), st.integers(0, 2**16), st.binary(max_size=9)
    ),
    min_size=1,
    max_size=4,
)


def damaged(data: bytes, damage: list[tuple[str, int, bytes]]) -> bytes:
    for how, where, what in damage:
        at = where % (len(data) + 1)
        size = len(what)
        if how == "flip":
            data = data[:at] + bytes(byte ^ (1 << where % 8) for byte in data[at : at + 1]) + data[at + 1 :]
        elif how == "set":
            data = data[:at] + what + data[at + size :]
        elif how == "drop":
            data = data[:at] + data[at + size :]
        elif how == "insert":
            data = data[:at] + what + data[at:]
        else:
            data = data[:at] + data[at : at + 20 * size] + data[at:]
    return data


@hypothesis.given(SCRIPTS, DAMAGE, CUTS, st.booleans())
@hypothesis.settings(max_examples=200)
def test_damaged_traffic_gives_events_or_the_documented_fault(
    script: list[Step], damage: list[tuple[str, int, bytes]], cuts: list[int], client: bool
) -> None:
    talk = Talk()
    talk.run(script)
    data = damaged(talk.to_client if client else talk.to_server, damage)
    whole = understand([data], talk, client)
    assert understand(pieces(data, cuts), talk, client) == whole
    assert understand([data[i : i + 1] for i in range(len(data))], talk, client) == whole
