"""The receive window alone: when the peer is credited, who gets a grant, and what all streams may hold together."""

from __future__ import annotations

import dataclasses
from collections import deque
from functools import partial

import hypothesis
import hypothesis.strategies as st
import pytest
import trio

from tests.rpc.raw_peer import message
from tests.rpc.receive_windows import receive_window
from tests.rpc.test_liveness import MemoryListener
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.memory import ConnectionMemory
from trio_cogment.rpc import Channel, serve
from trio_cogment.rpc._streams import Stream
from trio_cogment.testing.conformance.channel import ECHO, CheckService

CONFIG = RpcConfig(
    stream_window_bytes=1000,
    connection_window_bytes=65_535,
    connection_memory_bytes=65_536,
    max_receive_message_bytes=200_000,
)


class Receiver:
    """A receive window, and a peer that keeps to what it is granted."""

    def __init__(self, config: RpcConfig = CONFIG) -> None:
        self.streams: dict[int, Stream] = {}
        self.updates: list[tuple[int, int]] = []
        self.waits = 0
        self.window = receive_window(config, self.streams, self._note_update, self._note_wait)
        self.unsent: dict[int, bytearray] = {}
        self.messages: dict[int, deque[bytes]] = {}

    def _note_update(self, number: int, increment: int) -> None:
        assert increment > 0
        self.updates.append((number, increment))

    def _note_wait(self) -> None:
        self.waits += 1

    def open(self, number: int) -> Stream:
        stream = Stream(number, recv_window=self.window.initial, send_window=0, max_message=200_000)
        self.streams[number] = stream
        self.unsent[number] = bytearray()
        self.messages[number] = deque()
        return stream

    def arrive(self, number: int, most: int = 2**31) -> int:
        """Let bytes of a stream arrive, as many as are there and granted; return how many that were."""
        stream = self.streams[number]
        data = bytes(self.unsent[number][: max(0, min(most, stream.recv_window, self.window.size))])
        if data:
            del self.unsent[number][: len(data)]
            stream.recv_window -= len(data)
            stream.held += len(data)
            self.window.size -= len(data)
            found: list[bytes] = []
            stream.feed(data, 0, len(data), found)
            self.messages[number].extend(found)
            if stream.missing:
                self.window.update_stream_window(stream)
            if self.window.size < self.window.low:
                self.window.credit_connection()
        return len(data)

    def push(self, number: int, size: int) -> None:
        """Have the peer send a message, as far as it may."""
        self.unsent[number] += message(bytes(size))
        while self.arrive(number):
            pass

    def go_on(self) -> None:
        """Have the peer send what it has, as far as it may."""
        while sum(self.arrive(number) for number in self.streams):
            pass

    def take(self, number: int) -> int:
        """Have the application take a message."""
        payload = self.messages[number].popleft()
        self.window.consumed(self.streams[number], len(payload))
        return len(payload)

    def close(self, number: int) -> Stream:
        stream = self.streams.pop(number)
        stream.closed = True
        self.window.reclaim(stream)
        return stream


def test_small_increments_are_saved_up() -> None:
    receiver = Receiver()
    receiver.open(1)
    for _ in range(5):
        receiver.push(1, 95)
        receiver.take(1)
    assert receiver.updates == []
    receiver.push(1, 95)
    receiver.take(1)
    assert receiver.updates == [(1, 600)]
    assert receiver.streams[1].recv_window == 1000


def test_a_stream_that_nobody_reads_is_not_credited() -> None:
    receiver = Receiver()
    stream = receiver.open(1)
    for _ in range(20):
        receiver.push(1, 95)
    assert receiver.updates == []
    assert (stream.recv_window, stream.held) == (0, 1000)
    for _ in range(6):
        receiver.take(1)
    assert receiver.updates == [(1, 500)]


def test_the_connection_is_credited_for_what_nobody_has_read() -> None:
    receiver = Receiver(dataclasses.replace(CONFIG, connection_memory_bytes=200_000))
    for number in range(1, 101, 2):
        receiver.open(number)
        receiver.push(number, 995)
    assert [number for number, _ in receiver.updates] == [0]
    assert receiver.window.size > receiver.window.low


def test_a_message_larger_than_its_window_is_let_through_whole() -> None:
    receiver = Receiver()
    receiver.open(1)
    receiver.push(1, 20_000)
    assert len(receiver.messages[1]) == 1
    assert receiver.waits == 0
    receiver.take(1)
    assert receiver.window.granted == 0
    assert receiver.streams[1].recv_window == 32_767  # half of the connection's


def test_after_a_large_message_the_next_one_need_not_wait() -> None:
    receiver = Receiver()
    stream = receiver.open(1)
    receiver.push(1, 10_000)
    receiver.take(1)
    assert stream.recv_window == 2 * 10_005 + 1000
    for _ in range(5):
        receiver.push(1, 10_000)
        assert receiver.window.granted == 0
        receiver.take(1)


def test_a_window_that_was_used_up_and_taken_grows_up_to_half_of_the_connections() -> None:
    receiver = Receiver()
    stream = receiver.open(1)
    widest = CONFIG.connection_window_bytes >> 1
    for _ in range(200):
        receiver.push(1, stream.recv_window - 5)  # all that it may send
        receiver.take(1)
        assert stream.low_window == stream.full_window - 500
    assert stream.full_window == stream.recv_window == widest
    other = receiver.open(3)
    assert other.full_window == other.recv_window == 1000


def test_a_large_window_is_credited_in_small_steps() -> None:
    """Or a slow reader would look to its peer as if it read nothing."""
    receiver = Receiver()
    receiver.open(1)
    receiver.push(1, 10_000)
    receiver.take(1)
    receiver.updates.clear()
    for _ in range(4):
        receiver.push(1, 500)
        receiver.take(1)
        assert receiver.updates.pop() == (1, 505)


def test_a_window_that_is_used_and_not_taken_stays_as_it_is() -> None:
    receiver = Receiver()
    stream = receiver.open(1)
    for _ in range(10):
        receiver.push(1, 195)
    receiver.take(1)
    receiver.push(1, 195)
    assert stream.full_window == 1000


def test_grants_are_given_in_order_while_they_fit() -> None:
    receiver = Receiver()
    for number in (1, 3, 5, 7):
        receiver.open(number)
        receiver.unsent[number] += message(bytes(40_000))
        receiver.arrive(number, 500)
    assert [bool(stream.granted) for stream in receiver.streams.values()] == [True, False, False, False]
    assert receiver.waits == 1
    assert receiver.window.holders() == [receiver.streams[1]]
    order = []
    for _ in range(4):
        receiver.go_on()
        (ready,) = [number for number, messages in receiver.messages.items() if messages]
        order.append(ready)
        receiver.take(ready)
    assert order == [1, 3, 5, 7]
    assert receiver.window.granted == 0
    assert receiver.window.holders() == []


def test_nobody_holds_others_up_while_the_connections_own_window_is_shut() -> None:
    """Its messages cannot come any further then."""
    receiver = Receiver()
    for number in (1, 3):
        receiver.open(number)
        receiver.unsent[number] += message(bytes(40_000))
        receiver.arrive(number, 500)
    assert receiver.window.holders() == [receiver.streams[1]]
    for size, holders in ((1, [receiver.streams[1]]), (0, []), (-1, [])):
        receiver.window.size = size
        assert receiver.window.holders() == holders


def test_a_small_grant_does_not_overtake_a_large_one_that_waits() -> None:
    receiver = Receiver()
    for number, size in ((1, 30_000), (3, 60_000), (5, 2000)):
        receiver.open(number)
        receiver.unsent[number] += message(bytes(size))
        receiver.arrive(number, 500)
    assert [bool(stream.granted) for stream in receiver.streams.values()] == [True, False, False]
    receiver.close(1)
    assert [bool(stream.granted) for stream in receiver.streams.values()] == [True, True]


def test_a_message_larger_than_the_budget_passes_alone() -> None:
    receiver = Receiver()
    receiver.open(1)
    receiver.push(1, 150_000)
    assert len(receiver.messages[1]) == 1
    receiver.take(1)
    receiver.go_on()
    assert receiver.window.granted == 0


def test_what_all_streams_hold_is_bounded_and_taking_some_lets_them_go_on() -> None:
    receiver = Receiver()
    for number in range(1, 401, 2):
        receiver.open(number)
        receiver.push(number, 995)
    held = sum(stream.held for stream in receiver.streams.values())
    assert 64_536 < held <= 65_536
    assert receiver.window.withheld
    before = len(receiver.updates)
    for number in range(1, 69, 2):
        receiver.take(number)
    assert [increment for number, increment in receiver.updates[before:] if number == 0] == [33_001]
    assert not receiver.window.withheld


def test_pieces_of_messages_alone_do_not_stop_the_connection() -> None:
    """Otherwise nobody could take anything, and nothing would ever come."""
    receiver = Receiver()
    for number in range(1, 401, 2):
        receiver.open(number)
        receiver.unsent[number] += message(bytes(1500))
    receiver.go_on()
    for _ in range(200):
        receiver.go_on()
        for number, messages in receiver.messages.items():
            while messages:
                receiver.take(number)
    assert not any(receiver.unsent.values())


def test_messages_of_a_stream_that_is_over_count_until_they_are_taken() -> None:
    receiver = Receiver()
    for number in range(1, 401, 2):
        receiver.open(number)
        receiver.push(number, 995)
    stopped = receiver.window.size
    kept = []
    for number in range(1, 101, 2):
        kept.append(receiver.close(number))
        receiver.window.keep(kept[-1], [995] * len(receiver.messages[number]))
    assert receiver.window.size == stopped
    for stream in kept[:25]:
        receiver.window.consumed(stream, 995)
    assert receiver.window.size == stopped
    for stream in kept[25:]:
        receiver.window.forget(stream)
    assert receiver.window.size > stopped
    receiver.window.forget(kept[0])  # it has been taken: nothing happens


def test_of_a_stream_that_is_over_only_whole_messages_are_held() -> None:
    receiver = Receiver()
    stream = receiver.open(1)
    stream.held = 100  # two messages, and the beginning of a third that will not come
    stream.closed = True
    receiver.window.keep(stream, [10, 20])
    assert stream.held == 10 + 20 + 2 * 5
    receiver.window.consumed(stream, 10)
    assert stream.held == 20 + 5
    receiver.window.consumed(stream, 20)
    assert stream.held == 0


def test_a_stream_that_is_reset_lets_the_connection_go_on() -> None:
    """What it held is credited at once: nobody will take it."""
    receiver = Receiver()
    for number in range(1, 401, 2):
        receiver.open(number)
        receiver.push(number, 995)
    assert receiver.window.withheld
    before = len(receiver.updates)
    for number in range(1, 65, 2):
        receiver.close(number)
    assert receiver.updates[before:] == []
    receiver.close(65)
    assert receiver.updates[before:] == [(0, 33_001)]
    assert not receiver.window.withheld


class Borrower(Receiver):
    """A receiver whose memory is limited.

    Attributes:
        memory: what it borrows.
    """

    def __init__(self, total: int) -> None:
        super().__init__()
        self.memory = ConnectionMemory()
        self.memory.messages.total = self.memory.windows.total = total
        config = dataclasses.replace(CONFIG, stream_window_bytes=65_535, connection_memory_bytes=2**20)
        self.window = receive_window(config, self.streams, self._note_update, self._note_wait, memory=self.memory)

    def begin(self, number: int, size: int, came: int) -> None:
        """Open a stream, on which so much of a message comes."""
        self.open(number)
        self.unsent[number] += message(bytes(size))
        self.arrive(number, came)


def test_what_was_granted_is_borrowed_once_whether_it_has_come_or_not() -> None:
    """And what else is held, beyond 64 KiB, beside it."""
    borrower = Borrower(9_000_000)
    borrower.begin(1, 150_000, 1000)
    granted = borrower.streams[1].granted
    assert granted == 150_005 - 1000
    assert borrower.memory.messages.used == granted
    for came in (20_000, 60_000):
        borrower.arrive(1, came)
        borrower.window.credit_connection()
        # Of the message nothing more is borrowed as it comes: what is held of it was granted, but for its beginning.
        assert borrower.memory.messages.used == granted
    for number in range(3, 23, 2):
        borrower.begin(number, 40_000, 30_000)
    borrower.window.credit_connection()
    others = 10 * 30_000
    assert not any(stream.granted for number, stream in borrower.streams.items() if number > 1)
    assert borrower.memory.messages.used == granted + others - 65_535
    borrower.close(1)
    assert borrower.memory.messages.used == others - 65_535
    for number in range(3, 23, 2):
        borrower.close(number)
    borrower.window.settle()
    assert borrower.memory.messages.used == 0


@pytest.mark.parametrize("way", ["taken", "dropped", "reset"])
def test_what_is_left_after_the_end_of_a_connection_is_not_borrowed_for(way: str) -> None:
    """Calls may outlive it, with messages that nobody has read."""
    borrower = Borrower(2**20)
    for number in range(1, 41, 2):
        borrower.open(number)
        borrower.push(number, 10_000)
    streams = [*borrower.streams.values()]
    if way != "reset":
        for stream in streams:
            borrower.close(stream.id)
            borrower.window.keep(stream, [10_000])
    assert borrower.window.withheld
    borrower.window.close()
    for stream in streams:
        if way == "reset":
            borrower.close(stream.id)
        elif way == "taken":
            borrower.window.consumed(stream, 10_000)
        else:
            borrower.window.forget(stream)
        assert (borrower.memory.messages.used, borrower.memory.windows.used) == (0, 0)
        assert not borrower.memory.messages.short


SIZES = st.sampled_from([0, 10, 300, 990, 1000, 1100, 5000, 30_000, 70_000])
STEPS = st.lists(
    st.tuples(st.sampled_from(["push", "push", "arrive", "arrive", "take", "close"]), st.integers(0, 4), SIZES),
    max_size=60,
)


@hypothesis.given(STEPS)
@hypothesis.settings(max_examples=150)
def test_the_sums_are_right_and_everything_arrives_in_the_end(steps: list[tuple[str, int, int]]) -> None:
    receiver = Receiver(dataclasses.replace(CONFIG, stream_window_bytes=1000))
    numbers = range(1, 11, 2)
    for number in numbers:
        receiver.open(number)
    for what, which, size in steps:
        number = numbers[which]
        if number not in receiver.streams:
            continue
        if what == "push":
            receiver.unsent[number] += message(bytes(size))
        elif what == "arrive":
            receiver.arrive(number, size)
        elif what == "take" and receiver.messages[number]:
            receiver.take(number)
        elif what == "close":
            receiver.close(number)
            del receiver.unsent[number], receiver.messages[number]
        window = receiver.window
        streams = receiver.streams.values()
        assert window.granted == sum(stream.granted for stream in streams)
        assert window.granted <= window._budget or sum(bool(stream.granted) for stream in streams) == 1
        assert window.granted or not window._applicants
        assert all(stream.recv_window >= 0 for stream in streams)
        assert window.size >= 0
    while any(receiver.unsent.values()) or any(receiver.messages.values()):
        before = sum(map(len, receiver.unsent.values())), sum(map(len, receiver.messages.values()))
        receiver.go_on()
        for number, messages in receiver.messages.items():
            while messages:
                receiver.take(number)
        assert (sum(map(len, receiver.unsent.values())), sum(map(len, receiver.messages.values()))) != before
    assert all(stream.held == 0 for stream in receiver.streams.values())
    assert not receiver.window._applicants


@pytest.mark.parametrize("window", [5, 6, 9])
async def test_messages_of_any_size_get_through_the_smallest_windows(window: int) -> None:
    """A message's prefix has five bytes: what has come of it is not credited before the message begins."""
    config = RpcConfig(stream_window_bytes=window)
    sizes = [0, 0, 1, 100, 0, 3, 2, 9, 1000]
    listener = MemoryListener()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, [CheckService().service()], [listener], config=config))
            async with Channel.over(listener.connect, config=config) as channel, channel.call(ECHO) as call:
                for size in sizes:
                    await call.send(Action(content=bytes(size)))
                await call.done_sending()
                assert [len(reply.content) async for reply in call] == sizes
            nursery.cancel_scope.cancel()
