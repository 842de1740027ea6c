"""A server's end of a call over HTTP/2: what its handler finds when the call has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import RPCSignature, Service

from tests.rpc.raw_peer import DATA, END_STREAM, RST, RawPeer, frame, message, raw_client, request_headers
from trio_cogment.api.common_pb2 import Observation
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import ServerCall
from trio_cogment.testing.conformance.channel import ECHO

Handler = Callable[[ServerCall], Awaitable[None]]


@asynccontextmanager
async def echo_served_by(handler: Handler) -> AsyncIterator[RawPeer]:
    service = Service(ECHO.path.split("/")[1])
    service.add_method("Echo", handler, RPCSignature(ECHO.cardinality, ECHO.request_type, ECHO.response_type))
    async with raw_client([service]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        yield peer


async def ended_with(operation: Callable[[], Awaitable[Any]]) -> tuple[StatusCode, str]:
    with pytest.raises(RpcError) as caught:
        await operation()
    assert type(caught.value.code) is StatusCode
    return caught.value.code, caught.value.message


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("reset", StatusCode.CANCELLED, "the caller cancelled the call"),
        ("lost", StatusCode.CANCELLED, "the connection to the caller is lost"),
        ("broken", StatusCode.INTERNAL, "compressed flag set without a message encoding"),
    ],
)
async def test_a_handler_that_is_cancelled_can_find_out_why(how: str, code: StatusCode, text: str) -> None:
    """In a shield of its own: what it still does with the call fails at once, and says what has ended it.

    What it has not read is lost.
    """
    found: list[tuple[StatusCode, str]] = []
    done = trio.Event()

    async def handler(call: ServerCall) -> None:
        await call.send_initial_metadata()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(5):
                found.append(await ended_with(call.receive))
                found.append(await ended_with(lambda: call.send(Observation())))
            done.set()

    async with echo_served_by(handler) as peer:
        await peer.until(lambda: bool(peer.answer(1).headers))
        await peer.send(frame(DATA, 0, 1, message(b"")))
        if how == "reset":
            await peer.send(frame(RST, 0, 1, (8).to_bytes(4, "big")))
        elif how == "lost":
            await peer.stream.aclose()
        else:
            await peer.send(frame(DATA, END_STREAM, 1, message(b"x", flag=1)))
        await done.wait()
    assert found == [(code, text)] * 2
