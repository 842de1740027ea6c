"""A client of HTTP/1.1 at a port with gRPC only is told so; anything but HTTP is closed."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.cli.process import PATIENCE_SECONDS
from tests.rpc.test_limits import Stuck
from trio_cogment.api import datalog_pb2
from trio_cogment.api.common_pb2 import VersionRequest
from trio_cogment.base.about import About
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import Channel, bind, methods_of, open_listeners, serve, serve_stream
from trio_cogment.rpc._frames import SETTINGS
from trio_cogment.rpc.grpc_only import GrpcOnly
from trio_cogment.rpc.relay import Accepted, byte_stream_over

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


@pytest.mark.parametrize("data", [b"\x17\x03\x01\x02\x00\x01", b"get / HTTP/1.1\r\n\r\n", b"GET"])
async def test_anything_else_is_closed(data: bytes) -> None:
    assert await answer_to(data) == b""


async def test_a_client_that_speaks_tls_is_answered_in_http2_which_it_does_not_take_for_tls() -> None:
    answer = await answer_to(b"\x16\x03\x01\x02\x00\x01")
    assert answer[3] == SETTINGS
    assert b"the client may speak TLS" in answer


async def test_any_stream_will_do(autojump_clock: MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_stream, [bind(LOG, About())], ours, web=GrpcOnly()))
        await theirs.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert b"".join([piece async for piece in theirs]).startswith(b"HTTP/1.1 505 ")


@pytest.mark.parametrize(("grace", "expected"), [(0.5, 0.5), (100.0, 2.0)])
async def test_a_client_that_does_not_read_holds_nobody_up(
    grace: float, expected: float, autojump_clock: MockClock
) -> None:
    """It has two seconds, and less when the server is drained."""
    stuck = Stuck()
    stuck.opened = trio.Event()
    side = GrpcOnly().connection(accepted(stuck))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.run)
        await stuck.other.send_all(b"GET / HTTP/1.1\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        side.end_calls_of_others(lambda _: False)  # it makes none
        side.drain(trio.current_time() + grace)
        side.drain(trio.current_time() + 1000)
    assert trio.current_time() == pytest.approx(expected)
    assert stuck.closed


async def test_a_client_that_is_gone_is_no_error() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.aclose()
    side = GrpcOnly().connection(accepted(ours))
    await side.run()


def accepted(stream: trio.abc.Stream) -> Accepted:
    return Accepted(byte_stream_over(stream), "here", False, {}, RpcConfig(), None)
