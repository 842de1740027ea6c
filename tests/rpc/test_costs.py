"""Costs in proportion to what a peer sends: no time for calls that it does not concern, no memory for how it is cut."""

from __future__ import annotations

import sys
from typing import Any

import hpack
import pytest

from tests.rpc.raw_peer import (
    END_HEADERS,
    HEADERS,
    PREFACE,
    WINDOW_UPDATE,
    encode,
    frame,
    message,
    request_headers,
    settings,
)
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import Kind
from trio_cogment.rpc._grpc_headers import RESPONSE_HEADERS
from trio_cogment.rpc._streams import Stream

ANSWER = bytes(1000)


def blocked(number: int) -> tuple[Engine, list[Stream]]:
    """An engine with this many calls that wait to send, as their windows are shut."""
    engine = Engine(client_side=False, config=RpcConfig())
    encoder = hpack.Encoder()
    headers = [
        frame(HEADERS, END_HEADERS, 2 * index + 1, encode(request_headers(), encoder)) for index in range(number)
    ]
    events = engine.receive_data(b"".join([PREFACE, settings({4: 0}), *headers]))
    streams = [stream for kind, stream, _ in events if kind is Kind.REQUEST]
    for stream in streams:
        engine.send_headers(stream, RESPONSE_HEADERS)
        engine.send_message(stream, ANSWER)
    engine.take_output()
    return engine, streams


def calls_made(engine: Engine, data: bytes) -> int:
    count = 0

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        engine.receive_data(data)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("where", [0, 1])
def test_credit_costs_nothing_for_calls_that_it_does_not_free(where: int) -> None:
    """A thousand calls with shut windows made each WINDOW_UPDATE of 13 bytes cost as much as a thousand."""
    credit = frame(WINDOW_UPDATE, 0, where, (1024).to_bytes(4, "big")) * 100
    few, many = blocked(3)[0], blocked(1000)[0]
    assert calls_made(many, credit) <= calls_made(few, credit) + 10
    assert many.fault is None


@pytest.mark.parametrize("how", ["WINDOW_UPDATE", "SETTINGS"])
def test_who_waits_is_served_when_its_own_window_opens(how: str) -> None:
    engine, streams = blocked(3)
    if how == "SETTINGS":
        engine.receive_data(settings({4: len(ANSWER) + 5}))
        opened = streams
    else:
        opened = streams[1:2]
        engine.receive_data(frame(WINDOW_UPDATE, 0, opened[0].id, (len(ANSWER) + 5).to_bytes(4, "big")))
    data = engine.take_output()
    assert data.count(message(ANSWER)) == len(opened)
    assert [bool(stream.outbox) for stream in streams] == [stream not in opened for stream in streams]
    assert not engine._send_queue.ready


def test_a_window_that_settings_shut_again_is_not_used() -> None:
    engine, streams = blocked(1)
    engine._send_queue._mark = 0  # the output is full
    engine.receive_data(settings({4: 10_000}))
    assert engine._send_queue.ready
    engine.receive_data(settings({4: 0}))
    engine._send_queue._mark = 1000
    assert message(ANSWER) not in engine.take_output() + engine.take_output()
    engine.receive_data(frame(WINDOW_UPDATE, 0, streams[0].id, (2000).to_bytes(4, "big")))
    assert message(ANSWER) in engine.take_output()


@pytest.mark.parametrize("size", [1, 2, 3, 100, 1023, 1024])
def test_a_message_in_crumbs_takes_little_more_than_its_bytes(size: int) -> None:
    """Two bytes in a frame of their own took fifty."""
    whole = bytes(range(256)) * 400
    stream = Stream(1, recv_window=0, send_window=0, max_message=len(whole))
    messages: list[bytes] = []
    data = message(whole)
    for start in range(0, len(data) - size, size):
        stream.feed(data[start : start + size], 0, size, messages)
    taken = sys.getsizeof(stream.chunks) + sum(sys.getsizeof(chunk) for chunk in stream.chunks)
    assert taken < 1.3 * len(whole)
    assert stream.piece_size() == len(data) - (len(data) % size or size)
    stream.feed(data[-(len(data) % size or size) :], 0, len(data) % size or size, messages)
    assert messages == [whole]
    assert type(messages[0]) is bytes
