"""Drives one engine from bytes, and holds it to its invariants.

The first byte chooses how the rest is read. As raw bytes it is fed whole and byte by byte, which must come to the
same. As a script it makes frames of right lengths, with real header blocks among them, between operations of our own
side: that reaches what bytes alone hardly find.
"""

from __future__ import annotations

import itertools
from typing import Any

import hpack

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RemoteProtocolError, StatusCode
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import PREFACE, Kind

RAW, SCRIPT = 0, 1
EMPTY_SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
SMALL = RpcConfig(
    stream_window_bytes=300,
    connection_window_bytes=70_000,
    connection_memory_bytes=65_536,
    max_receive_message_bytes=40_000,
    max_frame_bytes=16384,
    max_header_list_bytes=1000,
    max_concurrent_streams=4,
    write_high_water_bytes=2000,
    call_outbox_messages=4,
    call_outbox_bytes=3000,
    max_pings=10,
    max_settings=10,
    max_empty_frames=10,
    max_resets=10,
    max_control_output_bytes=1024,
)
_REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a/b"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
_RESPONSE = [(b":status", b"200"), (b"content-type", b"application/grpc")]
#: Header lists that a script can name by number; the first few are good.
LISTS: tuple[list[tuple[bytes, bytes]], ...] = (
    _REQUEST,
    _RESPONSE,
    [(b"grpc-status", b"0")],
    [*_RESPONSE, (b"grpc-status", b"5"), (b"grpc-message", b"not%20here")],
    [*_REQUEST, (b"grpc-timeout", b"20m"), (b"x-bin", b"AAEC"), (b"x", b"y")],
    [*_REQUEST, (b"grpc-encoding", b"gzip")],
    [*_RESPONSE, (b"grpc-encoding", b"gzip"), (b"x", b"y")],
    [(b":status", b"100")],
    [(b":status", b"503")],
    [(b":status", b"200"), (b"content-type", b"text/html")],
    _REQUEST[1:],
    [*_REQUEST, (b"x", b"a\nb")],
    [*_REQUEST, (b"x", b"a" * 2000)],
    [*_REQUEST, (b":path", b"/b")],
    [(b"grpc-status", b"9" * 20)],
    [],
)
#: Each as a block that leaves HPACK's table alone, so that any order of them is right.
BLOCKS = [
    bytes(hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*field) for field in one], huffman=False))
    for one in LISTS
]


class Player:
    """One engine and what has come of what it was fed."""

    def __init__(self, *, client_side: bool) -> None:
        self.time = 0.0
        self.engine = Engine(client_side=client_side, config=SMALL, clock=lambda: self.time)
        self.seen: list[tuple[Any, ...]] = []
        self.streams: list[Any] = []
        self.ended: set[tuple[int, Kind]] = set()

    def feed(self, data: bytes, *, consume: bool = True) -> None:
        for kind, stream, value in self.engine.receive_data(data):
            if kind is Kind.REQUEST:
                self.streams.append(stream)
            elif kind in (Kind.STATUS, Kind.RESET, Kind.HALF_CLOSED):
                assert (stream.id, kind) not in self.ended, "announced twice"
                self.ended.add((stream.id, kind))
            if kind is Kind.MESSAGE and consume:
                self.engine.consumed(stream, len(value))
            if kind is Kind.BROKEN:
                self.engine.finish_now(
                    stream, _grpc_headers.trailer_headers(value.code, value.message, (), alone=b"200")
                )
                value = (value.code, value.message)
            self.seen.append((kind, stream and stream.id, value))
        fault = self.engine.fault
        assert fault is None or isinstance(fault, RemoteProtocolError)
        assert not self.engine.fault or not self.engine.receive_data(b"x"), "events after the fault"

    def open(self) -> None:
        if self.engine.client_side and len(self.streams) < 8:
            self.streams.append(self.engine.open_request([(b":method", b"POST")]))  # as good as any here, and cheap

    def outcome(self) -> tuple[str, str]:
        return repr(self.seen), str(self.engine.fault)


def play(data: bytes, *, client_side: bool) -> None:
    """Do what `data` says."""
    if data[:1] and data[0] & 1 == SCRIPT:
        _play_script(data[1:], client_side=client_side)
    else:
        _play_raw(data[1:], client_side=client_side)


def _play_raw(data: bytes, *, client_side: bool) -> None:
    outcomes = []
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        player = Player(client_side=client_side)
        player.open()
        player.open()
        for piece in pieces:
            player.feed(piece, consume=False)  # what is taken makes windows larger: when that is, the pieces decide
        outcomes.append(player.outcome())
    assert outcomes[0] == outcomes[1], "the split made a difference"


def _play_script(data: bytes, *, client_side: bool) -> None:
    player = Player(client_side=client_side)
    player.feed((b"" if client_side else PREFACE) + EMPTY_SETTINGS)
    for at in range(0, min(len(data), 160), 4):
        step = data[at : at + 4].ljust(4, b"\0")
        if step[0] & 0x80:
            _own_step(player, step)
        else:
            frame = _frame(step, data)
            cut = step[3] % (len(frame) + 1)
            player.feed(frame[:cut], consume=not step[0] & 0x40)
            player.feed(frame[cut:], consume=not step[0] & 0x40)
        assert len(player.engine.streams) <= 12
        if player.engine.fault is not None:
            return


def _frame(step: bytes, data: bytes) -> bytes:
    kind, flags, choice, size = step[0] & 0x0F, step[1], step[2], step[3]
    stream = (0, 1, 3, 5, 7, 9, 2, 2**31 - 1)[choice & 7]
    if kind == 1 and step[0] & 0x20:
        payload = BLOCKS[choice >> 3 & 15]
        if step[0] & 0x10:
            payload = payload[: size % (len(payload) + 1)]
    elif kind == 0:
        length = size * (16 if choice & 0x80 else 1)
        body = bytes(length)
        declared = length * (160 if choice & 0x10 else 1)
        payload = bytes([choice >> 6 & 1]) + declared.to_bytes(4, "big") + body if choice & 8 else body
        if flags & 8:
            payload = bytes([size & 15]) + payload + bytes(size & 7)
    elif kind == 4:
        payload = (
            b"" if flags & 1 else (choice & 7).to_bytes(2, "big") + (size << (choice >> 3 & 31)).to_bytes(8, "big")[4:]
        )
    elif kind == 8:
        payload = ((size << (choice >> 3 & 31)) & 0xFFFFFFFF).to_bytes(4, "big")
    elif kind == 3:
        payload = size.to_bytes(4, "big")
    elif kind == 6:
        payload = step * 2
    elif kind == 7:
        payload = (choice >> 3).to_bytes(4, "big") + bytes(4)
    else:
        payload = data[choice : choice + size % 64]
    if choice & 0x80 and kind in (3, 6, 7, 8):
        payload = payload[: size & 7]
    if kind in (4, 6, 7) and not choice & 0x40:
        stream = 0
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _own_step(player: Player, step: bytes) -> None:
    """An operation of the shell, as far as the shell would do it."""
    engine = player.engine
    what, size = step[0] & 0x0F, step[2] << 8 & 0xFFF | step[3]
    if what == 0:
        player.open()
    elif what == 1:
        engine.take_output()
        engine.take_rooms()
    elif what == 2:
        player.time += step[3]
    elif what == 3:
        engine.announce_drain()
    elif what == 4 and not engine.draining:
        engine.refuse_new()
    elif what == 5:
        engine.go_away(0)
    elif player.streams:
        stream = player.streams[step[1] % len(player.streams)]
        if what == 6 and not engine.client_side and not stream.headers_sent:
            engine.send_headers(stream, list(_grpc_headers.RESPONSE_HEADERS))
        elif what in (7, 8, 9, 10) and stream.headers_sent and stream.end is None:
            stream.watched = bool(step[1] & 1)
            if engine.has_room(stream, size):
                engine.send_message(stream, bytes(size))
        elif what == 11:
            trailers = [] if engine.client_side else _grpc_headers.trailer_headers(StatusCode.OK, "", ())
            engine.end(stream, trailers)
        elif what == 12 and not engine.client_side:
            engine.finish_now(stream, _grpc_headers.trailer_headers(StatusCode.ABORTED, "why", (), alone=b"200"))
        elif what == 13:
            engine.reset(stream, 8)
    assert engine.out_size < 200_000


def chunks(data: bytes) -> list[bytes]:
    """Cut data at the lengths its first bytes say."""
    cuts = sorted({cut % (len(data) + 1) for cut in data[:4]})
    return [data[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(data)])]
