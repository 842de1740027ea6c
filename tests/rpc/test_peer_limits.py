"""Limits per peer and per server on real connections, raw and with grpcio: who is refused learns the limit's name."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import PREFACE, RST, RawPeer, frame, request_headers, settings
from tests.rpc.test_grpcio import serialize
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.budget import peer_limits
from trio_cogment.rpc import Channel, _admission, open_listeners, serve
from trio_cogment.testing.conformance.channel import ECHO_ONE, WAIT, CheckService

ENHANCE_YOUR_CALM = 11


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loopback's addresses count as those of other machines."""
    monkeypatch.setattr(peer_limits, "is_counted", lambda identity: True)


@asynccontextmanager
async def server(**limits: Any) -> AsyncIterator[int]:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serving = await nursery.start(
                partial(serve, [CheckService().service()], listeners, config=RpcConfig(**limits))
            )
            yield serving.port
            nursery.cancel_scope.cancel()


async def raw(port: int) -> RawPeer:
    peer = RawPeer(await trio.open_tcp_stream("127.0.0.1", port))
    await peer.send(PREFACE, settings())
    return peer


def said(peer: RawPeer) -> bytes:
    """Return the debug text of the GOAWAY."""
    (payload,) = [payload for kind, _, __, payload in peer.frames if kind == 7]
    return payload[8:]


async def refused(port: int) -> bytes:
    peer = await raw(port)
    await peer.until(lambda: False)
    assert peer.goaway == ENHANCE_YOUR_CALM
    await peer.stream.aclose()
    return said(peer)


async def is_taken(port: int) -> RawPeer:
    peer = await raw(port)
    await peer.until(lambda: bool(peer.frames))
    assert peer.goaway is None
    return peer


async def test_connections_of_a_server_are_bounded_and_come_back() -> None:
    async with server(max_connections=3) as port:
        peers = [await is_taken(port) for _ in range(3)]
        assert b"max_connections" in await refused(port)
        await peers.pop().stream.aclose()
        while len(peers) < 3:  # the server has to notice
            peer = await raw(port)
            await peer.until(lambda peer=peer: bool(peer.frames))
            if peer.goaway is None:
                peers.append(peer)
            else:
                await peer.stream.aclose()
        for peer in peers:
            await peer.stream.aclose()


async def test_a_channel_says_why_it_cannot_connect() -> None:
    async with server(max_connections=1) as port:
        taken = await is_taken(port)
        async with Channel("127.0.0.1", port) as channel:
            with pytest.raises(RpcError, match="max_connections: this server has 1 connections") as caught:
                await channel.unary(ECHO_ONE, Action())
            assert caught.value.code is StatusCode.UNAVAILABLE
        await taken.stream.aclose()


async def test_grpcio_does_not_come_back_at_once() -> None:
    async with server(max_connections=1) as port:
        taken = await is_taken(port)

        def call() -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                ask = channel.unary_unary(ECHO_ONE.path, serialize, Observation.FromString)
                with pytest.raises(grpc.RpcError) as caught:
                    ask(Action(), timeout=20)
                return caught.value.code()

        # A server that sent SETTINGS first would pass as one that works, and the call would last until its deadline.
        assert await trio.to_thread.run_sync(call) is grpc.StatusCode.UNAVAILABLE
        await taken.stream.aclose()


@pytest.mark.usefixtures("counted")
async def test_connections_of_a_peer_are_bounded() -> None:
    async with server(max_peer_connections=2) as port:
        peers = [await is_taken(port) for _ in range(2)]
        assert b"max_peer_connections" in await refused(port)
        for peer in peers:
            await peer.stream.aclose()


@pytest.mark.usefixtures("counted")
async def test_a_peer_cannot_connect_again_and_again() -> None:
    async with server(max_peer_connects=5) as port:
        for _ in range(5):
            await (await is_taken(port)).stream.aclose()
        assert b"max_peer_connects: 5 connections of one peer in 10 s" in await refused(port)


async def test_an_honest_machine_full_of_actors_is_not_limited() -> None:
    async with server(max_peer_connections=2, max_peer_connects=2, peer_call_burst=1, max_peer_resets=1) as port:
        for _ in range(5):
            async with Channel("127.0.0.1", port) as channel:
                for _ in range(5):
                    await channel.unary(ECHO_ONE, Action())


async def test_calls_of_a_server_are_bounded_and_come_back() -> None:
    async with server(max_calls=4) as port, Channel("127.0.0.1", port) as channel:
        async with channel.call(WAIT) as first, channel.call(WAIT) as second:
            await first.wait_initial_metadata()
            await second.wait_initial_metadata()
            with pytest.raises(RpcError, match="max_calls: this server has 2 calls of 4, this connection 2") as caught:
                await channel.unary(ECHO_ONE, Action())
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
            async with Channel("127.0.0.1", port) as other:
                await other.unary(ECHO_ONE, Action())
        while True:  # the server has to notice that they are gone
            try:
                await channel.unary(ECHO_ONE, Action())
            except RpcError as error:
                assert error.code is StatusCode.RESOURCE_EXHAUSTED  # noqa: PT017  it may be too early
            else:
                break


@pytest.mark.usefixtures("counted")
async def test_calls_of_a_peer_count_on_all_its_connections() -> None:
    async with server(max_peer_calls_per_second=0.01, peer_call_burst=3) as port:
        for _ in range(3):
            async with Channel("127.0.0.1", port) as channel:
                await channel.unary(ECHO_ONE, Action())

        def call() -> tuple[Any, str]:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                ask = channel.unary_unary(ECHO_ONE.path, serialize, Observation.FromString)
                with pytest.raises(grpc.RpcError) as caught:
                    ask(Action(), timeout=20)
                return caught.value.code(), caught.value.details()

        code, details = await trio.to_thread.run_sync(call)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max_peer_calls_per_second" in details


@pytest.mark.usefixtures("counted")
async def test_resets_of_a_peer_count_on_all_its_connections() -> None:
    wait = request_headers(b"/trio_cogment.testing.Check/Wait")
    async with server(max_peer_resets=10) as port:
        peers = [await is_taken(port) for _ in range(2)]
        for peer in peers:
            for number in range(5):
                stream = 2 * number + 1
                await peer.send(peer.headers(stream, wait), frame(RST, 0, stream, b"\0\0\0\x08"))
            await peer.send(frame(6, 0, 0, bytes(8)))
            await peer.until(lambda peer=peer: any(kind == 6 for kind, *_ in peer.frames))
            assert peer.goaway is None
        last = await is_taken(port)
        await last.send(last.headers(1, wait), frame(RST, 0, 1, b"\0\0\0\x08"))
        await last.until(lambda: False)
        assert last.goaway == ENHANCE_YOUR_CALM
        assert b"max_peer_resets" in said(last)
        for peer in [*peers, last]:
            await peer.stream.aclose()


async def test_a_crowd_that_is_refused_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not read why it was refused keeps no place that others need."""
    monkeypatch.setattr(_admission, "_TOLD_AT_ONCE", 1)
    async with server(max_connections=1) as port:
        taken = await is_taken(port)
        # The first one is told and does not go; those after it are not told.
        with socket.create_connection(("127.0.0.1", port)):
            for _ in range(20):
                peer = RawPeer(await trio.open_tcp_stream("127.0.0.1", port))
                try:
                    await peer.until(lambda: False)
                except trio.BrokenResourceError:
                    pass
                await peer.stream.aclose()
            await taken.send(taken.headers(1, request_headers()))
            assert await taken.echo(1, b"") == b""
        await taken.stream.aclose()
