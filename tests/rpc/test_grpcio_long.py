"""Long-lived streams with a foreign peer: its GOAWAY in the middle, and ten minutes of silence."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import PING, PREFACE, RawPeer, encode, frame, message, request_headers, settings
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.rpc import Channel, ClientCall, open_listeners, serve, serve_stream
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, CheckService

IDLE_SECONDS = 600.0
#: What a grpcio server with default settings demands between PINGs without data, before it counts strikes.
LEAST_PING_GAP_SECONDS = 300.0
OK_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def echo_one(request: Action, context: grpc.ServicerContext) -> Observation:
    return Observation(tick_id=request.tick_id)


def echo(requests: Iterator[Action], context: grpc.ServicerContext) -> Iterator[Observation]:
    for request in requests:
        yield Observation(tick_id=request.tick_id)


@asynccontextmanager
async def grpcio_server(*options: tuple[str, int]) -> AsyncIterator[int]:
    handlers = {
        "EchoOne": grpc.unary_unary_rpc_method_handler(echo_one, Action.FromString, serialize),
        "Echo": grpc.stream_stream_rpc_method_handler(echo, Action.FromString, serialize),
    }
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, options=options)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("trio_cogment.testing.Check", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait(10)


class Counting:
    """Connects, and counts how often."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0

    async def connect(self) -> trio.abc.Stream:
        self.connections += 1
        return await trio.open_tcp_stream("127.0.0.1", self.port)


async def ping_pong(call: ClientCall, number: int) -> None:
    await call.send(Action(tick_id=number))
    assert (await call.receive()).tick_id == number


async def test_b5_goaway_by_connection_age_moves_new_calls_and_running_ones_finish() -> None:
    """`max_connection_age` of a grpcio server: running calls go on, new ones find a connection."""
    options = (("grpc.max_connection_age_ms", 300), ("grpc.max_connection_age_grace_ms", 60_000))
    with trio.fail_after(60):
        async with grpcio_server(*options) as port:
            counting = Counting(port)
            async with Channel.over(counting.connect) as channel, channel.call(ECHO) as call:
                number = 0
                while counting.connections < 4:
                    number += 1
                    await ping_pong(call, number)
                    assert (await channel.unary(ECHO_ONE, Action(tick_id=number))).tick_id == number
                await call.done_sending()
                assert await call.receive() is None


async def test_b5_a_stopping_grpcio_server_ends_calls_and_the_next_finds_the_new_one() -> None:
    with trio.fail_after(60):
        async with grpcio_server() as first:
            counting = Counting(first)
            async with Channel.over(counting.connect) as channel:
                async with channel.call(ECHO) as call:
                    await ping_pong(call, 1)
                async with grpcio_server() as second:
                    counting.port = second
                    assert (await channel.unary(ECHO_ONE, Action(tick_id=2))).tick_id == 2
                assert counting.connections == 1


# --- silence ---


async def answer_pings(peer: RawPeer, pings: list[float]) -> None:
    """Read until the end; note when PINGs came and answer them."""
    seen = 0
    while not peer.eof:
        await peer.pump()
        for kind, flags, _, payload in peer.frames[seen:]:
            if kind == PING and not flags:
                pings.append(trio.current_time())
                await peer.send(frame(PING, 1, 0, payload))
        seen = len(peer.frames)


async def test_idle_client_pings_a_server_no_oftener_than_grpcio_allows(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Our side of ten silent minutes, on a virtual clock."""
    ours, theirs = trio.testing.memory_stream_pair()
    peer = RawPeer(theirs)
    pings: list[float] = []

    async def connect() -> trio.abc.Stream:
        await peer.send(settings())
        return ours

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_pings, peer, pings)
        async with Channel.over(connect) as channel, channel.call(ECHO) as call:
            await call.send(Action(tick_id=1))
            await trio.testing.wait_all_tasks_blocked()
            reply = message(Observation(tick_id=1).SerializeToString())
            await peer.send(frame(1, 4, 1, encode(OK_HEADERS)), frame(0, 0, 1, reply))
            assert (await call.receive()).tick_id == 1
            await trio.sleep(IDLE_SECONDS)
            await peer.send(frame(0, 0, 1, reply))
            assert (await call.receive()).tick_id == 1
        assert peer.goaway in (None, 0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(pings)]
    assert all(gap >= LEAST_PING_GAP_SECONDS for gap in gaps), pings


async def test_idle_server_keeps_a_client_that_answers(autojump_clock: trio.testing.MockClock) -> None:
    """The other direction: a client that says nothing but the answers to PINGs, for ten minutes."""
    ours, theirs = trio.testing.memory_stream_pair()
    peer = RawPeer(ours)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_stream, [CheckService().service()], theirs)
        nursery.start_soon(answer_pings, peer, [])
        await peer.send(PREFACE, settings(), peer.headers(1, request_headers()))
        await trio.sleep(IDLE_SECONDS)
        assert not peer.eof
        await peer.send(frame(0, 0, 1, message(Action(tick_id=4).SerializeToString())))
        await trio.testing.wait_all_tasks_blocked()
        assert Observation.FromString(bytes(peer.answer(1).data[5:])).tick_id == 4
        nursery.cancel_scope.cancel()


async def idle_towards_grpcio(seconds: float) -> None:
    """Our client, a grpcio server with default settings."""
    async with grpcio_server() as port:
        counting = Counting(port)
        async with Channel.over(counting.connect) as channel, channel.call(ECHO) as call:
            await ping_pong(call, 1)
            await trio.sleep(seconds)
            await ping_pong(call, 2)
            assert (await channel.unary(ECHO_ONE, Action(tick_id=3))).tick_id == 3
            assert counting.connections == 1
            await call.done_sending()
            assert await call.receive() is None


async def idle_from_grpcio(seconds: float) -> None:
    """A grpcio client with default settings, our server."""
    go_on = threading.Event()

    def talk(port: int) -> None:
        requests: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            states: list[grpc.ChannelConnectivity] = []
            channel.subscribe(states.append)
            call = channel.stream_stream(ECHO.path, serialize, Observation.FromString)(iter(requests.get, None))
            for number in (1, 2):
                requests.put(Action(tick_id=number))
                assert next(call).tick_id == number
                if number == 1:
                    go_on.wait()
            requests.put(None)
            assert list(call) == []
            assert states.count(grpc.ChannelConnectivity.READY) == 1

    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [CheckService().service()], await open_listeners("127.0.0.1"))
        async with trio.open_nursery() as talking:
            talking.start_soon(trio.to_thread.run_sync, talk, serving.port)
            try:
                await trio.sleep(seconds)
            finally:
                go_on.set()
        nursery.cancel_scope.cancel()


async def test_an_idle_trial_stream_stays_with_grpcio_both_ways() -> None:
    """The test below, for a moment only."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(idle_towards_grpcio, 1)
            nursery.start_soon(idle_from_grpcio, 1)


@pytest.mark.soak
@pytest.mark.timeout(IDLE_SECONDS + 120)
async def test_ten_idle_minutes_on_a_trial_stream_with_grpcio_both_ways() -> None:
    """Default settings on all sides, in real time: nobody closes."""
    with trio.fail_after(IDLE_SECONDS + 60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(idle_towards_grpcio, IDLE_SECONDS)
            nursery.start_soon(idle_from_grpcio, IDLE_SECONDS)
