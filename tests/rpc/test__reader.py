"""A connection's reader alone, over bytes that are laid out for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import DATA, PING, RawPeer, frame, message, request_headers, settings
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import Turns
from trio_cogment.rpc._byte_stream import ByteStream
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import PREFACE, Kind
from trio_cogment.rpc._inbox import Inbox
from trio_cogment.rpc._message_path import MessagePath
from trio_cogment.rpc._reader import REQUESTS_PER_TURN, Reader
from trio_cogment.rpc._writer import Writer

START = PREFACE + settings()


class Pieces(ByteStream):
    """Brings one piece at a time, each a second after the one before, and then the end."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = [*pieces, b""]
        self.sent = b""

    async def receive_some(self) -> bytes:
        await trio.sleep(1)
        return self._pieces.pop(0)

    async def send_all(self, data: bytes) -> None:
        self.sent += data

    def send_now(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    async def aclose(self) -> None:
        raise NotImplementedError


class Liveness:
    heard = 0.0


class Read:
    """A server's reader, and what has come of its bytes."""

    def __init__(
        self,
        *pieces: bytes,
        on_request: Callable[[Any], None] | None = None,
        byte_stream: Pieces | None = None,
    ) -> None:
        self.engine = Engine(client_side=False, config=RpcConfig())
        self.byte_stream = byte_stream or Pieces(*pieces)
        self.writer = Writer(self.engine.output, self.byte_stream)
        self.turns = Turns()
        self.charged: list[int] = []
        self.liveness = Liveness()
        self.requests: list[int] = []
        self.on_request = on_request
        dispatch = dict.fromkeys(Kind, lambda *_: None) | {Kind.REQUEST: self._request}
        self.reader = Reader(self.engine, self.byte_stream, self.writer, self.turns, self.liveness, dispatch)
        take, charge = self.turns.take, self.turns.charge

        def taking(lane: Lane, units: int = 1) -> bool:
            self.charged.append(units)
            return take(lane, units)

        def charging(lane: Lane, units: int) -> None:
            self.charged.append(units)
            charge(lane, units)

        self.turns.take, self.turns.charge = taking, charging

    def _request(self, stream: Any, _: Any) -> None:
        assert self.writer.in_batch
        self.requests.append(stream.id)
        if self.on_request is not None:
            self.on_request(stream)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            try:
                await self.reader.run()
            finally:
                nursery.cancel_scope.cancel()


def requests(first: int, number: int) -> bytes:
    peer = RawPeer(None)  # type: ignore[arg-type]  # it encodes headers only
    streams = range(first, first + 2 * number, 2)
    return b"".join(peer.headers(stream, request_headers()) for stream in streams)


async def test_it_reads_to_the_end_and_says_when_it_heard_something(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()
    read = Read(START, frame(PING, 0, 0, b"question"))
    await read.run()
    assert read.reader.batch == 2
    assert read.liveness.heard == began + 3  # the end was heard, too
    assert read.byte_stream.sent.endswith(frame(PING, 1, 0, b"question"))


async def test_messages_go_to_their_call_and_what_is_of_no_call_nowhere(autojump_clock: trio.testing.MockClock) -> None:
    inbox = Inbox(None, "a call")

    def answer(stream: Any) -> None:
        if stream.id == 1:
            path = MessagePath(None, inbox, Action)  # type: ignore[arg-type]  # nothing is unusual here
            path.connect(stream, read.engine, read.writer.wake)

    data = [frame(DATA, 0, number, message(bytes([number]))) for number in (1, 3)]
    read = Read(START, requests(1, 2), *data, on_request=answer)
    await read.run()
    assert list(inbox.items) == [b"\1"]


async def test_what_a_batch_has_cost_is_what_the_next_is_expected_to_cost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ping = frame(PING, 0, 0, bytes(8))
    large = frame(PING, 0, 0, bytes(8)) * 300  # 5100 bytes
    read = Read(START, requests(1, 2), ping, ping, large, ping)
    with pytest.raises(RemoteProtocolError):  # this many are a flood
        await read.reader.run()
    # First what nobody knows yet; then a unit for each batch, and one for each request in it.
    assert read.charged == [8, 1 - 8, 1, 3 - 1, 3, 1 - 3, 1, 1]


async def test_requests_beyond_a_turn_s_wait_for_the_next(autojump_clock: trio.testing.MockClock) -> None:
    number = 2 * REQUESTS_PER_TURN + 1
    read = Read(START, requests(1, number))
    await read.run()
    assert read.requests == list(range(1, 2 * number, 2))
    # Those that are handled at once are charged afterwards, and a turn's worth before each of the others.
    assert read.charged[:6] == [8, 1 - 8, 1, *[REQUESTS_PER_TURN] * 3]
    assert read.reader.lane is Lane.OTHERS


async def test_a_fault_ends_it_and_what_was_before_is_handled(autojump_clock: trio.testing.MockClock) -> None:
    read = Read(START + requests(1, 1) + frame(PING, 0, 0, b"short"), frame(PING, 0, 0, bytes(8)))
    with pytest.raises(RemoteProtocolError, match="malformed PING"):
        await read.reader.run()
    assert read.requests == [1]
    assert read.reader.batch == 1


async def test_a_failure_while_handling_leaves_no_batch_open(autojump_clock: trio.testing.MockClock) -> None:
    def fail(_: Any) -> None:
        raise KeyError

    read = Read(START + requests(1, 1), on_request=fail)
    with pytest.raises(KeyError):
        await read.reader.run()
    assert not read.writer.in_batch


class Crowded(Pieces):
    """As `Pieces`, but all that it brings is there already, and nothing is answered."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(*pieces)
        self.waits = 0
        self.at_once = 0

    async def receive_some(self) -> bytes:
        self.waits += 1
        return await super().receive_some()

    def receive_now(self, size: int) -> bytes:
        if len(self._pieces[0]) > size:
            return b""
        self.at_once += 1
        return self._pieces.pop(0) if self._pieces[0] else b""


def acknowledgements(number: int) -> list[bytes]:
    return [frame(PING, 1, 0, bytes(8))] * number  # of pings that were never sent: nothing is to be done


async def test_what_has_come_meanwhile_is_read_without_waiting(autojump_clock: trio.testing.MockClock) -> None:
    stream = Crowded(START, *acknowledgements(5))
    read = Read(byte_stream=stream)
    await read.run()
    assert read.reader.batch == 6
    # The first batch is answered; then one is waited for, and the others are there. In the end somebody must wait.
    assert stream.waits == 3


async def test_others_have_their_turn_after_sixteen_reads(autojump_clock: trio.testing.MockClock) -> None:
    stream = Crowded(START, *acknowledgements(3 * 16))
    read = Read(byte_stream=stream)
    await read.run()
    assert read.reader.batch == 1 + 3 * 16
    assert stream.waits == 1 + 3 + 1


async def test_who_was_answered_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    stream = Crowded(START, *[frame(PING, 0, 0, bytes(8))] * 5)
    read = Read(byte_stream=stream)
    await read.run()
    assert stream.waits == 1 + 5 + 1
    assert not stream.at_once


async def test_new_calls_run_before_more_is_read(autojump_clock: trio.testing.MockClock) -> None:
    stream = Crowded(START, *(requests(number, 1) for number in (1, 3, 5)))
    read = Read(byte_stream=stream)
    await read.run()
    assert stream.waits == 1 + 3 + 1


async def test_reads_in_vain_become_rare(autojump_clock: trio.testing.MockClock) -> None:
    class Slow(Crowded):
        def receive_now(self, size: int) -> bytes:
            self.at_once += 1
            return b""

    stream = Slow(START, *acknowledgements(100))
    read = Read(byte_stream=stream)
    await read.run()
    assert stream.waits == 102
    assert stream.at_once == 4 + 6  # the first four, and then one in sixteen
