"""The memory that all connections of a server borrow: crowds that send halves, or read nothing, leave others enough.

Total is a mebibyte here: a connection may borrow a ninth of that at most, beside the 64 KiB that are free.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import trio
import trio.testing

from tests.rpc.raw_peer import DATA, PREFACE, WINDOW_UPDATE, RawPeer, frame, message, request_headers, settings
from tests.rpc.receive_windows import receive_window
from tests.rpc.test_grpcio import serialize, with_grpcio_client
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.byte_pool import BytePool, Loan
from trio_cogment.budget.memory import ConnectionMemory, memory_of_run
from trio_cogment.rpc import open_listeners, serve, serve_stream
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._streams import Stream
from trio_cogment.testing.conformance.channel import COUNT, ECHO, ECHO_ONE, CheckService

TOTAL = 2**20
CONFIG = RpcConfig(server_memory_bytes=TOTAL, max_receive_message_bytes=2**16, keepalive_seconds=0)
LARGE = RpcConfig(server_memory_bytes=16 * TOTAL, max_receive_message_bytes=TOTAL, keepalive_seconds=0)
Clock = trio.testing.MockClock


class Stuck:
    """A connection of which nothing comes, and whose peer reads nothing; it notes when it is first told."""

    def __init__(self) -> None:
        self.engine: Any = self
        self.call: Any = self
        self.missing = 100
        self.ended: dict[str, float] = {}

    def incomplete(self) -> list[Any]:
        return [self]

    def send_mark(self) -> object:
        return 1

    def settle(self) -> None:
        pass

    def reset(self, stream: Any, code: int) -> None:
        raise AssertionError("it has a call")

    def wake(self) -> None:
        pass

    def on_broken(self, _code: object, _text: str) -> None:
        self.ended.setdefault("message", trio.current_time())

    def close(self, _reason: object) -> None:
        self.ended.setdefault("reader", trio.current_time())


@asynccontextmanager
async def server(config: RpcConfig = CONFIG) -> AsyncIterator[Any]:
    """Yield a function that connects a peer on a virtual clock."""
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        stack.enter_context(memory_of_run().lent_by(config))

        async def connect() -> RawPeer:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(partial(serve_stream, [CheckService().service()], theirs, config=config))
            peer = RawPeer(ours)
            stack.push_async_callback(trio.aclose_forcefully, ours)
            await peer.send(PREFACE, settings())
            return peer

        yield connect
        nursery.cancel_scope.cancel()


def window_of(peer: RawPeer, sent: int) -> int:
    updates = (payload for kind, _, where, payload in peer.frames if (kind, where) == (WINDOW_UPDATE, 0))
    return 65_535 - sent + sum(int.from_bytes(payload, "big") for payload in updates)


async def send_halves(peer: RawPeer, calls: int) -> int:
    """Begin messages, as far as the windows allow within a second; return how many bytes were sent of them."""
    sent = 0
    piece = message(bytes(65_000))[:16_000]
    for number in range(calls):
        stream = 2 * number + 1
        with trio.move_on_after(1) as waiting:
            while window_of(peer, sent) < len(piece):
                await peer.pump()
        if waiting.cancelled_caught:
            break
        await peer.send(peer.headers(stream, request_headers(ECHO.path.encode())), frame(DATA, 0, stream, piece))
        sent += len(piece)
    return sent


async def test_a_connection_is_lent_windows(autojump_clock: Clock) -> None:
    async with server() as connect:
        peer = await connect()
        await peer.send(peer.headers(1, request_headers()))
        await peer.pump()
        assert not window_of(peer, 65_535)
        text = Action(content=bytes(1000)).SerializeToString()
        for _ in range(50):
            await peer.echo(1, text)
        # Half of the total is for windows, and one connection gets a ninth of that.
        assert window_of(peer, 50 * (len(text) + 5)) > 65_535
        assert 0 < memory_of_run().windows.used <= TOTAL / 2 / 9


async def test_halves_of_messages_stay_within_the_memory(autojump_clock: Clock) -> None:
    async with server() as connect:
        memory = memory_of_run().messages
        for _ in range(20):
            await send_halves(await connect(), 20)
            assert memory.used <= TOTAL
        other = await connect()
        await other.send(other.headers(1, request_headers()))
        text = Action(content=bytes(9_000)).SerializeToString()
        assert Observation.FromString(await other.echo(1, text)).content == bytes(9_000)


async def test_halves_give_way_when_others_wait(autojump_clock: Clock) -> None:
    async with server() as connect:
        peers = [await connect() for _ in range(20)]
        for peer in peers:
            await send_halves(peer, 20)
        await trio.sleep(10)
        texts = []
        for peer in peers:
            with trio.move_on_after(1):
                while True:
                    await peer.pump()
            texts += [answer.field(b"grpc-message") for answer in peer.answers.values() if answer.status == 8]
        assert texts
        assert all(text is not None and text.startswith(b"server_memory_bytes") for text in texts)
        assert not memory_of_run().messages.short


async def test_peers_that_read_nothing_stay_within_the_memory(autojump_clock: Clock) -> None:
    """Each asks for as much as it can get, 100 times; the one that reads gets everything."""
    async with server() as connect:
        memory = memory_of_run().messages
        peers = []
        for _ in range(30):
            peers.append(peer := await connect())
            for stream in range(1, 41, 2):
                # An answer of 60,000 bytes: the first fits into the window, the others wait.
                text = Action(content=bytes(60_000)).SerializeToString()
                with trio.move_on_after(0.1):
                    while window_of(peer, (stream // 2 + 1) * 60_020) < 0:
                        await peer.pump()
                    await peer.send(peer.headers(stream, request_headers()), frame(DATA, 0, stream, message(text)))
        await trio.testing.wait_all_tasks_blocked()
        assert memory.used < TOTAL * 1.1  # what is on its way already counts, whether there is room or not
        reader = await connect()
        await reader.send(reader.headers(1, request_headers()))
        text = Action(tick_id=3).SerializeToString()
        assert Observation.FromString(await reader.echo(1, text)).tick_id == 3
        await trio.sleep(120)
        assert not memory.short  # somebody has given way, or nobody waits


async def test_what_is_borrowed_is_given_back(autojump_clock: Clock) -> None:
    async with server() as connect:
        for _ in range(5):
            peer = await connect()
            await send_halves(peer, 20)
            await trio.aclose_forcefully(peer.stream)
        await trio.sleep(2)
        assert memory_of_run().messages.used == 0
        assert memory_of_run().windows.used == 0


async def test_a_large_message_waits_for_memory_and_comes_whole(autojump_clock: Clock) -> None:
    async with server(LARGE) as connect:
        memory = memory_of_run().messages
        hoard = memory.loan()
        hoard.set(int(memory.total) - 1000)
        peer = await connect()
        await peer.send(peer.headers(1, request_headers()))
        text = Action(content=bytes(900_000)).SerializeToString()
        begun = frame(DATA, 0, 1, message(text)[:16_000])
        await peer.send(begun)
        await trio.testing.wait_all_tasks_blocked()
        assert memory.short
        hoard.close()
        sent = 16_000
        rest = message(text)
        while sent < len(rest):
            step = min(16_000, len(rest) - sent)
            while window_of(peer, sent) < step:
                await peer.pump()
            await peer.send(frame(DATA, 0, 1, rest[sent : sent + step]))
            sent += step
        await trio.testing.wait_all_tasks_blocked()
        assert not memory.short


def test_a_message_larger_than_anybody_can_borrow_is_taken_when_there_is_enough() -> None:
    pool = BytePool(900_000)
    woken = []
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False, on_room=lambda: woken.append(1))
    stream = Stream(1, recv_window=0, send_window=0, max_message=0)
    assert queue.has_room(stream, 800_000)
    assert pool.used > 700_000
    other = SendQueue(RpcConfig(), pool.loan(), client_side=False, on_room=lambda: woken.append(2))
    assert other.has_room(stream, 60_000)  # that is free
    assert not other.has_room(stream, 200_000)
    queue.settle()
    assert woken == [2]
    assert other.has_room(stream, 100_000)


def test_small_output_is_free_and_long_output_is_borrowed() -> None:
    pool = BytePool(90_000_000)
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
    queue.window = 2**30
    stream = Stream(1, recv_window=0, send_window=2**30, max_message=0)
    queue.send_message(stream, bytes(10_000))
    assert pool.used == 0
    for _ in range(20):
        queue.send_message(stream, bytes(10_000))
    assert pool.used == 256 * 1024
    assert len(queue.take_output()) > 200_000
    assert pool.used > 0
    queue.sent()
    assert pool.used == 0


def test_without_memory_output_and_frames_are_short() -> None:
    pool = BytePool(1000)
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
    queue.window = 2**30
    queue.apply_settings(2**30, 2**20, [])
    stream = Stream(1, recv_window=0, send_window=2**30, max_message=0)
    queue.send_message(stream, bytes(900_000))
    assert len(queue.take_output()) < 70_000


def test_wide_windows_do_not_replace_memory() -> None:
    """A peer may grant what it likes, and read nothing from its socket."""
    pool = BytePool(900_000)
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
    queue.window = 2**30
    streams = [Stream(number, recv_window=0, send_window=2**30, max_message=0) for number in range(1, 201, 2)]
    for stream in streams:
        if queue.has_room(stream, 100_000):
            queue.send_message(stream, bytes(100_000))
    waiting = [stream for stream in streams if not stream.outbox]
    assert pool.used < 400_000
    assert len(waiting) > 90
    # When it reads, they go on, as far as the windows allow.
    while waiting:
        assert queue.take_output()
        queue.sent()
        for stream in queue.take_rooms():
            if queue.has_room(stream, 100_000):
                queue.send_message(stream, bytes(100_000))
                waiting.remove(stream)
        assert pool.used < 400_000


def test_a_call_that_is_read_goes_on_beside_those_that_are_not() -> None:
    pool = BytePool(900_000)
    queue = SendQueue(RpcConfig(), pool.loan(), client_side=False)
    queue.window = 2**30
    unread = [Stream(number, recv_window=0, send_window=0, max_message=0) for number in (1, 3, 5)]
    for stream in unread:
        if queue.has_room(stream, 60_000):
            queue.send_message(stream, bytes(60_000))
    read = Stream(7, recv_window=0, send_window=2**30, max_message=0)
    assert not queue.has_room(unread[-1], 60_000)
    for _ in range(10):
        assert queue.has_room(read, 60_000)
        queue.send_message(read, bytes(60_000))
        while read.outbox:
            queue.take_output()
            queue.sent()
        queue.take_output()
        queue.sent()
    hoard = pool.loan()
    hoard.set(int(pool.total) - pool.used - 50_000)
    assert not queue.has_room(read, 60_000)  # there is nothing left for so much
    assert queue.has_room(read, 30_000)


def test_while_nothing_can_be_borrowed_a_connection_is_not_credited() -> None:
    memory = ConnectionMemory()
    memory.messages.total = 1000
    memory.windows.total = 10**9
    updates: list[tuple[int, int]] = []
    streams = {number: Stream(number, recv_window=65_536, send_window=0, max_message=10**6) for number in (1, 3)}
    credited: list[int] = []
    window = receive_window(
        RpcConfig(),
        streams,
        lambda *update: updates.append(update),
        memory=memory,
        on_credit=lambda: credited.append(1),
    )
    for stream in streams.values():
        arrived = b"\0" + (60_000).to_bytes(4, "big") + bytes(50_000)
        stream.feed(arrived, 0, len(arrived), [])
        stream.held += len(arrived)
        window.received(min(len(arrived), window.size))
    window.credit_connection()
    assert updates == []
    assert memory.messages.short
    memory.messages.total = 10**6
    memory.messages.ask()
    assert [number for number, _ in updates] == [0]
    assert credited == [1]
    window.close()


async def test_grpcio_gets_its_answers_beside_a_crowd() -> None:
    """Over sockets: 40 connections send halves of messages, and 40 read nothing of what they have asked for."""

    async def lurk(peer: RawPeer) -> None:
        while not peer.eof:
            await peer.pump()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            listeners = await open_listeners("127.0.0.1")
            run = partial(serve, [CheckService().service()], listeners, config=CONFIG)
            port = (await nursery.start(run)).port
            for number in range(80):
                peer = RawPeer(await trio.open_tcp_stream("127.0.0.1", port))
                stack.push_async_callback(trio.aclose_forcefully, peer.stream)
                await peer.send(PREFACE, settings())
                if number % 2:
                    await peer.send(peer.headers(1, request_headers(COUNT.path.encode())), count_to(10**6))
                else:
                    half = message(bytes(65_000))[:16_000]
                    for stream in range(1, 9, 2):
                        await peer.send(
                            peer.headers(stream, request_headers(ECHO.path.encode())), frame(DATA, 0, stream, half)
                        )
                    nursery.start_soon(lurk, peer)

            def ask(channel: grpc.Channel) -> None:
                unary = channel.unary_unary(ECHO_ONE.path, serialize, Observation.FromString)
                for tick in range(20):
                    reply = unary(Action(tick_id=tick, content=bytes(50_000)), timeout=20)
                    assert (reply.tick_id, len(reply.content)) == (tick, 50_000)

            await with_grpcio_client(port, ask)
            assert memory_of_run().messages.used < TOTAL * 1.1
            nursery.cancel_scope.cancel()


def count_to(number: int) -> bytes:
    return frame(DATA, 1, 1, message(Action(tick_id=number).SerializeToString()))


async def test_a_message_has_two_seconds_to_get_on_and_a_reader_ten(autojump_clock: Clock) -> None:
    """From when others wait; and they are looked at again whenever somebody waits again."""
    memory = ConnectionMemory()
    debtor = Stuck()
    memory.watch(debtor)
    memory.messages.total = 1000
    memory.messages.on_short = memory.look_at_debts
    for _ in range(2):
        debtor.ended.clear()
        other, waiting = memory.messages.loan(), memory.messages.loan()

        def ask(loan: Loan = waiting) -> None:
            loan.wait(ask)

        other.set(1000)
        ask()
        began = trio.current_time()
        await trio.sleep(30)
        assert {what: round(when - began) for what, when in debtor.ended.items()} == {"message": 2, "reader": 10}
        for loan in (waiting, other):
            loan.close()
        await trio.sleep(5)
        assert not memory.messages.short
