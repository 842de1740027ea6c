"""The in-process channel alone: its limits by configuration."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import trio
import trio.testing
from purerpc import RPCSignature, Service

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc import ClientCall, InProcessChannel, ServedAtOnce, ServerCall, WithMetadata
from trio_cogment.rpc._in_process_call import Exchange
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.rpc.metadata import Metadata
from trio_cogment.rpc.service import BoundService
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, CheckService


async def test_the_limit_is_the_configuration_s_to_the_byte() -> None:
    config = RpcConfig(max_receive_message_bytes=100)
    async with InProcessChannel([CheckService().service()], config=config) as channel:
        fits, too_large = (Action(content=bytes(size)) for size in (98, 99))
        assert fits.ByteSize() == 100
        assert await channel.unary(ECHO_ONE, fits) == Observation(content=bytes(98))
        with pytest.raises(RpcError, match="message of 101 bytes is larger than 100") as caught:
            await channel.unary(ECHO_ONE, too_large)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


async def test_a_limit_on_sending_leaves_the_call_alone() -> None:
    config = RpcConfig(max_send_message_bytes=100)
    too_large = Action(content=bytes(200))
    async with InProcessChannel([CheckService().service()], config=config) as channel, channel.call(ECHO) as call:
        with pytest.raises(RpcError, match="allowed to send") as caught:
            await call.send(too_large)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(RpcError, match="allowed to send"):
            call.send_nowait(too_large)
        await call.send(Action(tick_id=1))
        assert (await call.receive()).tick_id == 1


@pytest.mark.parametrize("waiting", [False, True])
async def test_of_messages_that_are_sent_together_each_is_within_the_limit(waiting: bool) -> None:
    """Or none of them is sent."""
    config = RpcConfig(max_send_message_bytes=100)
    good, too_large = Action(content=bytes(98)), Action(content=bytes(99))

    async def send(call: ClientCall, *messages: Action) -> None:
        if waiting:
            await call.send_together(messages)
        else:
            call.send_together_nowait(messages)

    async with InProcessChannel([CheckService().service()], config=config) as channel, channel.call(ECHO) as call:
        with pytest.raises(RpcError, match="message of 101 bytes is larger than 100 allowed to send"):
            await send(call, good, too_large)
        await send(call, good, good)
        await call.done_sending()
        assert [len(reply.content) async for reply in call] == [98, 98]


async def test_without_a_limit_any_message_passes() -> None:
    config = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
    async with InProcessChannel([CheckService().service()], config=config) as channel:
        content = bytes(32 * 1024 * 1024)
        assert (await channel.unary(ECHO_ONE, Action(content=content))).content == content


async def test_metadata_is_limited() -> None:
    config = RpcConfig(max_header_list_bytes=256)
    async with InProcessChannel([CheckService().service()], config=config) as channel:
        await channel.unary(ECHO_ONE, Action(), metadata={"x": "y" * (256 - 33)})
        with pytest.raises(RpcError, match="metadata is larger than 256 bytes"):
            await channel.unary(ECHO_ONE, Action(), metadata={"x": "y" * (256 - 32)})


async def test_a_call_can_be_entered_once() -> None:
    async with InProcessChannel([CheckService().service()]) as channel:
        call = channel.call(ECHO)
        async with call:
            pass
        with pytest.raises(RuntimeError, match="once"):
            await call.__aenter__()


async def test_what_is_handed_over_is_not_copied() -> None:
    async with InProcessChannel([CheckService().service()]) as channel, channel.call(ECHO) as call:
        copied, given, waited = Action(tick_id=1), Action(tick_id=2), Action(tick_id=3)
        await call.hand_over(waited)  # nothing waits: it need not
        waited.tick_id = 8
        call.send_nowait(copied)
        call.hand_over_nowait(given, given.ByteSize())
        copied.tick_id = given.tick_id = 7
        assert [(await call.receive()).tick_id for _ in range(3)] == [8, 1, 7]
        with pytest.raises(LocalProtocolError):
            call.hand_over_nowait(Observation(), 0)


async def test_who_hands_over_waits_for_room_as_who_sends() -> None:
    config = RpcConfig(call_outbox_bytes=1000, max_receive_message_bytes=UNLIMITED_BYTES)
    async with InProcessChannel([CheckService().service()], config=config) as channel, channel.call(ECHO) as call:
        sent: list[int] = []

        async def hand_over() -> None:
            for tick in range(20):
                await call.hand_over(Action(tick_id=tick, content=bytes(600)))
                sent.append(tick)
            await call.done_sending()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hand_over)
            await trio.testing.wait_all_tasks_blocked()
            assert 0 < len(sent) < 20
            assert [message.tick_id async for message in call] == list(range(20))


async def test_what_is_handed_over_is_bounded_by_the_size_it_is_said_to_have() -> None:
    config = RpcConfig(call_outbox_bytes=1000, max_receive_message_bytes=UNLIMITED_BYTES)
    async with InProcessChannel([CheckService().service()], config=config) as channel, channel.call(ECHO) as call:
        for tick in range(2):
            call.hand_over_nowait(Action(tick_id=tick), 600)
        with pytest.raises(trio.WouldBlock):
            call.hand_over_nowait(Action(tick_id=2), 600)
        assert [(await call.receive()).tick_id for _ in range(2)] == [0, 1]
        await call.done_sending()
        assert await call.receive() is None
    config = RpcConfig(max_receive_message_bytes=100)
    async with InProcessChannel([CheckService().service()], config=config) as channel, channel.call(ECHO) as call:
        with pytest.raises(RpcError, match="larger than 100"):
            call.hand_over_nowait(Action(content=bytes(200)), 1)


async def test_a_call_that_is_opened_without_waiting() -> None:
    async with InProcessChannel([CheckService().service()]) as channel:
        call = channel.call_nowait(ECHO, metadata={"x": "y"})
        assert call is not None
        call.send_nowait(Action(tick_id=1))
        assert (await call.receive()).tick_id == 1
        call.done_sending_nowait()
        assert await call.receive() is None
        left = WithMetadata(channel, {"x": "y"}).call_nowait(ECHO)
        assert left is not None
        left.cancel()
        with pytest.raises(RpcError) as caught:
            await left.receive()
        assert caught.value.code is StatusCode.CANCELLED
        with pytest.raises(RuntimeError, match="once"):
            await call.__aenter__()


async def test_a_call_that_would_have_to_wait_for_its_turn_is_not_opened() -> None:
    config = RpcConfig(max_concurrent_streams=1, max_channel_connections=1)
    async with InProcessChannel([CheckService().service()], config=config) as channel:
        async with channel.call(ECHO):
            assert channel.call_nowait(ECHO) is None
        await trio.testing.wait_all_tasks_blocked()
        call = channel.call_nowait(ECHO)
        assert call is not None
        call.cancel()


async def test_a_call_without_waiting_after_the_channel_s_end_fails() -> None:
    async with InProcessChannel([CheckService().service()]) as channel:
        pass
    call = channel.call_nowait(ECHO)
    assert call is not None
    with pytest.raises(RpcError) as caught:
        await call.receive()
    assert caught.value.code is StatusCode.UNAVAILABLE


class AtOnce:
    """Takes calls whose first message has an even tick without a task, and the others in one."""

    def __init__(self) -> None:
        self.taken: list[ServedAtOnce] = []
        self.in_tasks = 0

    async def echo(self, call: ServerCall) -> None:
        """Send back what comes, in a task."""
        self.in_tasks += 1
        async for message in call:
            await call.send(Observation(tick_id=message.tick_id))

    def take(self, call: ServedAtOnce, first: Action) -> bool:
        """Send back the first message."""
        if first.tick_id % 2:
            return False
        self.taken.append(call)
        call.hand_over_nowait(Observation(tick_id=first.tick_id))
        return True

    def service(self) -> Service:
        """Return the service with this implementation."""
        _, service_name, name = ECHO.path.split("/")
        service = BoundService(service_name)
        service.add_method(name, self.echo, RPCSignature(ECHO.cardinality, ECHO.request_type, ECHO.response_type))
        service.takers[name] = self.take
        return service


async def test_a_service_takes_a_call_with_its_first_message_without_a_task() -> None:
    service = AtOnce()
    config = RpcConfig(max_concurrent_streams=1, max_channel_connections=1)
    async with InProcessChannel([service.service()], config=config) as channel:
        call = channel.call_nowait(ECHO, first=Action(tick_id=2))
        assert call is not None
        assert (await call.receive()).tick_id == 2
        call.send_nowait(Action(tick_id=4))
        (served,) = service.taken
        assert (await served.receive()).tick_id == 4
        assert channel.call_nowait(ECHO, first=Action()) is None  # it counts as any other does
        served.finish()
        served.finish(RpcError(StatusCode.INTERNAL, "too late"))
        assert await call.receive() is None
        with pytest.raises(RpcError, match="over"):
            call.send_nowait(Action())
        refused = channel.call_nowait(ECHO, first=Action(tick_id=6))
        assert refused is not None
        service.taken[-1].finish(RpcError(StatusCode.NOT_FOUND, "nothing here"))
        assert (await refused.receive()).tick_id == 6
        with pytest.raises(RpcError, match="nothing here"):
            await refused.receive()
        assert service.in_tasks == 0
        in_a_task = channel.call_nowait(ECHO, first=Action(tick_id=1))
        assert in_a_task is not None
        assert (await in_a_task.receive()).tick_id == 1
        assert service.in_tasks == 1


async def test_a_caller_leaves_a_call_that_was_taken_without_a_task() -> None:
    service = AtOnce()
    async with InProcessChannel([service.service()]) as channel:
        call = channel.call_nowait(ECHO, first=Action())
        assert call is not None
        call.cancel()
        with pytest.raises(RpcError) as caught:
            await service.taken[0].receive()
        assert caught.value.code is StatusCode.CANCELLED


async def test_the_end_of_the_channel_ends_a_call_that_was_taken_without_a_task() -> None:
    service = AtOnce()
    async with InProcessChannel([service.service()]) as channel:
        call = channel.call_nowait(ECHO, first=Action())
        assert call is not None
        assert await call.receive() == Observation()
    with pytest.raises(RpcError) as caught:
        await call.receive()
    assert caught.value.code is StatusCode.UNAVAILABLE
    assert channel.call_nowait(ECHO, first=Action()) is not None
    assert len(service.taken) == 1


async def test_a_first_message_that_nobody_serves_is_answered_with_an_error() -> None:
    async with InProcessChannel() as channel:
        call = channel.call_nowait(ECHO, first=Action())
        assert call is not None
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is StatusCode.UNIMPLEMENTED


async def test_a_call_that_was_taken_without_a_task_and_has_ended_is_kept_by_nobody() -> None:
    service = AtOnce()
    async with InProcessChannel([service.service()]) as channel:
        for _ in range(3):
            assert channel.call_nowait(ECHO, first=Action()) is not None
        kept = [weakref.ref(served) for served in service.taken]
        service.taken[0].finish()
        service.taken[2].finish(RpcError(StatusCode.NOT_FOUND, "nothing here"))
        service.taken.clear()
        gc.collect()
        assert [served() is not None for served in kept] == [False, True, False]


@pytest.mark.parametrize("timeout", [3, 60])
async def test_a_caller_has_its_answer_in_time_whatever_the_handler_does(
    timeout: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Also one that shields itself from its end."""
    ended = trio.Event()

    async def stubborn(call: ServerCall) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)
        ended.set()

    service = Service(ECHO.path.split("/")[1])
    service.add_method("Echo", stubborn, RPCSignature(ECHO.cardinality, ECHO.request_type, ECHO.response_type))
    async with InProcessChannel([service]) as channel:
        with pytest.raises(RpcError) as caught:
            async with channel.call(ECHO, timeout=timeout) as call:
                await call.receive()
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(timeout)
        assert not ended.is_set()


class Choosy:
    """A consumer that cannot stand a tick of 3."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ends: list[RpcError | None] = []

    def on_message(self, message: Observation) -> None:
        if message.tick_id == 3:
            raise ValueError("three")
        self.seen.append(message.tick_id)

    def on_end(self, error: RpcError | None) -> None:
        self.ends.append(error)


@pytest.mark.parametrize("limit", [1000, UNLIMITED_BYTES])
@pytest.mark.parametrize("together", [False, True])
async def test_a_consumer_that_fails_ends_its_call_and_not_the_sender(limit: int, together: bool) -> None:
    """However the messages are handed to it."""
    sent: list[int] = []

    async def count(call: ServerCall) -> None:
        await call.send_initial_metadata()
        for tick in range(6):
            messages = [Observation(tick_id=tick), Observation(tick_id=10 + tick)]
            if together:
                call.send_together_nowait(messages)
            else:
                call.hand_over_nowait(messages[0])
                call.hand_over_nowait(messages[1])
            sent.append(tick)
            await trio.lowlevel.checkpoint()

    service = Service(ECHO.path.split("/")[1])
    service.add_method("Echo", count, RPCSignature(ECHO.cardinality, ECHO.request_type, ECHO.response_type))
    config = RpcConfig(max_receive_message_bytes=limit)
    consumer = Choosy()
    async with InProcessChannel([service], config=config) as channel, channel.call(ECHO) as call:
        call.set_consumer(consumer)
        await trio.testing.wait_all_tasks_blocked()
    assert consumer.seen == [0, 10, 1, 11, 2, 12]
    (error,) = consumer.ends
    assert error is not None
    assert error.code is StatusCode.INTERNAL
    assert sent[:3] == [0, 1, 2]
    assert 5 not in sent  # the handler's scope is cancelled


async def test_an_answer_that_came_in_time_can_be_read_afterwards(autojump_clock: trio.testing.MockClock) -> None:
    async with InProcessChannel([CheckService().service()]) as channel, channel.call(ECHO, timeout=5) as call:
        await call.send(Action(tick_id=1))
        await call.done_sending()
        await trio.sleep(60)
        assert (await call.receive()).tick_id == 1
        assert await call.receive() is None


async def test_nobody_watches_the_deadline_of_a_call_that_was_left(autojump_clock: trio.testing.MockClock) -> None:
    async with InProcessChannel([CheckService().service()]) as channel:
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        async with channel.call(ECHO, timeout=1000) as call:
            await call.send(Action(tick_id=1))
            await call.done_sending()
            assert [reply.tick_id async for reply in call] == [1]
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert trio.current_time() == 0


async def test_only_the_first_status_of_a_call_counts() -> None:
    exchange = Exchange(ECHO, Metadata(), math.inf, RpcConfig())
    exchange.trailing_metadata = Metadata({"x": "first"})
    exchange.finish(None)
    exchange.finish(RpcError(StatusCode.NOT_FOUND, "second", Metadata({"x": "second"})))
    assert exchange.trailing_metadata == Metadata({"x": "first"})
    assert await exchange.responses.get() is None
