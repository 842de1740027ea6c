"""What is set on a socket whose peer may speak HTTP/1.1, and how its first bytes are looked at."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import PREFACE
from trio_cogment.rpc._first_bytes import _PROBE_SECONDS, _peek, _probe


async def test_tcp_looks_whether_the_peer_is_there() -> None:
    with trio.socket.socket() as plain:
        stream = trio.SocketStream(plain)
        _probe(stream)
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, name):
                assert stream.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == _PROBE_SECONDS


async def test_a_unix_socket_knows_it_by_itself() -> None:
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        stream = trio.SocketStream(ours)
        _probe(stream)
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


class Turns:
    """Counts turns; more of them than pieces have come are a busy loop."""

    def __init__(self, most: int) -> None:
        self.taken = 0
        self._most = most
        self._news = trio.Event()

    async def take(self) -> None:
        await trio.lowlevel.checkpoint()
        self.taken += 1
        assert self.taken <= self._most, "a turn although nothing more has come"
        self._news.set()

    async def looked(self) -> None:
        """Return when what has come has been looked at, and more is waited for."""
        await self._news.wait()
        self._news = trio.Event()
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Both ends of a connection over TCP: the server's, and the peer's."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        peer = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        async with peer, await listener.accept() as server:
            yield server, peer


@pytest.mark.parametrize(
    ("pieces", "speaks_http2"),
    [
        ([PREFACE], True),
        ([b"PRI"], True),
        ([b"P", b"RI * HT"], True),
        ([b"P", b"R", b"I"], True),
        ([b"PR", b"I"], True),
        ([b"GET / HTTP/1.1"], False),
        ([b"G"], False),
        ([b"P", b"UT /"], False),
        ([b"PR", b"OPFIND /"], False),
        ([b""], True),  # it has ended: the engine knows what to do with that
        ([b"P", b""], True),
        ([b"PR", b""], True),
        ([b"P", b"R", b""], True),
    ],
    ids=repr,
)
async def test_first_bytes_are_looked_at_as_they_come_and_left_where_they_are(
    pieces: list[bytes], speaks_http2: bool
) -> None:
    turns = Turns(len(pieces))
    with trio.fail_after(20):
        async with connected() as (server, peer), trio.open_nursery() as nursery:

            async def speak() -> None:
                for number, piece in enumerate(pieces):
                    if number:
                        await turns.looked()
                    await (peer.send_all(piece) if piece else peer.send_eof())

            nursery.start_soon(speak)
            assert await _peek(server.socket, turns.take) is speaks_http2
            assert turns.taken == len(pieces)
            # One byte makes it readable again, as its reader expects.
            assert server.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            assert await server.receive_some() == b"".join(pieces)


async def test_a_look_that_is_given_up_leaves_the_socket_as_it_was() -> None:
    turns = Turns(1)
    with trio.fail_after(20):
        async with connected() as (server, peer):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_peek, server.socket, turns.take)
                await peer.send_all(b"PR")
                await turns.looked()  # it waits for the third byte
                nursery.cancel_scope.cancel()
            assert server.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            assert await server.receive_some() == b"PR"
