"""Input of browsers by halves, or a thousand times, is bounded: others get on."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong

from tests.web.peers import ECHO, ECHO_ONE, HOST, OWN, WAIT, Served, Tab, read_answer, served, serving, websocket_fields
from tests.web.test_output import ask
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig, WebConfig
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.budget.turns import measure_turns_by
from trio_cogment.rpc import ServerCall, open_listeners, serve, serve_stream
from trio_cogment.testing.conformance.channel_service import CheckService, Collector
from trio_cogment.web import WebSide
from trio_cogment.web.frames import message_frame
from trio_cogment.web.intake import Intake, units_of
from trio_cogment.web.replies import Reply
from trio_cogment.web.routing import Route, Socket, SocketRoute, Visit

PATIENCE_SECONDS = 60
KIB = 1024
TOTAL = KIB * KIB
#: What a connection may have without a loan.
FREE = 16 * KIB
BYTES = 60_000
#: Twice as many as can have as much.
CROWD = 60
CONFIG = RpcConfig(server_memory_bytes=TOTAL, max_receive_message_bytes=64 * KIB)
PATIENT = WebConfig(
    write_stall_timeout_seconds=3000.0, ping_seconds=1000.0, body_timeout_seconds=1000.0, head_timeout_seconds=1000.0
)
SMALL = message_frame(Action(tick_id=1).SerializeToString())
HEAD = b"content-type: application/grpc-web+proto\r\n"


# --- the books of one connection ---


async def test_a_message_is_borrowed_with_what_is_known_to_follow() -> None:
    pool = BytePool(9 * TOTAL)
    intake = Intake(pool.loan())
    await intake.begin(1000, FREE + 50_000)
    assert pool.used == 51_000
    before = intake.missing
    await intake.begin(30_000, FREE + 21_000)
    assert pool.used == 51_000
    assert before - intake.missing == 29_000
    await intake.begin(0, 0)
    assert (pool.used, intake.missing) == (0, 0)


async def test_a_message_that_is_handed_over_is_counted_once() -> None:
    pool = BytePool(9 * TOTAL)
    intake = Intake(pool.loan())
    await intake.begin(FREE + 50_000, 0)
    pool.loan().set(9 * TOTAL)  # there is nothing for anybody else
    used = pool.used
    assert intake.admits(FREE + 50_000, lambda: None)
    await intake.take(FREE + 50_000)
    assert (pool.used, intake.begun, intake.queued, intake.missing) == (used, 0, FREE + 50_000, 0)
    assert not intake.admits(1, lambda: None)
    intake.queue(-FREE - 50_000)
    assert pool.used == 9 * TOTAL


async def test_who_may_not_borrow_waits_until_it_may(autojump_clock: object) -> None:
    pool = BytePool(9 * TOTAL)
    other, intake = pool.loan(), Intake(pool.loan())
    other.set(9 * TOTAL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.begin, 100, FREE + 1000)
        await trio.testing.wait_all_tasks_blocked()
        assert intake.held == 0
        other.set(0)
        await trio.testing.wait_all_tasks_blocked()
        assert intake.held == FREE + 1100
    intake.discard()
    assert pool.used == 0


async def test_what_a_request_has_left_behind_is_given_back() -> None:
    pool = BytePool(9 * TOTAL)
    intake = Intake(pool.loan())
    await intake.begin(FREE + 1000, 0)
    intake.release()
    assert (pool.used, intake.held, intake.missing) == (0, 0, 0)


async def test_a_request_that_waits_behind_a_call_is_counted(autojump_clock: object) -> None:
    pool = memory_of_run().messages
    head = f"POST {WAIT} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/grpc-web+proto\r\n"
    call = head.encode() + b"content-length: %d\r\n\r\n" % len(SMALL) + SMALL
    async with served(side()) as there:
        await there.send(call)
        await there.service.entered.wait()
        await there.send(call + bytes(BYTES))
        await trio.testing.wait_all_tasks_blocked()
        unread = len(SMALL) - 5  # the handler takes no message
        assert pool.used == len(call) + BYTES + unread - FREE
    assert pool.used == 0


# --- a crowd ---


async def read_nothing(visit: Visit, socket: Socket) -> None:
    await trio.sleep_forever()


async def page(visit: Visit) -> Reply:
    return Reply(200, b"")


def side() -> WebSide:
    return WebSide(
        config=PATIENT,
        routes=lambda: (
            SocketRoute("/socket", read_nothing, right=None),
            Route("POST", "/page", page, right=None, max_body_bytes=64 * KIB),
        ),
    )


def frame_head(first: int, size: int) -> bytes:
    return bytes((first, 0xFE)) + size.to_bytes(2, "big") + bytes(4)


async def half_by_grpc_web(stream: trio.abc.Stream) -> None:
    head = f"POST {ECHO_ONE} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/grpc-web+proto\r\n"
    await stream.send_all(head.encode() + b"content-length: 70000\r\n\r\n\0" + BYTES.to_bytes(4, "big"))
    await stream.send_all(bytes(BYTES - 1))


async def _upgraded(stream: trio.abc.Stream) -> None:
    client = await ask(stream, "GET", ECHO, **websocket_fields())
    assert (await read_answer(client, stream)).status == 101
    await stream.send_all(Connection(ConnectionType.CLIENT).send(BytesMessage(data=HEAD)))


async def half_by_websocket(stream: trio.abc.Stream) -> None:
    await _upgraded(stream)
    await stream.send_all(frame_head(0x82, BYTES))
    await stream.send_all(bytes(BYTES - 1))


async def half_by_fragments(stream: trio.abc.Stream) -> None:
    await _upgraded(stream)
    for number in range(BYTES // 1000):
        await stream.send_all(frame_head(0 if number else 2, 1000) + bytes(1000))


async def half_of_grpc_by_websocket(stream: trio.abc.Stream) -> None:
    """Messages of the WebSocket that are whole, with a part of one of gRPC in each."""
    await _upgraded(stream)
    await stream.send_all(frame_head(0x82, 1006) + b"\0\0" + BYTES.to_bytes(4, "big") + bytes(1000))
    for _ in range(BYTES // 1000 - 2):
        await stream.send_all(frame_head(0x82, 1001) + bytes(1001))


async def half_by_page(stream: trio.abc.Stream) -> None:
    await stream.send_all(f"POST /page HTTP/1.1\r\nhost: {HOST}\r\norigin: {OWN}\r\n".encode())
    await stream.send_all(b"content-length: %d\r\n\r\n" % BYTES)
    await stream.send_all(bytes(BYTES - 1))


async def unread_by_page_socket(stream: trio.abc.Stream) -> None:
    fields = websocket_fields()
    del fields["sec_websocket_protocol"]
    client = await ask(stream, "GET", "/socket", **fields)
    assert (await read_answer(client, stream)).status == 101
    for _ in range(4):
        await stream.send_all(frame_head(0x82, BYTES // 4) + bytes(BYTES // 4))


Sending = Callable[[trio.abc.Stream], Awaitable[None]]
HALVES = [
    half_by_grpc_web,
    half_by_websocket,
    half_by_fragments,
    half_of_grpc_by_websocket,
    half_by_page,
    unread_by_page_socket,
]


async def send(stream: trio.abc.Stream, sending: Sending) -> None:
    try:
        await sending(stream)
    except trio.BrokenResourceError:
        pass  # it was given up


def joined(nursery: trio.Nursery, ours: trio.abc.Stream, theirs: trio.abc.Stream) -> Served:
    service = CheckService()
    there = Served(ours, service)

    async def run() -> None:
        await serve_stream([service.service()], theirs, web=side(), config=CONFIG)
        there.ended.set()

    nursery.start_soon(run)
    return there


@pytest.mark.parametrize("sending", HALVES)
async def test_a_crowd_that_sends_by_halves(sending: Sending, autojump_clock: trio.testing.MockClock) -> None:
    """It holds no more than there is, and a neighbour with a small message gets on."""
    pool = memory_of_run().messages
    with memory_of_run().lent_by(CONFIG):
        async with trio.open_nursery() as nursery:
            crowd = [joined(nursery, *trio.testing.lockstep_stream_pair()) for _ in range(CROWD)]
            for one in crowd:
                nursery.start_soon(send, one.stream, sending)
            await trio.testing.wait_all_tasks_blocked()
            assert TOTAL / 2 < pool.used <= TOTAL
            assert pool.short
            neighbour = joined(nursery, *trio.testing.lockstep_stream_pair())
            with trio.fail_after(1):
                answer = await neighbour.ask("POST", ECHO_ONE, SMALL, content_type="application/grpc-web+proto")
            assert answer.status == 200
            nursery.cancel_scope.cancel()
        assert pool.used == 0


@pytest.mark.parametrize("sending", HALVES[:-1])
async def test_who_sends_nothing_more_is_refused_while_others_wait(
    sending: Sending, autojump_clock: trio.testing.MockClock
) -> None:
    answers: list[bytes] = []
    with memory_of_run().lent_by(CONFIG):
        async with trio.open_nursery() as nursery:

            async def take_part(stream: trio.abc.Stream) -> None:
                await sending(stream)
                data = b""
                while more := await stream.receive_some():
                    data += more
                answers.append(data)

            for _ in range(CROWD):
                there = joined(nursery, *trio.testing.memory_stream_pair())
                nursery.start_soon(take_part, there.stream)
            await trio.sleep(60)
            assert not memory_of_run().messages.short
            nursery.cancel_scope.cancel()
    assert CROWD / 4 < len(answers) <= CROWD
    expected = b"HTTP/1.1 429 " if sending is half_by_page else b"grpc-status: 8"
    assert all(expected in data and b"server_memory_bytes" in data for data in answers)


@pytest.mark.parametrize("sending", HALVES[:-1])
async def test_who_has_waited_for_memory_for_long_is_refused(
    sending: Sending, autojump_clock: trio.testing.MockClock
) -> None:
    pool = memory_of_run().messages
    with memory_of_run().lent_by(CONFIG):
        pool.loan().set(TOTAL)
        async with trio.open_nursery() as nursery:
            there = joined(nursery, *trio.testing.memory_stream_pair())
            await sending(there.stream)
            data = await there.rest()
            assert b"there was no memory for a message" in data
            assert 5 <= trio.current_time() < 7
            nursery.cancel_scope.cancel()


async def test_half_a_message_of_a_page_is_counted(autojump_clock: object) -> None:
    pool = memory_of_run().messages
    async with served(side()) as there:
        await Tab(there.stream).open("/socket")
        await there.send(frame_head(0x82, BYTES) + bytes(BYTES - 1))
        await trio.testing.wait_all_tasks_blocked()
        assert BYTES - FREE <= pool.used <= BYTES
    assert pool.used == 0


async def wait_short(pool: BytePool, *, short: bool) -> None:
    while pool.short is not short:  # noqa: ASYNC110  there is no event for it
        await trio.sleep(0.01)


async def test_a_client_that_has_gone_while_it_waited_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has sent before is not worth the memory."""
    monkeypatch.setattr("trio_cogment.web.intake._PATIENCE_SECONDS", 3000.0)
    service = CheckService()
    pool = memory_of_run().messages
    async with trio.open_nursery() as nursery:
        serving = partial(serve, web=side(), config=CONFIG)
        running = await nursery.start(serving, [service.service()], await open_listeners("127.0.0.1"))
        hog = pool.loan()
        hog.set(TOTAL)
        stream = await trio.open_tcp_stream("127.0.0.1", running.port)
        await half_by_websocket(stream)
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_short(pool, short=True)
            # Something is unread here, so it is reset.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.aclose()
            await wait_short(pool, short=False)
        assert pool.used == TOTAL
        hog.close()
        nursery.cancel_scope.cancel()


async def test_a_message_that_is_announced_too_large_is_refused_at_once(autojump_clock: object) -> None:
    async with served(side()) as there:
        await _upgraded(there.stream)
        await there.send(bytes((0x82, 0xFF)) + (2**40).to_bytes(8, "big") + bytes(4))
        assert (1009).to_bytes(2, "big") in await there.rest()
    assert memory_of_run().messages.used == 0


# --- pings ---


async def test_who_waits_for_memory_is_not_taken_for_gone(autojump_clock: object) -> None:
    """Nothing is read meanwhile, and so no answer to a ping is."""
    config = WebConfig(ping_seconds=1, ping_timeout_seconds=1)
    with memory_of_run().lent_by(CONFIG):
        hog = memory_of_run().messages.loan()
        async with served(WebSide(config=config), config=CONFIG) as there:
            await _upgraded(there.stream)
            await trio.sleep(0.5)
            hog.set(TOTAL)
            content = Action(tick_id=7, content=bytes(BYTES)).SerializeToString()
            message = b"\0" + message_frame(content)
            await there.send(frame_head(0x82, len(message)) + message[:-1])
            await trio.sleep(4)
            hog.set(0)
            await there.send(message[-1:])
            answer = b""
            while len(answer) < BYTES:
                more = await there.stream.receive_some()
                assert more, "it was given up"
                answer += more
        hog.close()


async def test_a_page_that_waits_for_memory_is_not_taken_for_gone(autojump_clock: object) -> None:
    async def size_of_each(visit: Visit, socket: Socket) -> None:
        while True:
            await socket.send(b"%d" % len(await socket.receive()))

    there_is = WebSide(
        config=WebConfig(ping_seconds=1, ping_timeout_seconds=1),
        routes=lambda: (SocketRoute("/sizes", size_of_each, right=None),),
    )
    with memory_of_run().lent_by(CONFIG):
        hog = memory_of_run().messages.loan()
        async with served(there_is, config=CONFIG) as there:
            tab = Tab(there.stream)
            await tab.open("/sizes")
            hog.set(TOTAL)
            await there.send(frame_head(0x82, BYTES) + bytes(BYTES - 1))
            await trio.sleep(4)
            hog.set(0)
            await there.send(b"\0")
            assert await tab.message() == b"%d" % BYTES
        hog.close()


@pytest.mark.parametrize("of_page", [False, True])
async def test_only_the_last_ping_is_answered_to_who_does_not_read(of_page: bool, autojump_clock: object) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with serving(ours, theirs, side()) as there:
        client = Connection(ConnectionType.CLIENT)
        if of_page:
            await Tab(there.stream).open("/socket")
        else:
            await _upgraded(there.stream)
        for number in range(200):
            await there.send(client.send(Ping(payload=b"%d" % number)))
        answered: list[bytes] = []
        while not answered or answered[-1] != b"199":
            client.receive_data(bytes(await there.stream.receive_some()))
            answered += [bytes(event.payload) for event in client.events() if isinstance(event, Pong)]
        assert len(answered) < 10


async def test_answers_to_pings_go_between_messages(autojump_clock: object) -> None:
    """Nothing that is sent piece by piece is cut by one."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    sizes = [300 * KIB, 600 * KIB, 10]

    async def send_much(visit: Visit, socket: Socket) -> None:
        for size in sizes:
            await socket.send(bytes(size))

    large = WebSide(
        config=WebConfig(write_high_water_bytes=2**20),
        routes=lambda: (SocketRoute("/socket", send_much, right=None),),
    )
    async with serving(ours, theirs, large) as there:
        tab = Tab(there.stream)
        await tab.open("/socket")
        client, found, pongs = Connection(ConnectionType.CLIENT), [0], 0
        while True:
            await there.send(client.send(Ping(payload=b"x")))
            client.receive_data(bytes(await there.stream.receive_some(100 * KIB)))
            for event in client.events():
                if isinstance(event, BytesMessage):
                    found[-1] += len(event.data)
                    if event.message_finished:
                        found.append(0)
                elif isinstance(event, Pong):
                    pongs += 1
                elif isinstance(event, CloseConnection):
                    assert found[:3] == sizes
                    assert pongs
                    return


# --- turns ---


def test_what_was_read_costs_a_turn_by_its_size() -> None:
    """All of it may be tiny frames."""
    assert units_of(b"x") == 1
    assert units_of(bytes(64 * KIB)) >= 64


@pytest.fixture
async def long_passes() -> None:
    """Every pass of the loop seems to take long, so little is done in each."""
    measure_turns_by(itertools.count().__next__)


async def passes_during(work: Callable[[], Awaitable[None]]) -> int:
    """Return how often another task had its turn meanwhile."""
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await work()
        nursery.cancel_scope.cancel()
    return passes


def masked(message: bytes) -> bytes:
    return frame_head(0x82, len(message)) + message


MANY = 8000
#: What one read brings, and what it is made of.
CROWDED = {
    "messages in a message": masked(b"\0" + bytes(5) * MANY),
    "messages": (bytes((0x82, 0x86)) + bytes(10)) * (MANY // 2),
    "pings": (bytes((0x89, 0x80)) + bytes(4)) * MANY,
    "fragments": bytes((0x02, 0x80)) + bytes(4) + (bytes((0x00, 0x80)) + bytes(4)) * 4000,
}


@pytest.mark.parametrize("data", CROWDED.values(), ids=CROWDED)
async def test_many_small_things_let_others_have_their_turn(data: bytes, long_passes: None) -> None:
    async with served(side()) as there:
        await _upgraded(there.stream)
        await trio.testing.wait_all_tasks_blocked()

        async def work() -> None:
            await there.send(data + masked(bytes((2,)) * 200))  # the last one is not allowed, and ends it
            await there.rest()

        assert await passes_during(work) > 50


async def test_many_requests_let_others_have_their_turn(long_passes: None) -> None:
    async with served(side()) as there:

        async def work() -> None:
            await there.send(f"GET /none HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode() * 1000 + b"no request\r\n\r\n")
            assert (await there.rest()).count(b"HTTP/1.1 404 ") == 1000

        assert await passes_during(work) > 50


async def test_many_small_chunks_let_others_have_their_turn(long_passes: None) -> None:
    async with served(side()) as there:

        async def work() -> None:
            head = f"POST /page HTTP/1.1\r\nhost: {HOST}\r\norigin: {OWN}\r\ntransfer-encoding: chunked\r\n\r\n"
            await there.send(head.encode() + b"1\r\nx\r\n" * 4000 + b"0\r\n\r\n" + b"no request\r\n\r\n")
            assert (await there.rest()).startswith(b"HTTP/1.1 200 ")

        assert await passes_during(work) > 50


async def test_many_small_messages_of_one_request_let_others_have_their_turn(long_passes: None) -> None:
    """Also where the handler takes each in the same moment, and so never has the caller wait."""
    collector = Collector()

    async def take_all(call: ServerCall) -> None:
        call.set_consumer(collector)
        await collector.wait_for_end()

    service = Service("a.B")
    service.add_method("C", take_all, RPCSignature(Cardinality.STREAM_STREAM, Action, Observation))
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_stream, [service], theirs, web=side()))
        there = Served(ours, CheckService())

        async def work() -> None:
            kind = "application/grpc-web+proto"
            assert b"grpc-status: 0" in (await there.ask("POST", "/a.B/C", bytes(5) * MANY, content_type=kind)).body

        assert await passes_during(work) > 50
        assert len(collector.messages) == MANY
        nursery.cancel_scope.cancel()
