"""gRPC-Web over HTTP/2, frame by frame: the status is in the body, and nothing gets around the rules for browsers."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from purerpc import Cardinality, RPCSignature, Service

from tests.rpc.raw_peer import (
    DATA,
    END_STREAM,
    PREFACE,
    RST,
    WINDOW_UPDATE,
    Answer,
    Headers,
    RawPeer,
    frame,
    message,
    raw_client,
    request_headers,
    settings,
)
from tests.rpc.test_observer import Seen
from tests.web.test_connection import SomeControl
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc import ServerCall, open_listeners, serve
from trio_cogment.rpc._frames import ErrorCode
from trio_cogment.rpc.grpc_only import GrpcOnly
from trio_cogment.testing.conformance.channel import CheckService
from trio_cogment.web import OriginPolicy, WebSide
from trio_cogment.web.origins import PublicAddress
from trio_cogment.web.requests import lines

PATH = b"/trio_cogment.testing.Check/"
WEB = b"application/grpc-web+proto"


def web_headers(name: bytes, **changes: bytes | None) -> Headers:
    """Return the fields of a request of gRPC-Web: a browser cannot send `te`."""
    fields: dict[str, bytes | None] = {"content_type": WEB, "te": None, "authority": b"127.0.0.1:9000", **changes}
    return request_headers(name if name.startswith(b"/") else PATH + name, **fields)


def request(peer: RawPeer, headers: Headers, *actions: Action, stream: int = 1) -> bytes:
    body = b"".join(message(action.SerializeToString()) for action in actions)
    return peer.headers(stream, headers) + frame(DATA, END_STREAM, stream, body)


async def asked(headers: Headers, *actions: Action, **options: Any) -> Answer:
    """Return the answer to one request."""
    options.setdefault("web", WebSide())
    async with raw_client(options.pop("services", [CheckService().service()]), **options) as peer:
        await peer.send(request(peer, headers, *actions))
        answer = await peer.until_over(1)
        assert answer.ended
        return answer


def body(answer: Answer) -> tuple[list[Any], dict[bytes, bytes]]:
    """Return the messages of an answer, and the fields at its end."""
    assert len(answer.headers) == 1, "trailers of HTTP are not read"
    assert answer.field(b":status") == b"200"
    assert answer.field(b"content-type") == WEB
    data = bytes(answer.data)
    messages: list[Any] = []
    while True:
        flags, end = data[0], 5 + int.from_bytes(data[1:5], "big")
        payload, data = data[5:end], data[end:]
        if flags == 0x80:
            assert data == b""
            return messages, dict(lines(payload))
        assert flags == 0
        messages.append(Observation.FromString(payload))


def refused(answer: Answer) -> tuple[int | None, str]:
    """Return the status of an answer that is a status alone, which may be in the headers."""
    assert len(answer.headers) == 1
    assert answer.data == b""
    assert answer.field(b"content-type") == WEB
    return answer.status, (answer.field(b"grpc-message") or b"").decode()


@pytest.mark.parametrize("content_type", [WEB, b"application/grpc-web", b"application/grpc-web+proto; charset=utf-8"])
async def test_a_unary_call(content_type: bytes) -> None:
    headers = web_headers(
        b"EchoOne", content_type=content_type, x_a=b"1", cookie=b"x=1", origin=b"http://127.0.0.1:9000"
    )
    answer = await asked(headers, Action(tick_id=7, content=b"seven"))
    assert body(answer) == (
        [Observation(tick_id=7, content=b"seven")],
        {b"grpc-status": b"0", b"t-end": b"done", b"t-bin": b"AP8"},
    )
    assert answer.field(b"x-a") == b"1"
    assert answer.field(b"x-content-type-options") == b"nosniff"
    assert answer.field(b"access-control-allow-origin") is None


async def test_a_stream_of_messages() -> None:
    messages, fields = body(await asked(web_headers(b"Count"), Action(tick_id=100)))
    assert [each.tick_id for each in messages] == list(range(100))
    assert fields == {b"grpc-status": b"0"}


async def test_a_stream_without_messages() -> None:
    assert body(await asked(web_headers(b"Echo"))) == ([], {b"grpc-status": b"0"})


async def test_a_dialogue() -> None:
    async with raw_client([CheckService().service()], web=WebSide()) as peer:
        await peer.send(peer.headers(1, web_headers(b"Echo")))
        for text in (b"one", b"two"):
            sent = Action(content=text).SerializeToString()
            assert Observation.FromString(await peer.echo(1, sent)).content == text
        await peer.send(frame(DATA, END_STREAM, 1))
        answer = await peer.until_over(1)
    assert len(body(answer)[0]) == 2


async def test_gRPC_and_gRPC_Web_share_a_connection() -> None:
    async with raw_client([CheckService().service()], web=WebSide()) as peer:
        plain = request_headers(PATH + b"EchoOne")
        for stream, headers in ((1, plain), (3, web_headers(b"EchoOne")), (5, plain), (7, web_headers(b"EchoOne"))):
            await peer.send(request(peer, headers, Action(tick_id=stream), stream=stream))
            answer = await peer.until_over(stream)
            assert answer.ended
            if headers is plain:
                assert (len(answer.headers), answer.status) == (2, 0)
            else:
                assert body(answer)[0] == [Observation(tick_id=stream)]


async def test_a_handler_that_fails() -> None:
    messages, fields = body(await asked(web_headers(b"Fail"), Action(content=b"known")))
    assert messages == []
    assert fields == {b"grpc-status": b"5", b"grpc-message": b"no such thing: %C3%A4%25%0A", b"t-why": b"asked"}
    messages, fields = body(await asked(web_headers(b"CutOff"), Action(tick_id=3)))
    assert [each.tick_id for each in messages] == [0, 1, 2]
    assert fields == {b"grpc-status": b"10", b"grpc-message": b"cut off", b"t-why": b"asked"}


async def test_a_failure_comes_behind_the_messages_that_wait_for_the_peer() -> None:
    """A message that is cut off would hide the status: nothing of the body is dropped."""
    async with raw_client([CheckService().service()], web=WebSide(), settings_values={4: 9}) as peer:
        await peer.send(request(peer, web_headers(b"CutOff"), Action(tick_id=5)))
        answer = peer.answer(1)
        await peer.until(lambda: len(answer.data) == 9)
        for _ in range(12):
            await peer.send(frame(WINDOW_UPDATE, 0, 1, (10).to_bytes(4, "big")))
        await peer.until_over(1)
    messages, fields = body(answer)
    assert [each.tick_id for each in messages] == list(range(5))
    assert fields[b"grpc-status"] == b"10"


async def test_who_does_not_read_until_the_deadline_is_given_up() -> None:
    async with raw_client([CheckService().service()], web=WebSide(), settings_values={4: 9}) as peer:
        await peer.send(request(peer, web_headers(b"Count", grpc_timeout=b"100m"), Action(tick_id=50)))
        answer = await peer.until_over(1)
    assert answer.reset == ErrorCode.CANCEL
    assert len(answer.data) == 9


async def test_a_deadline_that_passes() -> None:
    messages, fields = body(await asked(web_headers(b"Wait", grpc_timeout=b"50m"), Action()))
    assert (messages, fields[b"grpc-status"]) == ([], b"4")


async def test_a_client_that_leaves_cancels_the_handler() -> None:
    service = CheckService()
    async with raw_client([service.service()], web=WebSide()) as peer:
        await peer.send(request(peer, web_headers(b"Wait")))
        await service.entered.wait()
        await peer.send(frame(RST, 0, 1, (8).to_bytes(4, "big")))
        await service.cancelled.wait()


async def test_a_server_that_stops_says_so() -> None:
    service, seen = CheckService(), Seen()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")

            async def run(task_status: trio.TaskStatus[Any]) -> None:
                await serve([service.service()], listeners, web=WebSide(), observer=seen, task_status=task_status)

            serving = await nursery.start(run)
            async with await trio.open_tcp_stream("127.0.0.1", serving.port) as stream:
                peer = RawPeer(stream)
                await peer.send(PREFACE, settings(), request(peer, web_headers(b"Wait")))
                await service.entered.wait()
                nursery.start_soon(serving.drain, 0)
                answer = await peer.until_over(1)
    messages, fields = body(answer)
    assert (messages, fields[b"grpc-status"]) == ([], b"14")
    assert seen.outcomes() == [("Wait", StatusCode.UNAVAILABLE)]


async def test_a_message_that_is_too_long() -> None:
    config = RpcConfig(max_receive_message_bytes=100)
    messages, fields = body(await asked(web_headers(b"EchoOne"), Action(content=bytes(200)), config=config))
    assert (messages, fields[b"grpc-status"]) == ([], b"8")


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        (web_headers(b"Nowhere"), 12, "is not implemented here"),
        (web_headers(b"EchoOne", content_type=b"application/grpc-web+json"), 12, "'application/grpc-web+json'"),
        (web_headers(b"EchoOne", content_type=b"application/grpc-web-text"), 12, "'application/grpc-web-text'"),
        (web_headers(b"EchoOne", grpc_encoding=b"snappy"), 12, "'snappy' is not supported"),
        (web_headers(b"EchoOne", grpc_timeout=b"soon"), 13, "malformed grpc-timeout"),
        (web_headers(b"EchoOne", method=b"PUT"), 13, "expected the method POST"),
        (web_headers(b"EchoOne", x_bin=b"*"), 13, "expected base64"),
        (web_headers(b"EchoOne", x_long=b"x" * 20_000), 8, "metadata is larger than 16384 bytes"),
    ],
)
async def test_what_cannot_be_served_gets_a_status(headers: Headers, status: int, says: str) -> None:
    """With HTTP status 200, as over HTTP/1.1: clients take any other for the status of the call."""
    answer = await asked(headers)
    assert answer.field(b":status") == b"200"
    code, text = refused(answer)
    assert code == status
    assert says in text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"origin": b"https://evil.example.org"}, "pages of this origin may not use this server"),
        ({"origin": b"null"}, "requests of pages without an origin are refused"),
        ({"authority": b"evil.example.org"}, "this server is not known as 'evil.example.org'"),
        ({"authority": None}, "expected one Host"),
        ({"host": b"evil.example.org"}, "expected one Host"),
        ({"authority": None, "host": b"evil.example.org"}, "this server is not known as 'evil.example.org'"),
    ],
)
async def test_pages_of_others_are_refused(fields: dict[str, bytes | None], says: str) -> None:
    service = CheckService()
    answer = await asked(web_headers(b"Wait", **fields), services=[service.service()])
    assert answer.field(b":status") == b"403"
    assert answer.field(b"access-control-allow-origin") is None
    code, text = refused(answer)
    assert code == StatusCode.PERMISSION_DENIED
    assert says in text
    assert not service.entered.is_set()


async def test_a_page_that_is_allowed_may_read_the_answer() -> None:
    side = WebSide(OriginPolicy(hosts=["lab.example.org"], origins=["https://app.example.org"]))
    fields = {"authority": b"lab.example.org", "host": b"lab.example.org", "origin": b"https://app.example.org"}
    for name in (b"EchoOne", b"Nowhere"):
        answer = await asked(web_headers(name, **fields), Action(), web=side)
        assert answer.field(b"access-control-allow-origin") == b"https://app.example.org"
        assert b"grpc-message" in (answer.field(b"access-control-expose-headers") or b"")


async def test_a_handler_sets_no_field_that_browsers_obey() -> None:
    service = Service("a.B")

    async def handler(call: ServerCall) -> None:
        call.set_initial_metadata([("access-control-allow-origin", "*"), ("set-cookie", "a=b"), ("x-mine", "1")])
        call.set_trailing_metadata([("set-cookie", "a=b")])
        await call.send(Observation(content=repr(list(call.metadata)).encode()))

    service.add_method("C", handler, RPCSignature(Cardinality.UNARY_UNARY, Action, Observation))
    fields = {"cookie": b"a=b", "sec_fetch_mode": b"cors", "x_grpc_web": b"1", "referer": b"http://x", "x_mine": b"2"}
    fields["trial_id"] = b"one, two"  # which is how a browser sends two
    answer = await asked(web_headers(b"/a.B/C", **fields), Action(), services=[service])
    messages, _ = body(answer)
    assert messages == [Observation(content=b"[('x-mine', '2'), ('trial-id', 'one'), ('trial-id', 'two')]")]
    assert answer.field(b"x-mine") == b"1"
    assert answer.field(b"set-cookie") is None
    assert answer.field(b"access-control-allow-origin") is None


async def test_a_token_is_asked_for_and_may_stand_before_the_path() -> None:
    side = WebSide(OriginPolicy(address=PublicAddress.parse("https://lab.example.org/cogment")))
    options: dict[str, Any] = {"access": SomeControl(), "web": side}
    code, _ = refused(await asked(web_headers(b"EchoOne"), Action(), **options))
    assert code == StatusCode.UNAUTHENTICATED
    code, text = refused(await asked(web_headers(b"/~" + b"x" * 10_000 + PATH + b"EchoOne"), Action(), **options))
    assert (code, text) == (StatusCode.UNAUTHENTICATED, "token: expected printable ASCII without blanks")
    for before in (b"/~good", b"/cogment/~good"):
        assert len(body(await asked(web_headers(before + PATH + b"EchoOne"), Action(), **options))[0]) == 1
    # A field counts before the path.
    for path in (b"EchoOne", b"/~other" + PATH + b"EchoOne"):
        headers = web_headers(path, authorization=b"Bearer good")
        assert len(body(await asked(headers, Action(), **options))[0]) == 1


async def test_messages_may_be_compressed_but_not_the_status() -> None:
    headers = web_headers(b"EchoOne", grpc_accept_encoding=b"gzip")
    answer = await asked(headers, Action(content=bytes(10_000)))
    assert answer.field(b"grpc-encoding") == b"gzip"
    assert answer.data[0] == 1
    rest = answer.data[5 + int.from_bytes(answer.data[1:5], "big") :]
    assert rest[0] == 0x80
    assert dict(lines(bytes(rest[5:])))[b"grpc-status"] == b"0"


@pytest.mark.parametrize("web", [None, GrpcOnly()])
async def test_a_server_of_gRPC_alone_refuses_it(web: Any) -> None:
    answer = await asked(web_headers(b"EchoOne"), Action(), web=web)
    assert answer.field(b":status") == b"415"
    assert answer.field(b"grpc-message") == b"expected the content-type application/grpc"


async def test_gRPC_itself_still_needs_te() -> None:
    """A page cannot send it, so that no page makes calls of gRPC, for which no origin is asked."""
    answer = await asked(web_headers(b"EchoOne", content_type=b"application/grpc"), Action())
    assert answer.field(b":status") == b"400"
    assert (answer.field(b"grpc-message") or b"").startswith(b"expected 'te: trailers'")


@pytest.mark.parametrize("origin", [b"https://evil.example.org", b"null", b"http://127.0.0.1:9001"])
@pytest.mark.parametrize(
    ("method", "content_type"),
    [
        *((b"POST", kind) for kind in (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data")),
        (b"POST", None),
        (b"POST", b"text/plain; application/grpc-web+proto"),
        (b"OPTIONS", None),
    ],
)
async def test_what_a_page_may_send_without_asking_is_no_call(
    method: bytes, content_type: bytes | None, origin: bytes
) -> None:
    """Browsers send these for any page (the Fetch standard's safelist), and ask by OPTIONS before they send others."""
    service = CheckService()
    headers = web_headers(
        b"Wait",
        method=method,
        content_type=content_type,
        origin=origin,
        cookie=b"trio-cogment-9000=x",
        access_control_request_method=b"POST",
        access_control_request_headers=b"content-type,x-grpc-web",
    )
    answer = await asked(headers, services=[service.service()])
    assert answer.field(b":status") in (b"403", b"405", b"415")
    assert answer.field(b"access-control-allow-origin") is None
    assert answer.field(b"access-control-allow-headers") is None
    assert not service.entered.is_set()
