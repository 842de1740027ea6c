"""First bytes: options of a socket whose peer may speak HTTP/1.1, and how its first bytes are looked at."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import PREFACE
from tests.rpc.tls_files import make_party
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.rpc import server_tls
from trio_cogment.rpc._first_bytes import _PROBE_SECONDS, _peek, _probe, look


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
    """Counts turns."""

    def __init__(self) -> None:
        self.taken = 0

    async def take(self) -> None:
        await trio.lowlevel.checkpoint()
        self.taken += 1


async def awaited(stream: trio.SocketStream, size: int) -> None:
    """Return when the socket is said to be readable only with this many bytes.

    Not when it is not: with little memory the system says that it is readable all the same.
    """
    while stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) != size:
        await trio.lowlevel.checkpoint()


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
        ([b"\x16\x03\x01\x02\x00"], True),
        ([b"\x16"], True),
        ([b"\x17\x03\x03"], False),
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
    turns = Turns()
    with trio.fail_after(20):
        async with connected() as (server, peer), trio.open_nursery() as nursery:

            async def speak() -> None:
                said = 0
                for piece in pieces:
                    await awaited(server, said + 1)
                    said += len(piece)
                    await (peer.send_all(piece) if piece else peer.send_eof())

            nursery.start_soon(speak)
            assert await _peek(server.socket, turns.take) is speaks_http2
            assert turns.taken >= len(pieces)  # one for each look
            # One byte makes it readable again, as its reader expects.
            assert server.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            assert await server.receive_some() == b"".join(pieces)


async def test_a_look_that_is_given_up_leaves_the_socket_as_it_was() -> None:
    turns = Turns()
    with trio.fail_after(20):
        async with connected() as (server, peer):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_peek, server.socket, turns.take)
                await peer.send_all(b"PR")
                await awaited(server, 3)
                nursery.cancel_scope.cancel()
            assert server.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
            assert await server.receive_some() == b"PR"


@pytest.mark.parametrize(
    ("pieces", "speaks_http2"),
    [
        ([PREFACE], True),
        ([b"P", b"R", b"I * HTTP"], True),
        ([b"GET / HTTP/1.1"], False),
        ([b"P", b"OST /"], False),
        ([b""], True),
        ([b"PR", b""], False),
    ],
    ids=repr,
)
async def test_of_any_other_stream_what_was_read_is_put_back(pieces: list[bytes], speaks_http2: bool) -> None:
    ours, theirs = trio.testing.memory_stream_pair()

    async def speak() -> None:
        for piece in pieces:
            await (theirs.send_all(piece) if piece else theirs.send_eof())
            await trio.testing.wait_all_tasks_blocked()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(speak)
            stream, found = await look(ours, 10)
            assert found is speaks_http2
            if pieces[-1]:
                await theirs.send_eof()
            data = b""
            while piece := await stream.receive_some():
                data += piece
        assert data == b"".join(pieces)


async def test_who_says_nothing_is_given_up_in_time(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(b"PR")
    with pytest.raises(RemoteProtocolError, match="nothing came within 7 s"):
        await look(ours, 7)
    assert trio.current_time() == 7


async def test_who_is_gone_is_no_peer() -> None:
    with pytest.raises(RemoteProtocolError, match="the connection is lost"):
        await look(Broken(), 7)


class Broken(trio.abc.Stream):
    """A stream whose peer is gone."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(("protocol", "speaks_http2"), [("h2", True), ("http/1.1", False), (None, False)])
async def test_with_tls_the_handshake_has_said_it(protocol: str | None, speaks_http2: bool, tmp_path: Path) -> None:
    party = make_party(tmp_path, "server", "127.0.0.1")
    context = server_tls(party.chain, party.key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    theirs_context = ssl.create_default_context(cafile=party.roots)
    if protocol is not None:
        theirs_context.set_alpn_protocols([protocol])
    with trio.fail_after(20):
        async with connected() as (server, peer):
            ours = trio.SSLStream(server, context, server_side=True)
            theirs = trio.SSLStream(peer, theirs_context, server_hostname="127.0.0.1")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(theirs.do_handshake)
                await ours.do_handshake()
            _, found = await look(ours, 10)
            assert found is speaks_http2
            # Only HTTP/2 has a PING of its own.
            assert server.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == (not speaks_http2)


@pytest.mark.parametrize(("first", "speaks_http2"), [(PREFACE, True), (b"GET / HTTP/1.1", False)])
async def test_only_who_has_no_ping_is_looked_for_by_the_system(first: bytes, speaks_http2: bool) -> None:
    with trio.fail_after(20):
        async with connected() as (server, peer):
            await peer.send_all(first)
            watched = server.socket
            kept_alive = watched.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert not kept_alive
            duplicate = socket.socket(fileno=os.dup(watched.fileno()))  # the byte stream takes the other one
            with duplicate:
                byte_stream, found = await look(server, 10)
                assert found is speaks_http2
                assert duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == (not speaks_http2)
                assert await byte_stream.receive_some() == first
                await byte_stream.aclose()
