"""The gate before the handlers of one connection: in which order it asks, and how many it lets in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rpc.raw_peer import (
    DATA,
    END_HEADERS,
    HEADERS,
    PREFACE,
    RST,
    encode,
    frame,
    message,
    request_headers,
    settings,
)
from trio_cogment.access import anonymous
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import ErrorCode, Kind
from trio_cogment.rpc._request_gate import RequestGate

PATH = "/trio_cogment.testing.Check/Echo"
ROUTE: Any = object()


def asked(gate_of: dict[str, Any], handlers: int, path: str = PATH) -> tuple[Any, bytes]:
    """Return what becomes of one request, and what is sent at once."""
    engine = Engine(client_side=False, config=RpcConfig(max_concurrent_streams=10))
    gate = RequestGate(engine, gate_of, anonymous("here"), None, None)
    request = frame(HEADERS, END_HEADERS, 1, encode(request_headers(path.encode())))
    ((_, stream, head),) = (
        event for event in engine.receive_data(PREFACE + settings() + request) if event[0] is Kind.REQUEST
    )
    engine.take_output()
    return gate.admit(stream, head, handlers), engine.take_output()


@pytest.mark.parametrize(("handlers", "let_in"), [(0, True), (119, True), (120, False), (1000, False)])
def test_there_may_be_handlers_for_twice_as_many_streams_and_a_hundred_more(handlers: int, let_in: bool) -> None:
    """Of calls that the client has given up, they may be cleaning up still: it may open the next ones at once."""
    admitted, sent = asked({PATH: ROUTE}, handlers)
    if let_in:
        assert admitted == (ROUTE, anonymous("here"))
        assert sent == b""
    else:
        assert admitted is None
        assert sent == frame(RST, 0, 1, int(ErrorCode.REFUSED_STREAM).to_bytes(4, "big"))


def test_what_is_not_served_is_not_implemented_however_many_handlers_there_are() -> None:
    admitted, sent = asked({PATH: ROUTE}, 10_000, "/a/b")
    assert admitted is None
    assert sent[3] == HEADERS


def test_what_still_comes_of_a_refused_request_is_dropped() -> None:
    engine = Engine(client_side=False, config=RpcConfig())
    gate = RequestGate(engine, {}, anonymous("here"), None, None)
    request = frame(HEADERS, END_HEADERS, 1, encode(request_headers(b"/a/b")))
    ((_, stream, head),) = (
        event for event in engine.receive_data(PREFACE + settings() + request) if event[0] is Kind.REQUEST
    )
    assert gate.admit(stream, head, 0) is None
    assert stream.closed
    assert list(engine.receive_data(frame(DATA, 0, 1, message(b"late")))) == []
