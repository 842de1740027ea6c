"""Recounts: what rpc keeps in numbers can be counted again, and a number that is wrong is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.rpc.raw_peer import END_HEADERS, HEADERS, PREFACE, encode, frame, message, request_headers, settings
from tests.rpc.receive_windows import receive_window
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.recount import Count
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.waiting_bytes import FREE_BYTES, WaitingBytes
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._in_process_queue import MessageQueue
from trio_cogment.rpc._streams import Stream


def numbers(counts: Iterable[Count]) -> dict[str, Any]:
    return {count.what: (count.kept, count.counted) for count in counts}


def wrong(counts: Iterable[Count]) -> list[str]:
    return [count.what for count in counts if count.kept != count.counted]


def served(*, initial_window: int) -> Engine:
    """Return a server's engine with a call whose messages wait."""
    engine = Engine(client_side=False, config=RpcConfig())
    engine.receive_data(PREFACE + settings({4: initial_window}))
    engine.receive_data(frame(HEADERS, END_HEADERS, 1, encode(request_headers())))
    engine.take_output()
    return engine


def test_the_output_and_the_outboxes_of_an_engine() -> None:
    engine = served(initial_window=10)
    (stream,) = engine.streams.values()
    engine.send_headers(stream, [(b":status", b"200")])
    engine.send_message(stream, bytes(95))
    assert not wrong(engine.recount())
    found = numbers(engine.recount())
    assert found["bytes of output"][0] == engine.out_size > 10
    assert found["bytes of all outboxes"] == found["bytes of the outboxes, each"] == (90, 90)
    assert found["streams that are closed"] == (0, 0)
    engine.output.out_size += 1
    assert wrong(engine.recount()) == ["bytes of output"]
    engine.output.out_size -= 1
    stream.outbox_bytes += 1
    assert wrong(engine.recount()) == ["bytes of the outboxes, each"]
    stream.outbox_bytes -= 1
    engine.output._queued += 1
    assert wrong(engine.recount()) == ["bytes of all outboxes"]
    engine.output._queued -= 1
    stream.closed = True
    assert wrong(engine.recount()) == ["streams that are closed"]


def test_at_rest_nothing_of_an_engine_need_be_left_but_what_is_on_its_way() -> None:
    assert {count.what for count in served(initial_window=0).recount() if count.at_rest is not None} == {
        "streams that are closed"
    }


def test_grants_and_credits_of_a_receive_window() -> None:
    streams: dict[int, Stream] = {}
    config = RpcConfig(stream_window_bytes=1000, connection_window_bytes=65_535, connection_memory_bytes=65_536)
    window = receive_window(config, streams, lambda *_: None)
    for number in (1, 3):
        streams[number] = stream = Stream(number, recv_window=1000, send_window=0, max_message=10**6)
        begun = message(bytes(40_000))[:500]
        stream.feed(begun, 0, len(begun), [])
        stream.held += len(begun)
        stream.recv_window -= len(begun)
        window.received(len(begun))
        window.update_stream_window(stream)
    assert not wrong(window.recount())
    found = numbers(window.recount())
    assert found["bytes that are granted"] == (40_005 - 500, 40_005 - 500)
    assert found["streams that wait for a grant"] == (1, 1)
    assert found["credits that are withheld for nothing"] == (0, 0)
    window.granted += 1
    assert wrong(window.recount()) == ["bytes that are granted"]
    window.granted -= 1
    window.withheld, window.size = True, 0  # though there is room
    assert wrong(window.recount()) == ["credits that are withheld for nothing"]
    window.withheld, window.size = False, 65_535
    streams[1].granted = window.granted = 0  # so that nobody would ever serve the other one
    assert wrong(window.recount()) == ["streams that wait for a grant"]


def test_a_credit_that_is_withheld_because_the_memory_is_full_is_right() -> None:
    streams: dict[int, Stream] = {}
    config = RpcConfig(stream_window_bytes=65_535, connection_window_bytes=65_535, connection_memory_bytes=65_536)
    window = receive_window(config, streams, lambda *_: None)
    for number, held in ((1, 30_000), (3, 30_000)):
        streams[number] = stream = Stream(number, recv_window=10, send_window=0, max_message=10**6)
        stream.held = held
        window.received(held)
    window.credit_connection()
    assert window.withheld
    assert not wrong(window.recount())
    streams[1].held = streams[3].held = 0  # they are taken, but nobody has said so
    assert wrong(window.recount()) == ["credits that are withheld for nothing"]


def test_what_is_borrowed_covers_what_waits() -> None:
    pool = BytePool(900_000)
    waiting = WaitingBytes(pool.loan())
    waiting.queue(FREE_BYTES + 1000)
    assert not wrong(waiting.recount())
    waiting.loan.set(999)
    assert numbers(waiting.recount()) == {"bytes that are borrowed for what waits": (999, 1000)}
    waiting.loan.set(5000)  # more than is needed: it is given back when some are taken
    assert not wrong(waiting.recount())


async def test_bytes_and_sizes_of_a_queue_in_process() -> None:
    def queue_of(*sizes: int) -> MessageQueue:
        queue = MessageQueue(10, 10**6, size_of=len, on_consumer_failed=lambda _: None)
        for size in sizes:
            queue.put_nowait(bytes(size))
        return queue

    assert numbers(queue_of().recount()) == {"bytes of a queue in process": (0, 0), "items without a size": (0, 0)}
    assert numbers(queue_of(5).recount()) == {"bytes of a queue in process": (0, 0), "items without a size": (1, 1)}
    three = queue_of(5, 7, 11)
    assert numbers(three.recount()) == {"bytes of a queue in process": (23, 23), "items without a size": (0, 0)}
    await three.get()
    assert numbers(three.recount())["bytes of a queue in process"] == (18, 18)
    three._bytes += 1
    assert wrong(three.recount()) == ["bytes of a queue in process"]
    three._bytes -= 1
    three.items.extend([b"", b""])
    assert wrong(three.recount()) == ["items without a size"]
