"""The stream table: numbers, and what the end of a stream gives back."""

from __future__ import annotations

from typing import Any

from tests.rpc.receive_windows import receive_window
from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.rpc._control import ControlPlane
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._stream_table import StreamTable
from trio_cogment.rpc._streams import Stream

DATA, HEADERS, RST = 0, 1, 3
OK = [(b"grpc-status", b"0")]


class Table:
    """A table with everything that it needs."""

    def __init__(self, *, client_side: bool = False) -> None:
        config = RpcConfig()
        streams: dict[int, Stream] = {}
        self.emptied = 0
        self.queue = SendQueue(config, BytePool().loan(), client_side=client_side)
        self.window = receive_window(config, streams, self.queue.write_window_update)
        self.table = StreamTable(
            streams,
            client_side=client_side,
            config=config,
            control=ControlPlane(client_side=client_side),
            queue=self.queue,
            window=self.window,
            on_empty=self._note_empty,
        )
        self.queue.on_sent = self.table.send_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def _note_empty(self) -> None:
        self.emptied += 1

    def sent(self) -> list[tuple[int, int, int]]:
        """Return kind, flags and stream of the frames that have been sent."""
        found = []
        data = self.queue.take_output()
        while data:
            found.append((data[3], data[4], int.from_bytes(data[5:9], "big")))
            data = data[9 + int.from_bytes(data[:3], "big") :]
        return found


def test_requests_have_odd_numbers_that_grow() -> None:
    table = Table(client_side=True)
    assert table.is_idle(1)
    assert [table.open_request([(b"a", b"b")]).id for _ in range(3)] == [1, 3, 5]
    assert [table.is_idle(number) for number in (0, 1, 2, 5, 7)] == [True, False, True, False, True]
    assert table.sent() == [(HEADERS, 4, 1), (HEADERS, 4, 3), (HEADERS, 4, 5)]
    table.close(table.open[3])
    assert not table.is_idle(3)


def test_numbers_end() -> None:
    table = Table(client_side=True)
    exhausted = [table.exhausted()]
    table.table._next = 2**31 - 1
    exhausted.append(table.exhausted())
    table.open_request([])
    assert [*exhausted, table.exhausted()] == [False, False, True]


def test_numbers_that_a_peer_skips_are_closed() -> None:
    table = Table()
    for number in (1, 3, 9, 11):
        table.accept(number)
    assert [number for number in range(1, 15, 2) if table.was_skipped(number)] == [5, 7]
    assert not table.is_idle(5)
    assert (table.newest, table.begun) == (11, 4)


def test_the_end_of_a_response_waits_for_its_messages() -> None:
    table = Table()
    stream = table.accept(1)
    stream.send_window = 0
    table.send_headers(stream, [(b":status", b"200")])
    table.queue.send_message(stream, b"x")
    table.end(stream, OK)
    table.end(stream, [(b"grpc-status", b"1")])  # too late
    assert stream.end == OK
    assert table.sent() == [(HEADERS, 4, 1)]
    assert table.open == {1: stream}
    stream.send_window = 100
    table.queue.schedule(stream)
    table.queue.resume()
    assert table.sent() == [(DATA, 0, 1), (HEADERS, 5, 1), (RST, 0, 1)]  # the rest of the request is of no use
    assert not table.open


def test_a_client_closes_its_side_and_waits_for_the_response() -> None:
    table = Table(client_side=True)
    stream = table.open_request([])
    table.end(stream, [])
    assert table.sent() == [(HEADERS, 4, 1), (DATA, 1, 1)]
    assert stream.local_closed
    assert not stream.closed


def test_a_status_that_does_not_wait_drops_what_is_queued() -> None:
    table = Table()
    stream = table.accept(1)
    stream.remote_closed = True
    stream.send_window = 0
    table.queue.send_message(stream, bytes(100))
    table.finish_now(stream, OK)
    table.finish_now(stream, OK)
    assert table.sent() == [(HEADERS, 5, 1)]
    assert stream.closed
    assert not stream.outbox


def test_a_stream_is_reset_once() -> None:
    table = Table()
    stream = table.accept(1)
    table.reset(stream, 8)
    assert table.queue.answer_bytes == 13
    table.reset(stream, 8)
    table.send_headers(stream, [])
    table.end(stream, OK)
    assert table.sent() == [(RST, 0, 1)]


def test_a_client_that_resets_answers_nobody() -> None:
    table = Table(client_side=True)
    table.reset(table.open_request([]), 8)
    assert table.queue.answer_bytes == 0


def test_a_stream_that_is_over_gives_its_grant_back() -> None:
    table = Table()
    stream = table.accept(1)
    stream.missing = 10**6
    table.window.update_stream_window(stream)
    assert table.window.granted == 10**6
    table.close(stream)
    assert table.window.granted == 0


def test_a_drain_ends_with_the_last_stream() -> None:
    table = Table()
    first, second, third = (table.accept(number) for number in (1, 3, 5))
    table.close(first)
    table.refuse_new()
    table.close(second)
    assert table.emptied == 0
    table.close(third)
    assert table.emptied == 1


def test_numbers_that_were_skipped_are_known_however_many_requests_follow() -> None:
    table = Table()
    for number in (1, 5, *range(7, 99, 2)):
        table.accept(number)
    assert [number for number in range(1, 99, 2) if table.was_skipped(number)] == [3]
