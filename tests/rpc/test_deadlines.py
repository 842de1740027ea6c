"""`grpc-timeout` both ways: from the caller's cancel scopes to the wire, and from the wire to the handler's scope."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service

from tests.rpc.raw_peer import DATA, END_STREAM, RawPeer, frame, message, raw_client, request_headers, settings
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener, Channel, InProcessChannel, Method, ServerCall, serve_stream
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, WAIT, CheckService

PATH = WAIT.path.encode()


class Wire:
    """A channel to a raw server that notes the timeouts it is told."""

    def __init__(self) -> None:
        self.peers: list[RawPeer] = []

    async def connect(self) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        peer = RawPeer(theirs)
        self.peers.append(peer)
        await peer.send(settings())
        return ours

    async def timeout_of(self, stream: int) -> bytes | None:
        answer = self.peers[0].answer(stream)
        await self.peers[0].until(lambda: answer.headers)
        return answer.field(b"grpc-timeout")


async def test_the_nearest_of_nested_scopes_is_sent(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    async with Channel.over(wire.connect) as channel:
        stream = 1
        for outer, inner, own, sent in [
            (math.inf, math.inf, None, None),
            (50, math.inf, None, b"50000000u"),
            (50, 20, None, b"20000000u"),
            (20, 50, None, b"20000000u"),
            (50, 20, 5, b"5000000u"),
            (5, 20, 50, b"5000000u"),
            (math.inf, math.inf, math.inf, None),
            (math.inf, math.inf, 0.0000001, b"1u"),
            (math.inf, math.inf, 1e9, b"16666667M"),
            (math.inf, math.inf, 1e300, b"99999999H"),
        ]:
            with trio.move_on_after(outer), trio.move_on_after(inner):
                async with channel.call(ECHO, timeout=own):
                    assert await wire.timeout_of(stream) == sent
            stream += 2


async def test_a_shield_hides_outer_deadlines(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    async with Channel.over(wire.connect) as channel:
        with trio.move_on_after(5), trio.move_on_after(50, shield=True):
            async with channel.call(ECHO):
                assert await wire.timeout_of(1) == b"50000000u"


async def test_a_changed_deadline_counts_as_it_is_when_the_call_begins(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    async with Channel.over(wire.connect) as channel:
        with trio.move_on_after(5) as scope:
            scope.deadline += 25
            await trio.sleep(10)
            async with channel.call(ECHO):
                assert await wire.timeout_of(1) == b"20000000u"


@pytest.mark.parametrize("timeout", [0, -1, -math.inf, -1e300])
async def test_an_expired_timeout_sends_nothing(timeout: float) -> None:
    wire = Wire()
    async with Channel.over(wire.connect) as channel:
        for _ in range(2):  # without a connection, and with one
            with pytest.raises(RpcError) as caught:
                await channel.unary(ECHO_ONE, Action(), timeout=timeout)
            assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
            if not wire.peers:
                async with channel.call(ECHO):
                    pass
        await wire.peers[0].until_over(1)
    await wire.peers[0].until(lambda: False)
    assert list(wire.peers[0].answers) == [1]


@pytest.mark.parametrize("in_process", [False, True])
async def test_an_expired_scope_cancels(in_process: bool) -> None:
    wire = Wire()
    opener: Any = InProcessChannel([CheckService().service()]) if in_process else Channel.over(wire.connect)
    async with opener as channel:
        with trio.move_on_at(trio.current_time() - 5) as scope:
            await channel.unary(ECHO_ONE, Action())
        assert scope.cancelled_caught
    assert not wire.peers


@pytest.mark.parametrize("in_process", [False, True])
async def test_nan_is_no_timeout(in_process: bool) -> None:
    opener: Any = InProcessChannel() if in_process else Channel.over(Wire().connect)
    async with opener as channel:
        with pytest.raises(ValueError, match="timeout"):
            channel.call(ECHO, timeout=math.nan)


#: on the wire, in seconds
TIMEOUTS = [
    (b"1S", 1.0),
    (b"00000001S", 1.0),
    (b"250m", 0.25),
    (b"2M", 120.0),
    (b"3H", 10_800.0),
    (b"99999999n", 0.099999999),
    (b"99999999H", 359_999_996_400.0),
]


@pytest.mark.parametrize(("wire", "seconds"), TIMEOUTS, ids=lambda value: str(value))
async def test_b8_the_handler_has_the_callers_deadline(
    wire: bytes, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        headers = request_headers(path=ECHO_ONE.path.encode(), grpc_timeout=wire)
        now = trio.current_time()
        await peer.send(peer.headers(1, headers), frame(DATA, END_STREAM, 1, message(b"")))
        assert (await peer.until_over(1)).status == 0
        assert service.deadline == pytest.approx(now + seconds, abs=0.01)


@pytest.mark.parametrize("wire", [b"0n", b"0S", b"00000000H"])
async def test_b8_no_time_at_all(wire: bytes) -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers(path=PATH, grpc_timeout=wire)))
        assert (await peer.until_over(1)).status == StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "wire", [b"", b"1", b"S", b"1s", b"1.5S", b"1e3S", b"+1S", b" 1S", b"1S ", b"\xd9\xa1S", b"0x1S"]
)
async def test_b8_odd_timeouts_are_refused(wire: bytes) -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers(path=PATH, grpc_timeout=wire)))
        assert (await peer.until_over(1)).status == StatusCode.INTERNAL


async def test_b8_the_deadline_ends_the_handler_and_tells_the_caller(autojump_clock: trio.testing.MockClock) -> None:
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        await peer.send(peer.headers(1, request_headers(path=PATH, grpc_timeout=b"200m")))
        assert (await peer.until_over(1)).status == StatusCode.DEADLINE_EXCEEDED
        await service.cancelled.wait()
        assert trio.current_time() == pytest.approx(0.2)


async def test_b8_deadlines_travel_through_a_chain_of_servers(autojump_clock: trio.testing.MockClock) -> None:
    """The handler calls on: its own deadline is what the next server is told, over the wire and in process."""
    last = CheckService()
    seen: list[float] = []
    method = Method("/t.T/On", Cardinality.UNARY_UNARY, Action, Observation)
    async with trio.open_nursery() as nursery:

        def over(service: Service) -> Channel:
            async def connect() -> trio.abc.Stream:
                ours, theirs = trio.testing.memory_stream_pair()
                nursery.start_soon(serve_stream, [service], theirs)
                return ours

            return Channel.over(connect)

        async with over(last.service()) as behind, InProcessChannel([last.service()]) as beside:

            async def on(call: ServerCall) -> None:
                request = await call.receive()
                target: CallOpener = behind if request.tick_id else beside
                await target.unary(ECHO_ONE, Action())
                seen.append(last.deadline)
                await target.unary(WAIT, Action())

            front = Service("t.T")
            front.add_method("On", on, RPCSignature(method.cardinality, Action, Observation))
            async with over(front) as channel:
                for number in range(2):
                    deadline = trio.current_time() + 30
                    with pytest.raises(RpcError) as caught:
                        await channel.unary(method, Action(tick_id=number), timeout=30)
                    assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
                    assert trio.current_time() == pytest.approx(deadline)
                    assert seen[number] == pytest.approx(deadline, abs=0.01)
                    await last.cancelled.wait()
                    last.cancelled = trio.Event()
        nursery.cancel_scope.cancel()


async def test_b7_cancelling_the_caller_cancels_the_whole_chain() -> None:
    last = CheckService()
    method = Method("/t.T/On", Cardinality.UNARY_UNARY, Action, Observation)
    async with trio.open_nursery() as nursery, InProcessChannel([last.service()]) as beside:

        async def on(call: ServerCall) -> None:
            await beside.unary(WAIT, Action())

        front = Service("t.T")
        front.add_method("On", on, RPCSignature(method.cardinality, Action, Observation))

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve_stream, [front], theirs)
            return ours

        async with Channel.over(connect) as channel:
            async with channel.call(method) as call:
                await call.send(Action())
                await call.done_sending()
                await last.entered.wait()
            await last.cancelled.wait()
        nursery.cancel_scope.cancel()
