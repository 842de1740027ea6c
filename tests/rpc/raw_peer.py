"""A peer that speaks HTTP/2 frame by frame, so that it can also speak it wrongly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import hpack
import trio
import trio.testing

from trio_cogment.access import AccessControl
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import serve_stream
from trio_cogment.rpc.relay import ServerSide

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8

Headers = list[tuple[bytes, bytes]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def settings(values: dict[int, int] | None = None) -> bytes:
    payload = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in (values or {}).items())
    return frame(SETTINGS, 0, 0, payload)


def message(payload: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(payload).to_bytes(4, "big") + payload


def request_headers(path: bytes = b"/trio_cogment.testing.Check/Echo", **changes: bytes | None) -> Headers:
    """Return good request headers with changes: ``te=None`` leaves one out, ``grpc_timeout=b"1S"`` adds one."""
    fields: dict[bytes, bytes | None] = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"here",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    for name, value in changes.items():
        key = name.replace("_", "-").encode()
        fields[b":" + key if b":" + key in fields else key] = value
    return [(name, value) for name, value in fields.items() if value is not None]


def encode(headers: Iterable[tuple[bytes, bytes]], encoder: Any = None) -> bytes:
    return bytes((encoder or hpack.Encoder()).encode(list(headers)))


@dataclass
class Answer:
    """What came on one stream."""

    headers: list[Headers] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    reset: int | None = None
    ended: bool = False

    def field(self, name: bytes) -> bytes | None:
        for block in reversed(self.headers):
            for key, value in block:
                if key == name:
                    return value
        return None

    @property
    def status(self) -> int | None:
        value = self.field(b"grpc-status")
        return None if value is None else int(value)


class RawPeer:
    """A byte stream with an HPACK state and everything that has come so far, by stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.answers: dict[int, Answer] = {}
        self.frames: list[tuple[int, int, int, bytes]] = []
        self.goaway: int | None = None
        self.eof = False
        self._buffer = b""

    async def send(self, *frames: bytes) -> None:
        await self.stream.send_all(b"".join(frames))

    def headers(self, stream: int, headers: Headers, flags: int = END_HEADERS) -> bytes:
        return frame(HEADERS, flags, stream, encode(headers, self.encoder))

    def answer(self, stream: int) -> Answer:
        return self.answers.setdefault(stream, Answer())

    async def pump(self) -> None:
        """Read once."""
        data = bytes(await self.stream.receive_some())
        if not data:
            self.eof = True
            return
        self._buffer += data
        if self._buffer.startswith(PREFACE):
            self._buffer = self._buffer[len(PREFACE) :]
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:9], "big")
            self._take(kind, flags, stream, self._buffer[9 : 9 + size])
            self._buffer = self._buffer[9 + size :]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.frames.append((kind, flags, stream, payload))
        if kind == HEADERS:
            self.answer(stream).headers.append(self.decoder.decode(payload, raw=True))
        elif kind == DATA:
            self.answer(stream).data += payload
        elif kind == RST:
            self.answer(stream).reset = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.answer(stream).ended = True

    async def until(self, condition: Any) -> None:
        """Read until the condition holds or the stream ends."""
        while not condition() and not self.eof:
            await self.pump()

    async def until_over(self, stream: int) -> Answer:
        answer = self.answer(stream)
        await self.until(lambda: answer.ended or answer.reset is not None)
        return answer

    async def echo(self, stream: int, payload: bytes) -> bytes:
        """Send a message on an open Echo stream and return the answer."""
        answer = self.answer(stream)
        before = len(answer.data)
        await self.send(frame(DATA, 0, stream, message(payload)))
        await self.until(lambda: len(answer.data) >= before + 5)
        return bytes(answer.data[before + 5 :])


@asynccontextmanager
async def raw_client(
    services: list[Any],
    *,
    config: RpcConfig | None = None,
    settings_values: dict[int, int] | None = None,
    access: AccessControl | None = None,
    web: ServerSide | None = None,
) -> AsyncIterator[RawPeer]:
    """Serve one connection in memory and talk to it raw."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            ours, theirs = trio.testing.memory_stream_pair()

            async def run() -> None:
                await serve_stream(services, theirs, config=config, access=access, web=web)

            nursery.start_soon(run)
            peer = RawPeer(ours)
            await peer.send(PREFACE, settings(settings_values))
            yield peer
            await trio.aclose_forcefully(ours)
