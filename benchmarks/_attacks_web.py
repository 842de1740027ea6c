"""Attacks on what a server has for browsers: HTTP/1.1, gRPC-Web, WebSockets, pages."""

from __future__ import annotations

import asyncio
import struct

from _attack_target import CLIENT, MIB, Participants, Target, starting, trial_params

from trio_cogment.api import common_pb2

_START = "/cogmentAPI.TrialLifecycleSP/StartTrial"
_VERSION = "/cogmentAPI.TrialLifecycleSP/Version"
_JOIN = "/cogmentAPI.ClientActorSP/RunTrial"
_LIVE = "/dashboard/live"
_HEAD = b"content-type: application/grpc-web+proto\r\n"
#: The opcodes of WebSockets, each as the last frame of its message, and a piece with others to follow.
BINARY, _PING, _PIECE = 0x82, 0x89, 0x02


def request(path: str, *fields: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *fields, "", ""]
    return "\r\n".join(lines).encode()


def upgrade(path: str, *fields: str) -> bytes:
    more = ["connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13"]
    return request(path, *more, "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", *fields, method="GET")


def _grpc_upgrade(path: str) -> bytes:
    return upgrade(path, "sec-websocket-protocol: grpc-websockets")


def frame(first: int, payload: bytes, announced: int | None = None) -> bytes:
    """A frame with a mask of zeros, which may announce more than is there."""
    size = len(payload) if announced is None else announced
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 2**16:
        head = struct.pack("!BBH", first, 0xFE, size)
    else:
        head = struct.pack("!BBQ", first, 0xFF, size)
    return head + bytes(4) + payload


async def _send(target: Target, connections: int, data: bytes, *, repeated: bytes = b"") -> None:
    """Open connections, write to each and read nothing; then write the rest again and again, as far as it goes."""

    async def one(_: int) -> None:
        _, writer = await target.connect()
        kept.append(writer)
        writer.write(data)
        if repeated:
            lurking.append(asyncio.ensure_future(_repeat(writer)))
        else:
            lurking.append(asyncio.ensure_future(writer.drain()))

    async def _repeat(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(repeated)
            await writer.drain()

    kept: list[asyncio.StreamWriter] = []
    lurking: list[asyncio.Future[None]] = []
    await target.in_lanes(64, one, target.many(connections))
    await asyncio.sleep(target.seconds_left)
    for task in lurking:
        task.cancel()
    await asyncio.gather(*lurking, return_exceptions=True)
    for writer in kept:
        writer.close()


async def half_messages_by_pages(target: Target) -> None:
    """1,000 requests of gRPC-Web, each of which has a message of 4 MiB and stops one byte before its end."""
    size = 4 * MIB - 8
    head = request(_START, "content-type: application/grpc-web+proto", f"content-length: {size + 5}")
    await _send(target, 1000, head + b"\0" + size.to_bytes(4, "big") + bytes(size - 1))


async def half_messages_by_websockets(target: Target) -> None:
    """1,000 WebSockets: messages of 4 MiB that stop one byte before their end, in one frame or in many."""
    size = 4 * MIB - 8
    begin = _grpc_upgrade(_START) + frame(BINARY, _HEAD)
    whole = frame(BINARY, bytes(size - 1), size)
    pieces = frame(_PIECE, bytes(60_000)) + b"".join(frame(0, bytes(60_000)) for _ in range(size // 60_000 - 1))
    await asyncio.gather(_send(target, 500, begin + whole), _send(target, 500, begin + pieces))


async def unread_by_page_sockets(target: Target) -> None:
    """1,000 WebSockets of the dashboard that send 16 messages of 256 KiB at once, and read nothing."""
    message = frame(BINARY, bytes(256 * 1024 - 1))
    await _send(target, 1000, upgrade(_LIVE) + 16 * message)


async def observations_unread_by_pages(target: Target) -> None:
    """A trial of 300 client actors in pages that read nothing, of which each is given the same 3.9 MiB to see."""
    init = common_pb2.ActorRunTrialOutput(state=common_pb2.NORMAL)
    init.init_output.actor_class = "p"
    first = init.SerializeToString()
    mine = Participants(observation=bytes(4 * MIB - 1000))
    count = target.many(300)
    async with target.channel() as channel, mine.serving() as environment:
        reply = await target.attempt(starting(channel, trial_params(environment, [CLIENT] * count)))
        if reply is not None:
            head = frame(BINARY, _HEAD + f"trial-id: {reply.trial_id}\r\n".encode())
            message = frame(BINARY, bytes(2) + len(first).to_bytes(4, "big") + first)
            await _send(target, 300, _grpc_upgrade(_JOIN) + head + message)


async def pings_unread(target: Target) -> None:
    """200 WebSockets whose clients send pings as fast as they can, and read no answer."""
    pings = 1000 * frame(_PING, bytes(125))
    await _send(target, 200, _grpc_upgrade(_JOIN) + frame(BINARY, _HEAD), repeated=pings)


async def crumbs_by_websockets(target: Target) -> None:
    """50 WebSockets with messages of 4 MiB, each of which has 800,000 messages of nothing in it."""
    begin = _grpc_upgrade(_JOIN) + frame(BINARY, _HEAD)
    await _send(target, 50, begin, repeated=frame(BINARY, bytes(1 + 5 * 800_000)))


async def pieces_by_websockets(target: Target) -> None:
    """50 WebSockets with messages in pieces of nothing."""
    begin = _grpc_upgrade(_JOIN) + frame(BINARY, _HEAD) + frame(_PIECE, b"")
    await _send(target, 50, begin, repeated=1000 * frame(0, b""))


async def requests_unread(target: Target) -> None:
    """500 connections that ask for what is not there as fast as they can, and read no answer."""
    await _send(target, 500, b"", repeated=100 * request("/none", method="GET"))


async def requests_by_pages(target: Target) -> None:
    """100 connections that ask for a page, 100 times at once, and read the answers; again and again."""
    data = 100 * request("/dashboard", method="GET")

    async def one(_: int) -> None:
        reader, writer = await target.connect()
        writer.write(data)
        while target.seconds_left and await reader.read(65536):
            if writer.transport.get_write_buffer_size() == 0:
                writer.write(data)
        writer.close()

    await target.in_lanes(100, one, target.many(100))


async def slow_heads(target: Target) -> None:
    """1,900 connections whose request comes byte by byte, with a head of 30 KiB."""
    data = request("/", f"x: {'v' * 30_000}", method="GET")[:-2]
    writers: list[asyncio.StreamWriter] = []

    async def one(_: int) -> None:
        _, writer = await target.connect()
        writers.append(writer)
        writer.write(data[:-1000])

    await target.in_lanes(64, one, target.many(1900))
    for byte in data[-1000:]:
        if not target.seconds_left:
            break
        for writer in writers:
            writer.write(bytes((byte,)))
        await asyncio.sleep(0.5)


async def chunks_by_pages(target: Target) -> None:
    """200 requests of gRPC-Web with a body in chunks of one byte."""
    head = request(_START, "content-type: application/grpc-web+proto", "transfer-encoding: chunked")
    await _send(target, 200, head + b"5\r\n\0\0\x3f\xff\xff\r\n", repeated=b"1\r\nx\r\n" * 1000)


async def pipelined_behind_a_call(target: Target) -> None:
    """1,000 calls of gRPC-Web that stay open, with 1 MiB of other requests behind each."""
    watch = "/grpc.health.v1.Health/Watch"
    head = request(watch, "content-type: application/grpc-web+proto", "content-length: 5")
    await _send(target, 1000, head + bytes(5) + request("/none", method="GET") * (MIB // 35))


async def small_calls_by_pages(target: Target) -> None:
    """200 connections that make calls of nothing by gRPC-Web as fast as they can, and read the answers."""
    call = request(_VERSION, "content-type: application/grpc-web+proto", "content-length: 5") + bytes(5)

    async def one(_: int) -> None:
        reader, writer = await target.connect()
        while target.seconds_left:
            writer.write(call)
            if not await reader.read(65536):
                break
        writer.close()

    await target.in_lanes(200, one, target.many(200))


async def dashboards(target: Target) -> None:
    """500 WebSockets of the dashboard, which read nothing, beside trials that start and end."""
    await _send(target, 500, upgrade(_LIVE))
