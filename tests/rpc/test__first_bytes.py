"""What is set on a socket whose peer may speak HTTP/1.1."""

from __future__ import annotations

import socket

import trio

from trio_cogment.rpc._first_bytes import _PROBE_SECONDS, _probe


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
