"""Handshake, idleness, keepalive and drain: on a virtual clock, over memory streams."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RawPeer,
    encode,
    frame,
    message,
    request_headers,
    settings,
)
from tests.rpc.test_limits import Stuck, serve_stream_with
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, RunningServer, open_listeners, serve
from trio_cogment.rpc._connection import Connection
from trio_cogment.rpc._liveness import _Queue
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, WAIT, CheckService

PATH = b"/trio_cogment.testing.Check/"
GOOD = Action(tick_id=3, content=b"good").SerializeToString()
ANSWER = Observation(tick_id=3, content=b"good").SerializeToString()
OK_HEADERS = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
Clock = trio.testing.MockClock


class MemoryListener(trio.abc.Listener[Any]):
    """Memory streams in place of sockets."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Any](math.inf)
        self.closed = False

    async def accept(self) -> Any:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            await trio.sleep_forever()

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()

    async def connect(self) -> trio.abc.Stream:
        if self.closed:
            raise OSError("refused")
        ours, theirs = trio.testing.memory_stream_pair()
        await self.hand_over(theirs)
        return ours

    async def hand_over(self, stream: trio.abc.Stream) -> None:
        """Have the server accept a stream."""
        await self._send.send(stream)


class Served:
    """A server in memory, and raw peers of it."""

    def __init__(self, nursery: trio.Nursery, config: RpcConfig | None = None) -> None:
        self.nursery = nursery
        self.config = config
        self.service = CheckService()
        self.listener = MemoryListener()
        self.ended: float | None = None

    async def start(self) -> RunningServer:
        serving: RunningServer = await self.nursery.start(self._run)
        self.serving = serving
        return serving

    async def _run(self, task_status: Any) -> None:
        await serve([self.service.service()], [self.listener], config=self.config, task_status=task_status)
        self.ended = trio.current_time()

    async def peer(self, *, greet: bool = True) -> RawPeer:
        peer = RawPeer(await self.listener.connect())
        if greet:
            await peer.send(PREFACE, settings())
        return peer


def pings(peer: RawPeer) -> list[bytes]:
    return [payload for kind, flags, _, payload in peer.frames if kind == PING and not flags]


def goaways(peer: RawPeer) -> list[tuple[int, int]]:
    return [
        (int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big"))
        for kind, _, _, payload in peer.frames
        if kind == GOAWAY
    ]


# --- handshake and idleness ---


@pytest.mark.parametrize("sent", [b"", PREFACE[:10], PREFACE, PREFACE + settings({4: 1})[:-1]], ids=len)
async def test_a_peer_that_does_not_open_is_given_up(sent: bytes, autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        await served.start()
        peer = await served.peer(greet=False)
        await peer.send(sent)
        await peer.until(lambda: False)
        assert trio.current_time() == pytest.approx(20)
        nursery.cancel_scope.cancel()


async def test_an_idle_connection_is_drained(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery, RpcConfig(idle_timeout_seconds=100))
        await served.start()
        async with Channel.over(served.listener.connect) as channel:
            assert (await channel.unary(ECHO_ONE, Action(tick_id=1))).tick_id == 1
            await trio.sleep(90)
            assert len(served.serving._group._connections) == 1
            async with channel.call(ECHO) as call:
                await call.send(Action(tick_id=2))
                assert (await call.receive()).tick_id == 2
                await trio.sleep(300)  # a running call is not idle
                await call.send(Action(tick_id=3))
                assert (await call.receive()).tick_id == 3
            await trio.sleep(90)
            assert len(served.serving._group._connections) == 1
            await trio.sleep(50)
            assert len(served.serving._group._connections) == 0
            assert (await channel.unary(ECHO_ONE, Action(tick_id=4))).tick_id == 4  # on a new one
        nursery.cancel_scope.cancel()


async def test_a_call_on_its_way_to_an_idle_connection_is_served(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery, RpcConfig(idle_timeout_seconds=10, keepalive_seconds=0))
        await served.start()
        peer = await served.peer()
        await peer.until(lambda: bool(goaways(peer)))
        assert goaways(peer) == [(2**31 - 1, 0)]
        await peer.send(peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        await peer.send(frame(PING, 1, 0, pings(peer)[0]))
        await peer.until(lambda: len(goaways(peer)) == 2)
        assert goaways(peer)[1] == (1, 0)
        await trio.sleep(100)
        assert await peer.echo(1, GOOD) == ANSWER
        await peer.send(frame(DATA, END_STREAM, 1))
        assert (await peer.until_over(1)).status == 0
        await peer.until(lambda: False)
        nursery.cancel_scope.cancel()


# --- keepalive ---


async def test_a_silent_client_is_given_up_within_thirty_seconds(autojump_clock: Clock) -> None:
    """Half-open TCP: no end, no answer."""
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        await served.start()
        peer = await served.peer()
        await trio.sleep(7)
        await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait")))
        await served.service.entered.wait()
        heard = trio.current_time()
        await served.service.cancelled.wait()
        assert trio.current_time() - heard == pytest.approx(30)
        await peer.until(lambda: False)
        assert len(pings(peer)) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seconds", [0.5, 3, 60])
async def test_a_silent_client_has_its_time_to_answer(seconds: float, autojump_clock: Clock) -> None:
    """`keepalive_timeout_seconds`, after `keepalive_seconds` without a word."""
    async with trio.open_nursery() as nursery:
        served = Served(nursery, RpcConfig(keepalive_seconds=5, keepalive_timeout_seconds=seconds))
        await served.start()
        peer = await served.peer()
        await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait")))
        await served.service.cancelled.wait()
        assert trio.current_time() == pytest.approx(5 + seconds)
        await peer.until(lambda: False)
        nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_read_is_left_after_the_farewell(autojump_clock: Clock) -> None:
    """`farewell_timeout_seconds` bounds what telling a peer may take, by default a second."""
    for config, expected in ((RpcConfig(), 1), (RpcConfig(farewell_timeout_seconds=7), 7)):
        stuck = Stuck()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_stream_with, [CheckService().service()], stuck, config)
            peer = RawPeer(stuck.other)
            await peer.send(PREFACE, settings())
            await trio.testing.wait_all_tasks_blocked()
            stuck.opened = trio.Event()
            began = trio.current_time()
            await peer.send(frame(PING, 0, 1, bytes(8)))
        assert trio.current_time() - began == pytest.approx(expected)


async def test_a_silent_client_that_answers_is_kept(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        await served.start()
        peer = await served.peer()
        await peer.send(peer.headers(1, request_headers()))
        for number in range(1, 50):
            await peer.until(lambda number=number: len(pings(peer)) == number)
            assert trio.current_time() == pytest.approx(number * 20 + (number - 1) * 9)
            await trio.sleep(9)
            await peer.send(frame(PING, 1, 0, pings(peer)[-1]))
        assert await peer.echo(1, GOOD) == ANSWER
        nursery.cancel_scope.cancel()


async def test_a_talking_client_is_not_pinged(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        await served.start()
        peer = await served.peer()
        await peer.send(peer.headers(1, request_headers()))
        for _ in range(20):
            await trio.sleep(19)
            assert await peer.echo(1, GOOD) == ANSWER
        assert pings(peer) == []
        nursery.cancel_scope.cancel()


async def test_two_of_ours_keep_each_other_for_a_day(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        await served.start()
        async with Channel.over(served.listener.connect) as channel, channel.call(ECHO) as call:
            await call.send(Action(tick_id=1))
            assert (await call.receive()).tick_id == 1
            await trio.sleep(24 * 3600)
            await call.send(Action(tick_id=2))
            assert (await call.receive()).tick_id == 2
        nursery.cancel_scope.cancel()


class SilentServer:
    """Takes one connection and notes when PINGs come."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.answering = True

    async def connect(self) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        self.peer = RawPeer(theirs)
        await self.peer.send(settings())
        return ours

    async def run(self) -> None:
        peer = self.peer
        while not peer.eof:
            before = len(pings(peer))
            await peer.pump()
            for payload in pings(peer)[before:]:
                self.times.append(trio.current_time())
                if self.answering:
                    await peer.send(frame(PING, 1, 0, payload))


async def test_a_client_pings_a_silent_server_sparingly(autojump_clock: Clock) -> None:
    """As grpcio's servers allow: every 300 s, and once after data."""
    server = SilentServer()
    async with trio.open_nursery() as nursery, Channel.over(server.connect) as channel:
        async with channel.call(ECHO) as call:
            nursery.start_soon(server.run)
            await trio.sleep(1000)
            assert len(server.times) == 3
            assert all(later - earlier >= 300 for earlier, later in zip(server.times, server.times[1:], strict=False))
            now = trio.current_time()
            await server.peer.send(frame(HEADERS, 4, 1, OK_HEADERS), frame(DATA, 0, 1, message(ANSWER)))
            assert (await call.receive()).tick_id == 3
            await trio.sleep(250)
            after_data = [time - now for time in server.times if time > now]
            assert len(after_data) == 1
            assert 20 <= after_data[0] <= 31
        count = len(server.times)
        await trio.sleep(10_000)  # no calls: no PINGs at all
        assert len(server.times) == count


@pytest.mark.parametrize(("seconds", "number"), [(60.0, 16), (250.0, 3), (0.0, 0)])
async def test_client_keepalive_seconds_are_the_configurations(
    seconds: float, number: int, autojump_clock: Clock
) -> None:
    """A silent server is PINGed so often while calls run, and never with 0."""
    server = SilentServer()
    config = RpcConfig(client_keepalive_seconds=seconds)
    async with trio.open_nursery() as nursery:
        async with Channel.over(server.connect, config=config) as channel, channel.call(ECHO):
            nursery.start_soon(server.run)
            await trio.sleep(1000)
            assert len(server.times) == number
            for earlier, later in itertools.pairwise([0.0, *server.times]):
                assert seconds <= later - earlier <= seconds + 11
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seconds", [0.5, 4.0])
async def test_an_interval_shorter_than_the_time_for_an_answer_holds(seconds: float, autojump_clock: Clock) -> None:
    """Of a client at a silent server, and of a server with a silent client; the next PING follows an answer."""
    server = SilentServer()
    config = RpcConfig(keepalive_seconds=seconds, client_keepalive_seconds=seconds, keepalive_timeout_seconds=10)
    async with trio.open_nursery() as nursery:
        async with Channel.over(server.connect, config=config) as channel, channel.call(ECHO):
            nursery.start_soon(server.run)
            await trio.sleep(100)
            assert 90 / seconds / 2 <= len(server.times) <= 100 / seconds
        served = Served(nursery, config)
        await served.start()
        peer = await served.peer()
        with trio.move_on_after(100):
            while True:
                before = len(pings(peer))
                await peer.pump()
                for payload in pings(peer)[before:]:
                    await peer.send(frame(PING, 1, 0, payload))
        assert 90 / seconds / 2 <= len(pings(peer)) <= 100 / seconds
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seconds", [60.0, 300.0])
async def test_after_client_keepalive_seconds_a_dead_server_is_given_up(seconds: float, autojump_clock: Clock) -> None:
    server = SilentServer()
    server.answering = False
    config = RpcConfig(client_keepalive_seconds=seconds, keepalive_timeout_seconds=5)
    async with (
        trio.open_nursery() as nursery,
        Channel.over(server.connect, config=config) as channel,
        channel.call(ECHO) as call,
    ):
        nursery.start_soon(server.run)
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert seconds + 5 <= trio.current_time() <= seconds + 16


async def test_a_client_gives_a_dead_server_up(autojump_clock: Clock) -> None:
    server = SilentServer()
    server.answering = False
    async with trio.open_nursery() as nursery, Channel.over(server.connect) as channel, channel.call(ECHO) as call:
        nursery.start_soon(server.run)
        await server.peer.send(frame(HEADERS, 4, 1, OK_HEADERS), frame(DATA, 0, 1, message(ANSWER)))
        assert (await call.receive()).tick_id == 3
        began = trio.current_time()
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert trio.current_time() - began <= 31
    assert server.peer.eof


# --- drain ---


async def test_drain_in_order(autojump_clock: Clock) -> None:
    """B13: GOAWAY, PING, GOAWAY(last), grace, cancel, close; what is on its way is served, what comes later refused."""
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        serving = await served.start()
        peer = await served.peer()
        await peer.send(peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        nursery.start_soon(serving.drain, 60.0)
        await peer.until(lambda: bool(pings(peer)))
        assert goaways(peer) == [(2**31 - 1, 0)]
        assert served.listener.closed
        await peer.send(peer.headers(3, request_headers()))  # it had not seen the GOAWAY
        assert await peer.echo(3, GOOD) == ANSWER
        await peer.send(frame(PING, 1, 0, b"another1"))
        await peer.send(frame(PING, 1, 0, pings(peer)[0]))
        await peer.until(lambda: len(goaways(peer)) == 2)
        assert goaways(peer)[1] == (3, 0)
        await peer.send(peer.headers(5, request_headers()))  # a client that does not listen
        assert (await peer.until_over(5)).reset == 7
        for stream in (1, 3):
            assert await peer.echo(stream, GOOD) == ANSWER
            assert served.ended is None
            await peer.send(frame(DATA, END_STREAM, stream))
            assert (await peer.until_over(stream)).status == 0
        await peer.until(lambda: False)
        assert {code for _, code in goaways(peer)} == {0}
        await serving._group.done.wait()
        assert trio.current_time() < 1


@pytest.mark.parametrize("answers", [True, False])
async def test_drain_cancels_after_the_grace(answers: bool, autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        serving = await served.start()
        peer = await served.peer()
        await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait")))
        await served.service.entered.wait()
        began = trio.current_time()
        nursery.start_soon(serving.drain, 5.0)
        await peer.until(lambda: bool(pings(peer)))
        if answers:
            await peer.send(frame(PING, 1, 0, pings(peer)[0]))
        assert (await peer.until_over(1)).status == StatusCode.UNAVAILABLE
        await served.service.cancelled.wait()
        await peer.until(lambda: False)
        await serving._group.done.wait()
        assert 5 <= trio.current_time() - began <= 6


async def test_the_default_grace_is_ten_seconds(autojump_clock: Clock) -> None:
    """`drain_grace_seconds`: calls run on for so long, then callers are told, and the server ends."""
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        serving = await served.start()
        peer = await served.peer()
        await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait")))
        await served.service.entered.wait()
        began = trio.current_time()
        nursery.start_soon(serving.drain)
        await peer.until(lambda: bool(pings(peer)))
        await peer.send(frame(PING, 1, 0, pings(peer)[0]))
        assert (await peer.until_over(1)).status == StatusCode.UNAVAILABLE
        assert trio.current_time() - began == pytest.approx(10, abs=0.1)
        await peer.until(lambda: False)
        await serving._group.done.wait()
        assert trio.current_time() - began == pytest.approx(10, abs=0.1)


async def test_drain_without_connections_ends_at_once(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        serving = await served.start()
        await serving.drain()
        assert served.ended == trio.current_time()


async def test_a_shorter_grace_counts_and_cancelling_the_wait_stops_nothing(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        served = Served(nursery)
        serving = await served.start()
        async with Channel.over(served.listener.connect) as channel, channel.call(WAIT) as call:
            await served.service.entered.wait()
            with trio.move_on_after(1) as scope:
                await serving.drain(1000)
            assert scope.cancelled_caught
            assert served.ended is None
            await serving.drain(10)
            assert trio.current_time() == pytest.approx(11, abs=1.1)
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is StatusCode.UNAVAILABLE


async def test_drain_over_sockets_loses_no_call() -> None:
    """Calls are made all the time; when one server drains, the next takes over, and no call fails."""
    done = 0
    async with trio.open_nursery() as nursery:
        services = [CheckService().service(), CheckService().service()]
        listeners = [await open_listeners("127.0.0.1") for _ in range(2)]
        servings: list[RunningServer] = [
            await nursery.start(serve, [service], listener)
            for service, listener in zip(services, listeners, strict=True)
        ]

        async def connect() -> trio.abc.Stream:
            for serving in servings:
                try:
                    return await trio.open_tcp_stream("127.0.0.1", serving.port)
                except OSError:
                    continue
            raise OSError("nobody listens")

        async with Channel.over(connect) as channel:
            over = trio.Event()

            async def call() -> None:
                nonlocal done
                while not over.is_set():
                    assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5
                    done += 1

            async with trio.open_nursery() as callers:
                for _ in range(8):
                    callers.start_soon(call)
                while done < 50:
                    await trio.lowlevel.checkpoint()
                await servings[0].drain(10)
                before = done
                while done < before + 50:
                    await trio.lowlevel.checkpoint()
                over.set()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("looks", [[], [1.0], [0.5, 3.0, 9.9]])
async def test_looking_again_meanwhile_changes_nothing_for_who_is_silent(
    looks: list[float], autojump_clock: Clock
) -> None:
    """Something else may be due earlier than the answer to a PING."""
    config = RpcConfig(keepalive_seconds=20, keepalive_timeout_seconds=10)
    async with trio.open_nursery() as nursery:
        served = Served(nursery, config)
        await served.start()
        peer = await served.peer()
        with trio.move_on_after(20.1):
            await peer.until(lambda: bool(pings(peer)))
        began = trio.current_time()
        (connection,) = served.serving._group._connections
        assert isinstance(connection, Connection)
        for seconds in looks:
            await trio.sleep_until(began + seconds)
            connection._liveness.look_soon()
        await peer.until(lambda: False)
        assert trio.current_time() == pytest.approx(began + 10)
        assert len(pings(peer)) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("keepalive", [3.0, 15.0])
async def test_after_data_a_client_pings_when_its_interval_has_passed_or_soon_after(
    keepalive: float, autojump_clock: Clock
) -> None:
    """Data does not wake whoever looks, so that this may be as late as ten seconds, or as another interval."""
    server = SilentServer()
    config = RpcConfig(keepalive_seconds=keepalive)
    async with (
        trio.open_nursery() as nursery,
        Channel.over(server.connect, config=config) as channel,
        channel.call(ECHO) as call,
    ):
        nursery.start_soon(server.run)
        await server.peer.send(frame(HEADERS, 4, 1, OK_HEADERS))
        for pause in (7.0, 8.5, 9.9):
            await trio.sleep(pause)
            await server.peer.send(frame(DATA, 0, 1, message(ANSWER)))
            assert (await call.receive()).tick_id == 3
            now = trio.current_time()
            await trio.sleep(keepalive + max(keepalive, 10) + 0.1)
            assert keepalive <= next(time for time in server.times if time > now) - now
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("on_their_way", "waiting", "came", "excuses"),
    [
        (16 * 1024, 0, 1024, True),
        (0, 16 * 1024, 1024, True),
        (10 * 1024, 6 * 1024, 1024, True),
        (10 * 1024, 6 * 1024 - 1, 1024, False),  # so little would have arrived
        (10 * 1024, 6 * 1024, 1023, False),  # and so little may be what the system had taken
        (10**6, 10**6, 0, False),
    ],
)
def test_what_excuses_a_peer_that_does_not_answer(on_their_way: int, waiting: int, came: int, excuses: bool) -> None:
    """16 KiB went before the PING, and a KiB of them has arrived since then; the next time more has to."""
    delivered = [(5000, on_their_way), (5000 + came, 0), (5000 + 2 * came, 0)]
    byte_stream = SimpleNamespace(delivered=lambda: delivered.pop(0))
    queue = _Queue(cast("Any", SimpleNamespace(byte_stream=byte_stream, engine=SimpleNamespace(out_size=waiting))))
    queue.note()
    assert queue.moves() is excuses
    assert queue.moves() is (excuses and waiting >= 16 * 1024)
