"""The send queue alone: what goes out at once, what waits, and whose turn it is."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.rpc.raw_peer import DATA, PING, frame, message
from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.rpc._frames import INITIAL_WINDOW, MAX_WINDOW, ConnectionFaultError, ErrorCode
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._streams import Stream

SMALL = RpcConfig(
    write_high_water_bytes=1000,
    call_outbox_messages=3,
    call_outbox_bytes=2000,
    connection_memory_bytes=65_536,
    max_concurrent_streams=2,
)


def make_queue(config: RpcConfig = SMALL, *, client_side: bool = False) -> SendQueue:
    return SendQueue(config, BytePool().loan(), client_side=client_side)


def make_stream(number: int, window: int = INITIAL_WINDOW) -> Stream:
    return Stream(number, recv_window=0, send_window=window, max_message=0)


def data_frames(output: bytes) -> list[tuple[int, bytes]]:
    """Return the streams and the payloads of DATA frames."""
    found = []
    while output:
        size = int.from_bytes(output[:3], "big")
        assert output[3] == DATA
        found.append((int.from_bytes(output[5:9], "big"), output[9 : 9 + size]))
        output = output[9 + size :]
    return found


def test_a_message_that_fits_goes_out_at_once() -> None:
    queue, stream = make_queue(), make_stream(1)
    queue.send_message(stream, b"one")
    assert queue.out_size == 9 + 5 + 3
    assert not stream.outbox
    assert (stream.send_window, queue.window) == (INITIAL_WINDOW - 8, INITIAL_WINDOW - 8)
    assert queue.take_output() == frame(DATA, 0, 1, message(b"one"))
    assert queue.out_size == 0


def test_a_shut_stream_waits_for_its_own_window_alone() -> None:
    queue, shut, other = make_queue(), make_stream(1, 0), make_stream(3)
    queue.send_message(shut, b"waits")
    queue.send_message(other, b"passes")
    assert data_frames(queue.take_output()) == [(3, message(b"passes"))]
    shut.send_window += 4  # less than the message
    queue.schedule(shut)
    queue.resume()
    assert data_frames(queue.take_output()) == [(1, message(b"waits")[:4])]
    shut.send_window += 100
    queue.schedule(shut)
    queue.resume()
    assert data_frames(queue.take_output()) == [(1, message(b"waits")[4:])]


def test_the_connections_window_holds_all_streams() -> None:
    queue, first, second = make_queue(), make_stream(1), make_stream(3)
    queue.window = 0
    queue.send_message(first, b"a")
    queue.send_message(second, b"b")
    assert queue.take_output() == b""
    queue.window += 9
    queue.resume()
    assert data_frames(queue.take_output()) == [(1, message(b"a")), (3, message(b"b")[:3])]


def test_waiting_streams_take_turns() -> None:
    queue, large, small = make_queue(), make_stream(1), make_stream(3)
    queue.send_message(large, bytes(40_000))
    queue.send_message(small, b"quick")
    taken = [data_frames(queue.take_output()) for _ in range(4)]
    streams = [number for frames in taken for number, _ in frames]
    assert streams == [1, 1, 3, 1]  # the first was in the output already; the second had its turn before


def test_several_small_messages_share_a_frame() -> None:
    queue, stream = make_queue(), make_stream(1, 0)
    for text in (b"a", b"b", b"c"):
        queue.send_message(stream, text)
    stream.send_window += 100
    queue.schedule(stream)
    queue.resume()
    assert data_frames(queue.take_output()) == [(1, message(b"a") + message(b"b") + message(b"c"))]


def test_a_compressed_message_says_so() -> None:
    queue, stream = make_queue(), make_stream(1)
    queue.send_compressed(stream, b"zip")
    assert data_frames(queue.take_output()) == [(1, message(b"zip", 1))]


def test_bytes_that_are_framed_already_go_behind_the_messages() -> None:
    queue, stream = make_queue(), make_stream(1, 0)
    queue.send_message(stream, b"a")
    queue.send_framed(stream, message(b"end", 0x80))
    stream.send_window += 100
    queue.schedule(stream)
    queue.resume()
    queue.send_framed(stream, b"more")
    assert data_frames(queue.take_output()) == [(1, message(b"a") + message(b"end", 0x80)), (1, b"more")]
    stream.closed = True
    queue.send_framed(stream, b"late")
    assert queue.take_output() == b""


def test_output_stays_near_the_high_water_mark() -> None:
    queue, stream = make_queue(), make_stream(1)
    for _ in range(100):
        queue.send_message(stream, bytes(300))
    assert 1000 <= queue.out_size < 1000 + 314
    while queue.out_size:
        assert queue.out_size < 1000 + 16384 + 9
        queue.take_output()
    assert not stream.outbox


def test_room_is_bounded_for_each_stream() -> None:
    queue, stream = make_queue(), make_stream(1, 0)
    for _ in range(3):
        assert queue.has_room(stream, 10)
        queue.send_message(stream, bytes(10))
    assert not queue.has_room(stream, 10)
    other = make_stream(3, 0)
    queue.send_message(other, bytes(1000))
    assert queue.has_room(other, 995)
    assert not queue.has_room(other, 996)


def test_room_is_bounded_for_all_streams_together() -> None:
    queue = make_queue()
    streams = [make_stream(number, 0) for number in range(1, 200, 2)]
    for stream in streams:
        if queue.has_room(stream, 1995):
            queue.send_message(stream, bytes(1995))
    waiting = [stream for stream in streams if stream.outbox]
    assert len(waiting) == 65_536 // 2000 + 1
    late = make_stream(1001, 100)
    assert queue.has_room(late, 95)  # it need not wait
    assert not queue.has_room(late, 96)
    assert queue.take_rooms() == []
    queue.drop(waiting[0])
    assert queue.take_rooms() == [streams[len(waiting)]]  # the first of those that have been refused
    assert queue.has_room(late, 96)


def test_who_was_refused_because_of_the_output_asks_again_when_it_is_taken() -> None:
    """Its windows admit the message; only the output was as long as it may be. Unless others are before it."""
    for others_wait in (False, True):
        queue = make_queue()
        queue.window = 2**30
        hog, refused, other = make_stream(1, 0), make_stream(3, 2**20), make_stream(5, 2**20)
        queue.send_message(hog, bytes(70_000))  # all outboxes are full
        queue.send_message(refused, bytes(990))
        assert not queue.has_room(refused, 100)
        if others_wait:
            queue.send_message(other, bytes(100_000))
        assert queue.take_rooms() == []
        queue.take_output()
        assert queue.take_rooms() == ([] if others_wait else [refused])
        assert queue.has_room(refused, 100) is not others_wait


def test_what_was_borrowed_is_given_back_as_output_is_taken() -> None:
    pool = BytePool(90_000_000)
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
    queue.window = 2**30
    stream = make_stream(1, 2**30)
    assert queue.has_room(stream, 3_000_000)
    queue.send_message(stream, bytes(3_000_000))
    used = []
    while queue.out_size:
        used.append(pool.used)
        queue.take_output()
    assert len(used) > 5
    for before, after in itertools.pairwise(used):
        assert after < before + 1000  # the headers of frames
    assert used[-1] < used[0] / 3
    queue.sent()
    assert pool.used == 0


def test_a_large_message_waits_as_it_is() -> None:
    queue, stream = make_queue(), make_stream(1, 0)
    large = bytes(20_000)
    queue.send_message(stream, large)
    assert stream.outbox[-1] is large
    assert stream.outbox_bytes == queue.waiting_bytes == 20_005
    stream.send_window = 30_000
    queue.schedule(stream)
    queue.resume()
    sent = data_frames(queue.take_output())
    sent += data_frames(queue.take_output())
    assert b"".join(payload for _, payload in sent) == message(large)


def test_large_output_is_taken_in_pieces_of_which_the_large_ones_are_not_copied() -> None:
    queue = make_queue(RpcConfig(write_high_water_bytes=2**20))
    queue.apply_settings(INITIAL_WINDOW, 2**20, [])
    streams = [make_stream(number) for number in (1, 3, 5)]
    small, large = b"small", bytes(20_000)
    for stream, payload in zip(streams, (small, large, small), strict=True):
        queue.send_message(stream, payload)
    size, explained = queue.out_size, queue.updates_due
    pieces = queue.take_pieces()
    assert len(pieces) == 3
    assert pieces[1] is large
    assert (size, queue.out_size) == (sum(map(len, pieces)), 0)
    assert queue.updates_due > explained
    assert data_frames(b"".join(pieces)) == [(1, message(small)), (3, message(large)), (5, message(small))]


def large_queue(config: RpcConfig | None = None, pool: BytePool | None = None) -> SendQueue:
    queue = SendQueue(config or RpcConfig(), (pool or BytePool()).loan(), client_side=False)
    queue.apply_settings(INITIAL_WINDOW, 2**20, [])
    queue.window = 2**30
    return queue


def test_a_large_message_that_need_not_wait_goes_out_as_it_is_in_one_frame() -> None:
    pool = BytePool(9 * 2**20)
    queue, stream, tail = large_queue(pool=pool), make_stream(1, 2**20), bytes(300_000)
    assert queue.send_large_at_once(stream, b"head", tail)
    assert (stream.send_window, queue.window) == (2**20 - 300_009, 2**30 - 300_009)
    assert pool.used >= 300_009 - 2**16
    assert not [count for count in queue.recount_of([stream]) if count.kept != count.counted]
    pieces = queue.take_pieces()
    assert pieces[-1] is tail
    assert data_frames(b"".join(pieces)) == [(1, message(b"head" + tail))]
    queue.sent()
    assert pool.used == 0


def test_a_large_message_goes_out_at_once_where_its_outbox_is_empty() -> None:
    queue, stream, large = large_queue(), make_stream(1, 2**20), bytes(100_000)
    queue.send_message(stream, large)
    assert queue.take_pieces()[-1] is large
    assert not stream.outbox


@pytest.mark.parametrize("why", ["stream", "connection", "frame", "own outbox", "turns", "output", "memory"])
def test_a_large_message_that_has_to_wait_is_not_sent_at_once(why: str) -> None:
    pool = BytePool(9 * 2**20)
    queue = large_queue(pool=pool)
    stream, other = make_stream(1, 2**20), make_stream(3, 2**20)
    size = 300_000
    if why == "stream":
        stream.send_window = size
    elif why == "connection":
        queue.window = size
    elif why == "frame":
        queue.apply_settings(INITIAL_WINDOW, size, [])
    elif why == "own outbox":
        stream.outbox.append(b"before")
    elif why == "turns":
        queue.ready[other] = None
    elif why == "output":
        assert queue.send_large_at_once(other, b"", bytes(size))
    elif why == "memory":
        pool.loan().set(8 * 2**20)  # somebody else has it
    before = (queue.out_size, queue.window, stream.send_window)
    assert not queue.send_large_at_once(stream, b"", bytes(size))
    assert (queue.out_size, queue.window, stream.send_window) == before


def test_what_several_streams_are_sent_makes_the_output_longer_than_its_mark() -> None:
    queue = large_queue()
    tail = bytes(100_000)
    streams = [make_stream(number, 2**20) for number in range(1, 41, 2)]
    sent = sum(queue.send_large_at_once(stream, b"head", tail) for stream in streams)
    assert 2**20 <= queue.out_size < 2**20 + 2 * len(tail)
    assert sent == 11
    assert queue.take_pieces().count(tail) == sent


def test_a_small_rest_of_a_large_message_goes_along() -> None:
    """A message of 1 MiB has five bytes more than the largest frame."""
    queue = make_queue(RpcConfig())
    queue.apply_settings(INITIAL_WINDOW, 2**20, [])
    queue.credit(2**22)
    streams = [make_stream(number, 2**22) for number in (1, 3)]
    payload = bytes(2**20)
    for stream in streams:
        queue.send_message(stream, payload)
    assert [(number, len(part)) for number, part in data_frames(queue.take_output())] == [(1, 2**20), (1, 5)]
    assert [(number, len(part)) for number, part in data_frames(queue.take_output())] == [(3, 2**20), (3, 5)]


def test_who_waits_for_room_is_told_once() -> None:
    queue, stream = make_queue(), make_stream(1, 0)
    queue.send_message(stream, bytes(10))
    stream.watched = True
    assert queue.take_rooms() == []
    stream.send_window = 100
    queue.schedule(stream)
    queue.resume()
    assert queue.take_rooms() == [stream]
    assert queue.take_rooms() == []
    assert not stream.watched


def test_the_end_follows_the_last_message() -> None:
    queue, stream = make_queue(), make_stream(1, 0)
    ended: list[bytes] = []
    queue.on_sent = lambda _: ended.append(queue.take_output())
    queue.send_message(stream, b"last")
    queue.send_message(make_stream(3), b"other")
    stream.end = []
    assert ended == []
    stream.send_window = 100
    queue.schedule(stream)
    queue.resume()
    assert ended == [frame(DATA, 0, 3, message(b"other")) + frame(DATA, 0, 1, message(b"last"))]


def test_a_closed_stream_sends_nothing() -> None:
    queue, stream = make_queue(), make_stream(1, 0)
    queue.send_message(stream, b"waits")
    stream.watched = True
    stream.closed = True
    queue.close(stream)
    assert queue.take_rooms() == [stream]
    queue.send_message(stream, b"")
    queue.send_compressed(stream, b"")
    queue.schedule(stream)
    queue.resume()
    assert queue.take_output() == b""


def test_answers_are_counted_until_they_are_taken() -> None:
    queue = make_queue()
    queue.write_frame(PING, 0, 0, bytes(8))
    assert queue.answer_bytes == 0
    queue.write_answer(PING, 1, 0, bytes(8))
    assert queue.answer_bytes == 17
    queue.take_output()
    assert queue.answer_bytes == 0


def test_header_blocks_beyond_two_for_each_call_count_as_answers() -> None:
    queue = make_queue()
    for _ in range(4):
        queue.write_headers(bytes(100))
    assert queue.answer_bytes == 0
    queue.write_headers(bytes(100))
    assert queue.answer_bytes == 100
    queue.take_output()
    queue.write_headers(bytes(100))
    assert queue.answer_bytes == 0


def test_a_clients_header_blocks_are_its_own() -> None:
    queue = make_queue(client_side=True)
    for _ in range(100):
        queue.write_headers(bytes(100))
    assert queue.answer_bytes == 0


def test_settings_change_the_windows_of_open_streams() -> None:
    queue, stream = make_queue(), make_stream(1)
    queue.send_message(stream, bytes(95))
    queue.take_output()
    queue.apply_settings(50, 16384, [stream])
    assert stream.send_window == -50
    queue.send_message(stream, b"x")
    assert queue.take_output() == b""
    queue.apply_settings(1000, 16384, [stream])
    assert data_frames(queue.take_output()) == [(1, message(b"x"))]
    assert queue.initial_window == 1000


def test_a_window_that_is_shut_below_zero_sends_nothing_either() -> None:
    """Not an empty frame, which peers count as a flood."""
    queue, shut, other = make_queue(), make_stream(1, 10), make_stream(3)
    queue.window = 0
    queue.send_message(shut, b"waits")
    queue.send_message(other, b"passes")
    queue.apply_settings(INITIAL_WINDOW - 20, 16_384, [shut])
    assert shut.send_window == -10
    queue.credit(1000)
    assert data_frames(queue.take_output()) == [(3, message(b"passes"))]
    queue.credit_stream(shut, 110)
    assert data_frames(queue.take_output()) == [(1, message(b"waits"))]


def test_settings_that_make_a_window_too_large_are_refused() -> None:
    queue, stream = make_queue(), make_stream(1, MAX_WINDOW - 10)
    queue.apply_settings(INITIAL_WINDOW + 10, 16384, [stream])
    assert stream.send_window == MAX_WINDOW
    with pytest.raises(ConnectionFaultError) as raised:
        queue.apply_settings(INITIAL_WINDOW + 11, 16384, [stream])
    assert raised.value.code == ErrorCode.FLOW_CONTROL_ERROR


def test_updates_that_make_a_window_too_large_are_refused() -> None:
    queue, stream = make_queue(), make_stream(1, MAX_WINDOW - 10)
    assert queue.credit_stream(stream, 10)
    assert not queue.credit_stream(stream, 1)
    queue.credit(MAX_WINDOW - INITIAL_WINDOW)
    assert queue.window == MAX_WINDOW
    for increment, code in ((1, ErrorCode.FLOW_CONTROL_ERROR), (0, ErrorCode.PROTOCOL_ERROR)):
        with pytest.raises(ConnectionFaultError) as raised:
            queue.credit(increment)
        assert raised.value.code == code


def test_settings_bound_the_size_of_frames() -> None:
    queue, stream = make_queue(RpcConfig(max_frame_bytes=20_000)), make_stream(1)
    queue.apply_settings(INITIAL_WINDOW, 2**24 - 1, [stream])
    queue.send_message(stream, bytes(30_000))
    assert [len(payload) for _, payload in data_frames(queue.take_output())] == [20_000, 10_005]


def test_each_piece_of_output_explains_some_small_updates() -> None:
    """A piece is a message, and 256 bytes of it; what was explained before stays explained."""
    queue, stream = make_queue(), make_stream(1)
    queue.take_output()
    assert queue.updates_due == 0
    for expected in (4, 8):
        queue.send_message(stream, b"small")
        queue.take_output()
        assert queue.updates_due == expected
    queue.updates_due -= 3  # they have come
    queue.send_message(stream, bytes(512))
    queue.send_message(stream, bytes(10))
    queue.take_output()
    assert queue.updates_due == 8 - 3 + 4 * (2 + 2)


def test_without_memory_short_messages_go_out_as_far_as_windows_and_the_output_allow() -> None:
    """32 KiB are as much as the output takes without a loan; more is taken only if the pool has it for a while."""
    pool = BytePool(2**20)
    hoard = pool.loan()

    def room(size: int, *, left: int = 0, window: int = 2**30, out: int = 0) -> bool:
        hoard.set(0)
        queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
        queue.window = 2**30
        blocker = make_stream(1, 0)
        assert queue.has_room(blocker, 64 * 1024)
        queue.send_message(blocker, bytes(64 * 1024 - 5))  # what needs no loan is used up
        queue.write(bytes(out))
        hoard.set(2**20 - pool.used - left)
        return queue.has_room(make_stream(3, window), size)

    assert room(32 * 1024)
    assert not room(32 * 1024 + 1)
    assert not room(40 * 1024, left=40 * 1024 - 1)
    assert room(40 * 1024, left=40 * 1024)
    assert room(1000, window=1005)
    assert not room(1000, window=1004)
    assert room(1000, out=32 * 1024 - 1)
    assert not room(1000, out=32 * 1024)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(0, 3000)),
        st.tuples(st.just("share"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("grow"), st.integers(0, 3), st.integers(1, 3000)),
        st.tuples(st.just("grow all"), st.just(0), st.integers(1, 3000)),
        st.tuples(st.just("settings"), st.just(0), st.integers(0, 3000)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
    ),
    max_size=60,
)


#: What several streams send.
SHARED = (b"s" * 16 * 1024, b"t" * 17 * 1024)


@hypothesis.given(STEPS)
@hypothesis.settings(max_examples=150)
def test_windows_are_kept_and_nothing_is_lost_or_reordered(steps: list[tuple[str, int, int]]) -> None:
    queue = make_queue()
    queue.window = 2000
    queue.apply_settings(500, 16384, [])
    streams = [make_stream(number, 500) for number in (1, 3, 5, 7)]
    dropped: set[int] = set()
    wanted = {stream.id: b"" for stream in streams}
    sent = {stream.id: b"" for stream in streams}
    settings_came = False

    def take() -> None:
        for number, payload in data_frames(queue.take_output()):
            sent[number] += payload

    for what, which, size in steps:
        stream = streams[which]
        if what == "send" and stream.id not in dropped:
            queue.send_message(stream, bytes([size % 256]) * size)
            wanted[stream.id] += message(bytes([size % 256]) * size)
        elif what == "share" and stream.id not in dropped:
            queue.send_shared(stream, b"head", (SHARED[size],))
            wanted[stream.id] += message(b"head" + SHARED[size])
        elif what == "grow":
            stream.send_window += size
            queue.schedule(stream)
            queue.resume()
        elif what == "grow all":
            queue.window += size
            queue.resume()
        elif what == "settings":
            queue.apply_settings(size, 16384, streams)
        elif what == "take":
            take()
        elif what == "drop":
            queue.drop(stream)
            dropped.add(stream.id)
        assert queue.window >= 0
        assert [count for count in queue.recount_of(streams) if count.kept != count.counted] == []
        assert all(stream.outbox_bytes == sum(map(len, stream.outbox)) for stream in streams)
        # SETTINGS that shut a window leave its stream among those that take turns, until its next turn.
        settings_came = settings_came or what == "settings"
        assert settings_came or all(stream.send_window > 0 for stream in queue.ready)
    queue.window += 10**7
    for stream in streams:
        stream.send_window += 10**7
        queue.schedule(stream)
    queue.resume()
    while queue.out_size:
        take()
    for stream in streams:
        assert not stream.outbox
        assert wanted[stream.id].startswith(sent[stream.id])
        assert stream.id in dropped or sent[stream.id] == wanted[stream.id]
    assert queue._queued == 0
    assert not queue._shared


@pytest.mark.parametrize("how", ["connection", "stream", "settings", "sent", "close", "drop"])
def test_who_was_refused_because_outboxes_are_full_asks_again_when_there_may_be_room(how: str) -> None:
    """Whatever has made it, or opened a window for what need not wait; what is not enough tells nobody."""
    queue = make_queue()
    hogs, refused = [make_stream(number, 0) for number in range(1, 67, 2)], make_stream(101, 50)
    for hog in hogs:
        queue.send_message(hog, bytes(1995))
    assert not queue.has_room(refused, 100)
    assert not queue.has_room(refused, 100)
    queue.credit_stream(refused, 54)
    assert queue.take_rooms() == []
    if how == "connection":
        refused.send_window, queue.window = 1000, 104
        queue.credit(1)
    elif how == "stream":
        queue.credit_stream(refused, 1)
    elif how == "settings":
        queue.apply_settings(INITIAL_WINDOW + 1, 16_384, [refused])
    elif how == "sent":
        queue.credit_stream(hogs[0], 1000)
    elif how == "close":
        queue.close(hogs[0])
    else:
        queue.drop(hogs[0])
    assert queue.take_rooms() == [refused]
    assert queue.take_rooms() == []


def test_of_those_who_were_refused_no_more_are_told_than_there_is_room_for() -> None:
    """In their order; and when all has been sent, all the others, as nothing would bring them their turn."""
    queue = make_queue()
    queue.window = 2**20
    hogs = [make_stream(number, 0) for number in range(1, 67, 2)]
    refused = [make_stream(number, 0) for number in range(101, 201, 2)]
    for hog in hogs:
        queue.send_message(hog, bytes(1995))
    for stream in refused:
        assert not queue.has_room(stream, 1000)
    queue.credit_stream(hogs[0], 2000)
    queue.credit_stream(hogs[1], 2000)
    queue.take_output()
    queue.take_output()
    told = queue.take_rooms()
    assert told == refused[: len(told)]
    assert 2 <= len(told) <= 6
    for hog in hogs:
        queue.credit_stream(hog, 2000)
    while queue.out_size:
        queue.take_output()
    assert told + queue.take_rooms() == refused


def test_the_end_of_a_stream_that_was_refused_leaves_the_room_to_others() -> None:
    queue = make_queue()
    hogs = [make_stream(number, 0) for number in range(1, 67, 2)]
    first, second = make_stream(101, 0), make_stream(103, 0)
    for hog in hogs:
        queue.send_message(hog, bytes(1995))
    assert not queue.has_room(first, 1000)
    assert not queue.has_room(second, 1000)
    queue.close(first)
    assert queue.take_rooms() == [first]
    queue.drop(hogs[0])
    assert queue.take_rooms() == [second]


def test_the_room_is_not_for_who_does_not_wait_any_more() -> None:
    queue = make_queue()
    hogs = [make_stream(number, 0) for number in range(1, 67, 2)]
    first, second = make_stream(101, 0), make_stream(103, 0)
    for hog in hogs:
        queue.send_message(hog, bytes(1995))
    assert not queue.has_room(first, 1000)
    assert not queue.has_room(second, 1000)
    queue.give_up(first)
    queue.drop(hogs[0])
    assert queue.take_rooms() == [second]


def test_who_waits_for_memory_of_others_is_told_in_turns() -> None:
    pool = BytePool(2**20)
    told: list[list[Stream]] = []
    hoard = pool.loan()
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False, on_room=lambda: told.append(queue.take_rooms()))
    queue.window = 2**30
    blocker = make_stream(1, 0)
    assert queue.has_room(blocker, 64 * 1024)
    queue.send_message(blocker, bytes(64 * 1024 - 5))  # what needs no loan is used up
    refused = [make_stream(number, 0) for number in range(101, 201, 2)]
    hoard.set(2**20 - pool.used)
    for stream in refused:
        assert not queue.has_room(stream, 40 * 1024)
    hoard.set(hoard.size // 2)
    assert sum(map(len, told)) < len(refused)
    for _ in range(100):
        for stream in told.pop(0) if told else ():
            assert queue.has_room(stream, 40 * 1024)
            queue.close(stream)  # and does not use it
        hoard.set(max(hoard.size - 1000, 0))
    assert not queue.starved


def test_what_is_sent_after_the_end_of_a_connection_is_not_borrowed_for() -> None:
    pool = BytePool(9 * 2**20)
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
    streams = [make_stream(number, 0) for number in (1, 3)]
    assert queue.has_room(streams[0], 500_000)
    queue.send_message(streams[0], bytes(500_000))
    assert pool.used
    queue.discard()
    assert pool.used == 0
    assert queue.has_room(streams[1], 500_000)
    queue.send_message(streams[1], bytes(500_000))
    assert (pool.used, pool.short) == (0, False)


def test_what_several_streams_wait_for_counts_once() -> None:
    pool = BytePool(9 * 2**20)
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
    queue.window = 2**30
    tail = bytes(600_000)  # as much as one may borrow
    streams = [make_stream(number, 0) for number in range(1, 41, 2)]
    for stream in streams:
        assert queue.has_room(stream, 600_004, (tail,))
        queue.send_shared(stream, b"head", (tail,))
    assert queue.waiting_bytes == 600_000 + 20 * 9
    assert not queue.has_room(make_stream(101, 0), 600_004, (bytes(600_000),))
    for stream in streams[1:]:
        queue.credit_stream(stream, 100_000)  # parts of it go, and it is there still
        queue.take_output()
    assert queue.waiting_bytes == 600_000 + 9
    for stream in streams:
        queue.drop(stream)
    assert queue.waiting_bytes == 0
