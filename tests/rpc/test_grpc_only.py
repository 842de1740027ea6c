"""A client of HTTP/1.1 at a port with gRPC only is told so; what is no HTTP at all is closed."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.cli.process import PATIENCE_SECONDS
from trio_cogment.about import About
from trio_cogment.api import datalog_pb2
from trio_cogment.api.common_pb2 import VersionRequest
from trio_cogment.rpc import Channel, bind, methods_of, open_listeners, serve, serve_stream
from trio_cogment.rpc.grpc_only import GrpcOnly

LOG = datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"]


async def answer_to(data: bytes) -> bytes:
    """Return all that a server says to these first bytes, until it closes; calls work at the same port."""
    serving = partial(serve, [bind(LOG, About())], web=GrpcOnly())
    async with trio.open_nursery() as nursery:
        running = await nursery.start(serving, await open_listeners("127.0.0.1", 0))
        with trio.fail_after(PATIENCE_SECONDS):
            async with await trio.open_tcp_stream("127.0.0.1", running.port) as stream:
                await stream.send_all(data)
                answer = b"".join([piece async for piece in stream])
            async with Channel("127.0.0.1", running.port) as channel:
                await channel.unary(methods_of(LOG)["Version"], VersionRequest())
        nursery.cancel_scope.cancel()
    return answer


@pytest.mark.parametrize("request_line", ["GET / HTTP/1.1", "POST /cogmentAPI.DatalogSP/Version HTTP/1.1"])
async def test_a_client_of_http_1_is_told(request_line: str) -> None:
    head, _, text = (await answer_to(f"{request_line}\r\nHost: here\r\n\r\n".encode())).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 505 HTTP Version Not Supported"
    assert f"Content-Length: {len(text)}" in lines
    assert b"speaks gRPC" in text


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b"get / HTTP/1.1\r\n\r\n", b"GET"])
async def test_anything_else_is_closed(data: bytes) -> None:
    assert await answer_to(data) == b""


async def test_any_stream_will_do(autojump_clock: MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_stream, [bind(LOG, About())], ours, web=GrpcOnly()))
        await theirs.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert b"".join([piece async for piece in theirs]).startswith(b"HTTP/1.1 505 ")
