"""Handlers are bounded as streams are, and a failure is told whatever it cuts off."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.helpers import Script, wire_channel
from tests.rpc.raw_peer import RST, frame, raw_client, request_headers
from trio_cogment.api import environment_pb2
from trio_cogment.api.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.rpc import methods_of
from trio_cogment.rpc._grpc_headers import is_grpc

RUN_TRIAL = methods_of(environment_pb2.DESCRIPTOR.services_by_name["EnvironmentSP"])["RunTrial"]
CANCEL = b"\0\0\0\x08"


async def _to_the_end(call: Any) -> None:
    async for _ in call:
        pass


async def test_failure_is_told_though_it_cuts_off_a_message() -> None:
    async def fails(call: Any) -> None:
        await call.receive()
        await call.send(EnvRunTrialOutput(details="x" * 1024 * 1024))
        raise NotFoundError("the real reason")

    with trio.fail_after(30):
        async with wire_channel([Script(fails).environment()]) as channel, channel.call(RUN_TRIAL) as call:
            await call.send(EnvRunTrialInput())
            with pytest.raises(RpcError) as caught:
                await _to_the_end(call)
    assert caught.value.code is StatusCode.NOT_FOUND
    assert caught.value.message == "the real reason"


async def test_handlers_that_take_their_time_to_clean_up_are_bounded_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    running = most = 0

    async def slow_to_leave(call: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await call.send_initial_metadata()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                await trio.sleep(1)
            running -= 1

    config = RpcConfig(max_concurrent_streams=10)
    async with raw_client([Script(slow_to_leave).environment()], config=config) as peer:
        head = request_headers(path=RUN_TRIAL.path.encode())
        for stream in range(1, 401, 2):
            await peer.send(peer.headers(stream, head))
            await peer.until(
                lambda stream=stream: bool(peer.answer(stream).headers) or peer.answer(stream).reset is not None
            )
            await peer.send(frame(RST, 0, stream, CANCEL))
        assert most == 2 * 10 + 100
        # When they have cleaned up, the next call is served.
        await trio.sleep(2)
        await peer.send(peer.headers(401, head))
        await peer.until(lambda: bool(peer.answer(401).headers))


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;charset=utf-8", True),
        (b"application/grpc-web+proto", False),
        (b"application/grpcfoo", False),
        (b"application/json", False),
        (b"", False),
    ],
)
def test_content_type_is_grpc_or_it_is_not(content_type: bytes, expected: bool) -> None:
    assert is_grpc(content_type) is expected
