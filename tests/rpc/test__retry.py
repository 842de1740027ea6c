"""Retries: what a call keeps to be sent again, within the budget of its channel and the limits of an outbox."""

from __future__ import annotations

import pytest

from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._retry import Budget, BufferOnlyEngine, ReplayBuffer
from trio_cogment.rpc._streams import Stream

CONFIG = RpcConfig(call_outbox_messages=3, call_outbox_bytes=1000)


@pytest.mark.parametrize(
    ("left", "kept", "size", "fits"),
    [
        (10_000, [], 5000, True),  # the first may be larger than an outbox
        (4999, [], 5000, False),
        (5000, [], 5000, True),
        (10_000, [400, 400], 200, True),
        (10_000, [400, 400], 201, False),
        (1000, [400, 400], 200, True),
        (999, [400, 400], 200, False),
        (10_000, [1, 1], 1, True),
        (10_000, [1, 1, 1], 1, False),
    ],
)
def test_what_has_room(left: int, kept: list[int], size: int, fits: bool) -> None:
    buffer = ReplayBuffer(Budget(left), CONFIG)
    for one in kept:
        buffer.add(bytes(one))
    assert buffer.has_room(size) is fits
    stream = Stream(1, recv_window=0, send_window=0, max_message=0)
    assert BufferOnlyEngine(buffer).has_room(stream, size) is fits


def test_the_budget_is_that_of_all_and_is_given_back_once() -> None:
    budget = Budget(1000)
    first, second = ReplayBuffer(budget, CONFIG), ReplayBuffer(budget, CONFIG)
    first.add(bytes(300))
    second.add(bytes(200))
    first.add(bytes(100))
    assert budget.left == 400
    first.drop()
    assert budget.left == 800
    first.drop()
    assert budget.left == 800
    second.drop()
    assert budget.left == 1000


def test_nothing_is_kept_of_what_was_dropped() -> None:
    buffer = ReplayBuffer(Budget(1000), CONFIG)
    buffer.add(b"kept")
    buffer.add(b"too")
    assert buffer.payloads == [b"kept", b"too"]
    buffer.drop()
    assert buffer.payloads == []


def test_a_call_without_a_stream_sends_nothing() -> None:
    """Its messages are in the buffer already."""
    buffer = ReplayBuffer(Budget(1000), CONFIG)
    engine = BufferOnlyEngine(buffer)
    stream = Stream(1, recv_window=0, send_window=100, max_message=0)
    assert engine.output.out_size == 0
    engine.send_message(stream, b"x")
    engine.send_compressed(stream, b"x")
    engine.send_shared(stream, b"x", (b"y",))
    engine.end(stream, [])
    engine.reset(stream, 8)
    engine.consumed(stream, 1)
    engine.keep(stream, [1])
    engine.forget(stream)
    assert not buffer.payloads
    assert not stream.outbox
    assert not stream.closed
