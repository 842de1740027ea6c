"""Calls over WebSockets: what is refused, broken input, pings, the end, and what an actor is told."""

from __future__ import annotations

import itertools
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import h11
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from purerpc import Cardinality, RPCSignature, Service
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from tests.web.peers import ECHO, HOST, WAIT, Served, read_answer, served, websocket_fields
from trio_cogment.api.common_pb2 import Action, ActorRunTrialInput, ActorRunTrialOutput, CommunicationState, Observation
from trio_cogment.base.config import RpcConfig, WebConfig
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.rpc import ServerCall, open_listeners, serve, serve_stream
from trio_cogment.rpc.relay import parse_trailers
from trio_cogment.testing.conformance.channel import CheckService
from trio_cogment.web import WebSide
from trio_cogment.web.frames import message_frame
from trio_cogment.web.requests import Request, lines
from trio_cogment.web.websockets import Answer, BrokenSocketError, Closed, WebSocket

HEAD = b"content-type: application/grpc-web+proto\r\nx-grpc-web: 1\r\n"


def action(tick: int) -> bytes:
    return b"\x00" + message_frame(Action(tick_id=tick).SerializeToString())


def answer(tick: int) -> bytes:
    return message_frame(Observation(tick_id=tick).SerializeToString())


class Socket:
    """A WebSocket, as a browser has it.

    Attributes:
        closed: the code with which the server has closed it.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.wsproto = Connection(ConnectionType.CLIENT)
        self.messages: list[bytes] = []
        self.pings = 0
        self.closed: int | None = None

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            await self.stream.send_all(self.wsproto.send(BytesMessage(data=message)))

    async def events(self) -> list[Any]:
        data = bytes(await self.stream.receive_some())
        assert data, "the connection was closed without a word"
        self.wsproto.receive_data(data)
        return list(self.wsproto.events())

    async def receive(self) -> bytes | None:
        """Return the next message; None: it has been closed."""
        while not self.messages and self.closed is None:
            for event in await self.events():
                if isinstance(event, BytesMessage):
                    self.messages.append(bytes(event.data))
                elif isinstance(event, Ping):
                    self.pings += 1
                elif isinstance(event, CloseConnection):
                    self.closed = int(event.code)
        return self.messages.pop(0) if self.messages else None

    async def status(self) -> tuple[StatusCode, str]:
        """Return how the call has ended; no message may come before."""
        block = await self.receive()
        assert block is not None
        assert block[0] == 0x80
        if b"grpc-status" not in block:
            block = await self.receive()
            assert block is not None
        trailers = parse_trailers(lines(block[5:]))
        assert await self.receive() is None
        return trailers.code, trailers.message


async def handshake(stream: trio.abc.Stream, path: str, fields: dict[str, str]) -> tuple[int, dict[str, str]]:
    client = h11.Connection(h11.CLIENT)
    pairs = [("host", HOST), *((name.replace("_", "-"), value) for name, value in fields.items())]
    await stream.send_all(client.send(h11.Request(method="GET", target=path, headers=pairs)) or b"")
    client.send(h11.EndOfMessage())
    found = await read_answer(client, stream)
    return found.status, found.headers


@asynccontextmanager
async def opened(path: str, *, side: WebSide | None = None, **options: Any) -> AsyncIterator[tuple[Served, Socket]]:
    async with served(side, **options) as there:
        status, headers = await handshake(there.stream, path, websocket_fields())
        assert status == 101
        assert headers["sec-websocket-protocol"] == "grpc-websockets"
        assert "sec-websocket-extensions" not in headers
        yield there, Socket(there.stream)


async def test_a_call(autojump_clock: object) -> None:
    async with opened(ECHO) as (there, socket):
        await socket.send(HEAD, action(1), action(2))
        assert await socket.receive() == b"\x80\x00\x00\x00\x00"
        assert await socket.receive() == answer(1)
        assert await socket.receive() == answer(2)
        await socket.send(b"\x01")
        assert await socket.status() == (StatusCode.OK, "")
        assert socket.closed == 1000
        await socket.stream.send_all(socket.wsproto.send(CloseConnection(code=1000)))
        await there.ended.wait()
        assert trio.current_time() < 0.5


async def test_a_client_that_does_not_close_is_not_waited_for(autojump_clock: object) -> None:
    async with opened(ECHO) as (there, socket):
        await socket.send(HEAD, b"\x01")
        assert await socket.status() == (StatusCode.OK, "")
        await there.ended.wait()
        assert trio.current_time() < 3


@pytest.mark.parametrize(
    ("path", "changes", "status"),
    [
        ("/", {}, 404),
        ("/a.B/C", {}, 404),
        (ECHO, {"sec_websocket_protocol": "chat"}, 400),
        (ECHO, {"sec_websocket_protocol": ""}, 400),
        (ECHO, {"sec_websocket_version": "8"}, 400),
        (ECHO, {"sec_websocket_key": "short"}, 400),
        (ECHO, {"connection": "keep-alive"}, 400),
        (ECHO, {"sec_websocket_protocol": "chat, grpc-websockets"}, 101),
    ],
)
async def test_handshakes(path: str, changes: dict[str, str], status: int, autojump_clock: object) -> None:
    fields = {name: value for name, value in {**websocket_fields(), **changes}.items() if value}
    async with served() as there:
        found, headers = await handshake(there.stream, path, fields)
        assert (found, headers["connection"].lower()) == (status, "upgrade" if status == 101 else "close")


@pytest.mark.parametrize("field", [b"Sec-WebSocket-Protocol", b"Sec-WebSocket-Extensions"])
async def test_a_handshake_with_bytes_that_are_no_names(field: bytes, autojump_clock: object) -> None:
    fields = {name: value for name, value in websocket_fields().items() if name != "sec_websocket_protocol"}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items()).encode()
    async with served() as there:
        await there.send(b"GET %b HTTP/1.1\r\nhost: localhost\r\n%b%b: \x80\r\n\r\n" % (ECHO.encode(), head, field))
        assert (await there.rest()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("messages", "code", "text"),
    [
        ([b"no header"], StatusCode.INTERNAL, "header fields"),
        ([b"a: \xc3\xa4\r\n"], StatusCode.INTERNAL, "header fields"),
        ([b"a: " + b"x" * 20_000], StatusCode.RESOURCE_EXHAUSTED, "metadata"),
        ([b"grpc-timeout: 9\r\n"], StatusCode.INTERNAL, "grpc-timeout"),
        ([HEAD, b""], StatusCode.INTERNAL, "begins with 0"),
        ([HEAD, b"\x02abc"], StatusCode.INTERNAL, "begins with 0"),
        ([HEAD, b"\x01\x01"], StatusCode.INTERNAL, "begins with 0"),
        ([HEAD, b"\x00\x80\x00\x00\x00\x00"], StatusCode.INTERNAL, "header fields"),
        ([HEAD, b"\x00\x00\xff\xff\xff\xff"], StatusCode.RESOURCE_EXHAUSTED, "larger"),
        ([HEAD, b"\x00" + message_frame(b"\xff")], StatusCode.INTERNAL, "undecodable"),
        ([HEAD + b"grpc-timeout: 10m\r\n"], StatusCode.DEADLINE_EXCEEDED, ""),
    ],
)
async def test_messages_that_end_the_call(
    messages: list[bytes], code: StatusCode, text: str, autojump_clock: object
) -> None:
    async with opened(WAIT) as (_there, socket):
        await socket.send(*messages)
        found, message = await socket.status()
        assert found is code
        assert text in message


async def test_messages_after_the_half_close(autojump_clock: object) -> None:
    async with opened(WAIT) as (_there, socket):
        await socket.send(HEAD, b"\x01", action(1))
        assert (await socket.status())[0] is StatusCode.INTERNAL


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x01a", 1002),  # not masked
        (b"\xc2\x80\x00\x00\x00\x00", 1002),  # a reserved bit
        (b"\x83\x80\x00\x00\x00\x00", 1002),  # an unknown opcode
        (b"\x80\x80\x00\x00\x00\x00", 1002),  # nothing to continue
        (b"\x09\x80\x00\x00\x00\x00", 1002),  # a ping in pieces
        (b"\x89\xfe\x00\x7e\x00\x00\x00\x00", 1002),  # a long ping
        (b"\x82\xff" + struct.pack("!Q", 2**63) + bytes(4), 1002),
        (b"\x81\x81\x00\x00\x00\x00a", 1003),  # text
    ],
)
@pytest.mark.parametrize("begun", [False, True])
async def test_broken_frames(data: bytes, code: int, begun: bool, autojump_clock: object) -> None:
    async with opened(WAIT) as (there, socket):
        if begun:
            await socket.send(HEAD)
            await socket.receive()
        await socket.stream.send_all(data)
        while await socket.receive() is not None:
            pass
        assert socket.closed == code
        await there.ended.wait()
        assert there.service.cancelled.is_set() == begun


async def test_messages_are_bounded_as_they_come(autojump_clock: object) -> None:
    config = RpcConfig(max_receive_message_bytes=1000)
    async with opened(WAIT, config=config) as (_there, socket):
        await socket.send(HEAD)
        await socket.receive()
        for _ in range(3):
            await socket.stream.send_all(socket.wsproto.send(BytesMessage(data=bytes(1000), message_finished=False)))
        while await socket.receive() is not None:
            pass
        assert socket.closed == 1009


async def test_byte_by_byte(autojump_clock: object) -> None:
    async with opened(ECHO) as (_there, socket):
        data = b"".join(
            socket.wsproto.send(BytesMessage(data=message)) for message in (HEAD, action(1), action(2), b"\x01")
        )
        for byte in data:
            await socket.stream.send_all(bytes([byte]))
        assert [await socket.receive() for _ in range(3)][1:] == [answer(1), answer(2)]
        assert (await socket.status())[0] is StatusCode.OK


async def test_messages_in_pieces(autojump_clock: object) -> None:
    async with opened(ECHO) as (_there, socket):
        await socket.send(HEAD)
        for cut in (0, 3, 6):
            data = action(300)
            for piece, last in ((data[:cut], False), (data[cut:], True)):
                await socket.stream.send_all(socket.wsproto.send(BytesMessage(data=piece, message_finished=last)))
        assert [await socket.receive() for _ in range(4)][1:] == [answer(300)] * 3


async def test_several_frames_in_one_message(autojump_clock: object) -> None:
    async with opened(ECHO) as (_there, socket):
        frames = action(1)[1:] + action(2)[1:]
        await socket.send(HEAD, b"\x00" + frames[:4], b"\x00" + frames[4:])
        assert [await socket.receive() for _ in range(3)][1:] == [answer(1), answer(2)]


async def test_a_first_message_is_waited_for_in_bounds(autojump_clock: object) -> None:
    async with opened(ECHO) as (_there, socket):
        assert (await socket.status())[0] is StatusCode.DEADLINE_EXCEEDED
        assert 20 <= trio.current_time() < 22


async def test_pings_keep_a_silent_client_and_find_one_that_is_gone(autojump_clock: object) -> None:
    side = WebSide(config=WebConfig(ping_seconds=10, ping_timeout_seconds=5))
    async with opened(WAIT, side=side) as (there, socket):
        await socket.send(HEAD)
        await socket.receive()
        for number in range(1, 5):
            while socket.pings < number:
                for event in await socket.events():
                    socket.pings += isinstance(event, Ping)
            await socket.stream.send_all(socket.wsproto.send(Pong()))
        assert trio.current_time() > 39
        assert not there.service.cancelled.is_set()
        await there.service.cancelled.wait()  # no more answers
        await there.ended.wait()
        assert trio.current_time() < 70


async def test_a_client_that_is_silent_from_the_beginning_is_found(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    side = WebSide(config=WebConfig(ping_seconds=10, ping_timeout_seconds=5))
    async with opened(WAIT, side=side) as (there, socket):
        await socket.send(HEAD)
        await there.service.cancelled.wait()
        assert trio.current_time() < 16
        await there.ended.wait()
    assert caplog.records == []


async def test_pings_of_the_client_are_answered(autojump_clock: object) -> None:
    async with opened(WAIT) as (_there, socket):
        await socket.send(HEAD)
        await socket.receive()
        await socket.stream.send_all(socket.wsproto.send(Ping(payload=b"hello")))
        (event,) = await socket.events()
        assert isinstance(event, Pong)
        assert event.payload == b"hello"


@pytest.mark.parametrize("politely", [False, True])
async def test_a_client_that_leaves_cancels_the_handler(politely: bool, autojump_clock: object) -> None:
    async with opened(WAIT) as (there, socket):
        await socket.send(HEAD)
        await there.service.entered.wait()
        if politely:
            await socket.stream.send_all(socket.wsproto.send(CloseConnection(code=1001)))
        else:
            await socket.stream.aclose()
        await there.service.cancelled.wait()
        await there.ended.wait()


async def test_who_closes_and_stays_has_left_all_the_same(autojump_clock: object) -> None:
    async with opened(WAIT) as (there, socket):
        await socket.send(HEAD)
        await there.service.entered.wait()
        await socket.stream.send_all(socket.wsproto.send(CloseConnection(code=1001)))
        await there.service.cancelled.wait()
        while await socket.receive() is not None:
            pass
        assert trio.current_time() < 1


async def test_who_closes_before_it_calls_gets_an_answer(autojump_clock: object) -> None:
    async with opened(ECHO) as (there, socket):
        await socket.stream.send_all(socket.wsproto.send(CloseConnection(code=1001)))
        assert await socket.receive() is None
        assert socket.closed == 1000
        await there.ended.wait()
        assert trio.current_time() < 1


async def test_what_comes_before_the_client_has_heard_the_end_is_read_to_its_own(autojump_clock: object) -> None:
    """However much it is: the connection ends when the client has closed, too."""
    async with opened(ECHO) as (there, socket):
        await socket.send(HEAD, b"\x01")
        assert await socket.status() == (StatusCode.OK, "")
        late = Connection(ConnectionType.CLIENT)
        messages = [late.send(BytesMessage(data=b"\x00")) for _ in range(100)]
        await socket.stream.send_all(b"".join(messages) + late.send(CloseConnection(code=1000)))
        await there.ended.wait()
        assert trio.current_time() < 0.5


async def test_a_client_is_not_taken_for_gone_while_a_handler_takes_nothing(autojump_clock: object) -> None:
    """What it answers to pings is not read before what it has sent."""
    taken = 0

    async def handler(call: ServerCall) -> None:
        nonlocal taken
        await trio.sleep(100)
        async for _ in call:
            taken += 1
        await call.send(Observation(tick_id=taken))

    service = Service("a.B")
    service.add_method("C", handler, RPCSignature(Cardinality.STREAM_UNARY, Action, Observation))
    ours, theirs = trio.testing.memory_stream_pair()
    side = WebSide(config=WebConfig(ping_seconds=10, ping_timeout_seconds=5))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_stream, [service], theirs, web=side))
        await handshake(ours, "/a.B/C", websocket_fields())
        socket = Socket(ours)
        await socket.send(HEAD, *[action(1)] * 1000, b"\x01")
        assert [await socket.receive() for _ in range(2)] == [b"\x80\x00\x00\x00\x00", answer(1000)]
        assert await socket.status() == (StatusCode.OK, "")
        assert socket.pings > 5
        nursery.cancel_scope.cancel()


async def test_text_is_for_others(autojump_clock: object) -> None:
    async with opened(WAIT) as (_there, socket):
        await socket.stream.send_all(socket.wsproto.send(TextMessage(data="hello")))
        assert await socket.receive() is None
        assert socket.closed == 1003


# --- RunTrial ---

RUN_TRIAL = "/x.Door/RunTrial"


def door(*, before: list[ActorRunTrialInput], error: Exception | None) -> Service:
    """Return a service with a RunTrial."""

    async def run_trial(call: ServerCall) -> None:
        for message in before:
            await call.send(message)
        if error is not None:
            raise error

    service = Service("x.Door")
    signature = RPCSignature(Cardinality.STREAM_STREAM, ActorRunTrialOutput, ActorRunTrialInput)
    service.add_method("RunTrial", run_trial, signature)
    return service


END = ActorRunTrialInput(state=CommunicationState.END, details="over")
BEAT = ActorRunTrialInput(state=CommunicationState.HEARTBEAT)


@pytest.mark.parametrize(
    ("before", "error", "told"),
    [
        ([], NotFoundError("no such trial"), "no such trial"),
        ([], RpcError(StatusCode.UNAVAILABLE), "UNAVAILABLE"),
        ([BEAT], NotFoundError("no such trial"), "no such trial"),
        ([END], NotFoundError("no such trial"), None),
        ([END], None, None),
        ([], None, None),
    ],
)
async def test_a_failed_run_trial_ends_with_end(
    before: list[ActorRunTrialInput], error: Exception | None, told: str | None
) -> None:
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(
            partial(serve, web=WebSide()), [door(before=before, error=error)], await open_listeners("127.0.0.1")
        )
        async with await trio.open_tcp_stream("127.0.0.1", serving.port) as stream:
            assert (await handshake(stream, RUN_TRIAL, websocket_fields()))[0] == 101
            socket = Socket(stream)
            await socket.send(HEAD)
            messages = []
            while (data := await socket.receive()) is not None:
                messages.append(data)
        nursery.cancel_scope.cancel()
    assert messages[0][0] == 0x80
    status = parse_trailers(lines(messages[-1][5:]))
    assert (status.code is StatusCode.OK) == (error is None)
    states = [ActorRunTrialInput.FromString(data[5:]) for data in messages[1:-1]]
    expected = [*before]
    if told is not None:
        expected.append(ActorRunTrialInput(state=CommunicationState.END, details=told))
    assert states == expected


async def test_a_refusal_before_the_handler_ends_with_end_too() -> None:
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(
            partial(serve, web=WebSide()), [door(before=[], error=None)], await open_listeners("127.0.0.1")
        )
        async with await trio.open_tcp_stream("127.0.0.1", serving.port) as stream:
            await handshake(stream, RUN_TRIAL, websocket_fields())
            socket = Socket(stream)
            await socket.send(b"grpc-timeout: soon\r\n")
            assert await socket.receive() == b"\x80\x00\x00\x00\x00"
            end = await socket.receive()
            assert end is not None
            assert ActorRunTrialInput.FromString(end[5:]).state == CommunicationState.END
            assert (await socket.status())[0] is StatusCode.INTERNAL
        nursery.cancel_scope.cancel()


async def test_cancelled_servers_say_so_and_close() -> None:
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(
            partial(serve, web=WebSide()), [service.service()], await open_listeners("127.0.0.1")
        )
        async with await trio.open_tcp_stream("127.0.0.1", serving.port) as stream:
            await handshake(stream, WAIT, websocket_fields())
            socket = Socket(stream)
            await socket.send(HEAD)
            await socket.receive()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                assert await socket.status() == (StatusCode.UNAVAILABLE, "the server is stopping")
                assert await stream.receive_some() == b""


# --- frames in pieces of any size ---

WHOLE = Request(
    "GET",
    "/",
    "",
    (
        (b"host", b"localhost"),
        (b"connection", b"upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-version", b"13"),
        (b"sec-websocket-protocol", b"grpc-websockets"),
        (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    ),
)
#: Of a message's pieces, each with a ping behind it or not.
MESSAGE = st.lists(st.tuples(st.binary(max_size=200) | st.just(bytes(70_000)), st.booleans()), min_size=1, max_size=3)


def opened_socket(*, text: bool = False, most: int = 100_000) -> WebSocket:
    socket = WebSocket(WHOLE, most, text=text)
    socket.accept("grpc-websockets")
    return socket


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    found, at, index = [], 0, 0
    while at < len(data):
        size = sizes[index % len(sizes)]
        found.append(data[at : at + size])
        at, index = at + size, index + 1
    return found


@given(st.lists(MESSAGE, max_size=4), st.lists(st.sampled_from([1, 2, 3, 5, 7, 130, 4096, 70_000]), min_size=1))
def test_messages_are_the_same_however_they_come(messages: list[list[tuple[bytes, bool]]], sizes: list[int]) -> None:
    if min(sizes) < 100 and sum(len(piece) for message in messages for piece, _ in message) > 60_000:
        sizes = [4096, *sizes]
    client, data, pings = Connection(ConnectionType.CLIENT), b"", 0
    for message in messages:
        for index, (piece, ping) in enumerate(message):
            data += client.send(BytesMessage(data=piece, message_finished=index == len(message) - 1))
            if ping:
                data, pings = data + client.send(Ping(payload=b"x")), pings + 1
    socket = opened_socket()
    wholes = [b"".join(piece for piece, _ in message) for message in messages]
    expected = list(itertools.takewhile(lambda whole: len(whole) <= 100_000, wholes))
    found, code = outcome(socket, cut(data, sizes))
    assert [one for one in found if isinstance(one, bytes)] == expected
    assert code == (None if expected == wholes else 1009)
    if code is None:
        assert sum(isinstance(one, Answer) for one in found) == pings


def outcome(socket: WebSocket, parts: list[bytes]) -> tuple[list[Any], int | None]:
    """Return what parts mean, until the end of the stream, and the code of what is wrong with it."""
    found: list[Any] = []
    try:
        for part in parts:
            for one in socket.receive(part):
                found.append(one)
                if isinstance(one, Closed):
                    return found, None
    except BrokenSocketError as error:
        return found, error.code
    return found, None


@pytest.mark.parametrize(("frames", "code"), [(1024 + 100, None), (1024 + 101, 1009)])
def test_a_message_comes_in_so_many_frames_at_most(frames: int, code: int | None) -> None:
    """One for 16 bytes of what it may have, and 1024 more, however little is in them."""
    client = Connection(ConnectionType.CLIENT)
    data = b"".join(
        client.send(BytesMessage(data=b"", message_finished=number == frames)) for number in range(1, frames + 1)
    )
    assert outcome(opened_socket(most=1600), [data * 2]) == ([b"", b""] if code is None else [], code)


def test_what_is_known_to_come_of_a_message() -> None:
    client = Connection(ConnectionType.CLIENT)
    socket = opened_socket()
    data = client.send(BytesMessage(data=bytes(70_000), message_finished=False))
    assert list(socket.receive(data[:60_000])) == []
    assert socket.begun + socket.missing == 100_000  # of further frames nobody knows
    assert list(socket.receive(data[60_000:])) == []
    assert (socket.begun, socket.missing) == (70_000, 30_000)
    whole = opened_socket()
    assert list(whole.receive(Connection(ConnectionType.CLIENT).send(BytesMessage(data=bytes(10))))) == [bytes(10)]
    assert (whole.begun, whole.missing) == (0, 0)


def test_nothing_is_said_once_it_is_over() -> None:
    socket = opened_socket()
    end = socket.close(1000, "enough")
    assert end == Connection(ConnectionType.SERVER).send(CloseConnection(code=1000, reason="enough"))
    assert (socket.message(b"late"), socket.ping(), socket.close()) == (b"", b"", b"")
    other = opened_socket()
    client = Connection(ConnectionType.CLIENT)
    assert list(other.receive(client.send(CloseConnection(code=1001)))) == [Closed(1001)]
    assert (other.message(b"late"), other.ping()) == (b"", b"")
    other.close()
    late = Connection(ConnectionType.CLIENT).send(BytesMessage(data=b"late", message_finished=False))
    with pytest.raises(BrokenSocketError):
        list(other.receive(late))


@given(st.lists(st.text(max_size=50), min_size=1), st.lists(st.integers(1, 9), min_size=1))
def test_text_is_the_same_however_it_comes(pieces: list[str], sizes: list[int]) -> None:
    client = Connection(ConnectionType.CLIENT)
    data = b"".join(
        client.send(TextMessage(data=piece, message_finished=number == len(pieces)))
        for number, piece in enumerate(pieces, 1)
    )
    found, code = outcome(opened_socket(text=True), cut(data, sizes))
    assert (b"".join(found), code) == ("".join(pieces).encode(), None)


def test_where_text_is_expected() -> None:
    client = Connection(ConnectionType.CLIENT)
    # The limit is of bytes, and anything but UTF-8 ends it.
    for text, code in (("é" * 50_000, None), ("é" * 50_001, 1009)):
        assert outcome(opened_socket(text=True), [client.send(TextMessage(data=text))])[1] == code
    broken = bytearray(client.send(BytesMessage(data=b"\xff\xfe")))
    assert outcome(opened_socket(text=True), [bytes(broken)]) == ([b"\xff\xfe"], None)
    broken[0] = 0x81
    assert outcome(opened_socket(text=True), [bytes(broken)]) == ([], 1007)
    assert opened_socket(text=True).message("né".encode()) == Connection(ConnectionType.SERVER).send(
        TextMessage(data="né")
    )


@given(st.binary(max_size=60), st.lists(st.integers(1, 9), min_size=1))
def test_any_bytes_mean_the_same_however_they_come(data: bytes, sizes: list[int]) -> None:
    assert outcome(opened_socket(), [data]) == outcome(opened_socket(), cut(data, sizes))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 70_000])
def test_messages_are_written_as_wsproto_writes_them(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert opened_socket().message(data[:size]) == Connection(ConnectionType.SERVER).send(
        BytesMessage(data=data[:size])
    )
