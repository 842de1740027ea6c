"""Faults on one call, by the numbers of the defects measured elsewhere (B2, B3, B4, B6, B9, B10): nobody else notices.

`test_limits` has B6, B11, B12 and B16; `test_server` has B2's tables case by case; `test_known_defects` the others.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service

from tests.rpc.raw_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    PRIORITY,
    RST,
    WINDOW_UPDATE,
    RawPeer,
    frame,
    message,
    raw_client,
    request_headers,
)
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, Method, ServerCall, open_listeners, serve
from trio_cogment.testing.conformance.channel import ECHO, CheckService

PATH = b"/trio_cogment.testing.Check/"
GOOD = Action(tick_id=3, content=b"good").SerializeToString()
ANSWER = Observation(tick_id=3, content=b"good").SerializeToString()
SECRET = "boom secret 0x7f"


async def neighbour(peer: RawPeer) -> None:
    assert await peer.echo(1, GOOD) == ANSWER
    assert peer.goaway is None


async def test_b2_every_bad_request_on_one_connection() -> None:
    """One after the other beside one call that goes on, and nothing is left of them."""
    service = CheckService()
    bad: list[dict[str, Any]] = [
        {"method": b"GET"},
        {"te": None},
        {"content_type": None},
        {"content_type": b"application/json"},
        {"scheme": None},
        {"path": b"/a/b/c"},
        {"path": b"none"},
        {"grpc_timeout": b"soon"},
        {"x": b"\xff\xfe"},
        {"x_bin": b"!"},
    ]
    bodies = [b"\0\x7f\xff\xff\xff", message(GOOD, 1), message(GOOD, 2), message(b"\xff\xff"), message(GOOD)[:-1]]
    async with raw_client([service.service()]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        await neighbour(peer)
        stream = 3
        for changes in bad:
            headers = sorted(request_headers(**changes), key=lambda pair: pair[0][:1] != b":")
            for flags in (END_HEADERS, END_HEADERS | END_STREAM):
                await peer.send(peer.headers(stream, headers, flags))
                assert (await peer.until_over(stream)).status not in (0, None)
                await neighbour(peer)
                stream += 2
        for body in bodies:
            await peer.send(peer.headers(stream, request_headers()), frame(DATA, END_STREAM, stream, body))
            assert (await peer.until_over(stream)).status not in (0, None)
            await neighbour(peer)
            stream += 2


async def test_b3_late_frames_on_streams_that_are_over() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        for stream in range(3, 33, 2):
            await peer.send(peer.headers(stream, request_headers(), END_HEADERS | END_STREAM))
            await peer.until_over(stream)
            await peer.send(
                frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\1"),
                frame(DATA, 0, stream, message(GOOD)),
                frame(PRIORITY, 0, stream, bytes(5)),
                frame(RST, 0, stream, b"\0\0\0\x08"),
                frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\1"),
            )
            await neighbour(peer)


async def test_b4_a_hundred_lost_connections_leave_no_task() -> None:
    service = CheckService()
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service.service()], await open_listeners("127.0.0.1"))
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(100):
            service.entered, service.cancelled = trio.Event(), trio.Event()
            stream = await trio.open_tcp_stream("127.0.0.1", serving.port)
            peer = RawPeer(stream)
            await peer.send(
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0),
                peer.headers(1, request_headers(path=PATH + b"Wait")),
            )
            await service.entered.wait()
            await stream.aclose()
            await service.cancelled.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before
        nursery.cancel_scope.cancel()


def failing(error: BaseException) -> Service:
    async def handler(call: ServerCall) -> None:
        await call.receive()
        raise error

    service = Service("t.T")
    service.add_method("M", handler, RPCSignature(Cardinality.UNARY_UNARY, Action, Observation))
    return service


class Strange(BaseException):
    """Neither an `Exception` nor anything Trio knows."""


async def test_b9_what_is_no_exception_is_never_swallowed() -> None:
    """It ends the server, which closes its sockets; the callers see a connection that ends, not a status."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def run() -> None:
        from trio_cogment.rpc import serve_stream

        with pytest.raises(BaseExceptionGroup) as caught:
            await serve_stream([failing(Strange())], theirs)
        assert caught.group_contains(Strange)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            peer = RawPeer(ours)
            await peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
            await peer.send(peer.headers(1, request_headers(path=b"/t.T/M")))
            await peer.send(frame(DATA, END_STREAM, 1, message(GOOD)))
            await peer.until(lambda: False)
            assert peer.answer(1).status != 0


async def test_b9_cancelled_is_never_swallowed() -> None:
    """A handler that catches everything ends all the same, and a call on another connection does not notice."""
    ended = trio.Event()

    async def stubborn(call: ServerCall) -> None:
        try:
            for _ in range(3):
                try:
                    await trio.sleep_forever()
                except BaseException:  # noqa: BLE001  as others' code does
                    pass
            await trio.lowlevel.checkpoint()
        finally:
            ended.set()

    service = Service("t.T")
    service.add_method("M", stubborn, RPCSignature(Cardinality.UNARY_UNARY, Action, Observation))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            services = [service, CheckService().service()]
            serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
            async with Channel("127.0.0.1", serving.port) as channel, channel.call(ECHO) as call:
                stream = await trio.open_tcp_stream("127.0.0.1", serving.port)
                peer = RawPeer(stream)
                await peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
                headers = peer.headers(1, request_headers(path=b"/t.T/M", grpc_timeout=b"50m"))
                await peer.send(headers, peer.headers(3, request_headers()))
                await peer.until(lambda: bool(peer.answer(1).headers))
                assert peer.answer(1).status == StatusCode.DEADLINE_EXCEEDED
                await ended.wait()
                assert await peer.echo(3, GOOD) == ANSWER
                await stream.aclose()
                await call.send(Action(tick_id=3))
                assert (await call.receive()).tick_id == 3
            nursery.cancel_scope.cancel()


async def test_b9_who_is_there_when_a_server_fails_is_told() -> None:
    """`SystemExit` and its like end the program, not one call: callers on other connections hear it, nobody hangs."""
    failed = trio.Event()

    async def run(task_status: Any) -> None:
        services = [failing(Strange()), CheckService().service()]
        with pytest.raises(BaseExceptionGroup) as caught:
            await serve(services, await open_listeners("127.0.0.1"), task_status=task_status)
        assert caught.group_contains(Strange)
        failed.set()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(run)
            async with (
                Channel("127.0.0.1", serving.port) as channel,
                Channel("127.0.0.1", serving.port) as other,
                channel.call(ECHO) as call,
            ):
                await call.send(Action(tick_id=3))
                assert (await call.receive()).tick_id == 3
                with pytest.raises(RpcError) as caught:
                    await other.unary(Method("/t.T/M", Cardinality.UNARY_UNARY, Action, Observation), Action())
                assert caught.value.code is StatusCode.UNAVAILABLE
                with pytest.raises(RpcError) as caught:
                    await call.receive()
                assert caught.value.code is StatusCode.UNAVAILABLE
                await failed.wait()


@pytest.mark.parametrize(
    "error",
    [ValueError(SECRET), ExceptionGroup(SECRET, [KeyError(SECRET), OSError(5, SECRET)]), AssertionError(SECRET)],
)
async def test_b10_no_internals_leave_the_process(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with raw_client([failing(error), CheckService().service()]) as peer:
            await peer.send(peer.headers(1, request_headers()), peer.headers(3, request_headers(path=b"/t.T/M")))
            await peer.send(frame(DATA, END_STREAM, 3, message(GOOD)))
            answer = await peer.until_over(3)
            assert answer.status == 2
            assert b"secret" not in repr(answer.headers).encode()
            assert b"Error" not in repr(answer.headers).encode()
            await neighbour(peer)
    assert SECRET in caplog.text


@pytest.mark.parametrize("numbers", [(1, 2**31 - 1), (2**31 - 1,)])
async def test_numbers_that_one_client_passes_over_cost_the_others_no_turns(numbers: tuple[int, ...]) -> None:
    """A request with the highest number was paid for as if a thousand million had come before it, by everybody."""
    answered = False

    async def call() -> None:
        nonlocal answered
        async with raw_client([CheckService().service()]) as other:
            await other.send(other.headers(1, request_headers()))
            await neighbour(other)
            answered = True

    async with raw_client([CheckService().service()]) as peer, trio.open_nursery() as nursery:
        for number in numbers:
            await peer.send(peer.headers(number, request_headers()))
            assert await peer.echo(number, GOOD) == ANSWER
        nursery.start_soon(call)
        for _ in range(200):
            await trio.lowlevel.checkpoint()
        assert answered
        nursery.cancel_scope.cancel()
