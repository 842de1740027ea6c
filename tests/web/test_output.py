"""Output to browsers that do not read is bounded, and those that read get on."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable

import h11
import pytest
import trio
import trio.testing

from tests.web.peers import HOST, OWN, Served, read_answer, websocket_fields
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig, WebConfig
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.rpc import serve_stream
from trio_cogment.testing.conformance.channel_service import ECHO_ONE, SIZED, CheckService
from trio_cogment.web import WebSide
from trio_cogment.web.frames import message_frame
from trio_cogment.web.output import Pending
from trio_cogment.web.replies import Reply
from trio_cogment.web.routing import Route, Socket, SocketRoute, Visit

TOTAL = 2**20
CONFIG = RpcConfig(server_memory_bytes=TOTAL, max_receive_message_bytes=2**16)
#: The bytes of an answer. The crowd wants to borrow three times as much as there is.
BYTES = 120_000
CROWD = 60
#: So patient that whoever reads nothing is given up for another reason.
PATIENT = WebConfig(write_stall_timeout_seconds=3000.0, ping_seconds=1000.0)
CALL = message_frame(Action(tick_id=BYTES).SerializeToString())

#: What is handed to the system at once.
PIECE = 256 * 1024

Asking = Callable[[trio.abc.Stream], Awaitable[None]]


def test_much_output_goes_in_pieces_and_answers_between_messages() -> None:
    """A client has some time for each piece, so none may be large; and a ping's answer may not cut a message."""
    output = Pending(BytePool(9 * TOTAL).loan())
    output.add(bytes(2 * PIECE + 10))
    assert len(output.take_output()) == PIECE
    output.answer(b"replaced")
    output.answer(b"pong")
    assert output.out_size == PIECE + 10 + 4
    assert output.take_output() == bytes(PIECE)
    assert output.take_output() == bytes(10) + b"pong"
    assert output.out_size == 0
    for fresh in (Pending(BytePool(TOTAL).loan()), output):
        fresh.add(b"message")
        fresh.answer(b"pong")
        assert fresh.take_output() == b"pongmessage"


def test_nothing_comes_between_pieces_that_belong_together() -> None:
    output = Pending(BytePool(9 * TOTAL).loan())
    shared = bytes(2 * PIECE)
    output.add(b"head", shared, b"", b"tail")
    output.add(b"another", b"another")
    assert output.out_size == 4 + 2 * PIECE + 4 + 14
    assert output.take_output() == b"head" + bytes(PIECE - 4)
    output.answer(b"pong")
    assert output.take_output() == bytes(PIECE)
    assert output.take_output() == bytes(4) + b"tail" + b"pong" + b"anotheranother"
    assert output.out_size == 0


def test_what_others_have_too_is_not_copied_before_it_is_taken() -> None:
    shared = bytes(64 * PIECE)
    tracemalloc.start()
    try:
        outputs = [Pending(BytePool(100 * TOTAL).loan()) for _ in range(10)]
        for output in outputs:
            output.add(b"head", shared)
            assert len(output.take_output()) == PIECE
        assert tracemalloc.get_traced_memory()[1] < 4 * PIECE
    finally:
        tracemalloc.stop()


def test_what_is_dropped_is_not_sent() -> None:
    pool = BytePool(9 * TOTAL)
    output = Pending(pool.loan())
    output.add(bytes(1000))
    output.answer(b"pong")
    output.discard()
    assert (output.out_size, output.held, pool.used) == (0, 0, 0)
    assert output.take_output() == b""


async def socket_of_bytes(visit: Visit, socket: Socket) -> None:
    await socket.send(bytes(BYTES))
    await trio.sleep_forever()


async def page_of_bytes(visit: Visit) -> Reply:
    return Reply(200, bytes(BYTES))


def side() -> WebSide:
    return WebSide(
        config=PATIENT,
        routes=lambda: (
            SocketRoute("/socket", socket_of_bytes, right=None),
            Route("GET", "/page", page_of_bytes, right=None),
        ),
    )


async def ask(stream: trio.abc.Stream, method: str, path: str, body: bytes = b"", /, **fields: str) -> h11.Connection:
    client = h11.Connection(h11.CLIENT)
    pairs = [("host", HOST), ("origin", OWN), *((name.replace("_", "-"), value) for name, value in fields.items())]
    if body:
        pairs.append(("content-length", str(len(body))))
    data = client.send(h11.Request(method=method, target=path, headers=pairs)) or b""
    if body:
        data += client.send(h11.Data(data=body)) or b""
    client.send(h11.EndOfMessage())
    await stream.send_all(data)
    return client


def masked(message: bytes) -> bytes:
    return bytes((0x82, 0x80 | len(message))) + bytes(4) + message


async def by_grpc_web(stream: trio.abc.Stream) -> None:
    await ask(stream, "POST", SIZED.path, CALL, content_type="application/grpc-web+proto")


async def by_websocket(stream: trio.abc.Stream) -> None:
    client = await ask(stream, "GET", SIZED.path, **websocket_fields())
    assert (await read_answer(client, stream)).status == 101
    await stream.send_all(masked(b"content-type: application/grpc-web+proto\r\n") + masked(b"\0" + CALL))


async def by_page_socket(stream: trio.abc.Stream) -> None:
    fields = websocket_fields()
    del fields["sec_websocket_protocol"]
    client = await ask(stream, "GET", "/socket", **fields)
    assert (await read_answer(client, stream)).status == 101


async def by_page(stream: trio.abc.Stream) -> None:
    await ask(stream, "GET", "/page")


def joined(nursery: trio.Nursery) -> Served:
    ours, theirs = trio.testing.lockstep_stream_pair()
    service = CheckService()
    there = Served(ours, service)

    async def run() -> None:
        await serve_stream([service.service()], theirs, web=side(), config=CONFIG)
        there.ended.set()

    nursery.start_soon(run)
    return there


async def read_all(stream: trio.abc.Stream, size: int) -> None:
    """Read until so much has come, a piece now and then."""
    while size > 0:
        await trio.sleep(0.1)
        data = await stream.receive_some(8192)
        assert data
        size -= len(data)


@pytest.mark.parametrize("asking", [by_grpc_web, by_websocket, by_page_socket, by_page])
async def test_a_crowd_that_does_not_read(asking: Asking, autojump_clock: trio.testing.MockClock) -> None:
    """It holds no more than there is, who reads gets on, and who does not is given up."""
    pool = memory_of_run().messages
    with memory_of_run().lent_by(CONFIG):
        async with trio.open_nursery() as nursery:
            crowd = []
            for _ in range(CROWD):
                crowd.append(joined(nursery))
                await asking(crowd[-1].stream)
            await trio.testing.wait_all_tasks_blocked()
            assert TOTAL / 2 < pool.used <= TOTAL
            assert pool.short
            neighbour = joined(nursery)
            body = message_frame(Action(tick_id=1).SerializeToString())
            with trio.fail_after(1):
                answer = await neighbour.ask("POST", ECHO_ONE.path, body, content_type="application/grpc-web+proto")
            assert answer.status == 200
            reader = crowd.pop(0)  # has borrowed
            await read_all(reader.stream, BYTES)
            assert not reader.ended.is_set()
            with trio.fail_after(60):
                while memory_of_run().messages.short:  # noqa: ASYNC110  virtual time is free
                    await trio.sleep(1)
            ended = sum(one.ended.is_set() for one in crowd)
            assert 0 < ended < CROWD - 1  # as many as make room for the others
            assert not neighbour.ended.is_set()
            assert pool.used <= TOTAL
            nursery.cancel_scope.cancel()
        assert pool.used == 0


async def test_who_asks_and_asks_and_reads_nothing_is_not_listened_to(autojump_clock: trio.testing.MockClock) -> None:
    pool = memory_of_run().messages
    with memory_of_run().lent_by(CONFIG):
        async with trio.open_nursery() as nursery:
            there = joined(nursery)
            request = f"GET /page HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
            with trio.move_on_after(5) as scope:
                for _ in range(1000):
                    await there.send(request * 100)
            assert scope.cancelled_caught
            assert pool.used <= 2 * BYTES
            nursery.cancel_scope.cancel()


async def test_what_is_on_its_way_counts() -> None:
    pool = BytePool(2**26)
    output = Pending(pool.loan())
    output.add(bytes(2**18))
    borrowed = pool.used
    assert borrowed == 2**18 - 2**16
    assert len(output.take_output()) == 2**18
    assert pool.used == borrowed
    mark = output.send_mark()
    assert mark is not None
    output.sent()
    assert pool.used == 0
    assert output.send_mark() is None
    output.add(bytes(2**18))
    output.discard()
    assert (pool.used, output.out_size) == (0, 0)
