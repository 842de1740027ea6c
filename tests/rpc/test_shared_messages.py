"""Messages that share their last bytes: they arrive whole, wait without a copy, and obey every limit of the call."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.helpers import wire_channel
from trio_cogment.api.common_pb2 import ActorRunTrialInput, ActorRunTrialOutput, CommunicationState
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import LocalProtocolError, RpcError
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.rpc import ClientCall, InProcessChannel, ServerCall, SharedMessage, bind
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._streams import Stream
from trio_cogment.rpc.interceptors import ServerCallWrapper
from trio_cogment.servers.orchestrator._participant_streams import RUN_ACTOR


def shared(text: str, tail: bytes) -> SharedMessage:
    """A message with these details; the tail has whole fields."""
    return SharedMessage(ActorRunTrialInput, ActorRunTrialInput(details=text).SerializeToString(), tail)


@pytest.mark.parametrize("tail", [b"", ActorRunTrialInput(state=CommunicationState.NORMAL).SerializeToString()])
def test_it_is_as_large_as_a_message_of_its_own(tail: bytes) -> None:
    message = shared("some text", tail)
    assert message.ByteSize() == message.whole().ByteSize() == len(message.whole().SerializeToString())


class Collecting:
    """Keeps what actors are sent."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def RunTrial(self, call: ServerCall) -> None:
        async for message in call:
            self.seen.append(message)


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_they_arrive_whole_and_in_order(wire: bool, compression: str | None) -> None:
    actor = Collecting()
    services = [bind(SERVICES[ServiceKind.ACTOR].descriptor(), actor)]
    tail = ActorRunTrialInput(state=CommunicationState.NORMAL).SerializeToString()
    async with (
        wire_channel(services) if wire else InProcessChannel(services) as channel,
        channel.call(RUN_ACTOR, compression=compression) as call,
    ):
        call.send_shared_nowait(shared("first", tail))
        await call.send(ActorRunTrialInput(details="between"))
        await call.send_shared(shared("x" * 1_000_000, tail))
        await call.send_shared(shared("without", b""))
        await call.done_sending()
        assert await call.receive() is None
    assert [message.details[:7] for message in actor.seen] == ["first", "between", "xxxxxxx", "without"]
    assert [message.state for message in actor.seen] == [1, 0, 1, 0]


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("nowait", [False, True])
async def test_a_server_may_begin_with_one(nowait: bool, wire: bool) -> None:
    class Greeting:
        async def RunTrial(self, call: ServerCall) -> None:
            hello = SharedMessage(ActorRunTrialOutput, ActorRunTrialOutput(details="hello").SerializeToString(), b"")
            if nowait:
                call.send_shared_nowait(hello)
            else:
                await call.send_shared(hello)

    services = [bind(SERVICES[ServiceKind.ACTOR].descriptor(), Greeting())]
    async with (
        wire_channel(services) if wire else InProcessChannel(services) as channel,
        channel.call(RUN_ACTOR) as call,
    ):
        await call.done_sending()
        assert [message.details async for message in call] == ["hello"]


async def test_what_is_over_or_of_the_wrong_type_is_refused() -> None:
    services = [bind(SERVICES[ServiceKind.ACTOR].descriptor(), Collecting())]
    async with wire_channel(services) as channel, channel.call(RUN_ACTOR) as call:
        with pytest.raises(Exception, match="expected a ActorRunTrialInput"):
            call.send_shared_nowait(SharedMessage(type(RUN_ACTOR.response_type()), b"", b""))
        call.cancel()
        with pytest.raises(RpcError):
            call.send_shared_nowait(shared("late", b""))


class Silent:
    """Answers with headers, and reads when it is told to."""

    def __init__(self) -> None:
        self.reads = trio.Event()
        self.seen: list[Any] = []

    async def RunTrial(self, call: ServerCall) -> None:
        await call.send_initial_metadata()
        await self.reads.wait()
        async for message in call:
            self.seen.append(message)


def fits(call: ClientCall, message: SharedMessage) -> bool:
    """Send a message if there is room, and return whether there was."""
    try:
        call.send_shared_nowait(message)
    except trio.WouldBlock:
        return False
    return True


async def test_they_wait_for_room_as_others_do() -> None:
    """Without a copy, once the call cannot be made again."""
    actor = Silent()
    services = [bind(SERVICES[ServiceKind.ACTOR].descriptor(), actor)]
    tail = ActorRunTrialInput(state=CommunicationState.NORMAL).SerializeToString()
    with trio.fail_after(30):
        async with wire_channel(services) as channel, channel.call(RUN_ACTOR) as call:
            await call.wait_initial_metadata()
            sent = 0
            for _ in range(10):  # until nothing more is taken either
                while fits(call, shared(f"{sent} " + "x" * 300_000, tail)):
                    sent += 1
                await trio.testing.wait_all_tasks_blocked()
            assert sent > 2
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call.send_shared, shared(f"{sent} " + "x" * 300_000, tail))
                await trio.testing.wait_all_tasks_blocked()
                assert nursery.child_tasks
                actor.reads.set()
            await call.done_sending()
            with pytest.raises(LocalProtocolError):
                call.send_shared_nowait(shared("late", tail))
            assert await call.receive() is None
        assert [message.details.split()[0] for message in actor.seen] == [str(number) for number in range(sent + 1)]
        assert {message.state for message in actor.seen} == {CommunicationState.NORMAL}


def test_while_it_waits_the_tail_is_not_copied() -> None:
    queue = SendQueue(RpcConfig(), BytePool().loan(), client_side=True)
    tail = bytes(100_000)
    streams = [Stream(number, recv_window=0, send_window=0, max_message=10**6) for number in (1, 3)]
    for stream in streams:
        queue.send_shared(stream, b"head", (tail,))
        assert stream.outbox[1] is tail
        assert stream.outbox_bytes == 5 + 4 + len(tail)
    for stream in streams:
        queue.credit_stream(stream, 200_000)
    queue.credit(1_000_000)
    data = b""
    while part := queue.take_output():
        data += part
    assert data.count(0) > 2 * len(tail)


async def test_in_process_it_comes_as_it_is_to_who_changes_nothing_and_as_a_copy_to_all_others() -> None:
    class Accepting(Collecting):
        async def RunTrial(self, call: ServerCall) -> None:
            call.accept_shared()
            await super().RunTrial(call)

    class Changing(Collecting):
        async def RunTrial(self, call: ServerCall) -> None:
            async for message in call:
                self.seen.append(message.details)
                message.details = "changed"

    descriptor = SERVICES[ServiceKind.ACTOR].descriptor()
    message = shared("as it was sent", b"")
    accepting = [Accepting(), Accepting()]
    others = [Changing(), Changing()]
    for actor in (*accepting, *others):
        async with InProcessChannel([bind(descriptor, actor)]) as channel, channel.call(RUN_ACTOR) as call:
            await call.send(ActorRunTrialInput(details="first"))  # whoever accepts has said so when this has come
            while not actor.seen:
                await trio.testing.wait_all_tasks_blocked()
            call.send_shared_nowait(message)
            await call.send_shared(message)
            await call.done_sending()
            assert await call.receive() is None
    assert [actor.seen[1:] for actor in accepting] == [[message] * 2] * 2
    assert [actor.seen[1:] for actor in others] == [["as it was sent"] * 2] * 2


async def test_an_interceptor_sees_whole_messages_whatever_the_receiver_accepts() -> None:
    seen: list[Any] = []

    class Watched(ServerCallWrapper):
        def on_received(self, message: Any) -> None:
            seen.append(message.details)

    class Accepting(Collecting):
        async def RunTrial(self, call: ServerCall) -> None:
            watched = Watched(call)
            watched.accept_shared()
            await super().RunTrial(watched)

    actor = Accepting()
    services = [bind(SERVICES[ServiceKind.ACTOR].descriptor(), actor)]
    async with InProcessChannel(services) as channel, channel.call(RUN_ACTOR) as call:
        await call.send_shared(shared("x", b""))
        await call.done_sending()
        assert await call.receive() is None
    assert seen == ["x"] == [message.details for message in actor.seen]
