"""The frame handler: its table is the RFC's, and what it counts. What each frame does is tested with the engine."""

from __future__ import annotations

import pytest

from tests.rpc.raw_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PUSH,
    RST,
    SETTINGS,
    WINDOW_UPDATE,
    encode,
    frame,
    request_headers,
    settings,
)
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frame_handler import _HANDLERS
from trio_cogment.rpc._frames import ErrorCode


def test_every_type_of_frame_has_a_handler() -> None:
    assert sorted(_HANDLERS) == [kind for kind in range(CONTINUATION + 1) if kind != DATA]


def credits_until_it_is_a_flood(pieces: int, *updates: bytes) -> int:
    """Return how many WINDOW_UPDATEs of a peer are let through, these in turn, after this many pieces of output.

    One call is open, 1, and one is over, 3.
    """
    engine = Engine(client_side=False, config=RpcConfig(max_empty_frames=10))
    calls = [frame(HEADERS, END_HEADERS, number, encode(request_headers())) for number in (1, 3)]
    engine.receive_data(b"".join([PREFACE, settings(), *calls, frame(RST, 0, 3, bytes(4))]))
    engine.take_output()
    for number in range(pieces):
        engine.ping(bytes([number] * 8))
    engine.take_output()
    count = 0
    while engine.fault is None:
        engine.receive_data(updates[count % len(updates)])
        count += 1
        assert count < 1000
    assert "max_empty_frames" in str(engine.fault)
    return count - 1


SMALL_FOR_CONNECTION = frame(WINDOW_UPDATE, 0, 0, (1).to_bytes(4, "big"))
SMALL_FOR_STREAM = frame(WINDOW_UPDATE, 0, 1, (1).to_bytes(4, "big"))
SMALL_FOR_CLOSED = frame(WINDOW_UPDATE, 0, 3, (1).to_bytes(4, "big"))
LARGE_FOR_CLOSED = frame(WINDOW_UPDATE, 0, 3, (5000).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "updates",
    [
        (SMALL_FOR_CONNECTION,),
        (SMALL_FOR_CONNECTION, SMALL_FOR_STREAM),
        (SMALL_FOR_CLOSED,),
        (LARGE_FOR_CLOSED,),
        (LARGE_FOR_CLOSED, SMALL_FOR_STREAM),
    ],
)
def test_each_piece_of_output_explains_four_credits_whatever_they_are_for(updates: tuple[bytes, ...]) -> None:
    before = credits_until_it_is_a_flood(0, *updates)
    assert [credits_until_it_is_a_flood(pieces, *updates) - before for pieces in (1, 2, 10)] == [4, 8, 40]


def test_without_more_output_so_many_credits_are_let_through_as_are_configured() -> None:
    once, again = (credits_until_it_is_a_flood(0, one) for one in (SMALL_FOR_CONNECTION, LARGE_FOR_CLOSED))
    assert once == again
    assert (once - 10) % 4 == 0


@pytest.mark.parametrize("after", [frame(PING, 0, 0, bytes(8)), SMALL_FOR_CONNECTION, LARGE_FOR_CLOSED], ids=repr)
def test_whatever_comes_is_refused_while_too_many_answers_are_unread(after: bytes) -> None:
    """An answer to a PING has 17 bytes; as many as the limit says may wait."""

    def fault(limit: int) -> str:
        engine = Engine(client_side=False, config=RpcConfig(max_control_output_bytes=limit, max_pings=1000))
        engine.receive_data(PREFACE + settings())
        engine.take_output()
        calls = [frame(HEADERS, END_HEADERS, 3, encode(request_headers())), frame(RST, 0, 3, bytes(4))]
        engine.receive_data(b"".join([*calls, *[frame(PING, 0, 0, bytes(8))] * 100]))
        assert engine.fault is None
        engine.receive_data(after)
        return str(engine.fault)

    assert fault(100 * 17) == "None"
    assert "answers to control frames are not read" in fault(100 * 17 - 1)


def test_acknowledgements_of_settings_are_answers_too() -> None:
    """Each has 9 bytes."""

    def fault(limit: int) -> str:
        engine = Engine(client_side=False, config=RpcConfig(max_control_output_bytes=limit, max_settings=1000))
        engine.receive_data(PREFACE + settings())
        engine.take_output()
        engine.receive_data(settings() * 200)
        assert engine.fault is None
        engine.receive_data(SMALL_FOR_CONNECTION)
        return str(engine.fault)

    assert fault(200 * 9) == "None"
    assert "answers to control frames are not read" in fault(200 * 9 - 1)


FRAME_SIZE, PROTOCOL = ErrorCode.FRAME_SIZE_ERROR, ErrorCode.PROTOCOL_ERROR


def fault_code(data: bytes, *, client_side: bool = False) -> int | None:
    """Return the code of the GOAWAY with which an engine answers; stream 1 is open, or has been opened by it."""
    engine = Engine(client_side=client_side, config=RpcConfig())
    if client_side:
        engine.open_request(request_headers())
    else:
        engine.receive_data(PREFACE)
    engine.receive_data(settings())
    if not client_side:
        engine.receive_data(frame(HEADERS, END_HEADERS, 1, encode(request_headers())))
    engine.take_output()
    engine.receive_data(data)
    out = engine.take_output()
    if engine.fault is None:
        return None
    assert out[3] == GOAWAY
    return int.from_bytes(out[13:17], "big")


@pytest.mark.parametrize("client_side", [False, True])
@pytest.mark.parametrize(
    ("kind", "flags", "stream", "sizes"),
    [
        (SETTINGS, 0, 0, {0, 6, 12}),
        (SETTINGS, 1, 0, {0}),
        (GOAWAY, 0, 0, {8, 9, 10, 11, 12, 13}),
        (PING, 0, 0, {8}),
        (PING, 1, 0, {8}),
        (RST, 0, 1, {4}),
        (WINDOW_UPDATE, 0, 0, {4}),
        (WINDOW_UPDATE, 0, 1, {4}),
    ],
)
def test_a_frame_of_another_size_than_its_own_ends_the_connection(
    kind: int, flags: int, stream: int, sizes: set[int], client_side: bool
) -> None:
    for size in range(14):
        payload = bytes(size - 1) + b"\1" if kind == WINDOW_UPDATE and size else bytes(size)
        if kind == SETTINGS:
            payload = b"\0\x09\0\0\0\1" * 3  # a setting that nobody knows
        expected = None if size in sizes else FRAME_SIZE
        assert fault_code(frame(kind, flags, stream, payload[:size]), client_side=client_side) == expected, size


@pytest.mark.parametrize("client_side", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        frame(PING, 0, 1, bytes(8)),
        frame(RST, 0, 3, bytes(4)),
        frame(RST, 0, 2, bytes(4)),
        frame(WINDOW_UPDATE, 0, 3, b"\0\0\0\1"),
        frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        frame(PUSH, END_HEADERS, 1, bytes(4)),
        frame(GOAWAY, 0, 1, bytes(8)),
        frame(CONTINUATION, END_HEADERS, 1),
        frame(HEADERS, END_HEADERS, 2, encode(request_headers())),
        frame(HEADERS, END_HEADERS, 0, encode(request_headers())),
        frame(DATA, 0, 3, bytes(8)),
    ],
    ids=repr,
)
def test_a_frame_where_it_has_no_business_ends_the_connection(data: bytes, client_side: bool) -> None:
    assert fault_code(data, client_side=client_side) == PROTOCOL


def test_a_server_cannot_begin_calls_nor_have_them_pushed() -> None:
    assert fault_code(frame(HEADERS, END_HEADERS, 3, encode(request_headers())), client_side=True) == PROTOCOL
    assert fault_code(frame(HEADERS, END_HEADERS, 3, encode(request_headers()))) is None
    for value, expected in ((0, None), (1, PROTOCOL)):
        assert fault_code(settings({2: value}), client_side=True) == expected
        assert fault_code(settings({1: 4096, 2: value}), client_side=True) == expected
        assert fault_code(settings({2: value})) is None
