"""Ends of connections over real sockets: what was said arrives, and nobody holds us."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service

from tests.rpc.raw_peer import (
    DATA,
    END_STREAM,
    GOAWAY,
    PING,
    PREFACE,
    WINDOW_UPDATE,
    RawPeer,
    frame,
    message,
    request_headers,
    settings,
)
from tests.rpc.test_limits import Stuck
from tests.rpc.test_liveness import MemoryListener
from tests.rpc.tls_files import make_party
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, Method, RunningServer, ServerCall, open_listeners, serve, serve_stream, server_tls
from trio_cogment.rpc._connection import Connection
from trio_cogment.testing.conformance.channel import ECHO, CheckService

HUGE = (2**31 - 1 - 65535).to_bytes(4, "big")
LARGE = Observation(content=bytes(3 * 2**20))


class Answering:
    """A service whose only method answers with three MiB."""

    def __init__(self) -> None:
        self.answered = trio.Event()

    def service(self) -> Service:
        service = Service("t.T")
        service.add_method("M", self._handle, RPCSignature(Cardinality.UNARY_UNARY, Action, Observation))
        return service

    async def _handle(self, call: ServerCall) -> None:
        await call.receive()
        await call.send(LARGE)
        self.answered.set()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    party = make_party(tmp_path_factory.mktemp("server"), "server", "127.0.0.1")
    client = ssl.create_default_context(cafile=party.roots)
    client.set_alpn_protocols(["h2"])
    return server_tls(party.chain, party.key), client


@asynccontextmanager
async def served(
    services: list[Any], config: RpcConfig | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RunningServer]:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listeners: list[Any] = (
                await open_listeners("127.0.0.1", tls=tls) if tls else await open_listeners("127.0.0.1")
            )

            async def run(task_status: Any) -> None:
                await serve(services, listeners, config=config, task_status=task_status)

            yield await nursery.start(run)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(serving: RunningServer, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawPeer]:
    """A peer whose socket takes little, so that what it does not read stays with the server."""
    plain = trio.socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    await plain.connect(("127.0.0.1", serving.port))
    stream: trio.abc.Stream = trio.SocketStream(plain)
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname="127.0.0.1", https_compatible=True)
    peer = RawPeer(stream)
    await peer.send(PREFACE, settings({4: 2**31 - 1}), frame(WINDOW_UPDATE, 0, 0, HUGE))
    yield peer
    await trio.aclose_forcefully(stream)


async def gone(serving: RunningServer) -> None:
    """Wait until the server has no connection any more."""
    while serving._group._connections:
        await trio.lowlevel.checkpoint()


async def drained(peer: RawPeer, serving: RunningServer, nursery: trio.Nursery, grace: float) -> None:
    """Drain, say that we have seen it, and read to the end."""
    nursery.start_soon(serving.drain, grace)
    await peer.until(lambda: any(kind == PING for kind, _, _, _ in peer.frames))
    ping = next(payload for kind, _, _, payload in peer.frames if kind == PING)
    await peer.send(frame(PING, 1, 0, ping))
    await peer.until(lambda: False)


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("how", ["drain", "idle"])
async def test_a_slow_reader_gets_the_whole_response(
    secure: bool, how: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """It goes on sending meanwhile, which would make the kernel cut the response off as soon as we close."""
    ours, theirs = contexts if secure else (None, None)
    service = Answering()
    config = RpcConfig(idle_timeout_seconds=0.05 if how == "idle" else 0, keepalive_timeout_seconds=0.1)
    async with (
        served([service.service()], config, ours) as serving,
        trio.open_nursery() as nursery,
        connected(serving, theirs) as peer,
    ):
        await peer.send(peer.headers(1, request_headers(path=b"/t.T/M")), frame(DATA, END_STREAM, 1, message(b"")))
        answer = peer.answer(1)
        whole = len(message(LARGE.SerializeToString()))
        await peer.until(lambda: len(answer.data) > 1000)
        if how == "drain":
            nursery.start_soon(serving.drain, 30.0)
        (connection,) = serving._group._connections
        assert isinstance(connection, Connection)
        await peer.until(lambda: len(answer.data) > whole - 200_000)  # the rest fits into the sockets
        while not connection.closed:
            await trio.lowlevel.checkpoint()
        while not answer.ended and not peer.eof:
            await peer.send(frame(PING, 0, 0, bytes(8)), frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"))
            await peer.pump()
            await trio.testing.wait_all_tasks_blocked(0.01)  # slow: what has arrived is answered
        assert answer.status == 0
        assert len(answer.data) == whole
        await peer.until(lambda: False)
        assert [payload[4:8] for kind, _, _, payload in peer.frames if kind == GOAWAY] == [bytes(4)] * 3
        await peer.stream.aclose()
        if how == "drain":
            await serving._group.done.wait()  # not after the grace, but when the peer has closed
        else:
            await gone(serving)


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "TLS"])
async def test_who_breaks_the_connection_is_told_though_it_goes_on_sending(
    secure: bool, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    ours, theirs = contexts if secure else (None, None)
    async with served([CheckService().service()], None, ours) as serving, connected(serving, theirs) as peer:
        await peer.until(lambda: bool(peer.frames))
        await peer.send(frame(PING, 0, 1, bytes(8)))
        for _ in range(100):
            await peer.send(frame(PING, 0, 0, bytes(8)) * 100)
        await peer.until(lambda: False)
        assert peer.goaway == 1
        await peer.stream.aclose()


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("sends", [False, True], ids=["mute", "talking"])
async def test_nobody_holds_a_broken_connection(
    secure: bool, sends: bool, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """Neither who does not close nor who sends indefinitely: `farewell_timeout_seconds` is all they get."""
    ours, theirs = contexts if secure else (None, None)
    config = RpcConfig(farewell_timeout_seconds=0.2)
    async with served([CheckService().service()], config, ours) as serving, connected(serving, theirs) as peer:
        await peer.until(lambda: bool(peer.frames))
        began = trio.current_time()
        await peer.send(frame(PING, 0, 1, bytes(8)))
        try:
            while sends:
                await peer.send(frame(PING, 0, 0, bytes(8)) * 1000)
        except trio.BrokenResourceError:
            pass
        await gone(serving)
        took = trio.current_time() - began
        assert took < 5
        assert sends or took >= 0.2


async def test_who_never_closes_is_left_after_the_grace() -> None:
    config = RpcConfig(farewell_timeout_seconds=0.1)
    async with served([CheckService().service()], config) as serving, connected(serving) as peer:
        await peer.until(lambda: bool(peer.frames))
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            await drained(peer, serving, nursery, 1.0)
            assert serving._group._connections
            assert not serving._group.done.is_set()  # our end is said at once, but theirs awaited
        assert 1 <= trio.current_time() - began < 10


@pytest.mark.parametrize("how", ["drain", "cancel"])
async def test_a_shorter_grace_and_cancellation_end_the_patience(how: str) -> None:
    """Asked to hurry, the server leaves within `farewell_timeout_seconds`."""
    config = RpcConfig(farewell_timeout_seconds=0.1)
    async with (
        trio.open_nursery() as nursery,
        served([CheckService().service()], config) as serving,
        connected(serving) as peer,
    ):
        await peer.until(lambda: bool(peer.frames))
        await drained(peer, serving, nursery, 1000)
        assert serving._group._connections
        if how == "drain":
            await serving.drain(0)
        else:
            nursery.cancel_scope.cancel()


async def test_below_tls_our_end_is_said_too(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Not only by close_notify, and while we still read: a peer that waits for either one closes."""
    ours, theirs = contexts
    config = RpcConfig(farewell_timeout_seconds=1000)
    async with served([CheckService().service()], config, ours) as serving, connected(serving, theirs) as peer:
        await peer.until(lambda: bool(peer.frames))
        await peer.send(frame(PING, 0, 1, bytes(8)))
        await peer.until(lambda: False)
        assert peer.goaway == 1
        assert isinstance(peer.stream, trio.SSLStream)
        assert await peer.stream.transport_stream.receive_some() == b""
        assert serving._group._connections
        await peer.stream.aclose()
        await gone(serving)


async def test_what_is_thrown_away_is_bounded() -> None:
    """Not only in time."""
    config = RpcConfig(farewell_timeout_seconds=1000, connection_window_bytes=65_535)
    async with served([CheckService().service()], config) as serving, connected(serving) as peer:
        await peer.until(lambda: bool(peer.frames))
        await peer.send(frame(PING, 0, 1, bytes(8)))
        sent = 0
        try:
            while sent < 100 * 2**20:
                await peer.send(bytes(2**16))
                sent += 2**16
        except trio.BrokenResourceError:
            pass
        assert sent < 100 * 2**20


class LastWords:
    """A service whose method, when it is cancelled, says one thing more in a shield; how long that may take is told."""

    def __init__(self, shield_seconds: float, *, speaks: bool = True) -> None:
        self.began = trio.Event()
        self._shield_seconds = shield_seconds
        self._speaks = speaks

    def service(self) -> Service:
        service = Service("t.T")
        service.add_method("M", self._handle, RPCSignature(Cardinality.UNARY_STREAM, Action, Observation))
        return service

    async def _handle(self, call: ServerCall) -> None:
        await call.receive()
        self.began.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._shield_seconds):
                if self._speaks:
                    await trio.sleep(0.01)
                    await call.send(Observation(content=b"farewell"))
                else:
                    await trio.sleep_forever()


@pytest.mark.parametrize("speaks", [True, False])
@pytest.mark.parametrize("_order", range(5))
async def test_last_words_of_cancelled_handlers_are_heard(
    speaks: bool, _order: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Those of one that takes too long are not waited for, and its caller is told all the same."""
    client_end, server_end = trio.testing.memory_stream_pair()
    words = LastWords(30, speaks=speaks)
    method = Method("/t.T/M", Cardinality.UNARY_STREAM, Action, Observation)
    heard: list[bytes] = []
    server = trio.CancelScope()

    async def run() -> None:
        with server:
            await serve_stream([words.service()], server_end)

    async def connect() -> trio.abc.Stream:
        return client_end

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        async with Channel.over(connect) as channel, channel.call(method) as call:
            await call.send(Action())
            await call.done_sending()
            await words.began.wait()
            began = trio.current_time()
            server.cancel()
            if speaks:
                heard.append((await call.receive()).content)
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is StatusCode.UNAVAILABLE
            assert trio.current_time() - began <= RpcConfig().farewell_timeout_seconds
    assert heard == ([b"farewell"] if speaks else [])


@pytest.mark.parametrize(("grace", "expected"), [(0.0, 2.0), (1.5, 2.0), (5.0, 5.0), (1000.0, 100.0)])
async def test_a_drain_shortens_the_patience_of_a_close_to_its_grace(
    grace: float, expected: float, autojump_clock: trio.testing.MockClock
) -> None:
    """But not below what any peer gets; and it does not lengthen it."""
    config = RpcConfig(idle_timeout_seconds=10, drain_grace_seconds=100, farewell_timeout_seconds=2)
    stuck = Stuck()
    listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(partial(serve, [CheckService().service()], [listener], config=config))
        await listener.hand_over(stuck)
        peer = RawPeer(stuck.other)
        await peer.send(PREFACE, settings())
        await peer.until(lambda: any(kind == GOAWAY for kind, _, _, _ in peer.frames))  # it has been idle
        stuck.opened = trio.Event()  # from now on it reads nothing
        (ping,) = [payload for kind, flags, _, payload in peer.frames if kind == PING and not flags]
        await peer.send(frame(PING, 1, 0, ping))
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = serving._group._connections
        assert connection.closed
        began = trio.current_time()
        nursery.start_soon(serving.drain, grace)
        await serving._group.done.wait()
        assert trio.current_time() - began == pytest.approx(expected, abs=0.1)
        nursery.cancel_scope.cancel()


async def test_a_cancelled_server_waits_until_its_peer_has_read_the_end() -> None:
    """Closed before that, what the peer goes on sending would make the kernel throw the end away."""
    ours, theirs = trio.socket.socketpair()
    config = RpcConfig(farewell_timeout_seconds=1000)
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            await serve_stream([CheckService().service()], trio.SocketStream(ours), config=config)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            peer = RawPeer(trio.SocketStream(theirs))
            await peer.send(PREFACE, settings())
            await peer.until(lambda: bool(peer.frames))
            scope.cancel()
            await peer.until(lambda: peer.goaway is not None)
            await peer.send(frame(PING, 0, 0, bytes(8)) * 100)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            await peer.until(lambda: False)
            assert nursery.child_tasks
            await peer.stream.aclose()


async def test_a_client_that_leaves_waits_for_nobody(mock_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.socket.socketpair()

    async def connect() -> trio.abc.Stream:
        return trio.SocketStream(ours)

    peer = RawPeer(trio.SocketStream(theirs))
    async with Channel.over(connect, config=RpcConfig(farewell_timeout_seconds=1000)) as channel:
        await peer.send(settings())
        async with channel.call(ECHO):
            await peer.until(lambda: 1 in peer.answers)
        mock_clock.autojump_threshold = 0  # from now on waiting would take time
        began = trio.current_time()
    assert trio.current_time() - began < 1
    await peer.until(lambda: False)
    await peer.stream.aclose()
