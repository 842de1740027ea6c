"""Connections of HTTP/1.1: calls by gRPC-Web, what else is asked, bad input, slow clients, and the end."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from functools import partial

import h11
import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service

from tests.web.peers import COUNT, ECHO, ECHO_ONE, HOST, WAIT, Answer, Served, read_answer, served
from trio_cogment.access import EVERYTHING, AccessControl, Identity, Rules
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig, WebConfig
from trio_cogment.base.errors import RpcError, StatusCode, UnauthenticatedError
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import Turns, _turns
from trio_cogment.rpc import Channel, ServerCall, open_listeners, serve, serve_stream
from trio_cogment.rpc.relay import parse_trailers
from trio_cogment.testing.conformance.channel import ECHO_ONE as ECHO_ONE_METHOD
from trio_cogment.testing.conformance.channel import CheckService
from trio_cogment.web import WebSide
from trio_cogment.web.frames import message_frame
from trio_cogment.web.requests import lines

PROTO = "application/grpc-web+proto"
TEXT = "application/grpc-web-text"


def parsed(body: bytes) -> tuple[list[bytes], StatusCode, str]:
    """Return the messages and the status in the body of an answer."""
    messages = []
    while body[0] == 0:
        length = int.from_bytes(body[1:5], "big")
        messages.append(body[5 : 5 + length])
        body = body[5 + length :]
    assert body[0] == 0x80
    assert int.from_bytes(body[1:5], "big") == len(body) - 5
    trailers = parse_trailers(lines(body[5:]))
    return messages, trailers.code, trailers.message


def request(tick: int = 1, content: bytes = b"") -> bytes:
    return message_frame(Action(tick_id=tick, content=content).SerializeToString())


def untext(body: bytes) -> bytes:
    return b"".join(base64.b64decode(body[at : at + 4]) for at in range(0, len(body), 4))


@pytest.mark.parametrize("kind", ["application/grpc-web", PROTO, TEXT, TEXT + "+proto", PROTO.upper(), PROTO + "; a=b"])
@pytest.mark.parametrize("accept", ["", PROTO, TEXT, "*/*", f"text/html, {TEXT};q=1", "application/grpc-web+json"])
async def test_content_types(kind: str, accept: str, autojump_clock: object) -> None:
    body = request(7)
    asked_in_text = "-text" in kind
    async with served() as there:
        answer = await there.ask(
            "POST", ECHO_ONE, base64.b64encode(body) if asked_in_text else body, content_type=kind, accept=accept
        )
    text = "-text" in accept or (asked_in_text and accept != PROTO)
    assert answer.status == 200
    assert answer.headers["content-type"] == (TEXT + "+proto" if text else PROTO)
    messages, code, _ = parsed(untext(answer.body) if text else answer.body)
    assert [Observation.FromString(one).tick_id for one in messages] == [7]
    assert code is StatusCode.OK


async def test_several_calls_by_one_connection(autojump_clock: object) -> None:
    async with served() as there:
        for number in range(5):
            answer = await there.ask("POST", COUNT, request(number), content_type=PROTO)
            messages, code, _ = parsed(answer.body)
            assert (len(messages), code) == (number, StatusCode.OK)


class _Held(Turns):
    """Turns that nobody gets for a while."""

    def __init__(self) -> None:
        super().__init__(trio.current_time)
        self.held_until = 0.0

    async def turn(self, lane: Lane, units: int = 1) -> None:
        await trio.sleep_until(max(self.held_until, trio.current_time()))
        await super().turn(lane, units)


async def test_a_request_that_comes_while_the_call_before_ends_is_not_lost(autojump_clock: object) -> None:
    turns = _Held()
    _turns.set(turns)
    async with served() as there:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def ask_again() -> None:
                await trio.sleep(0.5)
                turns.held_until = began + 2
                body = request(7)
                await there.send(
                    f"POST {ECHO_ONE} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {PROTO}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )

            nursery.start_soon(ask_again)
            answer = await there.ask("POST", WAIT, request(), content_type=PROTO, grpc_timeout="1S")
            assert parsed(answer.body)[1] is StatusCode.DEADLINE_EXCEEDED
            assert trio.current_time() == pytest.approx(began + 1)
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="POST", target=ECHO_ONE, headers=[("host", HOST)]))
        client.send(h11.EndOfMessage())
        messages, code, _ = parsed((await read_answer(client, there.stream)).body)
        assert [Observation.FromString(one).tick_id for one in messages] == [7]
        assert code is StatusCode.OK
        assert trio.current_time() == pytest.approx(began + 2)


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("GET", "/", "", 200),
        ("HEAD", "/", "", 200),
        ("POST", "/", "", 405),
        ("DELETE", "/", "", 405),
        ("GET", "/favicon.ico", "", 404),
        ("GET", ECHO_ONE, "", 405),
        ("DELETE", ECHO_ONE, "", 405),
        ("POST", ECHO_ONE, "", 415),
        ("POST", ECHO_ONE, "text/plain", 415),
        ("POST", ECHO_ONE, "application/grpc", 415),
        ("POST", ECHO_ONE, "application/grpc-web+json", 415),
        ("POST", ECHO_ONE, "application/grpc-webx", 415),
    ],
)
async def test_what_is_no_call(method: str, path: str, kind: str, status: int, autojump_clock: object) -> None:
    async with served() as there:
        if status == 405 and path == ECHO_ONE:
            assert (await there.ask(method, path)).headers["allow"] == "POST, OPTIONS"
        answer = await there.ask(method, path, content_type=kind)
        assert answer.status == status
        assert (await there.ask("GET", "/")).status == 200


@pytest.mark.parametrize(
    ("path", "fields", "body", "code", "text"),
    [
        ("/a.B/C", {}, request(), StatusCode.UNIMPLEMENTED, "not implemented"),
        ("/", {}, request(), StatusCode.UNIMPLEMENTED, "not implemented"),
        (ECHO_ONE, {}, b"\x00\x00\x00\x00\x05ab", StatusCode.INTERNAL, "ended within"),
        (ECHO_ONE, {}, b"\x80\x00\x00\x00\x00", StatusCode.INTERNAL, "header fields"),
        (ECHO_ONE, {}, b"\x01\x00\x00\x00\x00", StatusCode.UNIMPLEMENTED, "compressed"),
        (ECHO_ONE, {}, b"\x00\xff\xff\xff\xff", StatusCode.RESOURCE_EXHAUSTED, "larger than"),
        (ECHO_ONE, {}, message_frame(b"\xff"), StatusCode.INTERNAL, "undecodable"),
        (ECHO_ONE, {"content_type": TEXT}, b"!", StatusCode.INTERNAL, "base64"),
        (ECHO_ONE, {"content_type": TEXT}, b"AAA", StatusCode.INTERNAL, "base64"),
        (ECHO_ONE, {"grpc_timeout": "soon"}, request(), StatusCode.INTERNAL, "grpc-timeout"),
        (ECHO_ONE, {"x_bin": "a", "x-raw-bin": "!!"}, request(), StatusCode.INTERNAL, "base64"),
        (WAIT, {"grpc_timeout": "20m"}, request(), StatusCode.DEADLINE_EXCEEDED, ""),
    ],
)
async def test_calls_that_fail(
    path: str, fields: dict[str, str], body: bytes, code: StatusCode, text: str, autojump_clock: object
) -> None:
    async with served() as there:
        answer = await there.ask("POST", path, body, **{"content_type": PROTO, **fields})
        assert answer.status == 200
        messages, found, message = parsed(
            untext(answer.body) if "-text" in answer.headers["content-type"] else answer.body
        )
        assert (messages, found) == ([], code)
        assert text in message


async def test_a_refused_call_says_whether_another_request_may_follow(autojump_clock: object) -> None:
    async with served() as there:
        answer = await there.ask("POST", "/a.B/C", request(), content_type=PROTO)
        assert "connection" not in answer.headers
        assert (await there.ask("GET", "/")).status == 200
        head = f"POST /a.B/C HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {PROTO}\r\ncontent-length: 9\r\n\r\n"
        await there.send(head.encode())
        rest = await there.rest()
        assert b"connection: close" in rest
        assert b"grpc-status: 12" in rest


async def answered_by(handler: Callable[[ServerCall], Awaitable[None]], **fields: str) -> Answer:
    """Return what a browser gets of a handler that is served by itself."""
    service = Service("a.B")
    service.add_method("C", handler, RPCSignature(Cardinality.UNARY_UNARY, Action, Observation))
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_stream, [service], theirs, web=WebSide()))
        answer = await Served(ours, CheckService()).ask("POST", "/a.B/C", request(), content_type=PROTO, **fields)
        nursery.cancel_scope.cancel()
    return answer


@pytest.mark.parametrize("_", range(20))
async def test_a_handler_need_not_take_the_request(_: int, autojump_clock: object) -> None:
    """Which of the two comes first is for the scheduler to say."""

    async def handler(call: ServerCall) -> None:
        await call.send(Observation(tick_id=7))

    messages, code, text = parsed((await answered_by(handler)).body)
    assert ([Observation.FromString(one).tick_id for one in messages], code, text) == ([7], StatusCode.OK, "")


async def test_a_handlers_error_says_more_in_its_trailers(autojump_clock: object) -> None:

    async def handler(call: ServerCall) -> None:
        call.set_trailing_metadata([("t-mine", "1")])
        raise RpcError(StatusCode.NOT_FOUND, "no such trial", [("t-error", "2")])

    answer = await answered_by(handler)
    assert parsed(answer.body)[1:] == (StatusCode.NOT_FOUND, "no such trial")
    assert b"t-error: 2" in answer.body


async def test_a_client_that_leaves_cancels_the_handler(autojump_clock: object) -> None:
    async with served() as there:
        data = request()
        head = f"POST {WAIT} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {PROTO}\r\ncontent-length: {len(data)}\r\n\r\n"
        await there.send(head.encode() + data)
        await there.service.entered.wait()
        await there.stream.aclose()
        await there.service.cancelled.wait()
        await there.ended.wait()


async def test_several_messages_at_once(autojump_clock: object) -> None:
    async with served() as there:
        answer = await there.ask("POST", ECHO, request(1) + request(2) + request(3), content_type=PROTO)
    messages, code, _ = parsed(answer.body)
    assert [Observation.FromString(one).tick_id for one in messages] == [1, 2, 3]
    assert code is StatusCode.OK


async def test_byte_by_byte(autojump_clock: object) -> None:
    data = request(3)
    head = f"POST {COUNT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {PROTO}\r\nContent-Length: {len(data)}\r\n\r\n"
    async with served() as there:
        for byte in (head.encode() + data) * 2:
            await there.send(bytes([byte]))
        client = h11.Connection(h11.CLIENT)
        for _ in range(2):
            client.send(h11.Request(method="GET", target="/", headers=[("host", HOST)]))
            client.send(h11.EndOfMessage())
            assert len(parsed((await read_answer(client, there.stream)).body)[0]) == 3
            client.start_next_cycle()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 403),
        (b"GET / HTTP/2.0\r\nhost: localhost\r\n\r\n", 505),
        (b"GET http://localhost/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 40_000, 431),
        (b"GET /" + b"y" * 40_000, 431),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n", 408),
        (b"G", 408),
    ],
)
async def test_requests_that_end_the_connection(data: bytes, status: int, autojump_clock: object) -> None:
    async with served() as there:
        await there.send(data)
        answer = await there.rest()
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"x-content-type-options: nosniff" in answer
        await there.ended.wait()


async def test_what_is_no_request_after_one_whose_answer_has_no_body(autojump_clock: object) -> None:
    async with served() as there:
        await there.send(b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\nGARBAGE\r\n\r\n")
        answers = await there.rest()
        assert answers.count(b"HTTP/1.1 ") == 2
        assert b"HTTP/1.1 400 " in answers
        assert answers.endswith(b"}\n")
        await there.ended.wait()


@pytest.mark.parametrize("length", [0, 1, 2])
async def test_silence_is_not_waited_for(length: int, autojump_clock: object) -> None:
    async with served() as there:
        await there.send(b"PR"[:length])
        assert await there.rest() == b""
        assert trio.current_time() > 19


async def test_a_connection_between_requests_is_not_kept_for_ever(autojump_clock: object) -> None:
    async with served(WebSide(config=WebConfig(idle_timeout_seconds=7))) as there:
        await there.ask("GET", "/")
        before = trio.current_time()
        assert await there.rest() == b""
        assert 7 <= trio.current_time() - before < 9


async def test_a_head_that_begins_late_has_its_time_from_its_first_byte(autojump_clock: object) -> None:
    async with served(WebSide(config=WebConfig(idle_timeout_seconds=100, head_timeout_seconds=5))) as there:
        await there.ask("GET", "/")
        await trio.sleep(50)
        await there.send(b"G")
        before = trio.current_time()
        assert b"HTTP/1.1 408 " in await there.rest()
        assert 5 <= trio.current_time() - before < 7


async def test_who_may_not_use_this_is_not_listened_to(autojump_clock: object) -> None:
    async with served() as there:
        answer = await there.ask("GET", "/", origin="https://evil.example")
        assert (answer.status, answer.headers["connection"]) == (403, "close")
        await there.ended.wait()
        assert trio.current_time() < 5


async def test_a_body_without_end(autojump_clock: object) -> None:
    head = f"POST {COUNT} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {PROTO}\r\ntransfer-encoding: chunked\r\n\r\n"
    async with served() as there:
        await there.send(head.encode() + b"2\r\n\x00\x00\r\n")
        answer = await there.rest()
        assert b"grpc-status: 4" in answer
        assert 60 <= trio.current_time() < 65


async def test_a_client_that_never_reads_is_left(autojump_clock: object) -> None:
    """Over streams that pass nothing on until it is read, a handler that goes on sending waits, and then ends."""
    service = CheckService()
    ours, theirs = trio.testing.lockstep_stream_pair()
    data = request(1_000_000)
    head = f"POST {COUNT} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {PROTO}\r\ncontent-length: {len(data)}\r\n\r\n"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, head.encode() + data)
        await serve_stream([service.service()], theirs, web=WebSide())
        assert 60 <= trio.current_time() < 70
        nursery.cancel_scope.cancel()


async def test_too_many_connections(autojump_clock: object) -> None:
    side = WebSide(config=WebConfig(max_connections=1))
    async with served(side) as first:
        assert (await first.ask("GET", "/")).status == 200
        async with served(side) as second:
            assert (await second.ask("GET", "/")).status == 503
        await first.stream.aclose()
        await first.ended.wait()
        async with served(side) as third:
            assert (await third.ask("GET", "/")).status == 200


#: Fields that browsers and proxies send of their own accord.
OF_BROWSERS = (
    *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-encoding", "cookie"),
    *("date", "dnt", "keep-alive", "pragma", "priority", "proxy-connection", "referer", "save-data", "te", "trailer"),
    *("upgrade-insecure-requests", "user-agent", "via", "x-user-agent", "sec-fetch-mode"),
)
#: Fields that a handler may not set, for they mean something to a browser.
NOT_OF_HANDLERS = (
    *("vary", "server", "location", "referrer-policy", "set-cookie", "access-control-allow-origin"),
    *("content-security-policy", "x-frame-options", "cross-origin-opener-policy"),
)


@pytest.mark.parametrize("name", [*OF_BROWSERS, *NOT_OF_HANDLERS])
async def test_what_http_means_by_a_field_is_not_the_handlers(name: str, autojump_clock: object) -> None:
    """The handler sends back all metadata that it is given."""
    async with served() as there:
        data = request()
        head = f"POST {ECHO_ONE} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {PROTO}\r\n{name}: something\r\n"
        await there.send(f"{head}x-mine: yes\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n".encode())
        await there.send(data)
        answer = await there.rest()
        assert b"x-mine: yes" in answer
        assert b"something" not in answer


@pytest.mark.parametrize("name", OF_BROWSERS)
async def test_a_handler_does_not_see_what_browsers_send_of_their_own_accord(name: str, autojump_clock: object) -> None:
    async def handler(call: ServerCall) -> None:
        await call.send(Observation(content=repr(list(call.metadata)).encode()))

    answer = await answered_by(handler, **{name.replace("-", "_"): "something", "x_mine": "yes"})
    messages, code, text = parsed(answer.body)
    assert (code, text) == (StatusCode.OK, "")
    (message,) = messages
    assert Observation.FromString(message).content == b"[('x-mine', 'yes')]"


async def test_metadata_of_browsers_is_not_that_of_calls(autojump_clock: object) -> None:
    async with served() as there:
        answer = await there.ask(
            "POST",
            ECHO_ONE,
            request(),
            content_type=PROTO,
            cookie="secret=1",
            sec_fetch_mode="cors",
            accept_language="en",
            x_mine="yes",
            x_grpc_web="1",
        )
        assert answer.headers["x-mine"] == "yes"
        assert "cookie" not in answer.headers


async def call(port: int, path: str, tick: int, **fields: str) -> Answer:
    data = request(tick)
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        client = h11.Connection(h11.CLIENT)
        headers = [("host", HOST), ("content-type", PROTO), ("content-length", str(len(data))), *fields.items()]
        await stream.send_all(client.send(h11.Request(method="POST", target=path, headers=headers)) or b"")
        await stream.send_all((client.send(h11.Data(data=data)) or b"") + (client.send(h11.EndOfMessage()) or b""))
        return await read_answer(client, stream)


async def test_a_drain_ends_calls_in_time_and_closes_what_is_idle() -> None:
    service = CheckService()
    answers: list[Answer] = []

    async def wait() -> None:
        answers.append(await call(serving.port, WAIT, 1))

    async with trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide())
        serving = await nursery.start(serve_it, [service.service()], await open_listeners("127.0.0.1"))
        idle = await trio.open_tcp_stream("127.0.0.1", serving.port)
        await idle.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await idle.receive_some()
        silent = await trio.open_tcp_stream("127.0.0.1", serving.port)
        nursery.start_soon(wait)
        await service.entered.wait()
        with trio.fail_after(5):
            await serving.drain(0.2)
        assert await idle.receive_some() == b""
        await idle.aclose()
        await silent.aclose()
    assert parsed(answers[0].body)[1:] == (StatusCode.UNAVAILABLE, "the server is stopping")


async def test_a_drain_while_a_connection_ends() -> None:
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide())
        serving = await nursery.start(serve_it, [service.service()], await open_listeners("127.0.0.1"))
        client = await trio.open_tcp_stream("127.0.0.1", serving.port)
        await client.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        while await client.receive_some():
            pass
        with trio.fail_after(5):  # the server waits until the client has closed, too
            await serving.drain(0.2)
        await client.aclose()


async def test_a_drain_does_not_wait_for_what_is_idle() -> None:
    async with trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide())
        serving = await nursery.start(serve_it, [CheckService().service()], await open_listeners("127.0.0.1"))
        idle = await trio.open_tcp_stream("127.0.0.1", serving.port)
        async with idle:
            await idle.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await idle.receive_some()
            with trio.fail_after(60):
                await serving.drain(3000)
            assert await idle.receive_some() == b""


async def test_cancelled_servers_say_so() -> None:
    service = CheckService()
    answers: list[Answer] = []

    async def wait() -> None:
        answers.append(await call(serving.port, WAIT, 1))

    async with trio.open_nursery() as clients, trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide())
        serving = await nursery.start(serve_it, [service.service()], await open_listeners("127.0.0.1"))
        clients.start_soon(wait)
        await service.entered.wait()
        nursery.cancel_scope.cancel()
    assert parsed(answers[0].body)[1] is StatusCode.UNAVAILABLE


async def test_a_cancelled_handler_may_say_something_still() -> None:
    service = Service("a.B")
    entered = trio.Event()

    async def handler(call: ServerCall) -> None:
        try:
            entered.set()
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(60, shield=True):
                await trio.sleep(0.01)
                await call.send(Observation(tick_id=9))

    service.add_method("C", handler, RPCSignature(Cardinality.UNARY_STREAM, Action, Observation))
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await call(serving.port, "/a.B/C", 1))

    config = RpcConfig(farewell_timeout_seconds=60)
    async with trio.open_nursery() as clients, trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide(), config=config)
        serving = await nursery.start(serve_it, [service], await open_listeners("127.0.0.1"))
        clients.start_soon(ask)
        await entered.wait()
        nursery.cancel_scope.cancel()
    messages, code, _ = parsed(answers[0].body)
    assert ([Observation.FromString(one).tick_id for one in messages], code) == ([9], StatusCode.UNAVAILABLE)


async def test_a_handler_that_does_not_end_in_time_is_not_waited_for(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller is told the status then, and once."""
    service = Service("a.B")
    entered = trio.Event()

    async def handler(call: ServerCall) -> None:
        await call.send_initial_metadata()
        entered.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(50)

    service.add_method("C", handler, RPCSignature(Cardinality.UNARY_STREAM, Action, Observation))
    ours, theirs = trio.testing.memory_stream_pair()
    stopping = trio.CancelScope()

    async def run() -> None:
        with stopping:
            await serve_stream([service], theirs, web=WebSide(), config=RpcConfig(farewell_timeout_seconds=4))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        data = request()
        head = f"POST /a.B/C HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: {PROTO}\r\ncontent-length: {len(data)}\r\n\r\n"
        await ours.send_all(head.encode() + data)
        await entered.wait()
        stopping.cancel()
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("host", HOST)]))
        client.send(h11.EndOfMessage())
        body = (await read_answer(client, ours)).body
        assert parsed(body)[1:] == (StatusCode.UNAVAILABLE, "the server is stopping")
        assert trio.current_time() == 2
    assert caplog.records == []


async def test_native_calls_beside() -> None:
    """The same port serves both, and a client of HTTP/2 needs no Origin and no Host."""
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide(), config=RpcConfig())
        serving = await nursery.start(serve_it, [service.service()], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel:
            assert (await channel.unary(ECHO_ONE_METHOD, Action(tick_id=4))).tick_id == 4
            assert parsed((await call(serving.port, ECHO_ONE, 5)).body)[1] is StatusCode.OK
            assert (await channel.unary(ECHO_ONE_METHOD, Action(tick_id=6))).tick_id == 6
        nursery.cancel_scope.cancel()


async def test_calls_are_counted() -> None:
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide(), config=RpcConfig(max_calls=1))
        serving = await nursery.start(serve_it, [service.service()], await open_listeners("127.0.0.1"))

        async def code(path: str, **fields: str) -> StatusCode:
            return parsed((await call(serving.port, path, 5, **fields)).body)[1]

        assert [await code(ECHO_ONE) for _ in range(3)] == [StatusCode.OK] * 3
        async with trio.open_nursery() as clients:
            clients.start_soon(code, WAIT)
            await service.entered.wait()
            assert await code(ECHO_ONE) is StatusCode.RESOURCE_EXHAUSTED
            clients.cancel_scope.cancel()
        await service.cancelled.wait()
        while await code(ECHO_ONE) is not StatusCode.OK:
            pass  # the server has to notice that the other one is over
        nursery.cancel_scope.cancel()


class SomeControl(AccessControl):
    """Lets a caller with the token `good` do everything, until it is taken back.

    Attributes:
        good: it has not been.
        asked: how often it was looked.
    """

    def __init__(self) -> None:
        super().__init__(Rules(), wall_clock=lambda: 0, new_id=lambda: "a")
        self.good = True
        self.asked = 0

    def verified(self, text: str, *, local: bool) -> Identity:
        if text != "good":
            raise UnauthenticatedError("the token is not valid here")
        return Identity(account="token:somebody", local=local, grant=EVERYTHING)

    def valid(self, identity: Identity) -> bool:
        self.asked += 1
        return self.good


async def test_tokens_count_here_too(autojump_clock: object) -> None:
    async with served(access=SomeControl()) as there:
        for fields, expected in (
            ({}, StatusCode.UNAUTHENTICATED),
            ({"authorization": "Bearer bad"}, StatusCode.UNAUTHENTICATED),
            ({"authorization": "Bearer good"}, StatusCode.OK),
        ):
            answer = await there.ask("POST", ECHO_ONE, request(), content_type=PROTO, **fields)
            assert parsed(answer.body)[1] is expected


async def test_calls_end_when_their_token_does_not_count_any_more() -> None:
    service, control = CheckService(), SomeControl()
    answers: list[Answer] = []

    async def wait() -> None:
        answers.append(await call(serving.port, WAIT, 1, authorization="Bearer good"))

    async with trio.open_nursery() as nursery:
        serve_it = partial(serve, web=WebSide(), access=control, config=RpcConfig(access_recheck_seconds=0.05))
        serving = await nursery.start(serve_it, [service.service()], await open_listeners("127.0.0.1"))
        async with trio.open_nursery() as clients:
            clients.start_soon(wait)
            await service.entered.wait()
            with trio.fail_after(60):
                while control.asked < 3:  # noqa: ASYNC110  there is no event for it
                    await trio.sleep(0.01)
            assert not service.cancelled.is_set()
            control.good = False
            await service.cancelled.wait()
        nursery.cancel_scope.cancel()
    assert parsed(answers[0].body)[1] is StatusCode.UNAUTHENTICATED
