"""Calls that their server has not looked at are made again: REFUSED_STREAM, streams above a GOAWAY's last one."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    RST,
    RawPeer,
    encode,
    frame,
    message,
    settings,
)
from tests.rpc.test_calls import SENDERS, sent
from tests.rpc.test_liveness import Served
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, ClientCall, RunningServer, open_listeners, serve
from trio_cogment.testing import World, simulate
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, SUM, WAIT, CheckService

OK_HEADERS = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
OK_TRAILERS = encode([(b"grpc-status", b"0")])
REFUSED = (7).to_bytes(4, "big")


def echo(body: bytes) -> bytes:
    """Return an observation for each action; an empty one where they are compressed."""
    replies = []
    while body:
        flag, length = body[0], int.from_bytes(body[1:5], "big")
        action = Action() if flag else Action.FromString(body[5 : 5 + length])
        replies.append(message(Observation(tick_id=action.tick_id).SerializeToString()))
        body = body[5 + length :]
    return b"".join(replies)


class Server:
    """Answers each stream in the way that `script` says, in the order in which they come; then with an echo.

    Attributes:
        requests: what has come on each stream that was over: connection, headers by name, messages.
    """

    def __init__(self, nursery: trio.Nursery, *script: str) -> None:
        self._nursery = nursery
        self._script = list(script)
        self.connections = 0
        self.down = False
        self.streams: list[tuple[int, int]] = []
        self.requests: list[tuple[dict[bytes, bytes], bytes]] = []

    async def connect(self) -> trio.abc.Stream:
        if self.down:
            raise OSError("nobody is there")
        ours, theirs = trio.testing.memory_stream_pair()
        self.connections += 1
        self._nursery.start_soon(self._run, RawPeer(theirs), self.connections)
        return ours

    async def _run(self, peer: RawPeer, number: int) -> None:
        try:
            await peer.send(settings())
            done: set[int] = set()
            while not peer.eof:
                await peer.pump()
                for stream, answer in list(peer.answers.items()):
                    if stream and answer.headers and stream not in done:
                        if not answer.ended and not (self._script and self._script[0].endswith("at once")):
                            continue
                        done.add(stream)
                        self.streams.append((number, stream))
                        self.requests.append((dict(answer.headers[0]), bytes(answer.data)))
                        await self._answer(peer, stream, bytes(answer.data))
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(peer.stream)

    async def _answer(self, peer: RawPeer, stream: int, body: bytes) -> None:
        what = self._script.pop(0) if self._script else "echo"
        if what.startswith("refuse"):
            await peer.send(frame(RST, 0, stream, REFUSED))
        elif what.startswith("goaway"):
            await peer.send(frame(GOAWAY, 0, 0, bytes(8)))
        elif what == "headers, refuse":
            await peer.send(frame(HEADERS, END_HEADERS, stream, OK_HEADERS), frame(RST, 0, stream, REFUSED))
        elif what == "vanish":
            self.down = True
            await peer.send(frame(GOAWAY, 0, 0, bytes(8)))
        elif what == "silence":
            pass
        else:
            await peer.send(
                frame(HEADERS, END_HEADERS, stream, OK_HEADERS),
                frame(DATA, 0, stream, echo(body)),
                frame(HEADERS, END_HEADERS | END_STREAM, stream, OK_TRAILERS),
            )


@asynccontextmanager
async def scripted(*script: str, config: RpcConfig | None = None) -> AsyncIterator[tuple[Server, Channel]]:
    async with trio.open_nursery() as nursery:
        server = Server(nursery, *script)
        async with Channel.over(server.connect, config=config) as channel:
            yield server, channel
        nursery.cancel_scope.cancel()


REQUEST = Action(tick_id=5, content=b"x" * 100)


@pytest.mark.parametrize("how", ["refuse", "goaway", "refuse at once", "goaway at once"])
async def test_an_unprocessed_unary_call_is_made_again(how: str, autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(how) as (server, channel):
        reply = await channel.unary(ECHO_ONE, REQUEST, metadata={"x-a": "1"}, timeout=9)
        assert reply.tick_id == 5
        assert server.streams == ([(1, 1), (2, 1)] if how.startswith("goaway") else [(1, 1), (1, 3)])
        (first, _), (second, body) = server.requests
        assert first == second  # the deadline as well: no time has passed
        assert first[b"x-a"] == b"1"
        assert body == message(REQUEST.SerializeToString())


@pytest.mark.parametrize("how", ["refuse", "goaway"])
async def test_it_is_made_again_once(how: str, autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(how, how) as (server, channel):
        with pytest.raises(RpcError, match="refused the stream") as caught:
            await channel.unary(ECHO_ONE, REQUEST)
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert len(server.streams) == 2


async def test_not_after_the_server_has_looked_at_it(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted("headers, refuse") as (server, channel):
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO_ONE, REQUEST)
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert len(server.streams) == 1


async def test_compressed_messages_are_sent_again_as_they_were(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted("refuse") as (server, channel):
        await channel.unary(ECHO_ONE, Action(content=bytes(1000)), compression="gzip", timeout=None)
        (first, first_body), (second, second_body) = server.requests
        assert (first, first_body) == (second, second_body)
        assert first_body[0] == 1


@pytest.mark.parametrize("how", ["refuse", "goaway"])
async def test_a_stream_goes_on_with_all_it_has_sent(how: str, autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(f"{how} at once") as (server, channel), channel.call(ECHO) as call:
        await call.send(Action(tick_id=1))
        await trio.testing.wait_all_tasks_blocked()
        await call.send(Action(tick_id=2))
        call.send_nowait(Action(tick_id=3))
        await call.done_sending()
        assert [reply.tick_id async for reply in call] == [1, 2, 3]
        assert len(server.streams) == 2


@pytest.mark.parametrize("how", ["refuse", "goaway"])
@pytest.mark.parametrize("way", SENDERS)
async def test_it_is_sent_again_however_it_was_sent(how: str, way: str, autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(how) as (server, channel), channel.call(ECHO) as call:
        for tick in range(3):
            await sent(way, call, Action(tick_id=tick))
        await call.done_sending()
        times = 2 if "together" in way else 1
        assert [reply.tick_id async for reply in call] == [tick for tick in range(3) for _ in range(times)]
        (_, first), (_, second) = server.requests
        assert first == second


@asynccontextmanager
async def connecting_again(most_messages: int) -> AsyncIterator[ClientCall]:
    """Give a call that has been refused, at a channel that takes five seconds to connect again."""
    async with trio.open_nursery() as nursery:
        server = Server(nursery, "goaway at once")

        async def slowly() -> trio.abc.Stream:
            if server.connections:
                await trio.sleep(5)
            return await server.connect()

        config = RpcConfig(call_outbox_messages=most_messages)
        async with Channel.over(slowly, config=config) as slow, slow.call(SUM) as call:
            while not server.streams:
                await trio.testing.wait_all_tasks_blocked()
            yield call
        nursery.cancel_scope.cancel()


async def test_what_is_sent_in_between_is_bounded_and_not_lost(autojump_clock: trio.testing.MockClock) -> None:
    """While the channel connects again, a call takes an outbox full of messages; then `send` waits."""
    async with connecting_again(most_messages=3) as call:
        sent = 0
        try:
            while sent < 100:
                call.send_nowait(Action(tick_id=1))
                sent += 1
        except trio.WouldBlock:
            pass
        assert sent == 3
        began = trio.current_time()
        await call.send(Action(tick_id=1))
        assert trio.current_time() - began == pytest.approx(5)
        await call.done_sending()
        assert [reply.tick_id async for reply in call] == [1] * 4


async def test_messages_that_belong_together_count_as_one_of_those_in_between(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As they do elsewhere: those that fit as one are all kept, and sent when there is a stream again."""
    async with connecting_again(most_messages=4) as call:
        for tick in range(3):
            call.send_nowait(Action(tick_id=tick))
        call.send_together_nowait([Action(tick_id=3), Action(tick_id=4)])
        with pytest.raises(trio.WouldBlock):
            call.send_nowait(Action(tick_id=5))
        await call.send(Action(tick_id=5))
        await call.done_sending()
        assert [reply.tick_id async for reply in call] == list(range(6))


@pytest.mark.parametrize(
    ("config", "number"),
    [
        (RpcConfig(call_outbox_messages=3), 4),
        (RpcConfig(call_outbox_bytes=1000), 3),
        (RpcConfig(call_outbox_bytes=2**31 - 1, connection_memory_bytes=2**16), 200),
    ],
)
async def test_who_has_sent_too_much_to_keep_is_told(
    config: RpcConfig, number: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted("goaway", config=config) as (server, channel):
        for _ in range(2):
            with pytest.raises(RpcError) as caught:
                await stream(channel, number)
            assert caught.value.code is StatusCode.UNAVAILABLE
            server._script = ["goaway"]
        server._script = ["goaway"]
        assert channel.sent_budget.left == config.connection_memory_bytes
        assert (await channel.unary(ECHO_ONE, REQUEST)).tick_id == 5


async def stream(channel: Channel, number: int) -> None:
    async with channel.call(SUM) as call:
        for _ in range(number):
            await call.send(Action(content=bytes(400)))
        await call.done_sending()
        await call.receive()


async def test_within_the_callers_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted("vanish", "vanish", "vanish") as (server, channel):
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO_ONE, REQUEST, timeout=7, wait_for_ready=True)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(7)
        server.down = False
        await trio.sleep(20)
        with trio.move_on_after(3) as scope:
            await channel.unary(ECHO_ONE, REQUEST, wait_for_ready=True)
        assert scope.cancelled_caught
        server.down = False
        await trio.sleep(20)
        with pytest.raises(RpcError, match="nobody is there") as caught:
            await channel.unary(ECHO_ONE, REQUEST)
        assert caught.value.code is StatusCode.UNAVAILABLE
        server.down = False
        await trio.sleep(20)
        assert (await channel.unary(ECHO_ONE, REQUEST)).tick_id == 5
        assert channel.sent_budget.left == RpcConfig().connection_memory_bytes


async def test_the_second_attempt_has_the_deadline_too(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted("goaway", "silence") as (server, channel):
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO_ONE, REQUEST, timeout=7)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(7)
        assert len(server.streams) == 2


@pytest.mark.parametrize("leave", ["cancel", "exit", "channel"])
async def test_leaving_in_between(leave: str, autojump_clock: trio.testing.MockClock) -> None:
    codes: list[StatusCode] = []
    async with trio.open_nursery() as nursery:
        server = Server(nursery, "vanish")
        async with Channel.over(server.connect) as channel:
            gone = trio.Event()

            async def run() -> None:
                try:
                    async with channel.call(ECHO, wait_for_ready=True) as call:
                        await call.done_sending()
                        if leave == "exit":
                            await gone.wait()
                            return
                        await call.receive()
                except RpcError as error:
                    codes.append(error.code)

            nursery.start_soon(run)
            if leave == "cancel":
                await trio.sleep(3)
                nursery.cancel_scope.cancel()
            await trio.sleep(3)
            gone.set()
            await trio.testing.wait_all_tasks_blocked()
            assert channel.sent_budget.left == RpcConfig().connection_memory_bytes
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert codes == ([StatusCode.UNAVAILABLE] if leave == "channel" else [])


# --- our own server ---


async def test_a_drain_amid_a_burst_of_calls_fails_none() -> None:
    """Servers take turns on one name; each is drained while calls come as fast as they can."""
    done = 0
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serving: list[RunningServer] = []

            async def start() -> None:
                services = [CheckService().service()]
                serving.append(await nursery.start(serve, services, await open_listeners("127.0.0.1")))

            async def connect() -> trio.abc.Stream:
                return await trio.open_tcp_stream("127.0.0.1", serving[-1].port)

            async def call_and_call() -> None:
                nonlocal done
                while not over.is_set():
                    assert (await channel.unary(ECHO_ONE, REQUEST)).tick_id == 5
                    done += 1

            over = trio.Event()
            await start()
            async with Channel.over(connect) as channel, trio.open_nursery() as callers:
                for _ in range(30):
                    callers.start_soon(call_and_call)
                for _ in range(5):
                    before = done
                    while done < before + 100:
                        await trio.lowlevel.checkpoint()
                    last = serving[-1]
                    await start()
                    await last.drain()
                over.set()
            nursery.cancel_scope.cancel()
    assert done > 500


async def test_a_client_that_hears_late_of_a_drain_loses_no_call(autojump_clock: trio.testing.MockClock) -> None:
    """The server refuses what comes after its patience for the answer to its PING, and names the last call it serves.

    What it sends takes two seconds, so calls go on their way until then, and are refused.
    """
    config = RpcConfig(keepalive_timeout_seconds=0.5)
    done = 0
    async with trio.open_nursery() as nursery:
        first, second = Served(nursery, config), Served(nursery, config)
        for served in (first, second):
            await served.start()

        async def connect() -> trio.abc.Stream:
            if first.listener.closed:
                return await second.listener.connect()
            near, inner = trio.testing.memory_stream_pair()
            far = await first.listener.connect()
            nursery.start_soon(pass_on, inner, far, 0.0)
            nursery.start_soon(pass_on, far, inner, 2.0)
            return near

        async def call(number: int) -> None:
            nonlocal done
            await trio.sleep(number / 10)
            assert (await channel.unary(ECHO_ONE, REQUEST)).tick_id == 5
            done += 1

        async with Channel.over(connect) as channel, trio.open_nursery() as callers:
            for number in range(100):
                callers.start_soon(call, number)
            await trio.sleep(5)
            await first.serving.drain()
        nursery.cancel_scope.cancel()
    assert done == 100


async def pass_on(source: trio.abc.ReceiveStream, target: trio.abc.SendStream, seconds: float) -> None:
    """Bring what comes from one to the other, each piece so much later."""
    sender, receiver = trio.open_memory_channel[tuple[float, bytes]](math.inf)

    async def deliver() -> None:
        async for due, data in receiver:
            await trio.sleep_until(due)
            try:
                await target.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # whoever has gone needs it no more
        await trio.aclose_forcefully(target)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deliver)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                sender.send_nowait((trio.current_time() + seconds, bytes(data)))
        sender.close()


async def _two_connections_gone(world: World) -> str:
    """Two connections with a call each, given up by the server during a partition; then one more call."""
    network, outcome = world.network, ""
    config = RpcConfig(max_concurrent_streams=2)

    async def wait(seconds: float) -> None:
        with suppress(RpcError), trio.move_on_after(seconds):
            async with channel.call(WAIT) as call:
                await call.receive()

    async with trio.open_nursery() as nursery:
        serving = partial(serve, [CheckService().service()], [network.host("there").listen(1)], config=config)
        await nursery.start(serving)
        async with network.host("here").channel("there", 1) as channel, trio.open_nursery() as waiting:
            for seconds in (100, 3) * 6:
                waiting.start_soon(wait, seconds)
            await trio.sleep(5)
            network.partition(["here"])
            await trio.sleep(40)
            network.heal()
            try:
                await channel.unary(ECHO_ONE, REQUEST)
            except RpcError as error:
                outcome = str(error)
            waiting.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    return outcome


def test_connections_that_went_together_count_as_one() -> None:
    """Each GOAWAY arrives when its connection is tried: the second one must not use up the only repetition."""
    assert {simulate(seed, _two_connections_gone).value for seed in range(40)} == {""}
