"""Sizes of a connection's reads."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import hypothesis
import hypothesis.strategies as st
import pytest
import trio
import trio.testing

from tests.rpc.tls_files import make_party
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import Turns, _turns
from trio_cogment.rpc import server_tls
from trio_cogment.rpc._byte_stream import _LONG_TURN_SECONDS, SocketByteStream, unsent
from trio_cogment.rpc._byte_stream_over import TlsByteStream, byte_stream_over

KIB = 1024


async def test_more_is_read_at_once_while_that_is_quickly_worked_through() -> None:
    """A peer whose bytes take long (the smallest frames do) must not hold up everybody else by the megabyte."""
    now = 0.0
    ours, theirs = trio.socket.socketpair()
    byte_stream, peer = SocketByteStream(trio.SocketStream(ours), lambda: now), trio.SocketStream(theirs)

    async def read_after(seconds: float) -> int:
        nonlocal now
        now += seconds
        await trio.testing.wait_all_tasks_blocked()  # as much has come as there is room for
        return len(await byte_stream.receive_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send_all, bytes(1024 * KIB))
        took = (0, 0.001, 0.03, 0.01, 0.001, 0.1, _LONG_TURN_SECONDS / 4.5)  # to work through what was read before
        assert [await read_after(seconds) // KIB for seconds in took] == [16, 64, 16, 16, 64, 16, 64]
        nursery.cancel_scope.cancel()
    await byte_stream.aclose()
    await peer.aclose()


@pytest.mark.parametrize(("seconds", "then"), [(0.0, 64), (0.0049, 64), (0.0051, 16), (0.0199, 16), (0.0201, 16)])
async def test_a_quarter_of_a_long_turn_is_quick(seconds: float, then: int) -> None:
    """A turn is long from 20 ms on: four times as much may be expected to take no longer."""
    now = 0.0
    ours, theirs = trio.socket.socketpair()
    byte_stream = SocketByteStream(trio.SocketStream(ours), lambda: now)
    byte_stream._socket = cast("socket.socket", _Endless(byte_stream._socket))
    with theirs:
        await theirs.send(b"x")  # so that there is something to be read
        assert len(await byte_stream.receive_some()) == 16 * KIB
        now = seconds
        assert len(await byte_stream.receive_some()) == then * KIB
        await byte_stream.aclose()


@pytest.mark.parametrize(("seconds", "then"), [(0.0051, 64), (0.0199, 64), (0.0201, 16)])
async def test_after_a_long_turn_no_more_than_at_first_is_read(seconds: float, then: int) -> None:
    now = 0.0
    ours, theirs = trio.socket.socketpair()
    byte_stream = SocketByteStream(trio.SocketStream(ours), lambda: now)
    byte_stream._socket = cast("socket.socket", _Endless(byte_stream._socket))
    with theirs:
        await theirs.send(b"x")
        assert [len(await byte_stream.receive_some()) // KIB for _ in range(2)] == [16, 64]
        now = seconds
        assert len(await byte_stream.receive_some()) == then * KIB
        await byte_stream.aclose()


class Held(Turns):
    """Turns that nobody gets until they are let go."""

    def __init__(self) -> None:
        super().__init__(trio.current_time)
        self.waiting = 0
        self.let_go = trio.Event()

    async def turn(self, lane: Lane, units: int = 1) -> None:
        assert lane is Lane.OTHERS
        self.waiting += 1
        await self.let_go.wait()


async def test_what_is_discarded_takes_turns() -> None:
    """A thousand connections may end at once, each with megabytes that nobody is interested in any more."""
    turns = Held()
    _turns.set(turns)
    ours, theirs = trio.socket.socketpair()
    byte_stream, peer = SocketByteStream(trio.SocketStream(ours)), trio.SocketStream(theirs)
    lingered = trio.Event()

    async def linger() -> None:
        await byte_stream.linger(KIB * KIB)
        lingered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(linger)
        await peer.send_all(bytes(40 * KIB))
        await trio.testing.wait_all_tasks_blocked()
        assert turns.waiting == 1
        turns.let_go.set()
        await peer.send_all(bytes(40 * KIB))
        await peer.send_eof()
        with trio.fail_after(30):
            await lingered.wait()
    assert turns.waiting >= 2
    await byte_stream.aclose()
    await peer.aclose()


async def test_what_is_discarded_below_tls_takes_turns_too(tmp_path: Path) -> None:
    party = make_party(tmp_path, "server", "127.0.0.1")
    lingered = trio.Event()
    with trio.fail_after(30):
        server, peer = await tcp_pair()
        ours = trio.SSLStream(server, server_tls(party.chain, party.key), server_side=True)
        context = ssl.create_default_context(cafile=party.roots)
        theirs = trio.SSLStream(peer, context, server_hostname="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(theirs.do_handshake)
            await ours.do_handshake()
        byte_stream = byte_stream_over(ours)
        assert isinstance(byte_stream, TlsByteStream)
        turns = Held()
        _turns.set(turns)

        async def linger() -> None:
            await byte_stream.linger(KIB * KIB)
            lingered.set()

        await theirs.send_all(b"what nobody reads any more")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(linger)
            while not turns.waiting:  # TLS takes some of it, until it sees that it is not a close_notify
                await peer.send_all(bytes(KIB))
            assert not lingered.is_set()
            turns.let_go.set()
            await peer.send_eof()
            await lingered.wait()
        await byte_stream.aclose()
        await peer.aclose()


async def test_after_small_reads_less_is_read_at_once() -> None:
    """Half as much after nine of them, but never less than at the beginning; and they make nothing larger."""
    ours, theirs = trio.socket.socketpair()
    byte_stream, peer = SocketByteStream(trio.SocketStream(ours), lambda: 0.0), trio.SocketStream(theirs)

    async def read(size: int) -> int:
        await peer.send_all(bytes(size))
        assert len(await byte_stream.receive_some()) == size
        return byte_stream._read_size // KIB

    assert await read(1) == 16
    assert await read(16 * KIB) == 16
    assert await read(64 * KIB) == 64  # it had filled the buffer, so four times as much is asked for
    for size, expected in (
        (256 * KIB // 4, 256),
        *[(64 * KIB - 1, 256)] * 8,
        (64 * KIB, 256),  # a large one begins the count again
        *[(1, 256)] * 8,
        (64 * KIB - 1, 128),
        *[(1, 128)] * 8,
        (1, 64),
        (16 * KIB, 64),
        *[(100, 64)] * 8,
        (100, 32),
        *[(1, 32)] * 8,
        (1, 16),
        *[(1, 16)] * 9,
    ):
        assert await read(size) == expected
    await byte_stream.aclose()
    await peer.aclose()


async def tcp_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        peer = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        return await listener.accept(), peer


@hypothesis.given(st.lists(st.binary(max_size=6), max_size=6), st.data())
def test_what_is_unsent_is_what_was_not_sent(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    sent = data.draw(st.integers(0, len(whole)))
    left = unsent(pieces, sent)
    assert b"".join(left) == whole[sent:]
    assert bool(left) == (sent < len(whole))


async def test_more_pieces_than_the_system_takes_arrive_whole_and_in_order() -> None:
    ours, theirs = await tcp_pair()
    byte_stream = SocketByteStream(ours)
    pieces = [bytes([number & 255]) * (number % 700 + 1) for number in range(5000)]
    received = bytearray()

    async def receive() -> None:
        while data := await theirs.receive_some():
            received.extend(data)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await byte_stream.send_pieces(pieces)
            await byte_stream.aclose()
    assert received == b"".join(pieces)
    await theirs.aclose()


async def test_what_the_peers_system_has_taken_is_known() -> None:
    with trio.fail_after(20):
        ours, theirs = await tcp_pair()
        byte_stream = SocketByteStream(ours)
        assert not byte_stream.is_reset()
        taken, waiting = byte_stream.delivered()
        assert waiting == 0
        await byte_stream.send_all(bytes(1000))
        while byte_stream.delivered() != (taken + 1000, 0):
            await trio.lowlevel.checkpoint()
        while byte_stream.send_now(bytes(100_000)):
            pass
        assert byte_stream.delivered()[1] > 10_000
        theirs.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await theirs.aclose()  # which resets the connection
        while not byte_stream.is_reset():
            await trio.lowlevel.checkpoint()
        with pytest.raises(trio.BrokenResourceError):
            byte_stream.send_now(b"x")
        await byte_stream.aclose()


async def test_of_what_is_not_tcp_nothing_is_known() -> None:
    ours, theirs = trio.socket.socketpair()
    byte_stream = SocketByteStream(trio.SocketStream(ours))
    with theirs:
        await byte_stream.send_all(bytes(1000))
        assert byte_stream.delivered() == (0, 0)
        assert not byte_stream.is_reset()
        await byte_stream.aclose()
        assert not byte_stream.is_reset()


@pytest.mark.sources  # what is compiled knows its platform
async def test_elsewhere_nothing_is_known_either(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = await tcp_pair()
    byte_stream = SocketByteStream(ours)
    await byte_stream.send_all(bytes(1000))
    monkeypatch.setattr(sys, "platform", "elsewhere")
    assert byte_stream.delivered() == (0, 0)
    assert not byte_stream.is_reset()
    monkeypatch.undo()
    await byte_stream.aclose()
    await theirs.aclose()


async def test_reads_can_be_limited() -> None:
    """To no less than is read at first."""
    ours, theirs = trio.socket.socketpair()
    byte_stream, peer = SocketByteStream(trio.SocketStream(ours), lambda: 0.0), trio.SocketStream(theirs)

    async def sizes() -> list[int]:
        found = []
        for _ in range(4):
            await trio.testing.wait_all_tasks_blocked()
            found.append(len(await byte_stream.receive_some()) // KIB)
        return found

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send_all, bytes(4096 * KIB))
        byte_stream.limit_reads(40 * KIB)
        assert await sizes() == [16, 40, 40, 40]
        byte_stream.limit_reads(1)
        assert (await sizes())[1:] == [16, 16, 16]
        nursery.cancel_scope.cancel()
    await byte_stream.aclose()
    await peer.aclose()


class _Interrupted:
    """A socket that the system says is ready, and that is not when it is used: each other time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.failures: list[type[OSError]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop()

    def recv(self, size: int) -> bytes:
        self._fail()
        return self._sock.recv(size)

    def send(self, data: bytes | memoryview) -> int:
        self._fail()
        return self._sock.send(data[:2])

    def sendmsg(self, pieces: Sequence[bytes | memoryview]) -> int:
        return self.send(pieces[0])


async def test_a_socket_that_is_not_ready_after_all_is_tried_again() -> None:
    ours, theirs = trio.socket.socketpair()
    byte_stream, peer = SocketByteStream(trio.SocketStream(ours)), trio.SocketStream(theirs)
    flaky = _Interrupted(byte_stream._socket)
    byte_stream._socket = cast(socket.socket, flaky)
    with trio.fail_after(20):
        await peer.send_all(b"abc")
        flaky.failures = [BlockingIOError, InterruptedError]
        assert await byte_stream.receive_some() == b"abc"
        flaky.failures = [BlockingIOError, InterruptedError, BlockingIOError]
        assert byte_stream.send_now(b"x") == 0
        await byte_stream.send_all(b"defghi")
        assert flaky.failures == []
        received = b""
        while len(received) < 6:
            received += await peer.receive_some()
        assert received == b"defghi"
        for use in (byte_stream.receive_some, partial(byte_stream.send_all, b"x" * 3)):
            flaky.failures = [ConnectionResetError, BlockingIOError]
            await peer.send_all(b"abc")
            with pytest.raises(trio.BrokenResourceError):
                await use()
    await byte_stream.aclose()
    await peer.aclose()


async def test_memory_streams_are_never_known_to_be_gone() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    byte_stream = byte_stream_over(ours)
    byte_stream.limit_reads(1)
    await theirs.send_all(b"abc")
    assert await byte_stream.receive_some() == b"abc"
    await theirs.aclose()
    assert (byte_stream.is_reset(), byte_stream.delivered(), byte_stream.send_now(b"x")) == (False, (0, 0), 0)
    await byte_stream.linger(100)
    await byte_stream.aclose()


async def test_below_tls_it_is_known_what_has_been_taken_and_whether_the_peer_has_gone() -> None:
    with trio.fail_after(20):
        ours, theirs = await tcp_pair()
        byte_stream = byte_stream_over(trio.SSLStream(ours, ssl.create_default_context(), server_hostname="here"))
        assert isinstance(byte_stream, TlsByteStream)
        assert not byte_stream.is_reset()
        taken, _ = byte_stream.delivered()
        await ours.send_all(bytes(1000))
        while byte_stream.delivered() != (taken + 1000, 0):
            await trio.lowlevel.checkpoint()
        theirs.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await theirs.aclose()
        while not byte_stream.is_reset():
            await trio.lowlevel.checkpoint()
        await byte_stream.aclose()
        assert not byte_stream.is_reset()


class _Endless(_Interrupted):
    """A socket that has as much as it is asked for."""

    def recv(self, size: int) -> bytes:
        return bytes(size)


async def test_no_more_than_a_mebibyte_is_read_at_once() -> None:
    ours, theirs = trio.socket.socketpair()
    byte_stream, peer = SocketByteStream(trio.SocketStream(ours), lambda: 0.0), trio.SocketStream(theirs)
    byte_stream._socket = cast("socket.socket", _Endless(byte_stream._socket))
    await peer.send_all(b"x")  # so that there is something to be read
    sizes = [len(await byte_stream.receive_some()) // KIB for _ in range(5)]
    assert sizes == [16, 64, 256, 1024, 1024]
    await byte_stream.aclose()
    await peer.aclose()


async def test_what_has_come_can_be_read_without_waiting() -> None:
    ours, theirs = trio.socket.socketpair()
    byte_stream = SocketByteStream(trio.SocketStream(ours))
    assert byte_stream.receive_now(10) == b""
    await theirs.send(b"question")
    assert byte_stream.receive_now(5) == b"quest"
    assert byte_stream.receive_now(5) == b"ion"
    theirs.close()
    assert byte_stream.receive_now(5) == b""
    assert await byte_stream.receive_some() == b""  # which is the end, as only this says
    await byte_stream.aclose()
    assert byte_stream.receive_now(5) == b""


async def test_while_much_comes_every_read_is_measured() -> None:
    ours, theirs = trio.socket.socketpair()
    byte_stream = SocketByteStream(trio.SocketStream(ours))
    byte_stream._socket = cast("socket.socket", _Endless(byte_stream._socket))
    with theirs:
        await theirs.send(b"x")  # so that there is something to be read
        assert byte_stream.receive_now(5) == bytes(5)
        assert len(await byte_stream.receive_some()) == 16 * KIB
        assert byte_stream.receive_now(5) == b""
        await byte_stream.aclose()


async def test_a_small_read_between_large_ones_is_not_measured_and_more_may_be_read_after_it() -> None:
    times: list[float] = []

    def clock() -> float:
        times.append(0.0)
        return 0.0

    ours, theirs = trio.socket.socketpair()
    byte_stream = SocketByteStream(trio.SocketStream(ours), clock)
    with theirs:
        await theirs.send(bytes(16 * KIB))
        assert len(await byte_stream.receive_some()) == 16 * KIB
        await theirs.send(b"small")
        assert await byte_stream.receive_some() == b"small"  # after this one larger reads are asked for
        measured = len(times)
        await theirs.send(b"answer")
        assert byte_stream.receive_now(100) == b"answer"
        await theirs.send(b"next")
        assert await byte_stream.receive_some() == b"next"
        assert len(times) == measured
        await byte_stream.aclose()
