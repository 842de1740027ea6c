"""Times at which the messages of a call over HTTP/2 leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from google.protobuf.message import Message
from purerpc import RPCSignature, Service

from tests.rpc.raw_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST,
    RawPeer,
    encode,
    frame,
    message,
    raw_client,
    request_headers,
)
from tests.rpc.test_channel import RawServer
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.rpc import Channel, ClientCall, Method, ServerCall, SharedMessage
from trio_cogment.rpc._frames import ErrorCode
from trio_cogment.rpc._grpc_headers import RESPONSE_HEADERS
from trio_cogment.rpc._http2_call import Http2Call
from trio_cogment.testing.conformance.channel import COUNT, ECHO, ECHO_ONE, SUM

REPLY = Observation(tick_id=4)


async def read(peer: RawPeer) -> None:
    """Read what is sent until nothing more happens by itself."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.until, lambda: False)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("method", "held"), [(ECHO_ONE, True), (SUM, True), (COUNT, False), (ECHO, False)])
async def test_the_only_message_of_an_answer_leaves_with_its_status(method: Method, held: bool) -> None:
    """Others leave when they are sent."""
    opened, goes_on = trio.Event(), trio.Event()

    async def answer(call: ServerCall) -> None:
        await call.send_initial_metadata()
        await opened.wait()
        await call.send(REPLY)
        await goes_on.wait()

    service = Service("trio_cogment.testing.Check")
    _, _, name = method.path.split("/")
    service.add_method(name, answer, RPCSignature(method.cardinality, method.request_type, method.response_type))
    async with raw_client([service]) as peer:
        await peer.send(peer.headers(1, request_headers(method.path.encode())))
        await peer.send(frame(DATA, END_STREAM, 1, message(b"")))
        with trio.fail_after(10):
            await peer.until(lambda: bool(peer.answer(1).headers))
            opened.set()
            await read(peer)
            assert bool(peer.answer(1).data) is not held
            goes_on.set()
            over = await peer.until_over(1)
        assert over.status == 0
        assert over.data == message(REPLY.SerializeToString())


class Ignoring:
    """A consumer."""

    def on_message(self, _: object) -> None:
        pass

    def on_end(self, _: object) -> None:
        pass


@pytest.mark.parametrize(("method", "held"), [(ECHO_ONE, True), (COUNT, True), (SUM, False), (ECHO, False)])
@pytest.mark.parametrize("how", ["receive", "metadata", "consumer", "end"])
async def test_the_only_request_leaves_when_the_call_is_waited_for(method: Method, held: bool, how: str) -> None:
    """Or when no more follows; then the end of the stream leaves with it."""
    server = RawServer()
    with trio.fail_after(10):
        async with Channel.over(server.connect) as channel, channel.call(method) as call:
            peer = await server.receive.receive()
            await read(peer)
            await call.send(Action(tick_id=4))
            await read(peer)
            assert bool(peer.answer(1).data) is not held
            async with trio.open_nursery() as nursery:
                if how == "end":
                    await call.done_sending()
                elif how == "consumer":
                    call.set_consumer(Ignoring())
                else:
                    nursery.start_soon(call.receive if how == "receive" else call.wait_initial_metadata)
                await read(peer)
                assert peer.answer(1).data == message(Action(tick_id=4).SerializeToString())
                assert peer.answer(1).ended is (how == "end")
                nursery.cancel_scope.cancel()


async def test_a_call_s_messages_are_those_of_the_other_end(autojump_clock: trio.testing.MockClock) -> None:
    """It is remembered by this name that they take long to decode."""
    server = RawServer()
    async with Channel.over(server.connect) as channel, channel.call(ECHO) as call:
        assert isinstance(call, Http2Call)
        assert call.account == call._connection.identity.account


class Shared(SharedMessage):
    """Counts how often it is put together."""

    def __init__(self, tick: int) -> None:
        super().__init__(Action, Action(tick_id=tick).SerializeToString(), Action(content=b"tail").SerializeToString())
        self.copies = 0

    def whole(self) -> Message:
        self.copies += 1
        return super().whole()


WAYS: dict[str, Callable[[ClientCall, SharedMessage], Awaitable[None] | None]] = {
    "waiting": lambda call, shared: call.send_shared(shared),
    "nowait": lambda call, shared: call.send_shared_nowait(shared),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_shared_message_is_copied_only_while_the_call_may_be_made_again(way: str) -> None:
    """It is then sent again as all others are."""
    server = RawServer()
    messages = [Shared(1), Shared(2), Shared(3)]

    async def send(call: ClientCall, shared: SharedMessage) -> bytes:
        waiting = WAYS[way](call, shared)
        if waiting is not None:
            await waiting
        await read(peer)
        return message(shared.payload())

    with trio.fail_after(10):
        async with Channel.over(server.connect) as channel, channel.call(ECHO) as call:
            peer = await server.receive.receive()
            expected = await send(call, messages[0])
            assert bytes(peer.answer(1).data) == expected
            await peer.send(frame(RST, 0, 1, int(ErrorCode.REFUSED_STREAM).to_bytes(4, "big")))
            await read(peer)
            expected += await send(call, messages[1])
            assert bytes(peer.answer(3).data) == expected
            await peer.send(frame(HEADERS, END_HEADERS, 3, encode(RESPONSE_HEADERS)))
            await call.wait_initial_metadata()
            expected += await send(call, messages[2])
            assert bytes(peer.answer(3).data) == expected
    assert [shared.copies for shared in messages] == [1, 1, 0]
