"""The frame parser alone: any split gives the same, and every fault is told from every other."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.rpc.raw_peer import (
    CONTINUATION,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    message,
    settings,
)
from tests.rpc.receive_windows import receive_window
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.rpc._floods import Floods
from trio_cogment.rpc._frame_parser import SMALL_INCREMENT, FrameParser, Handler
from trio_cogment.rpc._frames import INITIAL_WINDOW, MAX_WINDOW, ConnectionFaultError, ErrorCode, Event, Kind
from trio_cogment.rpc._header_blocks import HeaderBlocks
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._streams import BadMessageError, Stream

CONFIG = RpcConfig(max_receive_message_bytes=50_000, max_empty_frames=5)


class Recorder(Handler):
    """A parser, streams 1 and 3, and a handler that notes what it is told."""

    def __init__(self, *, client_side: bool = True, config: RpcConfig = CONFIG) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.streams = {number: self.open(number) for number in (1, 3)}
        self.updates: list[tuple[int, int]] = []
        self.window = receive_window(config, self.streams, lambda *update: self.updates.append(update))
        self.blocks = HeaderBlocks(1000)
        self.queue = SendQueue(config, BytePool().loan(), client_side=client_side)
        self.credited = 0
        self.tells_all = False
        self.parser = FrameParser(
            client_side=client_side,
            config=config,
            streams=self.streams,
            window=self.window,
            blocks=self.blocks,
            floods=Floods(config, float, lambda: True),
            queue=self.queue,
            handler=self,
        )

    @staticmethod
    def open(number: int) -> Stream:
        stream = Stream(number, recv_window=CONFIG.stream_window_bytes, send_window=0, max_message=50_000)
        stream.headers_seen = True
        return stream

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            events: list[Event] = []
            try:
                self.parser.feed(piece, events)
            finally:
                self.told += [(kind.name, stream.id, value) for kind, stream, value in events]

    def open_up(self) -> None:
        self.feed(settings())
        self.told.clear()

    def control_frame(self, frame: bytes, kind: int, flags: int, stream_id: int, events: list[Event]) -> None:
        if kind == WINDOW_UPDATE and len(frame) == 13:
            self.window_update(stream_id, int.from_bytes(frame[9:], "big") & 0x7FFFFFFF, events)
        else:
            self.told.append(("frame", kind, flags, stream_id, frame[9:]))

    def window_update(self, stream_id: int, increment: int, events: list[Event]) -> None:
        if (
            is_usual(stream_id, increment) and not self.tells_all
        ):  # the last of a read: the parser may leave it to the handler
            self.credited += increment < SMALL_INCREMENT
            if stream_id:
                self.streams[stream_id].send_window += increment
            else:
                self.queue.credit(increment)
        else:
            self.told.append(("frame", WINDOW_UPDATE, stream_id, increment))

    def count_updates(self, number: int) -> None:
        self.credited += number

    def is_idle(self, stream_id: int) -> bool:
        return stream_id > 5

    def end_of_stream(self, stream: Stream, events: list[Event]) -> None:
        self.told.append(("end", stream.id))

    def bad_message(self, stream: Stream, error: BadMessageError, events: list[Event]) -> None:
        stream.refused = True
        events.append((Kind.BROKEN, stream, error.code))

    def stream_fault(self, stream: Stream, code: ErrorCode, text: str, events: list[Event]) -> None:
        stream.closed = True
        del self.streams[stream.id]
        self.told.append(("fault", stream.id, code))

    def fails(self, data: bytes, code: ErrorCode) -> None:
        with pytest.raises(ConnectionFaultError) as raised:
            self.feed(data)
        assert raised.value.code == code


def is_usual(stream_id: int, increment: int) -> bool:
    return stream_id in (0, 1, 3) and 0 < increment < 1 << 24


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# --- the opening ---


@pytest.mark.parametrize("split", [lambda data: [data], bytewise])
def test_a_server_wants_the_preface_and_both_want_settings(split: Any) -> None:
    for client_side in (True, False):
        recorder = Recorder(client_side=client_side)
        data = (b"" if client_side else PREFACE) + settings({4: 1000})
        opened = []
        for pieces in (split(data[:-1]), [data[-1:]]):
            recorder.feed(*pieces)
            opened.append(recorder.parser.opened)
        assert opened == [False, True]
        assert recorder.told == [("frame", SETTINGS, 0, 0, settings({4: 1000})[9:])]


def test_another_protocol_is_told_by_its_first_byte() -> None:
    Recorder(client_side=False).fails(b"G", ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("first", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, 1, 0)], ids=["PING", "SETTINGS ACK"])
def test_anything_else_first_is_an_error(first: bytes) -> None:
    Recorder().fails(first, ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("split", [lambda data: [data], bytewise])
@pytest.mark.parametrize("reason", [b"", b"max_connections: there are enough", b"\xff\n", b"x" * 300], ids=len)
def test_a_client_learns_why_a_server_refuses_it_before_any_settings(split: Any, reason: bytes) -> None:
    recorder = Recorder(client_side=True)
    data = frame(GOAWAY, 0, 0, bytes(4) + (11).to_bytes(4, "big") + reason)
    recorder.feed(*split(data[:-1]))
    with pytest.raises(ConnectionFaultError) as raised:
        recorder.feed(data[-1:])
    told = reason[:200].decode("ascii", "backslashreplace")  # it goes into logs
    assert str(raised.value) == f"the server refuses the connection: {told!r}"
    assert recorder.told == []


def test_a_server_takes_no_goaway_first() -> None:
    Recorder(client_side=False).fails(PREFACE + frame(GOAWAY, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR)


# --- messages ---


def test_whole_messages_are_counted_against_both_windows() -> None:
    recorder = Recorder()
    recorder.open_up()
    stream, size = recorder.streams[1], recorder.window.size
    recorder.feed(frame(DATA, 0, 1, message(b"one")) + frame(DATA, 0, 1, message(b"two")))
    assert recorder.told == [("MESSAGE", 1, b"one"), ("MESSAGE", 1, b"two")]
    assert (stream.held, stream.recv_window) == (16, CONFIG.stream_window_bytes - 16)
    assert recorder.window.size == size - 16


def test_padding_is_counted_but_not_held() -> None:
    recorder = Recorder()
    recorder.open_up()
    recorder.feed(frame(DATA, PADDED, 1, b"\3" + message(b"x") + bytes(3)))
    assert recorder.told == [("MESSAGE", 1, b"x")]
    assert recorder.streams[1].held == 6
    assert recorder.streams[1].recv_window == CONFIG.stream_window_bytes - 10


def test_data_of_a_stream_that_is_over_is_counted_for_the_connection() -> None:
    recorder = Recorder()
    recorder.open_up()
    size = recorder.window.size
    recorder.feed(frame(DATA, 0, 5, message(bytes(100))))
    assert recorder.told == []
    assert recorder.window.size == size - 105


def test_data_of_a_refused_stream_is_dropped() -> None:
    recorder = Recorder()
    recorder.open_up()
    recorder.streams[1].refused = True
    recorder.feed(frame(DATA, 0, 1, message(b"x")) + frame(DATA, END_STREAM, 1, message(b"y")))
    assert recorder.told == [("end", 1)]
    assert recorder.streams[1].held == 0


def test_a_bad_message_follows_the_good_ones_before_it() -> None:
    recorder = Recorder()
    recorder.open_up()
    recorder.feed(frame(DATA, 0, 1, message(b"good") + message(b"bad", 1) + message(b"not seen")))
    assert recorder.told == [("MESSAGE", 1, b"good"), ("BROKEN", 1, StatusCode.INTERNAL)]


def test_a_message_larger_than_its_window_gets_one() -> None:
    recorder = Recorder()
    recorder.open_up()
    stream = recorder.streams[1]
    stream.recv_window = 1000
    stream.max_message = 100_000
    recorder.feed(frame(DATA, 0, 1, message(bytes(90_000))[:1000]))
    assert stream.recv_window == stream.missing == 90_005 - 1000
    assert recorder.updates == [(1, 89_005)]


@pytest.mark.parametrize(
    ("change", "code"),
    [({"remote_closed": True}, ErrorCode.STREAM_CLOSED), ({"recv_window": 7}, ErrorCode.FLOW_CONTROL_ERROR)],
)
def test_a_fault_on_a_stream_leaves_the_others_alone(change: dict[str, Any], code: ErrorCode) -> None:
    recorder = Recorder()
    recorder.open_up()
    for name, value in change.items():
        setattr(recorder.streams[1], name, value)
    recorder.feed(frame(DATA, 0, 1, message(b"one")) + frame(DATA, 0, 3, message(b"two")))
    assert recorder.told == [("fault", 1, code), ("MESSAGE", 3, b"two")]


# --- faults of the connection ---


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(DATA, 0, 7), ErrorCode.PROTOCOL_ERROR),  # an idle stream
        (frame(DATA, PADDED, 1), ErrorCode.FRAME_SIZE_ERROR),
        (frame(DATA, PADDED, 1, b"\1"), ErrorCode.PROTOCOL_ERROR),
        (b"\x00\xff\xff\x00" + bytes(5), ErrorCode.PROTOCOL_ERROR),  # stream 0
        (b"\xff\xff\xff\x00\0\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
        (b"\xff\xff\xff\x06\0\0\0\0\0", ErrorCode.FRAME_SIZE_ERROR),
        (b"".join([frame(DATA, 0, 1)] * 6), ErrorCode.ENHANCE_YOUR_CALM),
    ],
)
def test_faults_of_the_connection(data: bytes, code: ErrorCode) -> None:
    recorder = Recorder()
    recorder.is_idle = lambda stream_id: stream_id in (0, 7)  # type: ignore[method-assign] # the table's answer
    recorder.open_up()
    recorder.fails(data, code)


def test_the_connections_window_is_kept() -> None:
    recorder = Recorder()
    recorder.open_up()
    recorder.window.size = 10
    recorder.feed(frame(DATA, 0, 5, bytes(10)))
    recorder.window.size = 10
    recorder.fails(frame(DATA, 0, 5, bytes(11)), ErrorCode.FLOW_CONTROL_ERROR)


def test_a_header_block_is_not_interrupted() -> None:
    for data in (
        frame(DATA, 0, 1, message(b"x")),
        frame(PING, 0, 0, bytes(8)),
        frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"),
        frame(CONTINUATION, 4, 3),
        b"\x00\x20\x00\x63\0\0\0\0\0",
    ):
        recorder = Recorder()
        recorder.open_up()
        recorder.feed(frame(HEADERS, 0, 1, b"part"))
        recorder.blocks.begin(frame(HEADERS, 0, 1, b"part"), 0, 1)
        recorder.feed(frame(CONTINUATION, 0, 1, b"more"))
        with pytest.raises(ConnectionFaultError):
            recorder.feed(data + bytes(0x2000))


# --- other frames ---


@pytest.mark.parametrize("padding", [1, 2, 30])
@pytest.mark.parametrize("payload", [b"", message(b"text")], ids=["empty", "message"])
def test_a_frame_ends_with_its_padding(payload: bytes, padding: int) -> None:
    """The message in it is told as soon as it is whole, the end of the stream when all of the frame has come."""
    data = frame(DATA, PADDED | END_STREAM, 1, bytes([padding]) + payload + bytes(padding))
    recorder = Recorder()
    recorder.open_up()
    told = [("MESSAGE", 1, b"text")] if payload else []
    recorder.feed(*bytewise(data[:-1]))
    assert recorder.told == told
    recorder.feed(*bytewise(data[-1:] + frame(PING, 0, 0, bytes(8))))
    assert recorder.told == [*told, ("end", 1), ("frame", PING, 0, 0, bytes(8))]


@pytest.mark.parametrize(("allowed", "most"), [(16_384, 16_384), (65_536, 65_536), (2**20, 65_536)])
def test_no_more_than_64_kib_of_a_frame_are_collected(allowed: int, most: int) -> None:
    """However long a frame of DATA may be; the first one, and any other."""
    config = replace(CONFIG, max_frame_bytes=allowed)
    for before in (b"", settings()):
        recorder = Recorder(config=config)
        recorder.feed(before)
        recorder.told.clear()
        recorder.feed(frame(SETTINGS, 0, 0, bytes(most)))
        assert recorder.told == [("frame", SETTINGS, 0, 0, bytes(most))]
        recorder = Recorder(config=config)
        recorder.feed(before)
        code = ErrorCode.FRAME_SIZE_ERROR if before else ErrorCode.PROTOCOL_ERROR
        recorder.fails(frame(SETTINGS, 0, 0, bytes(most + 1))[:9], code)


def test_a_large_frame_of_an_unknown_type_passes_unseen() -> None:
    size = CONFIG.max_frame_bytes
    assert size > Recorder().parser._max_control_frame
    unknown = size.to_bytes(3, "big") + b"\x63" + bytes(5) + b"\xff" * size
    ping = frame(PING, 0, 0, bytes(8))
    for before in (b"", ping, ping * 2):
        for cuts in ((), (5, 50), (len(before) + len(unknown),), (len(before) + len(unknown) - 20,)):
            recorder = Recorder()
            recorder.open_up()
            data = before + unknown + ping
            recorder.feed(*[data[a:b] for a, b in itertools.pairwise([0, *cuts, len(data)])])
            assert recorder.told == [("frame", PING, 0, 0, bytes(8))] * (len(before) // len(ping) + 1)


def test_the_connection_is_credited_once_for_what_one_read_brought() -> None:
    recorder = Recorder()
    recorder.open_up()
    low = recorder.window.low
    recorder.window.size = low + 50
    recorder.feed(b"".join(frame(DATA, 0, 1, message(bytes(5))) for _ in range(20)))
    ((number, increment),) = recorder.updates
    assert number == 0
    assert increment > low


def test_a_window_update_is_read_without_its_reserved_bits() -> None:
    update = frame(WINDOW_UPDATE, 0xFF, 0x80000003, b"\x81\x02\x03\x04")
    for pieces in ([update], [update + update[:1]], bytewise(update)):
        recorder = Recorder()
        recorder.open_up()
        recorder.feed(*pieces)
        assert recorder.told == [("frame", WINDOW_UPDATE, 3, 0x01020304)]


def test_usual_window_updates_are_credited_in_passing_and_all_others_are_told() -> None:
    ping = frame(PING, 0, 0, bytes(8))

    def update(number: int, increment: int) -> bytes:
        return frame(WINDOW_UPDATE, 0, number, increment.to_bytes(4, "big"))

    def told(recorder: Recorder, number: int, increment: int) -> bool:
        recorder.told.clear()
        recorder.credited = 0
        recorder.feed(update(number, increment) + ping)
        assert recorder.credited == (len(recorder.told) == 1 and increment < SMALL_INCREMENT)
        return len(recorder.told) == 2

    recorder = Recorder()
    recorder.open_up()
    recorder.tells_all = True
    for number in (0, 1, 3):
        increments = (0, 1, 1023, 1024, (1 << 24) - 1, 1 << 24)
        assert [told(recorder, number, increment) for increment in increments] == [True, *[False] * 4, True]
    assert told(recorder, 5, 1)  # there is no such stream
    stream = recorder.streams[1]
    credited = 1024 + 1024 + (1 << 24) - 1
    assert (recorder.queue.window, stream.send_window) == (INITIAL_WINDOW + credited, credited)
    stream.send_window = MAX_WINDOW - 1
    assert [told(recorder, 1, increment) for increment in (2, 1, 1)] == [True, False, True]
    assert stream.send_window == MAX_WINDOW
    # What somebody waits for is more than credit, and so is what comes from one that reads no answers.
    recorder.streams[3].outbox.append(b"waiting")
    assert told(recorder, 3, 1)
    assert not told(recorder, 0, 1)
    recorder.queue.starved[stream] = 1
    assert told(recorder, 0, 1)
    recorder.queue.starved.clear()
    recorder.queue.answer_bytes = CONFIG.max_control_output_bytes
    assert not told(recorder, 0, 1)
    recorder.queue.answer_bytes += 1
    assert told(recorder, 0, 1)


def test_credit_in_passing_for_the_connection_sends_what_waits_and_is_limited() -> None:
    ping, update = frame(PING, 0, 0, bytes(8)), frame(WINDOW_UPDATE, 0, 0, (1000).to_bytes(4, "big"))
    recorder = Recorder()
    recorder.open_up()
    recorder.queue.window = 0
    stream = recorder.streams[1]
    stream.send_window = 100
    recorder.queue.send_message(stream, b"waits")
    assert recorder.queue.take_output() == b""
    recorder.feed(update + ping)
    assert recorder.queue.take_output() == frame(DATA, 0, 1, message(b"waits"))
    assert not recorder.queue.ready
    recorder.queue.window = MAX_WINDOW - 1000
    recorder.feed(update + ping)
    assert recorder.queue.window == MAX_WINDOW
    recorder.fails(update + ping, ErrorCode.FLOW_CONTROL_ERROR)


def test_credits_for_the_connection_that_one_read_brings_count_together() -> None:
    ping, update = frame(PING, 0, 0, bytes(8)), frame(WINDOW_UPDATE, 0, 0, (1000).to_bytes(4, "big"))
    recorder = Recorder()
    recorder.open_up()
    recorder.queue.window = 0
    stream = recorder.streams[1]
    stream.send_window = 5000
    recorder.queue.send_message(stream, bytes(2995))
    recorder.feed(update * 3 + ping)
    assert recorder.queue.take_output() == frame(DATA, 0, 1, message(bytes(2995)))  # one frame, and not three


@pytest.mark.parametrize("size", [100, 6000])
def test_a_control_frame_that_comes_byte_by_byte_is_looked_at_when_it_is_whole(size: int) -> None:
    """It would be copied for each of its bytes otherwise."""
    recorder = Recorder()
    recorder.open_up()
    data = frame(SETTINGS, 0, 0, bytes(size))
    calls = 0

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    feed = recorder.parser.feed
    pieces = bytewise(data[:-1])
    sys.setprofile(profile)
    try:
        for piece in pieces:
            feed(piece, [])
    finally:
        sys.setprofile(None)
    assert calls < len(pieces) + 30  # those of `feed`, and of a look at the frame's header
    assert recorder.told == []
    feed(data[-1:], [])
    assert recorder.told == [("frame", SETTINGS, 0, 0, bytes(size))]


@pytest.mark.parametrize("rest", [b"", frame(PING, 0, 0, bytes(8))], ids=["last", "not last"])
@pytest.mark.parametrize("number", [0, 1, 9])
def test_a_window_update_inside_a_header_block_is_an_error(number: int, rest: bytes) -> None:
    recorder = Recorder()
    recorder.open_up()
    assert recorder.blocks.begin(frame(HEADERS, 0, 1), 0, 1) is None
    recorder.fails(frame(WINDOW_UPDATE, 0, number, b"\0\0\0\1") + rest, ErrorCode.PROTOCOL_ERROR)
    assert (recorder.queue.window, recorder.streams[1].send_window) == (INITIAL_WINDOW, 0)


def test_what_the_handler_does_decides_about_the_next_small_window_update() -> None:
    class Answering(Recorder):
        def control_frame(self, frame: bytes, kind: int, flags: int, stream_id: int, events: list[Event]) -> None:
            super().control_frame(frame, kind, flags, stream_id, events)
            self.queue.answer_bytes = CONFIG.max_control_output_bytes + 1

    recorder = Answering()
    recorder.open_up()
    recorder.queue.answer_bytes = 0
    recorder.tells_all = True
    recorder.feed((frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") + frame(PING, 0, 0, bytes(8))) * 2)
    assert recorder.credited == 1
    assert [kind for _, kind, *_ in recorder.told] == [PING, WINDOW_UPDATE, PING]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8, 1024])
def test_a_window_update_of_another_size_is_left_to_the_handler(size: int) -> None:
    recorder = Recorder()
    recorder.open_up()
    recorder.feed(frame(WINDOW_UPDATE, 0, 1, bytes(size)) + frame(PING, 0, 0, bytes(8)))
    assert recorder.told == [("frame", WINDOW_UPDATE, 0, 1, bytes(size)), ("frame", PING, 0, 0, bytes(8))]


FRAMES = st.lists(
    st.one_of(
        st.builds(lambda flags, payload: ("frame", PING, flags, 0, payload), st.integers(0, 1), st.binary(max_size=20)),
        st.builds(
            lambda number, increment: ("update", number, increment),
            st.sampled_from([0, 1, 3, 9]),
            st.one_of(st.integers(0, SMALL_INCREMENT), st.integers(0, 1 << 24), st.integers(0, 0x7FFFFFFF)),
        ),
        st.builds(
            lambda number, payloads, cuts: ("data", number, payloads, cuts),
            st.sampled_from([1, 3]),
            st.lists(st.binary(max_size=300), min_size=1, max_size=3),
            st.lists(st.tuples(st.integers(0, 1000), st.integers(-1, 9)), max_size=3),
        ),
    ),
    max_size=8,
)


@hypothesis.given(FRAMES, st.lists(st.integers(0, 10_000), max_size=8))
@hypothesis.settings(max_examples=150)
def test_frames_in_any_split_give_the_same_messages_and_the_same_accounts(plan: list[Any], cuts: list[int]) -> None:
    data = b""
    expected: list[tuple[Any, ...]] = []
    credit = Counter({0: INITIAL_WINDOW})
    small = 0
    for step in plan:
        if step[0] == "frame":
            data += frame(*step[1:])
            expected.append(step)
            continue
        if step[0] == "update":
            _, number, increment = step
            data += frame(WINDOW_UPDATE, 0, number, increment.to_bytes(4, "big"))
            if is_usual(number, increment):
                credit[number] += increment
                small += increment < SMALL_INCREMENT
            else:
                expected.append(("frame", WINDOW_UPDATE, number, increment))
            continue
        _, number, payloads, frames = step
        body = b"".join(message(payload) for payload in payloads)
        expected += [("MESSAGE", number, payload) for payload in payloads]
        start = 0
        for cut, padding in [*sorted((cut % (len(body) + 1), padding) for cut, padding in frames), (len(body), -1)]:
            piece, start = body[start:cut], cut
            if piece and padding < 0:
                data += frame(DATA, 0, number, piece)
            elif piece:
                data += frame(DATA, PADDED, number, bytes([padding]) + piece + bytes(padding))
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    accounts = []
    for pieces in ([data], [data[a:b] for a, b in itertools.pairwise(edges)], bytewise(data)):
        recorder = Recorder()
        recorder.open_up()
        recorder.feed(*pieces)
        # Messages and frames go different ways (events, and the handler at once), so each has its own order.
        for kind in ("MESSAGE", "frame"):
            assert [what for what in recorder.told if what[0] == kind] == [what for what in expected if what[0] == kind]
        streams = recorder.streams.values()
        accounts.append((recorder.window.size, [(stream.held, stream.recv_window) for stream in streams]))
        assert not any(stream.inside_message for stream in streams)
        assert [recorder.queue.window, *(stream.send_window for stream in streams)] == [credit[0], credit[1], credit[3]]
        assert recorder.credited == small
    assert accounts[0] == accounts[1] == accounts[2]


# --- turns ---


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_requests_beyond_the_limit_wait_as_if_they_had_come_later(limit: int) -> None:
    data = b"".join(
        frame(HEADERS, 4, number, bytes([number])) + frame(RST, 0, number, bytes(4)) for number in range(1, 11, 2)
    )
    data += frame(PING, 0, 0, bytes(8))[:12]  # the rest comes later
    rest = frame(PING, 0, 0, bytes(8))[12:]
    whole, limited = Recorder(), Recorder()
    for recorder in (whole, limited):
        recorder.open_up()
    whole.feed(data, rest)
    limited.parser.limit_requests(limit)
    limited.feed(data)
    turns = 1
    while limited.parser.paused:
        limited.feed(b"")
        turns += 1
    limited.feed(rest)
    assert limited.told == whole.told
    assert turns == max(1, -(-5 // limit))
