"""The frame handler: its table is the RFC's, and what it counts. What each frame does is tested with the engine."""

from __future__ import annotations

import pytest

from tests.rpc.raw_peer import (
    END_HEADERS,
    HEADERS,
    PING,
    PREFACE,
    RST,
    WINDOW_UPDATE,
    encode,
    frame,
    request_headers,
    settings,
)
from trio_cogment.config import RpcConfig
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frame_handler import _HANDLERS
from trio_cogment.rpc._frames import CONTINUATION, DATA


def test_every_type_of_frame_has_a_handler() -> None:
    assert sorted(_HANDLERS) == [kind for kind in range(CONTINUATION + 1) if kind != DATA]


def credits_until_it_is_a_flood(pieces: int, *updates: bytes) -> int:
    """Return how many WINDOW_UPDATEs of a peer are let through, these in turn, after so many pieces of output.

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
