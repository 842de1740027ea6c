"""Calls that another protocol has brought: as their handlers see them, and as the protocol's side does."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import RPCSignature, Service

from trio_cogment.access import EVERYTHING, NOTHING, Identity
from trio_cogment.api.common_pb2 import Action, Observation, Reward
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.budget.byte_pool import BytePool, Loan
from trio_cogment.budget.turns import LARGE_BYTES, measure_turns_by, turns_of_run
from trio_cogment.budget.waiting_bytes import WaitingBytes
from trio_cogment.rpc import CallOpener, InProcessChannel, Method, ServerCall
from trio_cogment.rpc._routes import routes_of
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.rpc.metadata import Metadata
from trio_cogment.rpc.relay import CallRelay, OnBehalf, RelayedCall, RelayRoute, relay_routes
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, NOWHERE, CheckService

WHO = Identity(account="token:ann", local=False, grant=EVERYTHING)
NOBODY = Identity(account="token:bob", local=False, grant=NOTHING)
PEER = "ipv4:192.0.2.7:4711"
KIB = 1024
ALL_BYTES = 900 * KIB
Clock = trio.testing.MockClock


class Handler:
    """Notes the calls that it gets, and echoes, or does what it is told."""

    def __init__(self) -> None:
        self.calls: list[ServerCall] = []
        self.cancelled = trio.Event()
        self.error: RpcError | None = None
        self.waits = False

    async def echo(self, call: ServerCall, request: Any = None) -> None:
        self.calls.append(call)
        try:
            if self.waits:
                await trio.sleep_forever()
            if self.error is not None:
                raise self.error
            async for message in call:
                await call.send(Observation(tick_id=message.tick_id, content=message.content))
        except trio.Cancelled:
            self.cancelled.set()
            raise

    def route(self, method: Method = ECHO) -> RelayRoute:
        return RelayRoute(method, self.echo, None)


@asynccontextmanager
async def relayed(
    handler: Handler,
    config: RpcConfig | None = None,
    waiting: tuple[WaitingBytes, WaitingBytes] | None = None,
    timeout: float | None = None,
) -> AsyncIterator[RelayedCall]:
    incoming, outgoing = waiting or (None, None)
    relay = CallRelay(config or RpcConfig(), incoming, outgoing)
    call = relay.relay(handler.route(), Metadata({"x": "y"}), timeout, PEER, WHO)
    with trio.fail_after(1000):
        async with relay, call:
            yield call


def plenty() -> tuple[WaitingBytes, WaitingBytes]:
    pool = BytePool()
    return WaitingBytes(pool.loan()), WaitingBytes(pool.loan())


@asynccontextmanager
async def of_little_memory(config: RpcConfig | None = None) -> AsyncIterator[tuple[RelayedCall, ServerCall, Loan]]:
    """Give both sides of a call whose handler does nothing, and a loan that can take all the memory there is."""
    handler = Handler()
    handler.waits = True
    pool = BytePool(ALL_BYTES)
    hoard = pool.loan()
    waiting = WaitingBytes(pool.loan(), 0), WaitingBytes(pool.loan(), 0)
    async with relayed(handler, config, waiting) as call:
        await trio.testing.wait_all_tasks_blocked()
        (served,) = handler.calls
        yield call, served, hoard


@pytest.mark.parametrize("waiting", [None, "plenty"])
async def test_a_handler_sees_who_has_called_and_what_was_sent(waiting: str | None, autojump_clock: Clock) -> None:
    handler = Handler()
    async with relayed(handler, waiting=plenty() if waiting else None, timeout=7) as call:
        for tick in range(3):
            await call.pass_on(Action(tick_id=tick), 2)
        await call.done_sending()
        assert [reply.tick_id async for reply in call] == [0, 1, 2]
    (served,) = handler.calls
    assert (served.peer, served.identity) == (PEER, WHO)
    assert served.metadata == Metadata({"x": "y"})
    assert served.deadline == 7
    assert served.method is call.method is ECHO


async def test_the_deadline_of_a_call_ends_it_for_both(autojump_clock: Clock) -> None:
    handler = Handler()
    handler.waits = True
    async with relayed(handler, timeout=5) as call:
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        await handler.cancelled.wait()
        assert trio.current_time() == pytest.approx(5)


async def test_the_status_of_the_handler_is_that_of_the_call() -> None:
    handler = Handler()
    handler.error = RpcError(StatusCode.NOT_FOUND, "nothing here")
    async with relayed(handler) as call:
        with pytest.raises(RpcError, match="nothing here") as caught:
            await call.receive()
        assert caught.value.code is StatusCode.NOT_FOUND


async def test_an_aborted_call_ends_with_the_error_for_both() -> None:
    handler = Handler()
    handler.waits = True
    error = RpcError(StatusCode.UNAUTHENTICATED, "the token does not count any more")
    async with relayed(handler) as call:
        await trio.testing.wait_all_tasks_blocked()
        call.abort(error)
        await handler.cancelled.wait()
        for end in (call, handler.calls[0]):
            with pytest.raises(RpcError) as caught:
                await end.receive()
            assert (caught.value.code, caught.value.message) == (error.code, error.message)


async def test_aborting_a_call_that_has_ended_changes_nothing() -> None:
    handler = Handler()
    async with relayed(handler) as call:
        await call.done_sending()
        assert await call.receive() is None
        call.abort(RpcError(StatusCode.UNAVAILABLE, "too late"))
        assert await call.receive() is None


@pytest.mark.parametrize("size", [0, 1000, 256 * KIB - 1, 256 * KIB, 10**6])
async def test_messages_of_any_size_are_decoded_and_large_ones_are_paid_for(size: int) -> None:
    """From 256 KiB on, one may take a hundred times as long as another."""
    charged: list[int] = []
    turns_of_run().charge = lambda lane, units: charged.append(units)
    async with relayed(Handler()) as call:
        message = Action(tick_id=3)
        message.content = bytes(max(0, size - message.ByteSize() - 5))
        while message.ByteSize() < size:
            message.content += b"x"
        charged.clear()
        assert call.decode(message.SerializeToString()) == message
        assert len(charged) == (size >= 256 * KIB)


@pytest.mark.parametrize("size", [2, LARGE_BYTES])
async def test_what_is_no_message_is_the_callers_fault(size: int) -> None:
    async with relayed(Handler()) as call:
        with pytest.raises(RpcError, match=f"{ECHO.path}: undecodable message") as caught:
            call.decode(b"\xff" * size)
        assert caught.value.code is StatusCode.INTERNAL


async def test_a_message_waits_for_room_where_there_is_none() -> None:
    """Of the call: `call_outbox_messages` of them may wait for the handler."""
    handler = Handler()
    handler.waits = True
    async with relayed(handler, RpcConfig(call_outbox_messages=2)) as call:
        await call.pass_on(Action(tick_id=0), 2)
        await call.pass_on(Action(tick_id=1), 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.pass_on, Action(tick_id=2), 2)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            (served,) = handler.calls
            assert (await served.receive()).tick_id == 0
        assert [(await served.receive()).tick_id for _ in range(2)] == [1, 2]


async def test_what_comes_in_was_limited_where_it_came() -> None:
    """Neither a server's limit on what it receives nor that on what it sends is meant for it."""
    config = RpcConfig(max_receive_message_bytes=1000, max_send_message_bytes=1000)
    handler = Handler()
    handler.waits = True
    async with relayed(handler, config) as call:
        message = Action(content=bytes(5000))
        await call.pass_on(message, message.ByteSize())
        await trio.testing.wait_all_tasks_blocked()
        (served,) = handler.calls
        assert len((await served.receive()).content) == 5000
        await served.send(Observation(content=bytes(900)))
        with pytest.raises(RpcError, match="larger than 1000 allowed to send"):
            await served.send(Observation(content=bytes(5000)))
        assert len((await call.receive()).content) == 900
        with pytest.raises(LocalProtocolError):
            call.send_nowait(Observation())


async def test_what_is_sent_is_not_limited_by_what_may_come_in() -> None:
    handler = Handler()
    handler.waits = True
    async with relayed(handler, RpcConfig(max_receive_message_bytes=1000)) as call:
        await call.pass_on(Action(), 0)
        await trio.testing.wait_all_tasks_blocked()
        (served,) = handler.calls
        await served.send(Observation(content=bytes(5000)))
        assert len((await call.receive()).content) == 5000


async def test_what_waits_is_the_connections_until_it_is_taken() -> None:
    """What has come in is counted in one place, what goes out in another."""
    handler = Handler()
    handler.waits = True
    incoming, outgoing = plenty()
    async with relayed(handler, waiting=(incoming, outgoing)) as call:
        request, reply = Action(content=bytes(10 * KIB)), Observation(content=bytes(30 * KIB))
        await call.pass_on(request, request.ByteSize())
        await trio.testing.wait_all_tasks_blocked()
        (served,) = handler.calls
        await served.send(reply)
        assert (incoming.queued, outgoing.queued) == (request.ByteSize(), reply.ByteSize())
        await served.receive()
        assert (incoming.queued, outgoing.queued) == (0, reply.ByteSize())
        await call.receive()
        assert (incoming.queued, outgoing.queued) == (0, 0)
        await call.pass_on(Action(content=bytes(10 * KIB)), 10 * KIB)
        await served.send(Observation(content=bytes(10 * KIB)))
        assert incoming.queued
        assert outgoing.queued
    assert (incoming.queued, outgoing.queued) == (0, 0)


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_message_waits_until_the_connection_has_memory(direction: str) -> None:
    """Also one that a consumer would get at once: it adds it to the output of the connection."""
    async with of_little_memory() as (call, served, hoard):
        hoard.set(ALL_BYTES)
        async with trio.open_nursery() as nursery:
            if direction == "in":
                nursery.start_soon(call.pass_on, Action(content=bytes(KIB)), KIB)
            else:
                nursery.start_soon(served.send, Observation(content=bytes(KIB)))
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            hoard.set(0)
        receiver = served if direction == "in" else call
        assert len((await receiver.receive()).content) == KIB


class Kept:
    """Takes messages."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ends: list[RpcError | None] = []

    def on_message(self, message: Any) -> None:
        self.messages.append(message)

    def on_end(self, error: RpcError | None) -> None:
        self.ends.append(error)


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_consumer_gets_nothing_for_which_the_connection_has_no_memory(direction: str) -> None:
    """Though nothing waits before it: what it makes of the message is the connection's."""
    unlimited = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)  # a message in process is not even measured then
    async with of_little_memory(unlimited) as (call, served, hoard):
        await served.send_initial_metadata()
        sender, receiver = (call, served) if direction == "in" else (served, call)
        message = Action if direction == "in" else Observation
        consumer = Kept()
        receiver.set_consumer(consumer)
        sender.hand_over_nowait(message(tick_id=1))
        hoard.set(ALL_BYTES)
        with pytest.raises(trio.WouldBlock):
            sender.hand_over_nowait(message(tick_id=2, content=bytes(KIB)))
        hoard.set(0)
        sender.hand_over_nowait(message(tick_id=3))
        assert [one.tick_id for one in consumer.messages] == [1, 3]


async def test_without_a_place_to_count_in_only_one_direction_nothing_is_counted() -> None:
    waiting, _ = plenty()
    assert CallRelay(RpcConfig(), waiting, None).waiting is None
    assert CallRelay(RpcConfig(), None, waiting).waiting is None
    assert CallRelay(RpcConfig(), waiting, waiting).waiting == (waiting, waiting)


class Shapes:
    """Notes for which methods it is asked."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}

    def method(self, path: str, shape: str) -> Any:
        self.asked[path] = shape
        return path


def test_the_routes_of_a_server_are_those_of_the_other_protocol() -> None:
    shapes = Shapes()
    routes = routes_of([CheckService().service()])
    for found in (relay_routes(routes, None), relay_routes(routes, shapes)):
        assert found.keys() == routes.keys()
        assert {path: (route.method, route.function) for path, route in found.items()} == {
            path: (method, function) for path, (_, method, function) in routes.items()
        }
        assert {route.observer for route in found.values()} in ({None}, set(routes))
    assert shapes.asked[ECHO_ONE.path] == "unary"
    assert shapes.asked[ECHO.path] == "bidi_stream"
    assert shapes.asked.keys() == routes.keys()


# --- in somebody's name ---


class WhoCalls:
    """Notes who calls it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Identity]] = []

    async def handle(self, call: ServerCall) -> None:
        self.seen.append((call.peer, call.identity))
        request = await call.receive()
        await call.send(Observation(tick_id=request.tick_id))

    def service(self) -> Service:
        service = Service(ECHO_ONE.path.split("/")[1])
        signature = RPCSignature(ECHO_ONE.cardinality, ECHO_ONE.request_type, ECHO_ONE.response_type)
        service.add_method("EchoOne", self.handle, signature)
        return service


async def test_a_call_on_behalf_of_somebody_is_that_ones() -> None:
    who = WhoCalls()
    async with InProcessChannel([who.service()]) as channel:
        opener: CallOpener = OnBehalf(channel, PEER, WHO)
        assert (await opener.unary(ECHO_ONE, Action(tick_id=4))).tick_id == 4
        assert opener.call_nowait(ECHO_ONE) is None
        assert opener.unary_nowait(ECHO_ONE, Action(), lambda *_: None) is None
        await channel.unary(ECHO_ONE, Action())
    assert who.seen[0] == (PEER, WHO)
    assert who.seen[1][1] != WHO


async def test_it_has_the_rights_of_that_one_and_no_others() -> None:
    who = WhoCalls()
    async with InProcessChannel([who.service()]) as channel:
        with pytest.raises(RpcError, match=f"{ECHO_ONE.path}: not allowed for the caller's roles") as caught:
            await OnBehalf(channel, PEER, NOBODY).unary(ECHO_ONE, Action())
        assert caught.value.code is StatusCode.PERMISSION_DENIED
        with pytest.raises(RpcError) as caught:
            await OnBehalf(channel, PEER, WHO).unary(NOWHERE, Action())
        assert caught.value.code is StatusCode.UNIMPLEMENTED
    assert who.seen == []


async def test_it_has_its_own_metadata_and_deadline(autojump_clock: Clock) -> None:
    service = CheckService()
    async with InProcessChannel([service.service()]) as channel:
        opener = OnBehalf(channel, PEER, WHO)
        async with opener.call(ECHO_ONE, metadata={"x-a": "b"}, timeout=9) as call:
            await call.send(Action(tick_id=1))
            await call.done_sending()
            assert (await call.receive()).tick_id == 1
            assert call.initial_metadata == Metadata({"x-a": "b"})
        assert service.deadline == 9


async def test_a_message_with_too_many_entries_is_refused() -> None:
    reward = Reward()
    while len(reward.sources) * 2 < LARGE_BYTES:
        reward.sources.add()
    method = Method(ECHO.path, ECHO.cardinality, Reward, Observation)
    for most in (len(reward.sources) - 1, len(reward.sources)):
        relay = CallRelay(RpcConfig(max_message_entries=most))
        route = Handler().route(method)
        call = relay.relay(route, Metadata(), None, PEER, WHO)
        async with relay, call:
            if most == len(reward.sources):
                assert call.decode(reward.SerializeToString()) == reward
            else:
                with pytest.raises(RpcError, match=f"{ECHO.path}: .*max_message_entries is {most}") as caught:
                    call.decode(reward.SerializeToString())
                assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


async def test_who_has_sent_what_takes_long_waits_before_the_next_one_is_decoded(autojump_clock: Clock) -> None:
    measured = itertools.count(step=0.1)
    measure_turns_by(lambda: next(measured))  # everything that is measured seems to take long
    large = Action(content=bytes(LARGE_BYTES)).SerializeToString()
    async with relayed(Handler()) as call:
        assert not call.waits(large)
        began = trio.current_time()
        await call.large_turn()
        assert trio.current_time() == began
        call.decode(large)
        assert (call.waits(large), call.waits(large[:-1000])) == (True, False)
        await call.large_turn()
        assert trio.current_time() == pytest.approx(began + 0.2)
