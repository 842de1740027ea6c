"""A channel's connections: backoff, waiting until ready, the server's stream limit. On a virtual clock."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import END_HEADERS, END_STREAM, HEADERS, RawPeer, encode, frame, settings
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, ClientCall, InProcessChannel, serve_stream
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, WAIT, CheckService

#: Nobody waits for a server that has never been reached.
AT_ONCE = RpcConfig(await_server_seconds=0)
FINISHED = encode([(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", b"0")])


class Server:
    """Serves memory streams; refuses connections while `down`.

    Attributes:
        attempts: the times at which somebody tried to connect.
        tried: set by an attempt.
        live: connections that are there.
    """

    def __init__(self, nursery: trio.Nursery, *, streams: int = 1000) -> None:
        self.service = CheckService()
        self.down = False
        self.attempts: list[float] = []
        self.tried = trio.Event()
        self.live: list[trio.CancelScope] = []
        self._nursery = nursery
        self._config = RpcConfig(max_concurrent_streams=streams)

    async def connect(self) -> trio.abc.Stream:
        self.attempts.append(trio.current_time())
        self.tried.set()
        await trio.sleep(0.001)
        if self.down:
            raise ConnectionRefusedError("nobody is there")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        with trio.CancelScope() as scope:
            self.live.append(scope)
            try:
                await serve_stream([self.service.service()], stream, config=self._config)
            finally:
                self.live.remove(scope)


@asynccontextmanager
async def server_and_channel(
    *, streams: int = 1000, config: RpcConfig | None = None, seed: int = 1
) -> AsyncIterator[tuple[Server, Channel]]:
    async with trio.open_nursery() as nursery:
        server = Server(nursery, streams=streams)
        async with Channel.over(server.connect, config=config, rng=random.Random(seed)) as channel:
            yield server, channel
        nursery.cancel_scope.cancel()


async def unavailable(channel: Channel, match: str, **options: Any) -> None:
    with pytest.raises(RpcError, match=match) as caught:
        await channel.unary(ECHO_ONE, Action(), **options)
    assert caught.value.code is StatusCode.UNAVAILABLE


async def check(channel: Channel, **options: Any) -> None:
    assert (await channel.unary(ECHO_ONE, Action(tick_id=5), **options)).tick_id == 5


@asynccontextmanager
async def open_calls(channel: Channel, number: int) -> AsyncIterator[list[ClientCall]]:
    """Open calls that run until the block is left."""
    async with trio.open_nursery() as nursery:
        calls: list[ClientCall] = []
        leave = trio.Event()

        async def run(task_status: trio.TaskStatus[None]) -> None:
            async with channel.call(ECHO) as call:
                calls.append(call)
                task_status.started()
                await leave.wait()

        for _ in range(number):
            await nursery.start(run)
        yield calls
        leave.set()


# --- backoff ---


@pytest.mark.parametrize(("initial", "longest"), [(0.5, 3.0), (2.0, 60.0), (7.0, 7.0)])
async def test_connect_backoff_seconds_are_the_configurations(
    initial: float, longest: float, autojump_clock: trio.testing.MockClock
) -> None:
    config = replace(AT_ONCE, connect_backoff_initial_seconds=initial, connect_backoff_max_seconds=longest)
    for seed in range(5):
        async with server_and_channel(config=config, seed=seed) as (server, channel):
            server.down = True
            with pytest.raises(RpcError):
                await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=500)
            gaps = [b - a for a, b in zip(server.attempts, server.attempts[1:], strict=False)]
            expected = initial
            for gap in gaps:
                assert 0.8 * expected <= gap <= 1.2 * expected + 0.01
                expected = min(expected * 1.6, longest)
            assert expected == longest
            # A connection that carries a call makes the next failure the first one again.
            server.down = False
            await check(channel, wait_for_ready=True)
            server.down = True
            server.live[0].cancel()
            await trio.testing.wait_all_tasks_blocked()
            server.attempts.clear()
            with pytest.raises(RpcError):
                await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=1.2 * initial + 0.1)
            first, second, *_ = server.attempts
            assert 0.8 * initial <= second - first <= 1.2 * initial + 0.01


async def test_a_call_that_no_task_waits_for_makes_the_next_failure_the_first_one_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with server_and_channel(config=AT_ONCE) as (server, channel):
        server.down = True
        with pytest.raises(RpcError):
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=300)
        assert server.attempts[-1] - server.attempts[-2] > 20
        server.down = False
        server.tried = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(channel.unary, ECHO_ONE, Action(), wait_for_ready=True))
            await server.tried.wait()
            nursery.cancel_scope.cancel()  # so that no call uses the connection
        await trio.sleep(1)
        replies: list[Any] = []
        assert channel.unary_nowait(ECHO_ONE, Action(), lambda reply, error: replies.append((reply, error))) is not None
        await trio.testing.wait_all_tasks_blocked()
        assert [error for _, error in replies] == [None]
        server.down = True
        server.live[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        server.attempts.clear()
        with pytest.raises(RpcError):
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=2)
        first, second, *_ = server.attempts
        assert 0.8 <= second - first <= 1.21


async def test_fast_calls_fail_at_once_with_the_last_error(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel(config=AT_ONCE) as (server, channel):
        server.down = True
        await unavailable(channel, "nobody is there")
        begin = trio.current_time()
        for _ in range(100):
            await unavailable(channel, "nobody is there")
        assert trio.current_time() == begin
        assert len(server.attempts) == 1
        server.down = False
        await trio.sleep(1.3)  # the next attempt is due
        await check(channel)
        assert len(server.attempts) == 2


async def test_attempts_follow_the_backoff_and_a_success_resets_it(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel(config=AT_ONCE) as (server, channel):
        server.down = True
        with pytest.raises(RpcError, match="while connecting: cannot connect to localhost: nobody is there") as caught:
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=300)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        gaps = [b - a for a, b in zip(server.attempts, server.attempts[1:], strict=False)]
        for gap, expected in zip(
            gaps, [1.0, 1.6, 2.56, 4.096, 6.5536, 10.48576, 16.777216, 26.84, 30, 30], strict=False
        ):
            assert 0.8 * expected <= gap <= 1.2 * expected + 0.01
        assert len(gaps) > 10
        assert max(gaps) <= 36.1
        server.down = False
        await check(channel, wait_for_ready=True)
        assert not channel.trouble
        server.down = True
        server.live[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        server.attempts.clear()
        await unavailable(channel, "nobody is there")  # tried at once after the loss
        with pytest.raises(RpcError):
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=2)
        first, second = server.attempts[:2]
        assert 0.8 <= second - first <= 1.21


# --- waiting for a server that has never been reached ---


async def test_the_first_calls_wait_for_a_server_that_listens_later(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel() as (server, channel), trio.open_nursery() as nursery:
        server.down = True
        for _ in range(5):
            nursery.start_soon(check, channel)
        await trio.sleep(7)
        server.down = False
        before = trio.current_time()
        await check(channel)
        assert trio.current_time() - before < 0.3
    gaps = [b - a for a, b in zip(server.attempts, server.attempts[1:], strict=False)]
    assert 0.24 < min(gaps) <= max(gaps) < 0.26  # often, whatever the backoff, and no more than that


async def test_that_a_server_is_waited_for_is_told_once(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with server_and_channel(config=RpcConfig(await_server_seconds=3)) as (server, channel):
        server.down = True
        await unavailable(channel, "nobody is there")
        assert len(server.attempts) > 5
    told = [record.getMessage() for record in caplog.records if "waiting for it" in record.getMessage()]
    assert told == ["cannot connect to localhost: nobody is there; waiting for it up to 3 s"]


async def test_the_first_calls_wait_no_longer_than_the_configuration_says(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with server_and_channel(config=RpcConfig(await_server_seconds=3)) as (server, channel):
        server.down = True
        begin = trio.current_time()
        await trio.sleep(50)  # counted from the first call
        for seconds in (3, 3, 3):  # all calls wait until the same moment; after it, none does
            await unavailable(channel, "cannot connect to localhost: nobody is there")
            assert trio.current_time() - begin == pytest.approx(50 + seconds, abs=0.01)
        # From now on the pauses are those of the backoff.
        server.attempts.clear()
        with pytest.raises(RpcError):
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=300)
        gaps = [b - a for a, b in zip(server.attempts, server.attempts[1:], strict=False)]
        assert max(gaps) > 20


async def test_a_server_that_was_reached_once_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel() as (server, channel):
        await check(channel)
        server.down = True
        server.live[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        await unavailable(channel, "nobody is there")
        assert trio.current_time() - before < 0.01


async def test_a_first_call_keeps_to_its_own_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel() as (server, channel):
        server.down = True
        with pytest.raises(RpcError, match="nobody is there") as caught:
            await channel.unary(ECHO_ONE, Action(), timeout=2)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(2)


async def test_what_listens_and_is_no_server_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    async def connect() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.aclose()
        return ours

    async with Channel.over(connect) as channel:
        await unavailable(channel, "cannot connect to localhost")
        assert trio.current_time() < 0.1


async def test_wait_for_ready_waits_through_the_backoff(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel() as (server, channel), trio.open_nursery() as nursery:
        server.down = True
        for _ in range(5):
            nursery.start_soon(lambda: check(channel, wait_for_ready=True))
        await trio.sleep(60)
        await unavailable(channel, "nobody is there")  # beside them, who does not wait is told
        server.down = False
    assert trio.current_time() < 60 + 36.1


async def test_wait_for_ready_ends_with_the_surrounding_scope(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel() as (server, channel):
        server.down = True
        with trio.move_on_after(5) as scope:
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True)
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(5)


async def test_wait_for_ready_ends_with_the_calls_own_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel() as (server, channel):
        server.down = True
        with pytest.raises(RpcError) as caught:
            async with channel.call(WAIT, wait_for_ready=True, timeout=5):
                raise AssertionError("there is nobody to be ready")
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(5)


async def test_wait_for_ready_does_not_outlive_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    """A call that has been made may have had its effect: it is not made again."""
    async with server_and_channel() as (server, channel), channel.call(WAIT, wait_for_ready=True) as call:
        await call.wait_initial_metadata()
        server.live[0].cancel()
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert len(server.attempts) == 1


async def test_wait_for_ready_means_nothing_in_process() -> None:
    async with InProcessChannel([CheckService().service()]) as channel:
        assert (await channel.unary(ECHO_ONE, Action(tick_id=5), wait_for_ready=True)).tick_id == 5
        async with channel.call(WAIT, wait_for_ready=True) as call:
            await call.wait_initial_metadata()


async def test_closing_the_channel_ends_who_waits(autojump_clock: trio.testing.MockClock) -> None:
    errors: list[RpcError] = []
    async with trio.open_nursery() as callers, server_and_channel() as (server, channel):
        server.down = True

        async def call() -> None:
            with pytest.raises(RpcError) as caught:
                await channel.unary(ECHO_ONE, Action(), wait_for_ready=True)
            errors.append(caught.value)

        callers.start_soon(call)
        await trio.sleep(10)
    assert [error.code for error in errors] == [StatusCode.UNAVAILABLE]


async def test_a_call_that_gives_up_does_not_end_the_attempt(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        server = Server(nursery)

        async def slow() -> trio.abc.Stream:
            await trio.sleep(3)
            return await server.connect()

        async with Channel.over(slow) as channel:
            with pytest.raises(RpcError) as caught:
                await channel.unary(ECHO_ONE, Action(), timeout=2)
            assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
            await check(channel, timeout=2)
            assert len(server.attempts) == 1
        nursery.cancel_scope.cancel()


async def test_who_connects_and_says_nothing_is_no_server(autojump_clock: trio.testing.MockClock) -> None:
    peers: list[trio.abc.Stream] = []

    async def connect() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        peers.append(theirs)
        return ours

    async with Channel.over(connect, config=RpcConfig(connect_timeout_seconds=4)) as channel:
        await unavailable(channel, "within 4 s")
        assert trio.current_time() == pytest.approx(4)
        peer = RawPeer(peers[0])
        await peer.until(lambda: False)
        assert peer.eof


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_who_is_no_server_is_not_called_in_a_tight_loop(
    answer: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    attempts = 0

    async def connect() -> trio.abc.Stream:
        nonlocal attempts
        attempts += 1
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.send_all(answer)
        await theirs.send_eof()
        return ours

    async with Channel.over(connect) as channel:
        await unavailable(channel, "cannot connect to localhost")
        with pytest.raises(RpcError):
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=60)
    assert attempts < 15


async def test_a_server_that_drops_connections_is_not_called_in_a_tight_loop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    attempts = 0

    async def connect() -> trio.abc.Stream:
        nonlocal attempts
        attempts += 1
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.send_all(settings() + frame(7, 0, 0, bytes(8)))
        await theirs.send_eof()
        return ours

    async with Channel.over(connect) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO_ONE, Action(), timeout=60)
        assert caught.value.code is StatusCode.UNAVAILABLE
        with pytest.raises(RpcError):
            await channel.unary(ECHO_ONE, Action(), wait_for_ready=True, timeout=60)
    assert attempts < 15


async def test_a_failing_connect_function_is_unavailable(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    async def connect() -> trio.abc.Stream:
        raise ValueError("secret")

    with caplog.at_level(logging.ERROR):
        async with Channel.over(connect) as channel:
            await unavailable(channel, "unexpected failure")
    assert "secret" in caplog.text


# --- the server's limit of calls ---


async def test_calls_spread_over_connections_at_the_peers_limit(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel(streams=2) as (server, channel):
        async with open_calls(channel, 5) as calls:
            assert len(server.live) == 3
            for number, call in enumerate(calls):
                await call.send(Action(tick_id=number))
            assert [(await call.receive()).tick_id for call in calls] == list(range(5))
        await trio.sleep(0.1)
        async with open_calls(channel, 5):
            assert len(server.live) == len(server.attempts) == 3  # the same ones


async def test_surplus_connections_retire_when_idle(autojump_clock: trio.testing.MockClock) -> None:
    config = RpcConfig(surplus_idle_seconds=10)
    async with server_and_channel(streams=2, config=config) as (server, channel):
        async with open_calls(channel, 6):
            await trio.sleep(100)
            assert len(server.live) == 3  # busy ones stay
        await trio.sleep(9)
        assert len(server.live) == 3
        await trio.sleep(2)
        assert len(server.live) == 1
        await check(channel)
        await trio.sleep(100)
        assert len(server.live) == 1  # the last one stays
        assert len(server.attempts) == 3


async def test_a_surplus_connection_in_use_again_stays(autojump_clock: trio.testing.MockClock) -> None:
    config = RpcConfig(surplus_idle_seconds=10)
    async with server_and_channel(streams=1, config=config) as (server, channel), open_calls(channel, 1):
        await check(channel)
        await trio.sleep(5)
        async with open_calls(channel, 1) as calls:
            await trio.sleep(20)
            await calls[0].send(Action(tick_id=1))
            assert (await calls[0].receive()).tick_id == 1
        await trio.sleep(11)
        assert len(server.live) == 1


async def test_a_storm_of_calls_gets_through(autojump_clock: trio.testing.MockClock) -> None:
    config = RpcConfig(max_channel_connections=4)
    async with server_and_channel(streams=5, config=config) as (server, channel):
        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(check, channel)
        assert len(server.attempts) <= 4


async def check_under(scope: trio.CancelScope, channel: Channel, done: list[int], number: int) -> None:
    with scope:
        await check(channel)
        done.append(number)


async def test_cancelled_waiters_leave_their_room_to_others(autojump_clock: trio.testing.MockClock) -> None:
    config = RpcConfig(max_channel_connections=1)
    for spoiled in range(6):
        async with server_and_channel(streams=1, config=config) as (_, channel):
            scopes = [trio.CancelScope() for _ in range(6)]
            done: list[int] = []
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery, open_calls(channel, 1) as calls:
                    for number in range(6):
                        nursery.start_soon(check_under, scopes[number], channel, done, number)
                    await trio.testing.wait_all_tasks_blocked()
                    calls[0].cancel()  # wakes one of them...
                    scopes[spoiled].cancel()  # ...and maybe this one
            assert sorted({*done, spoiled}) == list(range(6))


async def test_a_full_connection_is_no_reason_to_fail(autojump_clock: trio.testing.MockClock) -> None:
    """The second connection cannot be made: calls wait for room on the first, and use a second one when it can."""
    async with server_and_channel(streams=1) as (server, channel), trio.open_nursery() as nursery:
        async with open_calls(channel, 1):
            server.down = True
            nursery.start_soon(check, channel)
            await trio.sleep(5)
            assert len(server.attempts) > 2
        await trio.sleep(1)
        async with open_calls(channel, 1):
            second = trio.CancelScope()

            async def wait() -> None:
                async with channel.call(WAIT) as call:
                    with second:
                        await call.receive()

            nursery.start_soon(wait)
            await trio.sleep(5)
            assert len(server.live) == 1
            server.down = False
            await trio.sleep(60)
            assert len(server.live) == 2
            assert server.service.entered.is_set()
            second.cancel()


async def test_a_server_that_allows_no_calls_for_now(autojump_clock: trio.testing.MockClock) -> None:
    peers: list[RawPeer] = []

    async def connect() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        peers.append(RawPeer(theirs))
        await peers[-1].send(settings({3: 0}))
        return ours

    async with Channel.over(connect) as channel, trio.open_nursery() as nursery:
        entered: list[int] = []

        async def call(number: int) -> None:
            async with channel.call(ECHO) as call:
                entered.append(number)
                assert await call.receive() is None

        for number in range(3):
            nursery.start_soon(call, number)
        await trio.sleep(10)
        assert (len(peers), entered) == (1, [])
        await peers[0].send(settings({3: 3}))
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(entered) == [0, 1, 2]
        for stream in (1, 3, 5):
            await peers[0].send(frame(HEADERS, END_HEADERS | END_STREAM, stream, FINISHED))


async def test_a_lost_connection_ends_its_own_calls_only(autojump_clock: trio.testing.MockClock) -> None:
    async with server_and_channel(streams=1) as (server, channel), open_calls(channel, 2) as calls:
        server.live[0].cancel()
        with pytest.raises(RpcError) as caught:
            await calls[0].receive()
        assert caught.value.code is StatusCode.UNAVAILABLE
        await calls[1].send(Action(tick_id=1))
        assert (await calls[1].receive()).tick_id == 1


async def test_b5_a_dead_server_ends_every_pending_call(autojump_clock: trio.testing.MockClock) -> None:
    """Whatever a call waits for: its answer, its headers, room to send, or the connection."""
    codes: list[StatusCode] = []
    async with server_and_channel() as (server, channel), trio.open_nursery() as nursery:

        async def run(what: Callable[[ClientCall], Any]) -> None:
            async with channel.call(WAIT) as call:
                try:
                    while True:
                        await what(call)
                except RpcError as error:
                    codes.append(error.code)

        waits: list[Callable[[ClientCall], Any]] = [
            lambda call: call.receive(),
            lambda call: call.send(Action(content=bytes(100_000))),
        ]
        for what in waits * 20:
            nursery.start_soon(run, what)
        await trio.sleep(1)
        server.live[0].cancel()
    assert codes == [StatusCode.UNAVAILABLE] * 40


@pytest.mark.parametrize("seed", range(12))
async def test_any_mixture_of_calls_cancellations_and_losses_ends(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Every call ends with one status, nobody waits indefinitely, and in the end all is as at the beginning."""
    chance = random.Random(seed)
    config = RpcConfig(max_channel_connections=chance.randint(1, 4), surplus_idle_seconds=chance.choice([0.5, 5.0]))
    ends: dict[str, int] = {}

    async def one(channel: Channel) -> None:
        await trio.sleep(chance.uniform(0, 20))
        wait = chance.random() < 0.5
        method, hold = chance.choice([(ECHO_ONE, False), (ECHO, True)])
        end = "cancelled"
        with trio.move_on_after(chance.choice([0.01, 3.0, 1000.0])):
            try:
                async with channel.call(method, timeout=chance.choice([None, 2.0, 500.0]), wait_for_ready=wait) as call:
                    await call.send(Action(tick_id=1))
                    if hold:
                        await trio.sleep(chance.uniform(0, 3))
                    await call.done_sending()
                    assert (await call.receive()).tick_id == 1
                    end = "answered"
            except RpcError as error:
                end = error.code.name
        ends[end] = ends.get(end, 0) + 1

    async with server_and_channel(streams=chance.randint(1, 5), config=config, seed=seed) as (server, channel):
        with trio.fail_after(3000):
            async with trio.open_nursery() as nursery:
                for _ in range(150):
                    nursery.start_soon(one, channel)
                for _ in range(8):
                    await trio.sleep(chance.uniform(0, 4))
                    server.down = chance.random() < 0.4
                    if server.live and chance.random() < 0.6:
                        chance.choice(server.live).cancel()
                server.down = False
        assert sum(ends.values()) == 150
        assert ends.keys() <= {"answered", "cancelled", "UNAVAILABLE", "DEADLINE_EXCEEDED"}
        assert ends["answered"] > 0
        await check(channel, wait_for_ready=True)
        await trio.sleep(60)
        assert len(server.live) <= 1


@pytest.mark.parametrize("wait_for_ready", [False, True])
async def test_a_call_in_a_shield_while_the_channel_is_cancelled(
    wait_for_ready: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """It ends; it used to dial indefinitely, in no time."""
    async with trio.open_nursery() as nursery:
        server = Server(nursery)
        with trio.CancelScope() as scope:
            async with Channel.over(server.connect, rng=random.Random(1)) as channel:
                scope.cancel()
                with trio.CancelScope(shield=True), pytest.raises(RpcError) as caught:
                    await channel.unary(ECHO_ONE, Action(), wait_for_ready=wait_for_ready)
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert caught.value.message == "the channel is not open"
        assert len(server.attempts) == 1
        nursery.cancel_scope.cancel()


async def test_the_task_of_a_connection_is_named_after_where_it_leads(autojump_clock: trio.testing.MockClock) -> None:
    """As a list of all tasks shows it."""
    async with server_and_channel() as (_, channel):
        await check(channel)
        assert "connection to localhost" in [task.name for task in all_tasks()]


def all_tasks() -> list[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found = [root]
    for task in found:
        found += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


async def test_a_call_that_waits_for_room_does_not_wait_for_a_dead_peers_farewell(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The writer may still be trying: the room is free as soon as the connection is given up."""
    config = RpcConfig(max_channel_connections=1, client_keepalive_seconds=60, farewell_timeout_seconds=7)
    connected: list[float] = []

    async def stuck(*_: object) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            connected.append(trio.current_time())
            ours, theirs = trio.testing.memory_stream_pair()
            if len(connected) == 1:
                await RawPeer(theirs).send(settings({3: 1}))
                first.append(ours)
            else:
                nursery.start_soon(serve_stream, [CheckService().service()], theirs)
            return ours

        first: list[Any] = []
        async with Channel.over(connect, config=config) as channel:
            async with channel.call(ECHO) as call:
                await trio.testing.wait_all_tasks_blocked()
                first[0].send_stream.send_all_hook = stuck
                nursery.start_soon(check, channel)
                with pytest.raises(RpcError, match="does not answer"):
                    await call.receive()
                given_up = trio.current_time()
                await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert connected[1:] == [given_up]


async def test_a_connection_that_has_used_up_its_numbers_is_replaced_while_its_calls_go_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It takes no call any more, and so is none of as many as there may be."""
    config = RpcConfig(max_channel_connections=1)
    async with server_and_channel(config=config) as (server, channel), open_calls(channel, 1) as calls:
        (connection,) = channel._pool._connections
        connection.engine.table._next = 2**31 - 1  # one is left
        async with open_calls(channel, 1):
            assert (channel.connections_made, len(server.live)) == (1, 1)
            await check(channel)
            assert (channel.connections_made, len(server.live)) == (2, 2)
        await calls[0].send(Action(tick_id=3))
        assert (await calls[0].receive()).tick_id == 3


async def test_nor_for_that_of_a_server_which_has_gone_and_never_allowed_a_call(
    autojump_clock: trio.testing.MockClock,
) -> None:
    connected: list[float] = []

    async def stuck(*_: object) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        first: list[tuple[Any, Any]] = []

        async def connect() -> trio.abc.Stream:
            connected.append(trio.current_time())
            ours, theirs = trio.testing.memory_stream_pair()
            if len(connected) == 1:
                await RawPeer(theirs).send(settings({3: 0}))
                first.append((ours, theirs))
            else:
                nursery.start_soon(serve_stream, [CheckService().service()], theirs)
            return ours

        async with Channel.over(connect, config=RpcConfig(farewell_timeout_seconds=7)) as channel:
            nursery.start_soon(check, channel)
            await trio.sleep(5)
            ours, theirs = first[0]
            ours.send_stream.send_all_hook = stuck
            await theirs.send_eof()
            gone = trio.current_time()
            await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert connected[1:] == [gone]


async def test_of_a_server_that_has_not_answered_yet_no_trouble_is_told(autojump_clock: trio.testing.MockClock) -> None:
    async def connect() -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError("it never connects")

    async with Channel.over(connect) as channel:
        assert channel.trouble == ""
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO_ONE, Action(), timeout=1)
        assert (caught.value.code, caught.value.message) == (
            StatusCode.DEADLINE_EXCEEDED,
            "the deadline passed while connecting",
        )
