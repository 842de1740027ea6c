"""Requests' headers, read once where they come again."""

from __future__ import annotations

import pytest

from tests.rpc.raw_peer import request_headers
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._request_heads import RequestHeads


def test_the_same_list_is_read_once() -> None:
    heads, headers = RequestHeads(10_000), request_headers()
    head = heads.read(headers)
    assert head is not None
    assert head.path == dict(headers)[b":path"].decode()
    assert heads.read(headers) is head


def test_another_list_is_read_whatever_came_before() -> None:
    heads, one = RequestHeads(10_000), request_headers(x_which=b"one")
    first = heads.read(one)
    second = heads.read(request_headers(x_which=b"two"))
    assert first is not None
    assert second is not None
    assert [*first.metadata, *second.metadata] == [("x-which", "one"), ("x-which", "two")]


def test_what_is_malformed_or_refused_is_so_each_time() -> None:
    heads, malformed = RequestHeads(10_000), [*request_headers(), (b"connection", b"close")]
    refused = [(name, b"text/html" if name == b"content-type" else value) for name, value in request_headers()]
    for _ in range(2):
        assert heads.read(malformed) is None
        with pytest.raises(_grpc_headers.RefusedRequest):
            heads.read(refused)


def test_large_ones_are_not_kept() -> None:
    heads, large = RequestHeads(10_000), request_headers(x_large=bytes(b"x" * 2000))
    assert heads.read(large) is not heads.read(large)


@pytest.mark.parametrize(("size", "kept"), [(1024, True), (1025, False)])
def test_a_kibibyte_is_kept(size: int, kept: bool) -> None:
    """Each connection may keep so much, and there may be very many."""
    others = sum(len(name) + len(value) for name, value in request_headers(x_large=b""))
    heads, headers = RequestHeads(10_000), request_headers(x_large=b"x" * (size - others))
    assert (heads.read(headers) is heads.read(headers)) is kept
