"""Heads of requests: their fields, what they ask for, references, and what a call says in them."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.web.requests import (
    Request,
    call_fields,
    call_head,
    is_text,
    lines,
    reply_type,
    token_in_path,
    wants_text,
)


def request(*headers: tuple[bytes, bytes], path: str = "/", **fields: Any) -> Request:
    return Request("GET", path, "", headers, **fields)


def test_fields_by_their_names() -> None:
    asked = request((b"a", b"1"), (b"b", b"X, y ,,"), (b"a", b"\xe92"), (b"b", b" z"))
    assert asked.all(b"a") == [b"1", b"\xe92"]
    assert asked.first(b"a") == b"1"
    assert (asked.all(b"c"), asked.first(b"c")) == ([], b"")
    assert asked.texts(b"a") == ["1", "é2"]
    assert asked.listed(b"b") == [b"x", b"y", b"z"]


def test_what_is_asked_for() -> None:
    assert request((b"accept", b"application/json, Text/HTML;q=0.9")).wants_html
    assert not request((b"accept", b"application/json"), (b"accept", b"*/*")).wants_html
    assert not request().wants_html
    assert request((b"upgrade", b"h2c, WebSocket")).upgrades_to_websocket
    assert not request((b"upgrade", b"h2c")).upgrades_to_websocket


@pytest.mark.parametrize(
    ("fields", "there", "outside"),
    [
        ({"path": "/"}, "./play/x", "./play/x"),
        ({"path": "/a"}, "./play/x", "./play/x"),
        ({"path": "/a/b"}, "../play/x", "../play/x"),
        ({"path": "/a/b/c/"}, "../../../play/x", "../../../play/x"),
        ({"path": "/play/", "token": "T", "written": "/~T/play/"}, "../../~T/play/x", "../../play/x"),
        ({"path": "/", "token": "T", "written": "/~T/", "base": "/lab"}, "/lab/~T/play/x", "/lab/play/x"),
        ({"path": "/a/b", "base": "https://h/lab"}, "https://h/lab/play/x", "https://h/lab/play/x"),
    ],
)
def test_references_to_paths_of_this_server(fields: dict[str, str], there: str, outside: str) -> None:
    asked = request(**fields)
    assert (asked.at("/play/x"), asked.outside("/play/x")) == (there, outside)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/play/", ("", "/play/")),
        ("/~T/play/x", ("T", "/play/x")),
        ("/~T/", ("T", "/")),
        ("/~T", ("T", "/")),
        ("/~", ("", "/")),
        ("/a/~T/", ("", "/a/~T/")),
    ],
)
def test_a_token_in_a_path(path: str, expected: tuple[str, str]) -> None:
    assert token_in_path(path) == expected


def test_the_fields_of_a_call_are_those_that_are_no_browsers() -> None:
    headers = [
        *((name, b"x") for name in (b"accept", b"cookie", b"host", b"origin", b"user-agent", b"te", b"x-grpc-web")),
        (b"sec-fetch-mode", b"cors"),
        (b"access-control-request-method", b"POST"),
        (b"trial-id", b"one, two,three"),
        (b"authorization", b"Bearer t"),
        (b"x-own", b"a, b"),
    ]
    assert call_fields(headers) == [
        (b"trial-id", b"one"),
        (b"trial-id", b"two"),
        (b"trial-id", b"three"),
        (b"authorization", b"Bearer t"),
        (b"x-own", b"a, b"),
    ]


def test_what_a_call_says() -> None:
    found = call_head([(b"grpc-timeout", b"1500m"), (b"x-own", b"a"), (b"host", b"h")], 100)
    assert (found.timeout, list(found.metadata)) == (1.5, [("x-own", "a")])
    assert call_head([], 0).timeout is None


def test_metadata_counts_as_http2_counts_it() -> None:
    fields = [(b"x-own", b"abc"), (b"x-more", b"")]
    size = 5 + 3 + 32 + 6 + 32
    assert len(call_head([*fields, (b"grpc-timeout", b"1S")], size).metadata) == 2
    with pytest.raises(RpcError, match=f"metadata is larger than {size - 1} bytes") as caught:
        call_head(fields, size - 1)
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("fields", [[(b"x-data-bin", b"!")], [(b"grpc-timeout", b"soon")]])
def test_heads_that_are_none_of_a_call(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(RpcError):
        call_head(fields, 1000)


def test_lines_of_a_block() -> None:
    block = b"Trial-ID: t\r\n\r\nx-own:\ta b \t\r\nempty:\r\n"
    assert lines(block) == [(b"trial-id", b"t"), (b"x-own", b"a b"), (b"empty", b"")]
    assert lines(b"") == []
    for wrong in (b"no colon", b": x", b"a b: x", b"a: \x00", b"a: \xff", b"a: x\ny"):
        with pytest.raises(RpcError, match="expected header fields in the first message") as caught:
            lines(b"good: x\r\n" + wrong)
        assert caught.value.code is StatusCode.INTERNAL


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (b"application/grpc-web", False),
        (b"application/grpc-web+proto", False),
        (b"Application/gRPC-Web+Proto ; charset=x", False),
        (b"application/grpc-web-text", True),
        (b"application/grpc-web-text+proto", True),
        (b"application/grpc-web+json", None),
        (b"application/grpc-web-text+json", None),
        (b"application/grpc", None),
        (b"", None),
    ],
)
def test_content_types(kind: bytes, expected: bool | None) -> None:
    assert is_text(kind) is expected


def test_the_form_of_an_answer() -> None:
    text, binary = b"application/grpc-web-text", b"application/grpc-web+proto"
    for asked in (True, False):
        assert wants_text([], asked) is asked
        assert wants_text([b"*/*"], asked) is asked
        assert wants_text([b"*/*", text, binary], asked) is True
        assert wants_text([binary, text], asked) is False
    assert reply_type(True) == b"application/grpc-web-text+proto"
    assert reply_type(False) == b"application/grpc-web+proto"
