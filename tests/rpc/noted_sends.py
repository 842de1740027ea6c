"""Sends over sockets without waiting, noted."""

from __future__ import annotations

import pytest
import trio

from trio_cogment.rpc import _byte_stream_over
from trio_cogment.rpc._byte_stream import ByteStream, SocketByteStream


def noted_sends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the size of everything that connections made from now on send with `send_now`."""
    sent: list[int] = []

    class Noting(ByteStream):
        def __init__(self, stream: trio.SocketStream) -> None:
            self._below = SocketByteStream(stream)

        async def receive_some(self) -> bytes:
            return await self._below.receive_some()

        async def send_all(self, data: bytes) -> None:
            await self._below.send_all(data)

        def send_now(self, data: bytes) -> int:
            sent.append(len(data))
            return self._below.send_now(data)

        async def aclose(self) -> None:
            await self._below.aclose()

    monkeypatch.setattr(_byte_stream_over, "SocketByteStream", Noting)
    return sent
