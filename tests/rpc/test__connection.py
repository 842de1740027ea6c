"""Connections over real sockets: what memory streams cannot show."""

from __future__ import annotations

import errno
import itertools
import logging
import socket
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import RPCSignature, Service

from tests.rpc.noted_turns import noted_turns
from tests.rpc.raw_peer import (
    DATA,
    END_STREAM,
    PING,
    PREFACE,
    WINDOW_UPDATE,
    RawPeer,
    frame,
    message,
    raw_client,
    request_headers,
    settings,
)
from tests.rpc.test_channel import RawServer
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import measure_turns_by, turns_of_run
from trio_cogment.rpc import Channel, ClientCall, ServerCall, open_listeners, serve, serve_stream
from trio_cogment.rpc._byte_stream_over import byte_stream_over
from trio_cogment.rpc._connection import Connection
from trio_cogment.rpc.relay import Accepted, Served
from trio_cogment.testing.conformance.channel import COUNT, ECHO, ECHO_ONE, FLOOD, WAIT, CheckService
from trio_cogment.testing.conformance.channel_service import SIZED


async def test_unix_sockets(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    plain = socket.socket(socket.AF_UNIX)
    plain.bind(path)
    plain.listen()
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(plain))

    async def connect() -> trio.abc.Stream:
        return await trio.open_unix_socket(path)

    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [CheckService().service()], [listener])
        assert serving.addresses == (f"unix:{path}",)
        assert serving.ports == ()
        async with Channel.over(connect) as channel:
            assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5
        nursery.cancel_scope.cancel()


async def test_several_listeners_and_cancel_closes_them_all() -> None:
    listeners = [*await open_listeners("127.0.0.1"), *await open_listeners("127.0.0.1")]
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [CheckService().service()], listeners)
        assert len(set(serving.ports)) == 2
        for port in serving.ports:
            async with Channel("127.0.0.1", port) as channel:
                assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5
        nursery.cancel_scope.cancel()
    for listener in listeners:
        assert listener.socket.fileno() == -1


async def test_lost_connections_leave_nothing_behind() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        service = CheckService()
        serving = await nursery.start(serve, [service.service()], listeners)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(50):
            service.entered = trio.Event()
            service.cancelled = trio.Event()
            stream = await trio.open_tcp_stream("127.0.0.1", serving.port)
            peer = RawPeer(stream)
            await peer.send(PREFACE, settings(), peer.headers(1, request_headers(path=WAIT.path.encode())))
            await service.entered.wait()
            await stream.aclose()
            await service.cancelled.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before
        nursery.cancel_scope.cancel()


async def test_a_peer_that_grants_much_and_reads_nothing_holds_up_only_itself() -> None:
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service.service()], await open_listeners("127.0.0.1"))
        stream = await trio.open_tcp_stream("127.0.0.1", serving.port)
        peer = RawPeer(stream)
        huge = (2**31 - 1 - 65535).to_bytes(4, "big")
        await peer.send(PREFACE, settings({4: 2**31 - 1}), frame(WINDOW_UPDATE, 0, 0, huge))
        await peer.send(peer.headers(1, request_headers(path=FLOOD.path.encode())))
        await peer.send(frame(DATA, END_STREAM, 1, message(Action(tick_id=1024).SerializeToString())))
        await service.flood_full.wait()
        # One outbox and what fits below the high-water mark.
        assert service.flooded * 1024 < RpcConfig().write_high_water_bytes + RpcConfig().call_outbox_bytes + 4096
        async with Channel("127.0.0.1", serving.port) as channel:
            assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5
        # Read after all: everything arrives.
        answer = await peer.until_over(1)
        assert answer.status == 0
        assert len(answer.data) > service.flooded * 1024
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_many_messages_through_a_socket() -> None:
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [CheckService().service()], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel, channel.call(COUNT) as call:
            await call.send(Action(tick_id=20_000))
            await call.done_sending()
            expected = 0
            async for reply in call:
                assert reply.tick_id == expected
                expected += 1
            assert expected == 20_000
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("step", range(0, 60, 3))
async def test_cancel_at_any_step_leaves_nothing(step: int) -> None:
    """Cancel the caller after this many scheduler steps: the handler ends, and the channel still works."""
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service.service()], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel:

            async def call(scope: trio.CancelScope) -> None:
                with scope:
                    async with channel.call(WAIT) as call:
                        await call.send(Action())
                        await call.receive()

            scope = trio.CancelScope()
            async with trio.open_nursery() as callers:
                callers.start_soon(call, scope)
                for _ in range(step):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
            if service.entered.is_set():
                await service.cancelled.wait()
            assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5
        nursery.cancel_scope.cancel()


async def test_server_goes_away_in_the_middle_of_a_message() -> None:
    listener = (await open_listeners("127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]

    async def half_an_answer() -> None:
        async with await listener.accept() as stream:
            peer = RawPeer(stream)
            await peer.send(settings())
            await peer.until(lambda: 1 in peer.answers)
            block = peer.headers(1, [(b":status", b"200"), (b"content-type", b"application/grpc")])
            await peer.send(block, frame(DATA, 0, 1, message(bytes(100))[:50]))

    async with trio.open_nursery() as nursery, listener:
        nursery.start_soon(half_an_answer)
        async with Channel("127.0.0.1", port) as channel:
            with pytest.raises(RpcError) as caught:
                await channel.unary(ECHO_ONE, Action())
            assert caught.value.code is StatusCode.UNAVAILABLE


async def test_no_handler_begins_once_the_connection_is_lost() -> None:
    """Calls that wait for their turns are dropped first, before those whose handlers run are ended in turns."""
    ticks = itertools.count()
    measure_turns_by(lambda: next(ticks))  # each pass seems to take a second: few handlers begin in each
    begun = 0

    async def wait(call: ServerCall) -> None:
        nonlocal begun
        begun += 1
        await trio.sleep_forever()

    service = Service(WAIT.path.split("/")[1])
    service.add_method("Wait", wait, RPCSignature(WAIT.cardinality, WAIT.request_type, WAIT.response_type))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve_stream, [service], theirs)
            peer = RawPeer(ours)
            await peer.send(PREFACE, settings())
            await trio.testing.wait_all_tasks_blocked()
            turns_of_run().charge(Lane.OTHERS, 10_000)
            path = WAIT.path.encode()
            await peer.send(*[peer.headers(stream, request_headers(path=path)) for stream in range(1, 33, 2)])
            await peer.stream.aclose()
    assert begun < 12  # of 16: those whose turn came before the end did


async def test_a_lost_connection_gives_back_what_it_has_borrowed() -> None:
    """For messages that have not come whole, and for answers that nobody has read."""
    config = RpcConfig(server_memory_bytes=9 * 2**20, max_receive_message_bytes=2**19)
    with memory_of_run().lent_by(config), trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(partial(serve_stream, [CheckService().service()], theirs, config=config))
            peer = RawPeer(ours)
            await peer.send(PREFACE, settings({4: 0}), peer.headers(1, request_headers()))
            await peer.send(frame(DATA, 0, 1, message(bytes(2**18))[:16_000]))
            await peer.send(peer.headers(3, request_headers(path=SIZED.path.encode())))
            await peer.send(frame(DATA, END_STREAM, 3, message(Action(tick_id=2**18).SerializeToString())))
            await trio.testing.wait_all_tasks_blocked()
            assert memory_of_run().messages.used > 2**18 + 2**17
            await peer.stream.aclose()
        assert memory_of_run().messages.used == 0
        assert memory_of_run().windows.used == 0


async def test_what_is_received_costs_units_by_its_bytes_and_by_its_calls() -> None:
    """What the last input has cost is what the next is expected to cost, and is corrected afterwards."""
    turns = turns_of_run()
    take, charge = turns.take, turns.charge
    costs: list[tuple[str, int]] = []

    def noting_take(lane: Lane, units: int = 1) -> bool:
        costs.append(("taken", units))
        return take(lane, units)

    def noting_charge(lane: Lane, units: int) -> None:
        costs.append(("charged", units))
        charge(lane, units)

    turns.take, turns.charge = noting_take, noting_charge
    async with raw_client([CheckService().service()]) as peer:
        await trio.testing.wait_all_tasks_blocked()
        path = WAIT.path.encode()
        for data, expected, cost in (
            (peer.headers(1, request_headers(path=path)), None, 1 + 1),
            (b"".join(peer.headers(stream, request_headers(path=path)) for stream in range(3, 23, 2)), 2, 1 + 10),
            (frame(PING, 0, 0, bytes(8)), 11, 1),
            (frame(DATA, 0, 1, message(bytes(10_000))), 1, 1 + 2),
            (frame(PING, 0, 0, bytes(8)), 3, 1),
            (peer.headers(2**31 - 1, request_headers(path=path)), 1, 1 + 1),  # those between have not been used
        ):
            costs.clear()
            await peer.send(data)
            await trio.testing.wait_all_tasks_blocked()
            taken = [units for what, units in costs if what == "taken"]
            charged = [units for what, units in costs if what == "charged"]
            if expected is not None:
                assert taken[0] == expected
            assert taken[0] + sum(charged) == cost


async def test_a_handler_sees_what_came_together_and_what_is_under_way() -> None:
    seen: list[tuple[int, tuple[int, int]]] = []
    read = trio.Event()

    async def note(call: ServerCall) -> None:
        await call.send_initial_metadata()
        with pytest.raises(LocalProtocolError):
            call.set_initial_metadata({"too": "late"})
        with pytest.raises(LocalProtocolError):
            call.set_compression("gzip")
        while (received := await call.receive()) is not None:
            seen.append((call.batch, call.under_way()))
            if received.tick_id:
                await call.send(Observation(content=bytes(93)))
        await read.wait()

    service = Service(ECHO.path.split("/")[1])
    service.add_method("Echo", note, RPCSignature(ECHO.cardinality, ECHO.request_type, ECHO.response_type))
    async with raw_client([service], settings_values={4: 50}) as peer:
        one, last = (message(Action(content=bytes(43), tick_id=tick).SerializeToString()) for tick in (0, 1))
        await peer.send(peer.headers(1, request_headers()))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(frame(DATA, 0, 1, one) * 3)
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(frame(DATA, 0, 1, last))
        await peer.until(lambda: len(peer.answer(1).data) >= 50)
        await peer.send(frame(DATA, 0, 1, one))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(frame(DATA, END_STREAM, 1))
        read.set()
    batches = [batch for batch, _ in seen]
    assert batches[0] == batches[1] == batches[2] < batches[3] < batches[4]
    assert [arrived for _, (arrived, _) in seen] == [2 * len(one), len(one), 0, 0, 0]
    assert [unsent for _, (_, unsent) in seen] == [0, 0, 0, 0, 100 - 50]


@pytest.mark.parametrize(("requests", "turns_beside"), [(16, 0), (17, 1), (40, 2)])
async def test_of_many_requests_at_once_sixteen_are_handled_in_a_turn(requests: int, turns_beside: int) -> None:
    turns = turns_of_run()
    take = turns.take
    taken: list[int] = []

    def noting_take(lane: Lane, units: int = 1) -> bool:
        taken.append(units)
        return take(lane, units)

    turns.take = noting_take
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        await trio.testing.wait_all_tasks_blocked()
        taken.clear()
        streams = range(1, 2 * requests, 2)
        await peer.send(*[peer.headers(stream, request_headers(path=WAIT.path.encode())) for stream in streams])
        await peer.until(lambda: all(peer.answer(stream).headers for stream in streams))
        assert taken.count(16) == turns_beside


async def _broken(*_: object) -> None:
    raise trio.BrokenResourceError("this side is shut")


async def test_a_server_that_cannot_write_any_more_ends_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    """Though nothing says so where it reads."""
    began = trio.current_time()
    service = CheckService()
    async with trio.open_nursery() as nursery:
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(serve_stream, [service.service()], theirs)
        peer = RawPeer(ours)
        await peer.send(PREFACE, settings(), peer.headers(1, request_headers(path=WAIT.path.encode())))
        await service.entered.wait()
        assert isinstance(theirs.send_stream, trio.testing.MemorySendStream)
        theirs.send_stream.send_all_hook = _broken
        await peer.send(frame(PING, 0, 0, bytes(8)))
        await service.cancelled.wait()
    assert trio.current_time() == began


async def drained(call: ClientCall) -> None:
    async for _ in call:
        pass


async def test_a_client_that_cannot_write_any_more_connects_anew(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()
    connected: list[Any] = []

    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve_stream, [CheckService().service()], theirs)
            connected.append(ours)
            return ours

        async with Channel.over(connect) as channel:
            async with channel.call(ECHO) as call:
                await call.send(Action(tick_id=1))
                assert (await call.receive()).tick_id == 1
                connected[0].send_stream.send_all_hook = _broken
                await call.send(Action(tick_id=2))
                await trio.testing.wait_all_tasks_blocked()
                connected[0].send_stream.send_all_hook = None
                with pytest.raises(RpcError, match="connection lost"):
                    await drained(call)
            assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5
            assert len(connected) == 2
        nursery.cancel_scope.cancel()
    assert trio.current_time() == began


async def test_one_connection_is_started_as_a_task_and_ends_when_its_peer_leaves() -> None:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            ours, theirs = trio.testing.memory_stream_pair()
            await nursery.start(serve_stream, [CheckService().service()], theirs)
            peer = RawPeer(ours)
            await peer.send(PREFACE, settings(), peer.headers(1, request_headers()))
            assert (
                await peer.echo(1, Action(tick_id=4).SerializeToString()) == Observation(tick_id=4).SerializeToString()
            )
            await ours.aclose()


async def _unexpected(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("client_side", [False, True])
async def test_what_goes_wrong_on_a_connection_stays_with_it_and_is_logged(
    client_side: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bool] = []
    _, theirs = trio.testing.memory_stream_pair()
    assert isinstance(theirs.receive_stream, trio.testing.MemoryReceiveStream)
    theirs.receive_stream.receive_some_hook = _unexpected
    connection = Connection(
        byte_stream_over(theirs),
        client_side=client_side,
        config=RpcConfig(),
        peer="somebody",
        on_change=lambda one: told.append(one.closed),
    )
    with trio.fail_after(30):
        await connection.run()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "connection with somebody failed")
    ]
    assert connection.closed
    assert connection.ready.is_set()
    assert told[-1]
    assert memory_of_run()._debtors == {}


async def test_a_connection_that_is_drained_before_it_runs_is_drained_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    connection = Connection(byte_stream_over(theirs), client_side=False, config=RpcConfig(), peer="somebody")
    connection.drain(trio.current_time() + 50)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        peer = RawPeer(ours)
        await peer.send(PREFACE, settings())
        await peer.until(lambda: peer.goaway is not None)
        assert peer.goaway == 0
        ping = next(payload for kind, _, _, payload in peer.frames if kind == PING)
        await peer.send(frame(PING, 1, 0, ping))
        await peer.until(lambda: False)
    assert trio.current_time() == 0


async def test_a_side_for_browsers_that_cannot_take_a_connection_closes_it(caplog: pytest.LogCaptureFixture) -> None:
    """What it needs could not be imported: no descriptor was left."""

    class Short:
        def connection(self, accepted: Accepted) -> Served:
            raise OSError(errno.EMFILE, "Too many open files")

        def grpc_web(self, *, secure: bool) -> None:
            return None

    caplog.set_level(logging.INFO)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            ours, theirs = trio.testing.memory_stream_pair()
            await ours.send_all(b"GET / HTTP/1.1\r\n\r\n")
            await nursery.start(partial(serve_stream, [CheckService().service()], theirs, web=Short()))
            assert await ours.receive_some() == b""
    assert ["connections of browsers: Too many open files" in record.getMessage() for record in caplog.records] == [
        True
    ]


@pytest.mark.parametrize("client_side", [False, True])
async def test_what_is_sent_costs_a_unit_and_one_more_for_each_32_kib(client_side: bool) -> None:
    """In the lane in which the connection is: what this process has asked for is not somebody else's work."""
    _, theirs = trio.testing.memory_stream_pair()
    connection = Connection(byte_stream_over(theirs), client_side=client_side, config=RpcConfig(), peer="somebody")
    taken: list[tuple[Lane, int]] = []
    turns = turns_of_run()

    def noting_take(lane: Lane, units: int = 1) -> bool:
        taken.append((lane, units))
        return True

    turns.take = noting_take
    for size in (0, 32 * 1024 - 1, 32 * 1024, 100_000):
        await connection._writers_turn(size)
    lane = Lane.ESTABLISHED if client_side else Lane.OTHERS
    assert taken == [(lane, units) for units in (1, 1, 2, 4)]


async def test_a_new_connection_costs_units_before_anything_is_known_of_it() -> None:
    """Where it is accepted, and for its first bytes, which may be anything; later a call costs some for its handler."""
    taken = noted_turns()
    async with raw_client([CheckService().service()]) as peer:
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(frame(PING, 0, 0, bytes(8)))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(peer.headers(1, request_headers(path=WAIT.path.encode())))
        await trio.testing.wait_all_tasks_blocked()
    assert taken[:2] == [(Lane.OTHERS, 5), (Lane.OTHERS, 8)]
    assert (Lane.OTHERS, 3) in taken[2:]


async def test_a_connection_that_is_being_closed_takes_no_calls() -> None:
    _, theirs = trio.testing.memory_stream_pair()
    connection = Connection(byte_stream_over(theirs), client_side=True, config=RpcConfig(), peer="somebody")
    reason = RpcError(StatusCode.UNAVAILABLE, "enough")
    seen = [connection.closed]
    connection.close(reason)
    seen.append(connection.closed)
    assert seen == [False, True]
    assert connection.reason is reason


async def test_the_calls_of_a_lost_connection_end_in_turns() -> None:
    taken = noted_turns()
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        streams = range(1, 11, 2)
        await peer.send(*[peer.headers(stream, request_headers(path=WAIT.path.encode())) for stream in streams])
        await peer.until(lambda: all(peer.answer(stream).headers for stream in streams))
        await trio.testing.wait_all_tasks_blocked()
        taken.clear()
        await peer.stream.aclose()
        await service.cancelled.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert taken.count((Lane.OTHERS, 1)) >= len(streams)


async def test_a_clients_calls_end_with_their_connection_at_once() -> None:
    """They run no handlers."""
    server = RawServer()
    async with Channel.over(server.connect) as channel, AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(channel.call(WAIT)) for _ in range(5)]
        peer = await server.receive.receive()
        await trio.testing.wait_all_tasks_blocked()
        taken = noted_turns()
        await trio.aclose_forcefully(peer.stream)
        for call in calls:
            with pytest.raises(RpcError, match="connection lost"):
                await call.receive()
    assert taken.count((Lane.OTHERS, 1)) == 0


async def test_who_ends_its_side_and_reads_nothing_has_the_ordinary_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    config = RpcConfig(keepalive_seconds=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_stream, [CheckService().service()], theirs, config=config))
        await ours.send_all(PREFACE + settings() + frame(PING, 0, 0, bytes(8)))
        await ours.send_eof()
        began = trio.current_time()
    assert trio.current_time() - began <= config.farewell_timeout_seconds + 1
