"""The server against peers that break rules, vanish, or push too hard."""

from __future__ import annotations

import errno
import logging
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from purerpc import Cardinality, NotFoundError, RPCSignature, Service

from tests.rpc.raw_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST,
    SETTINGS,
    WINDOW_UPDATE,
    RawPeer,
    encode,
    frame,
    message,
    raw_client,
    request_headers,
    settings,
)
from trio_cogment.api import hooks_pb2, orchestrator_pb2
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, Method, RunningServer, ServerCall, bind, open_listeners, serve, serve_stream
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, WAIT, CheckService
from trio_cogment.web import WebSide
from trio_cogment.web.routing import AnyRoute

PATH = b"/trio_cogment.testing.Check/"
GOOD = Action(tick_id=3, content=b"good").SerializeToString()
ANSWER = Observation(tick_id=3, content=b"good").SerializeToString()

OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 8, 12, 13

#: name, changes to the headers, gRPC status, HTTP status
BAD_HEADERS: list[tuple[str, dict[str, Any], int, bytes]] = [
    ("GET", {"method": b"GET"}, INTERNAL, b"405"),
    ("no method", {"method": None}, INTERNAL, b"400"),
    ("json", {"content_type": b"application/json"}, INTERNAL, b"415"),
    ("no content-type", {"content_type": None}, INTERNAL, b"415"),
    ("no te", {"te": None}, INTERNAL, b"400"),
    ("no scheme", {"scheme": None}, INTERNAL, b"400"),
    ("wrong scheme", {"scheme": b"gopher"}, INTERNAL, b"400"),
    ("no path", {"path": b""}, UNIMPLEMENTED, b"200"),
    ("path without slash", {"path": b"a"}, UNIMPLEMENTED, b"200"),
    ("path too long", {"path": b"/a/b/c"}, UNIMPLEMENTED, b"200"),
    ("unknown service", {"path": b"/nobody/Echo"}, UNIMPLEMENTED, b"200"),
    ("unknown method", {"path": PATH + b"Nope"}, UNIMPLEMENTED, b"200"),
    ("path not ASCII", {"path": b"/\xff/\xfe"}, UNIMPLEMENTED, b"200"),
    ("timeout word", {"grpc_timeout": b"soon"}, INTERNAL, b"200"),
    ("timeout too long", {"grpc_timeout": b"123456789S"}, INTERNAL, b"200"),
    ("timeout negative", {"grpc_timeout": b"-1S"}, INTERNAL, b"200"),
    ("metadata with LF", {"x": b"a\nb"}, INTERNAL, b"200"),
    ("metadata with CR", {"x": b"a\rb"}, INTERNAL, b"200"),
    ("metadata with NUL", {"x": b"a\0b"}, INTERNAL, b"200"),
    ("metadata not ASCII", {"x": b"\xff"}, INTERNAL, b"200"),
    ("metadata name with space", {"x y": b"a"}, INTERNAL, b"200"),
    ("metadata name in capitals", {"X": b"a"}, INTERNAL, b"200"),
    ("broken base64", {"x_bin": b"!!!"}, INTERNAL, b"200"),
    ("too much metadata", {"x": b"a" * 20_000}, RESOURCE_EXHAUSTED, b"431"),
    ("response status in a request", {":status": b"100"}, INTERNAL, b"400"),
]

#: name, more headers, DATA frames' (flags, payload), gRPC status
BAD_BODIES: list[tuple[str, dict[str, bytes], list[tuple[int, bytes]], int]] = [
    ("compressed without encoding", {}, [(0, message(GOOD, 1))], INTERNAL),
    ("compressed with unknown encoding", {"grpc_encoding": b"snappy"}, [(0, message(GOOD, 1))], UNIMPLEMENTED),
    ("not gzip", {"grpc_encoding": b"gzip"}, [(0, message(GOOD, 1))], INTERNAL),
    ("flag 2", {}, [(0, message(GOOD, 2))], INTERNAL),
    ("too long by its prefix", {}, [(0, b"\0\x7f\xff\xff\xff")], RESOURCE_EXHAUSTED),
    ("undecodable", {}, [(0, message(b"\xff\xff\xff"))], INTERNAL),
    ("ends inside the prefix", {}, [(END_STREAM, b"\0\0")], INTERNAL),
    ("ends inside a message", {}, [(END_STREAM, message(GOOD)[:-1])], INTERNAL),
    ("prefix split over frames, then too long", {}, [(0, b"\0\x7f"), (0, b"\xff\xff\xff")], RESOURCE_EXHAUSTED),
]


async def check_neighbour(peer: Any, stream: int) -> None:
    assert await peer.echo(stream, GOOD) == ANSWER
    assert peer.goaway is None


@pytest.mark.parametrize(("changes", "status", "http"), [c[1:] for c in BAD_HEADERS], ids=[c[0] for c in BAD_HEADERS])
async def test_malformed_request_is_refused_alone(changes: dict[str, Any], status: int, http: bytes) -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        await check_neighbour(peer, 1)
        headers = request_headers(**changes)
        headers.sort(key=lambda pair: pair[0][:1] != b":")
        await peer.send(peer.headers(3, headers), frame(DATA, END_STREAM, 3, message(GOOD)))
        answer = await peer.until_over(3)
        assert answer.status == status
        assert answer.field(b":status") == http
        await check_neighbour(peer, 1)


@pytest.mark.parametrize(("more", "frames", "status"), [c[1:] for c in BAD_BODIES], ids=[c[0] for c in BAD_BODIES])
async def test_malformed_body_is_refused_alone(
    more: dict[str, bytes], frames: list[tuple[int, bytes]], status: int
) -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        await check_neighbour(peer, 1)
        await peer.send(peer.headers(3, request_headers(**more)))
        for flags, payload in frames:
            await peer.send(frame(DATA, flags, 3, payload))
        answer = await peer.until_over(3)
        assert answer.status == status
        await check_neighbour(peer, 1)


async def test_pseudo_header_after_a_field_is_refused_alone() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        headers = request_headers()
        headers.append(headers.pop(0))
        await peer.send(peer.headers(3, headers), peer.headers(5, [*request_headers(), (b":path", b"/b")]))
        assert (await peer.until_over(3)).status == INTERNAL
        assert (await peer.until_over(5)).status == INTERNAL
        await check_neighbour(peer, 1)


async def test_headers_only_request_gets_a_status() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers(), END_HEADERS | END_STREAM))
        assert (await peer.until_over(1)).status == OK
        assert peer.answer(1).reset is None


async def test_request_trailers_are_accepted() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()), frame(DATA, 0, 1, message(GOOD)))
        await peer.send(peer.headers(1, [(b"x-checksum", b"1")], END_HEADERS | END_STREAM))
        answer = await peer.until_over(1)
        assert answer.status == OK
        assert bytes(answer.data[5:]) == ANSWER


async def test_trailers_without_end_stream_reset_their_stream_only() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()), peer.headers(3, request_headers()))
        await peer.send(peer.headers(3, [(b"x", b"1")]))
        assert (await peer.until_over(3)).reset == 1
        await check_neighbour(peer, 1)


async def test_content_length_is_ignored() -> None:
    async with raw_client([CheckService().service()]) as peer:
        for stream, length in ((1, b"3"), (3, b"many")):
            await peer.send(peer.headers(stream, request_headers(content_length=length)))
            await peer.send(frame(DATA, END_STREAM, stream, message(GOOD)))
            assert (await peer.until_over(stream)).status == OK


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("method", ["unary", "streaming"])
async def test_a_method_of_one_request_gets_none_or_two(count: int, method: str) -> None:
    """As bound from a descriptor: the implementation is not called."""

    class Never:
        async def OnPreTrial(self, request: Any, call: ServerCall) -> Any:
            raise AssertionError("called")

        WatchTrials = OnPreTrial

    services = [
        bind(hooks_pb2.DESCRIPTOR.services_by_name["TrialHooksSP"], Never()),
        bind(orchestrator_pb2.DESCRIPTOR.services_by_name["TrialLifecycleSP"], Never()),
    ]
    name = {"unary": "TrialHooksSP/OnPreTrial", "streaming": "TrialLifecycleSP/WatchTrials"}[method]
    async with raw_client([*services, CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        await peer.send(peer.headers(3, request_headers(path=b"/cogmentAPI." + name.encode())))
        await peer.send(frame(DATA, END_STREAM, 3, message(b"") * count))
        answer = await peer.until_over(3)
        assert answer.status == UNIMPLEMENTED
        assert not answer.data
        assert b"got none" in (answer.field(b"grpc-message") or b"") or count
        await check_neighbour(peer, 1)


async def test_padding_continuation_and_interleaving() -> None:
    async with raw_client([CheckService().service()]) as peer:
        block = encode(request_headers(), peer.encoder)
        await peer.send(
            frame(HEADERS, 0, 1, block[:10]),
            frame(CONTINUATION, 0, 1, block[10:20]),
            frame(CONTINUATION, END_HEADERS, 1, block[20:]),
            peer.headers(3, request_headers()),
        )
        whole = message(GOOD)
        for stream, piece in ((1, whole[:3]), (3, whole[:7]), (1, whole[3:]), (3, whole[7:])):
            await peer.send(frame(DATA, PADDED, stream, b"\x05" + piece + bytes(5)))
        await peer.send(frame(DATA, PADDED | END_STREAM, 1, b"\0"), frame(DATA, END_STREAM, 3))
        for stream in (1, 3):
            assert bytes((await peer.until_over(stream)).data[5:]) == ANSWER


@pytest.mark.parametrize(
    "bytes_",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        PREFACE + frame(PING, 0, 0, bytes(8)),
        PREFACE + settings() + frame(DATA, 0, 1, b"x"),
        PREFACE + settings() + frame(DATA, 0, 0, b"x"),
        PREFACE + settings() + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        PREFACE + settings() + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
        PREFACE + settings() + frame(WINDOW_UPDATE, 0, 9, b"\0\0\0\1"),
        PREFACE + settings() + frame(PING, 0, 0, bytes(7)),
        PREFACE + settings() + frame(GOAWAY, 0, 0, bytes(7)),
        PREFACE + settings() + frame(5, END_HEADERS, 1, bytes(8)),
        PREFACE + settings() + frame(SETTINGS, 0, 0, bytes(5)),
        PREFACE + settings({4: 2**31}),
        PREFACE + settings() + frame(HEADERS, END_HEADERS, 2, encode(request_headers())),
        PREFACE + settings() + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"),
        PREFACE + settings() + frame(HEADERS, 0, 1, encode(request_headers())) + frame(PING, 0, 0, bytes(8)),
        PREFACE + settings() + frame(HEADERS, 0, 1, encode(request_headers())) + frame(DATA, 0, 1, b""),
        PREFACE + settings() + frame(CONTINUATION, END_HEADERS, 1, b""),
        PREFACE + settings() + frame(PRIORITY, 0, 1, b"\0") + frame(RST, 0, 1, b"\0"),
    ],
)
async def test_connection_errors_close_with_goaway(bytes_: bytes) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_stream, [CheckService().service()], theirs)
            peer = RawPeer(ours)
            await peer.send(bytes_)
            await peer.until(lambda: False)
    assert peer.goaway not in (None, 0)


async def test_connection_error_frees_running_calls(caplog: pytest.LogCaptureFixture) -> None:
    service = CheckService()
    with caplog.at_level(logging.ERROR):
        async with raw_client([service.service()]) as peer:
            await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait")))
            await service.entered.wait()
            await peer.send(frame(HEADERS, END_HEADERS, 3, b"\xff\xff\xff"))
            await peer.until(lambda: False)
            assert peer.goaway not in (None, 0)
            await service.cancelled.wait()
    assert not caplog.records


async def test_window_update_and_reset_on_closed_streams_are_harmless() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers(), END_HEADERS | END_STREAM))
        await peer.until_over(1)
        await peer.send(frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"), frame(RST, 0, 1, b"\0\0\0\x08"))
        await peer.send(peer.headers(3, request_headers()))
        await peer.send(frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"), frame(PRIORITY, 0, 1, bytes(5)))
        await check_neighbour(peer, 3)


async def test_data_nobody_reads_is_credited_to_the_connection() -> None:
    config = RpcConfig(connection_window_bytes=100_000)
    async with raw_client([CheckService().service()], config=config) as peer:
        await peer.send(peer.headers(1, request_headers()))
        for stream in range(3, 43, 2):
            await peer.send(peer.headers(stream, request_headers(path=b"/no/Thing")))
            await peer.until_over(stream)
            await peer.send(frame(DATA, 0, stream, bytes(16_000)))  # in flight when the refusal came
        await check_neighbour(peer, 1)
        credited = sum(
            int.from_bytes(payload, "big") for kind, _, stream, payload in peer.frames if (kind, stream) == (8, 0)
        )
        assert credited >= 20 * 16_000 - 100_000


async def test_more_than_the_window_is_a_stream_error() -> None:
    config = RpcConfig(stream_window_bytes=1000, max_receive_message_bytes=500)
    async with raw_client([CheckService().service()], config=config) as peer:
        await peer.send(peer.headers(1, request_headers()), peer.headers(3, request_headers(path=PATH + b"Wait")))
        await peer.send(frame(DATA, 0, 3, message(bytes(400)) * 3))
        assert (await peer.until_over(3)).reset == 3
        await check_neighbour(peer, 1)


async def test_a_message_larger_than_every_window_gets_through() -> None:
    config = RpcConfig(stream_window_bytes=1000, max_receive_message_bytes=100_000)
    async with raw_client([CheckService().service()], config=config) as peer:
        await peer.send(peer.headers(1, request_headers()))
        await peer.send(frame(WINDOW_UPDATE, 0, 0, (10**6).to_bytes(4, "big")))
        await peer.send(frame(WINDOW_UPDATE, 0, 1, (10**6).to_bytes(4, "big")))
        whole = message(Action(content=bytes(90_000)).SerializeToString())
        window = 1000
        seen = 0
        while whole:
            piece, whole = whole[:window], whole[window:]
            await peer.send(frame(DATA, 0, 1, piece))
            window -= len(piece)
            while whole and window == 0:
                await peer.pump()
                for kind, _, stream, payload in peer.frames[seen:]:
                    if kind == WINDOW_UPDATE and stream == 1:
                        window += int.from_bytes(payload, "big")
                seen = len(peer.frames)
        await peer.until(lambda: len(peer.answer(1).data) > 90_000)
        assert not peer.eof


async def test_shrinking_the_initial_window_below_zero() -> None:
    async with raw_client([CheckService().service()], settings_values={4: 100}) as peer:
        await peer.send(peer.headers(1, request_headers()))
        await peer.send(frame(DATA, 0, 1, message(Action(content=bytes(150)).SerializeToString())))
        await peer.until(lambda: len(peer.answer(1).data) == 100)
        await peer.send(settings({4: 10}))  # the stream's window is now -90
        await peer.send(frame(WINDOW_UPDATE, 0, 1, (91).to_bytes(4, "big")))
        await peer.until(lambda: len(peer.answer(1).data) == 101)
        await peer.send(settings({4: 1000}))
        await peer.until(lambda: len(peer.answer(1).data) > 150)
        assert peer.answer(1).data[5:] == Observation(content=bytes(150)).SerializeToString()


async def test_too_many_streams_are_refused() -> None:
    config = RpcConfig(max_concurrent_streams=3)
    async with raw_client([CheckService().service()], config=config) as peer:
        for stream in (1, 3, 5, 7):
            await peer.send(peer.headers(stream, request_headers()))
        assert (await peer.until_over(7)).reset == 7
        await peer.send(frame(RST, 0, 5, b"\0\0\0\x08"), peer.headers(9, request_headers()))
        await check_neighbour(peer, 9)
        await check_neighbour(peer, 1)


async def test_reset_cancels_the_handler() -> None:
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait")))
        await service.entered.wait()
        await peer.send(frame(RST, 0, 1, b"\0\0\0\x08"))
        await service.cancelled.wait()


@pytest.mark.parametrize("how", ["fin", "forceful"])
async def test_disconnect_frees_handlers(how: str) -> None:
    services = [CheckService() for _ in range(5)]
    for service in services:
        async with raw_client([service.service()]) as peer:
            await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait")))
            await service.entered.wait()
            if how == "fin":
                await peer.stream.aclose()
            await trio.aclose_forcefully(peer.stream)
            await service.cancelled.wait()


async def test_deadline_reaches_handler_and_peer() -> None:
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        await peer.send(peer.headers(1, request_headers(path=PATH + b"Wait", grpc_timeout=b"1m")))
        assert (await peer.until_over(1)).status == 4
        if service.entered.is_set():
            await service.cancelled.wait()


async def test_ping_is_answered() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(frame(PING, 0, 0, b"12345678"))
        await peer.until(lambda: (PING, 1, 0, b"12345678") in peer.frames)
        assert not peer.eof


async def _serve_one(handler: Any, cardinality: Cardinality = Cardinality.UNARY_UNARY) -> tuple[Service, Method]:
    service = Service("t.T")
    service.add_method("M", handler, RPCSignature(cardinality, Action, Observation))
    return service, Method("/t.T/M", cardinality, Action, Observation)


async def test_purerpc_errors_are_statuses() -> None:
    async def handler(call: ServerCall) -> None:
        raise NotFoundError("not here")

    service, method = await _serve_one(handler)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel:
            with pytest.raises(RpcError, match="not here") as caught:
                await channel.unary(method, Action())
            assert caught.value.code is StatusCode.NOT_FOUND
        nursery.cancel_scope.cancel()


async def test_a_group_of_one_counts_as_its_exception() -> None:
    async def handler(call: ServerCall) -> None:
        async with trio.open_nursery():
            raise RpcError(StatusCode.ABORTED, "from a nursery", [("grpc-status-details-bin", b"\1\2")])

    service, method = await _serve_one(handler)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel:
            with pytest.raises(RpcError, match="from a nursery") as caught:
                await channel.unary(method, Action())
            assert caught.value.code is StatusCode.ABORTED
            assert caught.value.trailing_metadata == (("grpc-status-details-bin", b"\1\2"),)
        nursery.cancel_scope.cancel()


async def test_failing_consumer_ends_its_call_only(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[RpcError | None] = []

    class Failing:
        def on_message(self, message: Any) -> None:
            raise ValueError("secret")

        def on_end(self, error: RpcError | None) -> None:
            ends.append(error)

    async def handler(call: ServerCall) -> None:
        call.set_consumer(Failing())
        await trio.sleep_forever()

    service, method = await _serve_one(handler, Cardinality.STREAM_STREAM)
    with caplog.at_level(logging.ERROR):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serving = await nursery.start(serve, [service, CheckService().service()], listeners)
            async with Channel("127.0.0.1", serving.port) as channel, channel.call(ECHO) as neighbour:
                async with channel.call(method) as call:
                    await call.send(Action())
                    with pytest.raises(RpcError) as caught:
                        await call.receive()
                assert caught.value.code is StatusCode.INTERNAL
                assert "secret" not in str(caught.value)
                await neighbour.send(Action(tick_id=1))
                assert (await neighbour.receive()).tick_id == 1
            nursery.cancel_scope.cancel()
    assert len(ends) == 1
    assert ends[0] is not None
    assert "secret" in caplog.text


async def test_cancelling_the_server_tells_its_callers() -> None:
    service = CheckService()
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        ready: list[Any] = []

        async def run(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            with scope:
                await serve([service.service()], await open_listeners("127.0.0.1"), task_status=task_status)

        ready.append(await nursery.start(run))
        async with Channel("127.0.0.1", ready[0].port) as channel:
            async with channel.call(WAIT) as call:
                await service.entered.wait()
                scope.cancel()
                with pytest.raises(RpcError) as caught:
                    await call.receive()
            assert caught.value.code is StatusCode.UNAVAILABLE
            await service.cancelled.wait()
            with pytest.raises(RpcError) as caught:
                await channel.unary(ECHO_ONE, Action())
            assert caught.value.code is StatusCode.UNAVAILABLE


async def test_a_taken_port_fails_loudly_and_can_be_used_again() -> None:
    listeners = await open_listeners("127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    with pytest.raises(OSError, match=r"cannot listen on ipv4:127\.0\.0\.1") as caught:
        await open_listeners("127.0.0.1", port)
    assert caught.value.errno == errno.EADDRINUSE
    await listeners[0].aclose()
    again = await open_listeners("127.0.0.1", port)
    await again[0].aclose()


async def test_one_service_cannot_be_served_twice() -> None:
    with pytest.raises(ValueError, match="served twice"):
        await serve([CheckService().service(), CheckService().service()], [])


class Failing(trio.abc.Listener[Any]):
    """A listener whose `accept` fails, each time with the next of these errors."""

    def __init__(self, *errors: int) -> None:
        self.errors: list[Any] = list(errors)
        self.times: list[float] = []

    async def accept(self) -> Any:
        await trio.lowlevel.checkpoint()
        self.times.append(trio.current_time())
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, "it fails")
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("before", [[], [errno.EMFILE], [errno.EMFILE, errno.ENFILE], [errno.EMFILE] * 4])
async def test_a_listener_that_is_broken_ends_the_server(
    before: list[int], autojump_clock: trio.testing.MockClock
) -> None:
    """Whether descriptors had been short before or not."""
    listener = Failing(*before, errno.EINVAL)
    with pytest.raises(BaseExceptionGroup) as caught:
        await serve([CheckService().service()], [listener])
    errors = [error for error in leaves(caught.value) if isinstance(error, OSError)]
    assert [error.errno for error in errors] == [errno.EINVAL]


async def test_while_descriptors_are_short_the_server_pauses(autojump_clock: trio.testing.MockClock) -> None:
    """After it has failed with the one that it had in reserve, too."""
    listener = Failing(*[errno.EMFILE] * 6)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, [CheckService().service()], [listener])
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert listener.times[0::2][:4] == pytest.approx([0, 0.1, 0.2, 0.3])
    assert listener.times[1::2][:3] == pytest.approx([0, 0.1, 0.2])


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in leaves(one)]
    return [error]


class Scripted(Failing):
    """A listener whose `accept` fails, or returns a stream, as it is told."""

    def __init__(self, *outcomes: int | trio.abc.Stream) -> None:
        super().__init__()
        self.outcomes = list(outcomes)

    async def accept(self) -> Any:
        if self.outcomes and not isinstance(self.outcomes[0], int):
            return self.outcomes.pop(0)
        self.errors = self.outcomes[:1]
        del self.outcomes[:1]
        return await super().accept()


async def test_a_connection_for_which_there_is_no_descriptor_is_closed_and_the_next_one_is_served(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The one that is in reserve is enough for that: nobody pauses."""
    pairs = [trio.testing.memory_stream_pair() for _ in range(4)]
    refused = [outcome for _, far in pairs[:3] for outcome in (errno.EMFILE, far)]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, [CheckService().service()], [Scripted(*refused, pairs[-1][1])])
        for near, _ in pairs[:3]:
            assert await near.receive_some() == b""
        peer = RawPeer(pairs[-1][0])
        await peer.send(PREFACE, settings(), peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        assert trio.current_time() == 0
        nursery.cancel_scope.cancel()


def test_a_running_server_is_shown_by_its_addresses() -> None:
    shown = "RunningServer(addresses=('ipv4:127.0.0.1:9000',), ports=(9000,))"
    assert repr(RunningServer(("ipv4:127.0.0.1:9000",), (9000,))) == shown


@pytest.mark.parametrize("where", ["handshake", "pages"])
async def test_what_fails_before_a_connection_is_served_ends_no_other(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(call: ServerCall) -> None:
        await call.send(Observation())

    def no_routes() -> list[AnyRoute]:
        raise RuntimeError("planted")

    service, method = await _serve_one(handler)
    side = WebSide(routes=no_routes)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(partial(serve, web=side), [service], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port) as channel:
            await channel.unary(method, Action())
            with monkeypatch.context() as patched:
                if where == "handshake":

                    async def planted(*_args: Any, **_options: Any) -> None:
                        raise RuntimeError("planted")

                    patched.setattr("trio_cogment.rpc.server.shake_hands", planted)
                for _ in range(3):
                    async with await trio.open_tcp_stream("127.0.0.1", serving.port) as bad:
                        await bad.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                        with trio.fail_after(30):
                            try:
                                assert await bad.receive_some() == b""
                            except trio.BrokenResourceError:
                                pass  # it was closed with something unread
            assert side._open == 0
            await channel.unary(method, Action())
        async with Channel("127.0.0.1", serving.port) as channel:
            await channel.unary(method, Action())
        nursery.cancel_scope.cancel()
    assert "RuntimeError: planted" in caplog.text
