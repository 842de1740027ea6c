"""HTTP/1.1 as a server speaks it: requests and their bodies, answers, and one request after the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_cogment.web.http1 import BadRequestError, Http1, Sign
from trio_cogment.web.origins import Admitted
from trio_cogment.web.replies import SECURITY_HEADERS, Reply
from trio_cogment.web.requests import Request

HEAD = b"GET /a/b?x=1?y HTTP/1.1\r\nHost: h\r\nX-Own: V\r\n\r\n"


def server(prefix: str = "", *, secure: bool = False, most: int = 1000) -> Http1:
    return Http1(most, secure=secure, prefix=prefix)


def received(data: bytes, **options: Any) -> tuple[Http1, Request]:
    http = server(**options)
    http.receive(data)
    request = http.next_event()
    assert isinstance(request, Request)
    return http, request


def parts(data: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """Return the first line, the fields and the body of an answer."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    fields = dict(line.split(b": ", 1) for line in lines)
    return first, {name.lower(): value for name, value in fields.items()}, body


def test_a_request() -> None:
    _, request = received(HEAD, secure=True)
    assert (request.method, request.path, request.query, request.secure) == ("GET", "/a/b", "x=1?y", True)
    assert request.headers == ((b"host", b"h"), (b"x-own", b"V"))
    assert (request.token, request.written, request.base, request.foreign) == ("", "/a/b", "", "")


@pytest.mark.parametrize(
    ("prefix", "target", "expected"),
    [
        ("", "/~T/play/", ("/play/", "T", "/~T/play/", "")),
        ("/lab", "/lab/~T/x", ("/x", "T", "/~T/x", "/lab")),
        ("/lab", "/lab", ("/", "", "/", "/lab")),
        ("/lab", "/lab/", ("/", "", "/", "/lab")),
        ("/lab", "/labor/x", ("/labor/x", "", "/labor/x", "")),
        ("/lab", "/x", ("/x", "", "/x", "")),
    ],
)
def test_paths_below_a_public_address(prefix: str, target: str, expected: tuple[str, ...]) -> None:
    _, request = received(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode(), prefix=prefix)
    assert (request.path, request.token, request.written, request.base) == expected


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 2000, 431),
    ],
)
def test_what_is_no_request(data: bytes, status: int) -> None:
    http = server()
    http.receive(data)
    with pytest.raises(BadRequestError) as caught:
        http.next_event()
    assert caught.value.reply.status == status
    assert json.loads(caught.value.reply.body)["message"]
    first, fields, _ = parts(http.reply(caught.value.reply, close=True))
    assert first.startswith(b"HTTP/1.1 %d " % status)
    assert fields[b"connection"] == b"close"


def test_a_body_comes_in_pieces() -> None:
    http, _ = received(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab")
    assert http.next_event() == b"ab"
    assert http.next_event() is None
    assert not http.complete()
    http.receive(b"cde" + HEAD)
    assert http.next_event() == b"cde"
    assert http.complete()
    assert http.complete()
    assert http.pipelined == len(HEAD)
    assert http.left_over() == HEAD
    assert not http.next_request()
    http.reply(Reply(200))
    assert http.next_request()
    following = http.next_event()
    assert isinstance(following, Request)
    assert following.path == "/a/b"


def test_a_body_that_nobody_reads() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    http, _ = received(head + b"1\r\nx\r\n" * 10 + b"0\r\n\r\n")
    http.discard()
    assert http.complete()
    http, _ = received(head + b"1\r\nx\r\n" * 100 + b"0\r\n\r\n")
    http.discard()
    assert not http.complete()
    http, _ = received(head + b"1\r\nx\r\n")
    http.discard()
    assert http.next_event() is None


def test_a_client_that_leaves() -> None:
    http = server()
    http.receive(b"")
    assert http.next_event() is Sign.GONE
    http, _ = received(HEAD)
    assert http.next_event() is Sign.END
    assert http.next_event() is None


def test_an_answer_is_whole() -> None:
    http, _ = received(HEAD)
    assert http.complete()
    first, fields, body = parts(http.reply(Reply(404, b"no\n", b"text/plain", ((b"x-own", b"1"),))))
    assert (first, body) == (b"HTTP/1.1 404 Not Found", b"no\n")
    assert (fields[b"content-type"], fields[b"content-length"], fields[b"x-own"]) == (b"text/plain", b"3", b"1")
    assert all(fields[name] == value for name, value in SECURITY_HEADERS)
    assert b"connection" not in fields
    assert http.reply(Reply(200)) == b""  # one has begun


def test_an_answer_without_a_body() -> None:
    http, _ = received(HEAD)
    _, fields, body = parts(http.reply(Reply(204)))
    assert b"content-length" not in fields
    assert b"content-type" not in fields
    assert body == b""
    http, _ = received(HEAD.replace(b"GET", b"HEAD"))
    _, fields, body = parts(http.reply(Reply(200, b"abc", b"text/plain")))
    assert (fields[b"content-length"], body) == (b"3", b"")


def test_a_page_of_another_origin_may_see_the_answers_to_its_request_alone() -> None:
    http, request = received(HEAD + HEAD)
    assert http.complete()
    admitted = http.admitted(request, Admitted(foreign="https://other", secure=True, public=False))
    assert (admitted.foreign, admitted.secure, admitted.base, admitted.path) == ("https://other", True, "", "/a/b")
    assert parts(http.reply(Reply(200)))[1][b"access-control-allow-origin"] == b"https://other"
    assert http.next_request()
    assert isinstance(http.next_event(), Request)
    assert b"access-control-allow-origin" not in parts(http.reply(Reply(200)))[1]


def test_who_comes_by_the_public_address_has_its_prefix() -> None:
    for public, base in ((True, "/lab"), (False, "")):
        http, request = received(HEAD, prefix="/lab")
        assert http.admitted(request, Admitted(foreign="", secure=False, public=public)).base == base


def test_an_answer_before_the_body_has_come_ends_the_connection() -> None:
    http, _ = received(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
    assert parts(http.reply(Reply(403)))[1][b"connection"] == b"close"


def test_a_client_that_waits_is_told_to_go_on() -> None:
    http, _ = received(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert http.go_on().startswith(b"HTTP/1.1 100 ")
    assert http.go_on() == b""
    http, _ = received(HEAD)
    assert http.go_on() == b""


def test_an_answer_in_pieces() -> None:
    http, _ = received(HEAD)
    assert http.complete()
    head = http.head(200, [(b"content-type", b"text/plain"), (b"cache-control", b"max-age=5")])
    _, fields, _ = parts(head)
    assert (fields[b"transfer-encoding"], fields[b"cache-control"]) == (b"chunked", b"max-age=5")
    assert http.data(b"abc") == b"3\r\nabc\r\n"
    assert http.end() == b"0\r\n\r\n"


def test_what_comes_behind_a_handshake_is_not_lost() -> None:
    data = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    http, _ = received(data + b"frames")
    assert http.next_event() is Sign.END
    http.switched()
    assert http.left_over() == b"frames"
