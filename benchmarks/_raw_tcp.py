"""The floor under `rpc.py`: the same work on bare Trio TCP, messages with a length before each and nothing else."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Any

import trio
from _rpc_peers import ROLES, Packet, _trio_client

_LENGTH = struct.Struct(">I")


async def packets(stream: trio.SocketStream) -> AsyncIterator[Any]:
    buffer = bytearray()
    while data := await stream.receive_some(1 << 20):
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := _LENGTH.unpack_from(buffer)[0]):
            yield Packet.FromString(bytes(buffer[4 : 4 + size]))
            del buffer[: 4 + size]


async def send(stream: trio.SocketStream, packet: Any) -> None:
    payload = packet.SerializeToString()
    await stream.send_all(_LENGTH.pack(len(payload)) + payload)


async def answer(stream: trio.SocketStream) -> None:
    """Echo every packet; a negative number asks for it this many times instead."""
    async with stream:
        async for request in packets(stream):
            if request.number < 0:
                packet = Packet(content=request.content)
                for _ in range(-request.number):
                    await send(stream, packet)
            else:
                await send(stream, Packet(number=request.number, content=request.content))


def serve_raw() -> None:
    async def main() -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, answer, listeners)
            print(listeners[0].socket.getsockname()[1], flush=True)

    trio.run(main)


class RawClient:
    """A connection for each stream, and a unary call is an echo."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> int:
        return self.port

    async def __aexit__(self, *_: object) -> None:
        pass

    async def echo(self, count: int, content: bytes) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            answers = packets(stream)
            for number in range(count):
                await send(stream, Packet(number=number, content=content))
                await anext(answers)
            await answers.aclose()

    async def unary(self, count: int, content: bytes) -> None:
        await self.echo(count, content)

    async def down(self, count: int, content: bytes) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await send(stream, Packet(number=-count, content=content))
            answers = packets(stream)
            for _ in range(count):
                await anext(answers)
            await answers.aclose()


ROLES["server-raw"] = serve_raw
ROLES["client-raw"] = lambda: _trio_client(RawClient, RawClient)
