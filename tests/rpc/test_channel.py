"""The client against servers that refuse, vanish, or answer strangely."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.noted_sends import noted_sends
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
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, WAIT, CheckService

OK_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]
ANSWER = message(Observation(tick_id=1).SerializeToString())


class RawServer:
    """Hands a raw peer to the test for each connection the channel makes."""

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[RawPeer](10)
        self.settings: dict[int, int] = {}

    async def connect(self) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        peer = RawPeer(theirs)
        await peer.send(settings(self.settings))
        await self.send.send(peer)
        return ours


#: frames after the request's headers, expected status
ENDINGS: list[tuple[str, list[tuple[int, int, bytes]], StatusCode]] = [
    ("http 404", [(HEADERS, 5, encode([(b":status", b"404")]))], StatusCode.UNIMPLEMENTED),
    ("http 503 with body", [(HEADERS, 4, encode([(b":status", b"503")])), (DATA, 1, b"x")], StatusCode.UNAVAILABLE),
    ("http 418", [(HEADERS, 5, encode([(b":status", b"418")]))], StatusCode.UNKNOWN),
    ("html", [(HEADERS, 5, encode([(b":status", b"200"), (b"content-type", b"text/html")]))], StatusCode.UNKNOWN),
    ("no grpc-status", [(HEADERS, 4, encode(OK_HEADERS)), (DATA, 1, b"")], StatusCode.UNKNOWN),
    ("empty trailers", [(HEADERS, 4, encode(OK_HEADERS)), (HEADERS, 5, encode([(b"x", b"1")]))], StatusCode.UNKNOWN),
    ("strange status", [(HEADERS, 5, encode([*OK_HEADERS, (b"grpc-status", b"99")]))], StatusCode.UNKNOWN),
    ("trailers-only", [(HEADERS, 5, encode([*OK_HEADERS, (b"grpc-status", b"5")]))], StatusCode.NOT_FOUND),
    ("cancelled", [(RST, 0, b"\0\0\0\x08")], StatusCode.CANCELLED),
    ("calm", [(RST, 0, b"\0\0\0\x0b")], StatusCode.RESOURCE_EXHAUSTED),
    ("security", [(RST, 0, b"\0\0\0\x0c")], StatusCode.PERMISSION_DENIED),
    ("protocol", [(RST, 0, b"\0\0\0\1")], StatusCode.INTERNAL),
    ("undecodable", [(HEADERS, 4, encode(OK_HEADERS)), (DATA, 0, message(b"\xff\xff"))], StatusCode.INTERNAL),
    ("too large", [(HEADERS, 4, encode(OK_HEADERS)), (DATA, 0, b"\0\x7f\0\0\0")], StatusCode.RESOURCE_EXHAUSTED),
    ("compressed", [(HEADERS, 4, encode(OK_HEADERS)), (DATA, 0, message(b"", 1))], StatusCode.INTERNAL),
    (
        "cut off",
        [(HEADERS, 4, encode(OK_HEADERS)), (DATA, 0, ANSWER[:-1]), (HEADERS, 5, encode([(b"grpc-status", b"0")]))],
        StatusCode.INTERNAL,
    ),
    (
        "trailers without end",
        [(HEADERS, 4, encode(OK_HEADERS)), (HEADERS, 4, encode([(b"grpc-status", b"0")]))],
        StatusCode.INTERNAL,
    ),
    ("data first", [(DATA, 0, ANSWER)], StatusCode.INTERNAL),
    ("connection error", [(DATA, 0xFF, b"")], StatusCode.UNAVAILABLE),
    (
        "bad metadata",
        [(HEADERS, 4, encode([*OK_HEADERS, (b"x-bin", b"!")])), (HEADERS, 5, encode([(b"grpc-status", b"0")]))],
        StatusCode.INTERNAL,
    ),
]


@pytest.mark.parametrize(("frames", "code"), [e[1:] for e in ENDINGS], ids=[e[0] for e in ENDINGS])
async def test_strange_endings(frames: list[tuple[int, int, bytes]], code: StatusCode) -> None:
    server = RawServer()
    with trio.fail_after(30):
        async with Channel.over(server.connect) as channel, channel.call(ECHO) as call:
            peer = await server.receive.receive()
            await peer.until(lambda: 1 in peer.answers)
            await peer.send(*(frame(kind, flags, 1, payload) for kind, flags, payload in frames))
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is code
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is code


async def test_informational_headers_are_skipped() -> None:
    server = RawServer()
    async with Channel.over(server.connect) as channel, channel.call(ECHO) as call:
        peer = await server.receive.receive()
        await peer.send(
            frame(HEADERS, END_HEADERS, 1, encode([(b":status", b"103")])),
            frame(HEADERS, END_HEADERS, 1, encode(OK_HEADERS)),
            frame(DATA, 0, 1, ANSWER),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, encode([(b"grpc-status", b"0"), (b"grpc-message", b"%41")])),
        )
        assert (await call.receive()).tick_id == 1
        assert await call.receive() is None
        await peer.until_over(1)


async def test_leaving_sends_cancel() -> None:
    server = RawServer()
    async with Channel.over(server.connect) as channel:
        async with channel.call(ECHO):
            peer = await server.receive.receive()
        assert (await peer.until_over(1)).reset == 8


async def test_refused_connection_is_unavailable() -> None:
    listeners = await open_listeners("127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    async with Channel("127.0.0.1", port, config=RpcConfig(await_server_seconds=0)) as channel:
        with pytest.raises(RpcError, match="cannot connect") as caught:
            await channel.unary(ECHO_ONE, Action())
        assert caught.value.code is StatusCode.UNAVAILABLE


async def test_connecting_has_the_calls_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async def connect() -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    async with Channel.over(connect) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO_ONE, Action(), timeout=3)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        with pytest.raises(RpcError, match="within 20 s") as caught:
            await channel.unary(ECHO_ONE, Action())
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert trio.current_time() == pytest.approx(20)  # the attempt outlives the call that asked for it


async def test_timeout_of_a_silent_server(autojump_clock: trio.testing.MockClock) -> None:
    server = RawServer()
    async with Channel.over(server.connect) as channel:
        async with channel.call(ECHO, timeout=7) as call:
            peer = await server.receive.receive()
            with pytest.raises(RpcError) as caught:
                await call.receive()
            assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
            assert trio.current_time() == pytest.approx(7)
            answer = await peer.until_over(1)
            assert answer.reset == 8
            assert answer.field(b"grpc-timeout") == b"7000000u"
        with trio.move_on_after(2) as scope:
            async with channel.call(ECHO, timeout=100) as call:
                await call.receive()
        assert scope.cancelled_caught
        assert (await peer.until_over(3)).field(b"grpc-timeout") == b"2000000u"


async def test_loss_fails_calls_and_the_next_call_connects_anew() -> None:
    server = RawServer()
    async with Channel.over(server.connect) as channel:
        async with channel.call(ECHO) as first, channel.call(ECHO) as second:
            peer = await server.receive.receive()
            await peer.stream.aclose()
            for call in (first, second):
                with pytest.raises(RpcError) as caught:
                    await call.receive()
                assert caught.value.code is StatusCode.UNAVAILABLE
                with pytest.raises(RpcError):
                    await call.send(Action())
        async with channel.call(ECHO):
            again = await server.receive.receive()
            assert again is not peer


async def test_goaway_moves_new_calls_to_a_new_connection() -> None:
    server = RawServer()
    async with Channel.over(server.connect) as channel, channel.call(ECHO) as first:
        old = await server.receive.receive()
        await old.until(lambda: 1 in old.answers)
        await old.send(frame(GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4)), frame(HEADERS, 4, 1, encode(OK_HEADERS)))
        await first.wait_initial_metadata()
        async with channel.call(ECHO):
            new = await server.receive.receive()
            assert new is not old
            await old.send(frame(DATA, 0, 1, ANSWER))
            assert (await first.receive()).tick_id == 1
        await old.send(frame(HEADERS, 5, 1, encode([(b"grpc-status", b"0")])))
        assert await first.receive() is None
        await old.until(lambda: False)  # nothing is left on the old connection: the channel closes it
        assert old.eof


async def test_calls_wait_for_the_peers_stream_limit_when_connections_are_used_up() -> None:
    server = RawServer()
    server.settings = {3: 1}
    config = RpcConfig(max_channel_connections=1)
    async with Channel.over(server.connect, config=config) as channel, trio.open_nursery() as nursery:
        async with channel.call(ECHO) as first:
            peer = await server.receive.receive()
            await peer.send(frame(HEADERS, 4, 1, encode(OK_HEADERS)))
            await first.wait_initial_metadata()
            entered = trio.Event()

            async def second() -> None:
                async with channel.call(ECHO):
                    entered.set()

            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            assert not entered.is_set()
        await entered.wait()


async def test_slow_peer_makes_send_wait_and_cancel_loses_nothing() -> None:
    server = RawServer()
    config = RpcConfig(call_outbox_messages=4, write_high_water_bytes=1000)
    async with Channel.over(server.connect, config=config) as channel, channel.call(ECHO) as call:
        peer = await server.receive.receive()
        big = Action(content=bytes(65535 - 30))
        await call.send(big)  # uses the connection's window up
        for _ in range(4):
            await call.send(Action(tick_id=1, content=bytes(100)))
        with pytest.raises(trio.WouldBlock):
            call.send_nowait(Action(tick_id=2, content=bytes(100)))
        with trio.CancelScope() as scope:
            scope.cancel()
            await call.send(Action(tick_id=2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.send, Action(tick_id=3))
            await trio.testing.wait_all_tasks_blocked()
            for stream in (0, 1):
                await peer.send(frame(8, 0, stream, (100_000).to_bytes(4, "big")))
        await call.done_sending()
        answer = peer.answer(1)
        await peer.until(lambda: answer.ended)
        ticks = []
        data = bytes(answer.data)
        while data:
            size = int.from_bytes(data[1:5], "big")
            ticks.append(Action.FromString(data[5 : 5 + size]).tick_id)
            data = data[5 + size :]
        assert ticks == [0, 1, 1, 1, 1, 3]


async def test_leaving_the_channel_ends_its_calls() -> None:
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service.service()], await open_listeners("127.0.0.1"))
        errors: list[Any] = []
        async with trio.open_nursery() as calls, Channel("127.0.0.1", serving.port) as channel:

            async def wait() -> None:
                async with channel.call(WAIT) as call:
                    with pytest.raises(RpcError) as caught:
                        await call.receive()
                    errors.append(caught.value.code)

            calls.start_soon(wait)
            await service.entered.wait()
        assert errors == [StatusCode.UNAVAILABLE]
        await service.cancelled.wait()
        with pytest.raises(RpcError, match="not open"):
            await channel.unary(ECHO_ONE, Action())
        nursery.cancel_scope.cancel()


async def test_exceptions_leave_the_channel_unwrapped() -> None:
    server = RawServer()
    with pytest.raises(KeyError):
        async with Channel.over(server.connect):
            raise KeyError


async def test_limit_on_sending() -> None:
    server = RawServer()
    config = RpcConfig(max_send_message_bytes=10)
    async with Channel.over(server.connect, config=config) as channel, channel.call(ECHO) as call:
        with pytest.raises(RpcError) as caught:
            await call.send(Action(content=bytes(100)))
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


class Ignoring:
    """A consumer."""

    def on_message(self, _: object) -> None:
        pass

    def on_end(self, _: object) -> None:
        pass


async def test_a_message_that_nothing_follows_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = noted_sends(monkeypatch)
    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve, [CheckService().service()], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", server.port) as channel, channel.call(ECHO) as call:
            await call.send(Action(tick_id=1))
            assert (await call.receive()).tick_id == 1
            await trio.testing.wait_all_tasks_blocked()
            sent.clear()
            call.send_nowait(Action(tick_id=2))  # it answers what was received
            assert len(sent) == 1  # and no task had a turn
            call.send_nowait(Action(tick_id=3))
            assert len(sent) == 1
            assert [(await call.receive()).tick_id for _ in range(2)] == [2, 3]
            call.set_consumer(Ignoring())
            for says_so in (False, True):
                call.send_nowait(Action())  # and for whatever was received before
                await trio.testing.wait_all_tasks_blocked()
                sent.clear()
                if says_so:
                    call.flush_next()
                call.send_nowait(Action())
                assert len(sent) == says_so
        nursery.cancel_scope.cancel()


def test_a_token_is_shown_whatever_the_channel_leads_to() -> None:
    async def nowhere() -> trio.abc.Stream:
        raise OSError("nowhere")

    channels = (
        Channel("127.0.0.1", 9, token="abc"),
        Channel.unix("/nowhere", token="abc"),
        Channel.over(nowhere, token="abc"),
    )
    for channel in channels:
        assert list(channel._authorization()) == [("authorization", "Bearer abc")]
    for channel in (Channel("127.0.0.1", 9), Channel.unix("/nowhere"), Channel.over(nowhere)):
        assert list(channel._authorization()) == []
