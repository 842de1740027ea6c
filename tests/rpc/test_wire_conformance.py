"""HTTP/2 as RFC 9113 wants it, frame by frame: a table of what is sent and what must come of it.

Each row runs against a server over a memory stream, with an innocent call on stream 1 beside it; what is not the
connection's fault must leave that call alone. The client's rules have a table of their own below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH,
    RST,
    SETTINGS,
    WINDOW_UPDATE,
    RawPeer,
    encode,
    frame,
    message,
    request_headers,
    settings,
)
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import serve_stream
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import Kind
from trio_cogment.testing.conformance.channel import CheckService

NO_ERROR, PROTOCOL, FLOW, CLOSED, SIZE, REFUSED, CANCEL = 0, 1, 3, 5, 6, 7, 8
COMPRESSION, CALM = 9, 11

CONFIG = RpcConfig(
    max_frame_bytes=16384,
    stream_window_bytes=20_000,
    connection_window_bytes=65_535,
    max_concurrent_streams=5,
    max_empty_frames=50,
)
REQUEST = encode(request_headers())
WAIT = encode(request_headers(path=b"/trio_cogment.testing.Check/Wait"))
GOOD = Action(tick_id=3, content=b"good").SerializeToString()
ANSWER = Observation(tick_id=3, content=b"good").SerializeToString()
EIGHT = b"12345678"
BAD_BLOCK = b"\xff\xff\xff\xff"

Check = Callable[[RawPeer], bool]
FORBIDDEN = [
    (b"connection", b"keep-alive"),
    (b"keep-alive", b"timeout=5"),
    (b"proxy-connection", b"close"),
    (b"transfer-encoding", b"chunked"),
    (b"upgrade", b"h2c"),
    (b"te", b"gzip"),
    (b"te", b"trailers, deflate"),
]


def headers(stream: int, flags: int = END_HEADERS, block: bytes = REQUEST) -> bytes:
    return frame(HEADERS, flags, stream, block)


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def rst(stream: int, code: int = CANCEL) -> bytes:
    return frame(RST, 0, stream, code.to_bytes(4, "big"))


def goaway(last: int, code: int = 0, more: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + more)


def pad(payload: bytes, padding: int) -> bytes:
    return bytes([padding]) + payload + bytes(padding)


# --- what must come of it ---


@dataclass(frozen=True)
class Breaks:
    """GOAWAY with this code, then the end of the connection."""

    code: int
    last: int | None = None


@dataclass(frozen=True)
class Resets:
    """RST_STREAM with this code on this stream; the connection lives."""

    stream: int
    code: int


@dataclass(frozen=True)
class Sends:
    """This frame comes; the connection lives."""

    kind: int
    flags: int
    stream: int
    payload: bytes = b""


@dataclass(frozen=True)
class Answers:
    """The call on this stream ends with this status; the connection lives."""

    stream: int
    status: int = 0
    data: bytes | None = None


@dataclass(frozen=True)
class Stops:
    """So much data comes on this stream, and no more; the connection lives."""

    stream: int
    data: bytes


@dataclass(frozen=True)
class Lives:
    """Nothing is sent on any stream but 1, and the connection lives."""


Expected = Breaks | Resets | Sends | Answers | Stops | Lives


@dataclass(frozen=True)
class Row:
    group: str
    section: str
    name: str
    sent: bytes
    expected: Expected
    raw: bool = False  # `sent` is everything, the preface too

    def __str__(self) -> str:
        return f"{self.group}: {self.name} ({self.section})"


def rows(group: str, *table: tuple[str, str, bytes, Expected]) -> list[Row]:
    return [Row(group, *row) for row in table]


def openings(*table: tuple[str, str, bytes, Expected]) -> list[Row]:
    return [Row("preface", *row, raw=True) for row in table]


ECHOED = Answers(3, 0, message(ANSWER))
WHOLE = message(GOOD)
ECHO = headers(3) + frame(DATA, 1, 3, WHOLE)
LARGE = Action(content=bytes(16_384 - 5 - 4)).SerializeToString()

TABLE: list[Row] = [
    *openings(
        ("3.4", "HTTP/1.1", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Breaks(PROTOCOL)),
        ("3.4", "garbage", bytes(range(128, 255)), Breaks(PROTOCOL)),
        ("3.4", "wrong in its last byte", PREFACE[:-1] + b"x" + settings(), Breaks(PROTOCOL)),
        ("3.4", "SETTINGS without a preface", settings() + headers(1), Breaks(PROTOCOL)),
        ("3.4", "PING before SETTINGS", PREFACE + frame(PING, 0, 0, EIGHT), Breaks(PROTOCOL)),
        ("3.4", "HEADERS before SETTINGS", PREFACE + headers(1), Breaks(PROTOCOL)),
        ("3.4", "an unknown frame before SETTINGS", PREFACE + frame(99, 0, 0), Breaks(PROTOCOL)),
        ("3.4", "an acknowledgement as first SETTINGS", PREFACE + frame(SETTINGS, 1, 0), Breaks(PROTOCOL)),
        ("3.4", "huge first SETTINGS", PREFACE + frame(SETTINGS, 0, 0, bytes(16386)), Breaks(PROTOCOL)),
        ("3.4", "empty SETTINGS", PREFACE + settings() + headers(1), Lives()),
        ("3.4", "ours begins with SETTINGS", PREFACE + settings() + headers(1), Sends(SETTINGS, 1, 0)),
        ("3.4", "twice", PREFACE + settings() + PREFACE, Breaks(SIZE)),
    ),
    *rows(
        "frame size",
        ("4.2", "DATA of the largest size", headers(3) + frame(DATA, 1, 3, message(LARGE)), Answers(3)),
        ("4.2", "DATA too large", headers(3) + frame(DATA, 0, 3, bytes(16_385)), Breaks(SIZE)),
        ("4.2", "HEADERS too large", headers(3, block=bytes(16_385)), Breaks(SIZE)),
        ("4.2", "an unknown frame too large", frame(99, 0, 0, bytes(16_385)), Breaks(SIZE)),
        ("4.2", "an unknown frame of the largest size", frame(99, 0, 0, bytes(16_384)), Lives()),
        ("6.4", "RST_STREAM too short", headers(3) + frame(RST, 0, 3, bytes(3)), Breaks(SIZE)),
        ("6.4", "RST_STREAM too long", headers(3) + frame(RST, 0, 3, bytes(5)), Breaks(SIZE)),
        ("6.9", "WINDOW_UPDATE too short", frame(WINDOW_UPDATE, 0, 0, bytes(3)), Breaks(SIZE)),
        ("6.9", "WINDOW_UPDATE too long", frame(WINDOW_UPDATE, 0, 1, bytes(5)), Breaks(SIZE)),
        ("6.3", "PRIORITY too short", frame(PRIORITY, 0, 1, bytes(4)), Breaks(SIZE)),
        ("6.2", "padded HEADERS without a pad length", frame(HEADERS, PADDED | END_HEADERS, 3), Breaks(SIZE)),
        ("6.1", "padded DATA without a pad length", headers(3) + frame(DATA, PADDED, 3), Breaks(SIZE)),
        ("6.1", "padding as long as its frame", headers(3) + frame(DATA, PADDED, 3, b"\2xx"), Lives()),
        ("6.1", "padding longer than its frame", headers(3) + frame(DATA, PADDED, 3, b"\3xx"), Breaks(PROTOCOL)),
        (
            "6.2",
            "padding longer than a header block",
            frame(HEADERS, PADDED | END_HEADERS, 3, b"\xff" + REQUEST),
            Breaks(PROTOCOL),
        ),
        (
            "6.1, 6.2",
            "padding is cut off",
            frame(HEADERS, PADDED | END_HEADERS, 3, pad(REQUEST, 9)) + frame(DATA, PADDED | 1, 3, pad(WHOLE, 200)),
            ECHOED,
        ),
    ),
    *rows(
        "flow control",
        ("6.9", "no increment, connection", window_update(0, 0), Breaks(PROTOCOL)),
        ("6.9", "no increment, stream", headers(3, block=WAIT) + window_update(3, 0), Resets(3, PROTOCOL)),
        ("6.9.1", "overflow, connection", window_update(0, 2**31 - 1), Breaks(FLOW)),
        ("6.9.1", "overflow, stream", headers(3, block=WAIT) + window_update(3, 2**31 - 1), Resets(3, FLOW)),
        ("6.9.1", "largest window", window_update(0, 2**31 - 65_536), Lives()),
        ("6.9", "the reserved bit", window_update(0, 2**31 + 1), Lives()),
        ("5.1", "idle stream", window_update(9, 1), Breaks(PROTOCOL)),
        ("5.1", "stream of the other side", window_update(2, 1), Breaks(PROTOCOL)),
        ("6.9", "closed stream", headers(3) + rst(3) + window_update(3, 1), Lives()),
        (
            "6.9.1",
            "more than a stream's window",
            headers(3, block=WAIT) + frame(DATA, 0, 3, WHOLE * 800) * 2,
            Resets(3, FLOW),
        ),
        ("6.9.2", "SETTINGS make a window too large", window_update(1, 1000) + settings({4: 2**31 - 1}), Breaks(FLOW)),
        (
            "6.9.2",
            "SETTINGS shrink a window below zero",
            settings({4: 5}) + headers(3) + frame(DATA, 1, 3, WHOLE) + settings({4: 0}) + window_update(3, 6),
            Stops(3, message(ANSWER)[:6]),
        ),
        (
            "6.9.2",
            "a window below zero grows to be one again",
            settings({4: 5}) + headers(3) + frame(DATA, 1, 3, WHOLE) + settings({4: 0}) + settings({4: 100}),
            ECHOED,
        ),
    ),
    *rows(
        "SETTINGS",
        ("6.5.3", "is acknowledged", settings({4: 100_000}), Sends(SETTINGS, 1, 0)),
        ("6.5", "on a stream", frame(SETTINGS, 0, 1), Breaks(PROTOCOL)),
        ("6.5", "of broken length", frame(SETTINGS, 0, 0, bytes(7)), Breaks(SIZE)),
        ("6.5", "acknowledgement with payload", frame(SETTINGS, 1, 0, bytes(6)), Breaks(SIZE)),
        ("6.5.2", "ENABLE_PUSH 2", settings({2: 2}), Breaks(PROTOCOL)),
        ("6.5.2", "INITIAL_WINDOW_SIZE too large", settings({4: 2**31}), Breaks(FLOW)),
        ("6.5.2", "MAX_FRAME_SIZE too small", settings({5: 16_383}), Breaks(PROTOCOL)),
        ("6.5.2", "MAX_FRAME_SIZE too large", settings({5: 2**24}), Breaks(PROTOCOL)),
        ("6.5.2", "MAX_FRAME_SIZE largest", settings({5: 2**24 - 1}), Sends(SETTINGS, 1, 0)),
        ("6.5.2", "unknown identifier", settings({0xFF: 7}), Sends(SETTINGS, 1, 0)),
        ("6.5.2", "HEADER_TABLE_SIZE 0", settings({1: 0}) + headers(3) + frame(DATA, 1, 3, WHOLE), ECHOED),
        (
            "6.5.3",
            "values are taken in order",
            frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0\0\4\0\1\0\0") + headers(3) + frame(DATA, 1, 3, WHOLE),
            ECHOED,
        ),
        ("6.5", "the reserved bit of the stream", frame(SETTINGS, 0, 2**31), Sends(SETTINGS, 1, 0)),
    ),
    *rows(
        "PING",
        ("6.7", "is answered", frame(PING, 0, 0, EIGHT), Sends(PING, 1, 0, EIGHT)),
        ("6.7", "with unknown flags", frame(PING, 0xFE, 0, EIGHT), Sends(PING, 1, 0, EIGHT)),
        ("6.7", "an answer is not answered", frame(PING, 1, 0, EIGHT), Lives()),
        ("6.7", "on a stream", frame(PING, 0, 1, EIGHT), Breaks(PROTOCOL)),
        ("6.7", "empty", frame(PING, 0, 0), Breaks(SIZE)),
        ("6.7", "too short", frame(PING, 0, 0, bytes(7)), Breaks(SIZE)),
        ("6.7", "too long", frame(PING, 0, 0, bytes(9)), Breaks(SIZE)),
        ("6.7", "answer too long", frame(PING, 1, 0, bytes(9)), Breaks(SIZE)),
        ("6.7", "after GOAWAY", goaway(0) + frame(PING, 0, 0, EIGHT), Sends(PING, 1, 0, EIGHT)),
        ("6.10", "inside a header block", headers(3, 0) + frame(PING, 0, 0, EIGHT), Breaks(PROTOCOL)),
    ),
    *rows(
        "GOAWAY",
        ("6.8", "calls go on", goaway(0) + frame(DATA, 0, 1, WHOLE), Sends(DATA, 0, 1, message(ANSWER))),
        ("6.8", "and new ones may begin", goaway(0) + headers(3) + frame(DATA, 1, 3, WHOLE), ECHOED),
        ("6.8", "with text", goaway(0, CALM, b"\xff\0debug") + ECHO, ECHOED),
        ("7", "with an unknown code", goaway(0, 0xABCDEF) + ECHO, ECHOED),
        ("6.8", "the reserved bit", goaway(2**31) + ECHO, ECHOED),
        ("6.8", "twice", goaway(2**31 - 1) + goaway(0) + ECHO, ECHOED),
        ("6.8", "with an error", goaway(0, PROTOCOL) + frame(PING, 0, 0, EIGHT), Sends(PING, 1, 0, EIGHT)),
        ("6.8", "on a stream", frame(GOAWAY, 0, 1, bytes(8)), Breaks(PROTOCOL)),
        ("6.8", "too short", frame(GOAWAY, 0, 0, bytes(7)), Breaks(SIZE)),
        ("6.8", "inside a header block", headers(3, 0) + goaway(0), Breaks(PROTOCOL)),
        ("6.8", "ours names the last stream", headers(5) + headers(9) + frame(PING, 0, 0), Breaks(SIZE, last=9)),
        ("6.8", "ours names no refused block", headers(5) + headers(7, block=BAD_BLOCK), Breaks(COMPRESSION, last=5)),
    ),
    *rows(
        "CONTINUATION",
        (
            "6.10",
            "three pieces",
            headers(3, 0, REQUEST[:5])
            + frame(CONTINUATION, 0, 3, REQUEST[5:9])
            + frame(CONTINUATION, END_HEADERS, 3, REQUEST[9:])
            + frame(DATA, 1, 3, WHOLE),
            ECHOED,
        ),
        (
            "6.10",
            "empty pieces",
            headers(3, 0, b"")
            + frame(CONTINUATION, 0, 3)
            + frame(CONTINUATION, END_HEADERS, 3, REQUEST)
            + frame(DATA, 1, 3, WHOLE),
            ECHOED,
        ),
        (
            "6.2",
            "END_STREAM is said by HEADERS",
            headers(3, END_STREAM, REQUEST[:5]) + frame(CONTINUATION, END_HEADERS, 3, REQUEST[5:]),
            Answers(3, 0, b""),
        ),
        ("6.10", "without HEADERS", frame(CONTINUATION, END_HEADERS, 3, REQUEST), Breaks(PROTOCOL)),
        ("6.10", "after the end", headers(3) + frame(CONTINUATION, END_HEADERS, 3), Breaks(PROTOCOL)),
        ("6.10", "on another stream", headers(3, 0) + frame(CONTINUATION, END_HEADERS, 5), Breaks(PROTOCOL)),
        ("6.10", "on no stream", headers(3, 0) + frame(CONTINUATION, END_HEADERS, 0), Breaks(PROTOCOL)),
        ("6.10", "DATA between", headers(3, 0) + frame(DATA, 0, 1, WHOLE), Breaks(PROTOCOL)),
        ("6.10", "HEADERS between", headers(3, 0) + headers(5), Breaks(PROTOCOL)),
        ("6.10", "SETTINGS between", headers(3, 0) + settings(), Breaks(PROTOCOL)),
        ("6.10", "WINDOW_UPDATE between", headers(3, 0) + window_update(1, 1), Breaks(PROTOCOL)),
        ("6.10", "RST_STREAM between", headers(3, 0) + rst(3), Breaks(PROTOCOL)),
        ("5.5", "an unknown frame between", headers(3, 0) + frame(99, 0, 0), Breaks(PROTOCOL)),
        ("10.5", "without end", headers(3, 0) + frame(CONTINUATION, 0, 3) * 60, Breaks(CALM)),
        (
            "10.5",
            "a block without end",
            headers(3, 0) + frame(CONTINUATION, 0, 3, bytes(16_000)) * 20,
            Breaks(CALM),
        ),
    ),
    *rows(
        "stream states",
        ("5.1", "idle: DATA", frame(DATA, 0, 3, WHOLE), Breaks(PROTOCOL)),
        ("5.1", "idle: RST_STREAM", rst(3), Breaks(PROTOCOL)),
        ("5.1", "idle: PRIORITY", frame(PRIORITY, 0, 9, bytes(5)), Lives()),
        ("5.1.1", "an even number", headers(2), Breaks(PROTOCOL)),
        ("5.1.1", "a lower number", headers(5, block=WAIT) + headers(3), Breaks(PROTOCOL)),
        ("5.1.1", "no number: HEADERS", headers(0), Breaks(PROTOCOL)),
        ("6.1", "no number: DATA", frame(DATA, 0, 0, WHOLE), Breaks(PROTOCOL)),
        ("6.4", "no number: RST_STREAM", rst(0), Breaks(PROTOCOL)),
        ("6.3", "no number: PRIORITY", frame(PRIORITY, 0, 0, bytes(5)), Breaks(PROTOCOL)),
        ("6.6", "PUSH_PROMISE by a client", frame(PUSH, END_HEADERS, 1, bytes(4) + REQUEST), Breaks(PROTOCOL)),
        ("5.1", "half-closed: DATA", headers(3, 5, WAIT) + frame(DATA, 0, 3, WHOLE), Resets(3, CLOSED)),
        ("5.1", "half-closed: HEADERS", headers(3, 5, WAIT) + headers(3, 5), Resets(3, CLOSED)),
        ("5.1", "half-closed: WINDOW_UPDATE", headers(3, 5) + window_update(3, 1), Answers(3, 0, b"")),
        ("5.1", "half-closed: PRIORITY", headers(3, 5) + frame(PRIORITY, 0, 3, bytes(5)), Answers(3, 0, b"")),
        ("5.1", "closed by us: DATA", headers(3) + rst(3) + frame(DATA, 0, 3, WHOLE), Lives()),
        ("5.1", "closed: RST_STREAM", headers(3) + rst(3) + rst(3), Lives()),
        ("5.1", "closed: PRIORITY", headers(3) + rst(3) + frame(PRIORITY, 0, 3, bytes(5)), Lives()),
        ("8.1", "trailers without END_STREAM", headers(3, block=WAIT) + headers(3), Resets(3, PROTOCOL)),
        ("8.1", "trailers", headers(3) + frame(DATA, 0, 3, WHOLE) + headers(3, 5, encode([(b"x", b"1")])), ECHOED),
        *[
            (
                "8.2.2",
                f"{name.decode()}: {value.decode()}",
                headers(3, block=encode([*request_headers(), (name, value)])),
                Resets(3, PROTOCOL),
            )
            for name, value in FORBIDDEN
        ],
        (
            "8.2.2",
            "a forbidden field in trailers",
            headers(3, block=WAIT) + headers(3, 5, encode([(b"connection", b"close")])),
            Resets(3, PROTOCOL),
        ),
        ("5.1.2", "one call too many", b"".join(headers(n, block=WAIT) for n in (3, 5, 7, 9, 11)), Resets(11, REFUSED)),
        ("5.5", "an unknown frame", frame(99, 0xFF, 3, b"what?"), Lives()),
        ("4.3", "a block that cannot be decoded", headers(3, block=BAD_BLOCK), Breaks(COMPRESSION)),
    ),
]


def test_the_table_is_large_enough() -> None:
    counts = Counter(row.group for row in TABLE)
    assert len(counts) == 8
    assert min(counts.values()) >= 8
    assert len({str(row) for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("piecewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("row", TABLE, ids=str)
async def test_server(row: Row, piecewise: bool, autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    peer = RawPeer(ours)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await serve_stream([CheckService().service()], theirs, config=CONFIG)

            nursery.start_soon(serve)
            if not row.raw:
                await peer.send(PREFACE, settings(), headers(1))
                await peer.until(lambda: (SETTINGS, 1, 0, b"") in peer.frames)
                peer.frames.clear()
            began = trio.current_time()
            try:
                for piece in split(row.sent, 1 + len(row.sent) // 20_000 if piecewise else 2**20):
                    await peer.send(piece)
            except trio.BrokenResourceError:
                assert isinstance(row.expected, Breaks)  # it has seen enough
            if isinstance(row.expected, Breaks):
                await peer.until(lambda: False)
                check_broken(peer, row.expected)
                assert trio.current_time() - began <= 1
            else:
                await check_alive(peer, row.expected)
                await trio.aclose_forcefully(ours)


def split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def check_broken(peer: RawPeer, expected: Breaks) -> None:
    (payload,) = [payload for kind, _, stream, payload in peer.frames if (kind, stream) == (GOAWAY, 0)]
    assert int.from_bytes(payload[4:8], "big") == expected.code
    if expected.last is not None:
        assert int.from_bytes(payload[:4], "big") == expected.last


async def check_alive(peer: RawPeer, expected: Expected) -> None:
    if isinstance(expected, Resets):
        await peer.until(lambda: peer.answer(expected.stream).reset is not None)
        assert peer.answer(expected.stream).reset == expected.code
    elif isinstance(expected, Sends):
        wanted = (expected.kind, expected.flags, expected.stream, expected.payload)
        await peer.until(lambda: wanted in peer.frames)
    elif isinstance(expected, Answers):
        answer = await peer.until_over(expected.stream)
        assert answer.status == expected.status
        if expected.data is not None:
            assert bytes(answer.data) == expected.data
    elif isinstance(expected, Stops):
        await peer.until(lambda: len(peer.answer(expected.stream).data) >= len(expected.data))
    # The innocent call notices nothing.
    await peer.send(window_update(1, 1000))
    before = len(peer.answer(1).data)
    assert await peer.echo(1, GOOD) == ANSWER
    assert len(peer.answer(1).data) == before + len(message(ANSWER))
    if isinstance(expected, Stops):
        assert peer.answer(expected.stream).data == expected.data
        assert not peer.answer(expected.stream).ended
    if isinstance(expected, Lives):
        assert all(stream in (0, 1) for _, _, stream, _ in peer.frames)
    assert peer.goaway is None
    assert not peer.eof


def test_more_than_the_connections_window() -> None:
    """RFC 9113, 6.9.1, also for data that is thrown away; in one read, before it could be credited."""
    engine = Engine(client_side=False, config=CONFIG)
    engine.receive_data(PREFACE + settings() + headers(3) + rst(3))
    broken = goaway(3, FLOW)[9:]
    engine.receive_data(frame(DATA, 0, 3, bytes(16_000)) * 4)
    assert broken not in engine.take_output()
    engine.receive_data(frame(DATA, 0, 3, bytes(16_000)) * 5)
    assert broken in engine.take_output()


def test_we_begin_with_settings_and_keep_to_the_peers_frame_size() -> None:
    """RFC 9113, 3.4 and 4.2, for what we send."""
    engine = Engine(client_side=False, config=RpcConfig())
    out = engine.take_output()
    assert out[3] == SETTINGS
    events = engine.receive_data(PREFACE + settings({4: 2**20}) + window_update(0, 2**20) + headers(1))
    stream = next(stream for kind, stream, _ in events if kind is Kind.REQUEST)
    engine.take_output()
    engine.send_message(stream, bytes(100_000))
    out = engine.take_output()
    sizes = []
    while out:
        size = int.from_bytes(out[:3], "big")
        sizes.append(size)
        out = out[9 + size :]
    assert sum(sizes) == 100_005
    assert max(sizes) == 16_384


# --- the client's rules ---

GRPC = [(b"content-type", b"application/grpc"), (b"grpc-status", b"0")]
RESPONSE = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = encode([(b"grpc-status", b"0")])

#: section, name, what the server sends, the fault's code (None: the connection lives), the kinds of events on stream 1
CLIENT_TABLE: list[tuple[str, str, bytes, int | None, list[Kind]]] = [
    ("3.4", "no SETTINGS first", frame(PING, 0, 0, EIGHT), PROTOCOL, []),
    ("3.4", "HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n", PROTOCOL, []),
    ("6.5.2", "ENABLE_PUSH 1", settings({2: 1}), PROTOCOL, []),
    ("6.6", "PUSH_PROMISE", settings() + frame(PUSH, END_HEADERS, 1, b"\0\0\0\2" + REQUEST), PROTOCOL, []),
    ("5.1", "HEADERS on an idle stream", settings() + headers(9, block=RESPONSE), PROTOCOL, []),
    ("5.1.1", "HEADERS on an even stream", settings() + headers(2, block=RESPONSE), PROTOCOL, []),
    ("5.1", "DATA on an idle stream", settings() + frame(DATA, 0, 9, WHOLE), PROTOCOL, []),
    ("5.1", "RST_STREAM on an idle stream", settings() + rst(9), PROTOCOL, []),
    ("5.1", "WINDOW_UPDATE on an idle stream", settings() + window_update(9, 1), PROTOCOL, []),
    ("8.1", "DATA before HEADERS", settings() + frame(DATA, 0, 1, WHOLE), None, [Kind.BROKEN]),
    (
        "8.1",
        "a response",
        settings() + headers(1, block=RESPONSE) + frame(DATA, 0, 1, WHOLE) + headers(1, 5, TRAILERS),
        None,
        [Kind.RESPONSE, Kind.MESSAGE, Kind.STATUS],
    ),
    (
        "8.1",
        "an informational response first",
        settings() + headers(1, block=encode([(b":status", b"103")])) + headers(1, block=RESPONSE),
        None,
        [Kind.RESPONSE],
    ),
    *[
        (
            "8.2.2",
            f"{name.decode()}: {value.decode()}{' in trailers' * ended}",
            settings() + headers(1, 5 if ended else 4, encode([(b":status", b"200"), *GRPC, (name, value)])),
            None,
            [Kind.BROKEN],
        )
        for name, value in FORBIDDEN
        for ended in (False, True)
    ],
    ("6.8", "GOAWAY below a stream", settings() + goaway(0), None, [Kind.RESET]),
    ("6.8", "GOAWAY above it", settings() + goaway(1), None, []),
    ("6.4", "RST_STREAM", settings() + rst(1), None, [Kind.RESET]),
    ("6.9", "WINDOW_UPDATE without increment", settings() + window_update(1, 0), None, [Kind.BROKEN]),
    ("5.1", "frames after RST_STREAM", settings() + rst(1) + rst(1) + window_update(1, 1), None, [Kind.RESET]),
]


@pytest.mark.parametrize(
    ("sent", "code", "kinds"), [row[2:] for row in CLIENT_TABLE], ids=[f"{row[1]} ({row[0]})" for row in CLIENT_TABLE]
)
@pytest.mark.parametrize("piecewise", [False, True], ids=["whole", "bytewise"])
def test_client(sent: bytes, code: int | None, kinds: list[Kind], piecewise: bool) -> None:
    engine = Engine(client_side=True, config=CONFIG)
    stream = engine.open_request(request_headers())
    engine.open_request(request_headers())
    engine.take_output()
    events = [event for chunk in split(sent, 1 if piecewise else len(sent)) for event in engine.receive_data(chunk)]
    assert [kind for kind, where, _ in events if where is stream] == kinds
    if code is None:
        assert engine.fault is None
    else:
        assert engine.fault is not None
        out = engine.take_output()
        assert goaway(0, code)[9:] in out
