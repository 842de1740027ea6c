"""Compressed messages: read and written, with grpcio's peers, raw ones and bombs."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import trio
import trio.testing
from purerpc import Cardinality, RPCSignature, Service

from tests.rpc.raw_peer import DATA, END_HEADERS, HEADERS, RawPeer, frame, message, raw_client, request_headers
from tests.rpc.raw_peer import settings as settings_frame
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import LocalProtocolError, RpcError, StatusCode
from trio_cogment.rpc import Channel, ClientCall, InProcessChannel, Method, ServerCall, open_listeners, serve
from trio_cogment.rpc._compressed_message import CompressedMessage
from trio_cogment.rpc._compression import compress, decompress
from trio_cogment.rpc._connection import Connection
from trio_cogment.rpc._http2_server_call import Http2ServerCall
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.rpc._streams import BadMessageError
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, CheckService
from trio_cogment.testing.conformance.channel_service import Collector

PLAIN = Action(tick_id=3, content=b"good " * 100)
BYTES = PLAIN.SerializeToString()
ANSWER = Observation(tick_id=3, content=b"good " * 100)
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
PACKED = Method("/test.Packed/Packed", Cardinality.STREAM_STREAM, Action, Observation)
NAMES = [*COMPRESSORS]


def packing_service(name: str) -> Service:
    """An echo that compresses its answers."""

    async def packed(call: ServerCall) -> None:
        call.set_compression(name)
        async for request in call:
            await call.send(Observation(tick_id=request.tick_id, content=request.content))
            with pytest.raises(LocalProtocolError):
                call.set_compression("gzip")

    service = Service("test.Packed")
    service.add_method("Packed", packed, RPCSignature(PACKED.cardinality, Action, Observation))
    return service


# --- pieces ---


@pytest.mark.parametrize("name", NAMES)
def test_no_more_is_made_of_a_bomb_than_is_allowed(name: str) -> None:
    bomb = CompressedMessage(COMPRESSORS[name](bytes(16 * 2**20)))
    tracemalloc.start()
    try:
        with pytest.raises(BadMessageError, match="larger than 1000 bytes"):
            decompress(name, bomb, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_shrink_stays_as_it_is(name: str) -> None:
    assert compress(name, b"") == b""
    assert compress(name, b"abc") == b"abc"
    assert type(compress(name, b"abc")) is bytes
    packed = compress(name, bytes(1000))
    assert type(packed) is CompressedMessage
    assert len(packed) < 50
    assert decompress(name, packed, 1000) == bytes(1000)


@pytest.mark.parametrize(("name", "bits"), [("gzip", 31), ("deflate", 15)])
def test_time_is_worth_more_than_the_last_tenth(name: str, bits: int) -> None:
    """Messages are compressed as zlib's level 3 does it, whose output is another one than that of its neighbours."""
    text = b"".join(b"%d squared is %d; " % (number, number**2) for number in range(3000))

    def by_zlib(level: int) -> bytes:
        compressor = zlib.compressobj(level, zlib.DEFLATED, bits)
        return compressor.compress(text) + compressor.flush()

    assert by_zlib(3) not in (by_zlib(2), by_zlib(4))
    assert compress(name, text) == by_zlib(3)


# --- a raw client ---


@pytest.mark.parametrize("cut", [0, 1, 3, 5, 6, 40])
@pytest.mark.parametrize("name", NAMES)
async def test_requests_are_decompressed_however_they_are_cut(name: str, cut: int) -> None:
    packed = message(COMPRESSORS[name](BYTES), 1)
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers(grpc_encoding=name.encode())))
        await peer.send(frame(DATA, 0, 1, packed[:cut]), frame(DATA, 0, 1, packed[cut:]))
        answer = peer.answer(1)
        await peer.until(lambda: len(answer.data) >= 5 + len(ANSWER.SerializeToString()))
        assert bytes(answer.data[5:]) == ANSWER.SerializeToString()
        assert answer.field(b"grpc-accept-encoding") == b"identity,deflate,gzip"
        assert answer.field(b"grpc-encoding") is None
        assert await peer.echo(1, BYTES) == ANSWER.SerializeToString()  # one without compression, on the same stream


async def test_unread_compressed_messages_are_bounded_by_what_they_are_on_the_wire() -> None:
    """The window comes back as messages are taken: many times its size passes, whatever they grow to."""
    big = Action(content=bytes(1024 * 1024)).SerializeToString()
    packed = message(gzip.compress(big), 1)
    count = 3 * 64 * 1024 // len(packed)
    answer_bytes = 5 + len(Observation(content=bytes(1024 * 1024)).SerializeToString())
    async with raw_client([CheckService().service()], settings_values={4: 2**31 - 1}) as peer:
        await peer.send(frame(8, 0, 0, (2**31 - 65536).to_bytes(4, "big")))
        await peer.send(peer.headers(1, request_headers(grpc_encoding=b"gzip")))
        answer = peer.answer(1)
        for number in range(count):
            await peer.send(frame(DATA, 0, 1, packed))
            await peer.until(lambda number=number: len(answer.data) >= (number + 1) * answer_bytes)
        assert len(answer.data) == count * answer_bytes
        assert answer.reset is None


BAD = [
    ("bomb", lambda: gzip.compress(bytes(64 * 1024 * 1024)), 8),
    ("one byte too long", lambda: gzip.compress(bytes(4 * 1024 * 1024 + 1)), 8),
    ("garbage", lambda: b"garbage", 13),
    ("cut off", lambda: gzip.compress(BYTES)[:-1], 13),
    ("more behind it", lambda: gzip.compress(BYTES) + b"x", 13),
    ("wrong check sum", lambda: gzip.compress(BYTES)[:-8] + b"\0" * 8, 13),
    ("deflate instead", lambda: zlib.compress(BYTES), 13),
    ("empty", lambda: b"", 13),
    ("not a message", lambda: gzip.compress(b"\xff\xff\xff"), 13),
]


@pytest.mark.parametrize(("make", "status"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
@pytest.mark.parametrize("method", [b"Echo", b"Pushed"])
async def test_bad_compressed_message_is_refused_alone(make: Any, status: int, method: bytes) -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers()))
        await peer.echo(1, BYTES)
        await peer.send(
            peer.headers(3, request_headers(b"/trio_cogment.testing.Check/" + method, grpc_encoding=b"gzip"))
        )
        packed = make()
        for start in range(0, len(packed) + 5, 16384):
            await peer.send(frame(DATA, 0, 3, message(packed, 1)[start : start + 16384]))
        assert (await peer.until_over(3)).status == status
        assert await peer.echo(1, BYTES) == ANSWER.SerializeToString()


async def test_unknown_encoding_says_what_is_known() -> None:
    async with raw_client([CheckService().service()]) as peer:
        await peer.send(peer.headers(1, request_headers(grpc_encoding=b"snappy")))
        answer = await peer.until_over(1)
        assert answer.status == StatusCode.UNIMPLEMENTED
        assert answer.field(b"grpc-accept-encoding") == b"identity,deflate,gzip"


@pytest.mark.parametrize(("accepted", "flag"), [(b"identity, gzip", 1), (b"deflate,identity", 0), (None, 0)])
async def test_server_compresses_only_for_callers_that_read_it(accepted: bytes | None, flag: int) -> None:
    async with raw_client([packing_service("gzip")]) as peer:
        await peer.send(peer.headers(1, request_headers(b"/test.Packed/Packed", grpc_accept_encoding=accepted)))
        payload = await peer.echo(1, BYTES)
        assert peer.answer(1).data[0] == flag
        assert peer.answer(1).field(b"grpc-encoding") == (b"gzip" if flag else None)
        assert (gzip.decompress(payload) if flag else payload) == ANSWER.SerializeToString()


async def send_one(call: ServerCall, answer: Observation) -> None:
    await call.send(answer)


async def send_in_a_batch(call: ServerCall, answer: Observation) -> None:
    await call.send_together([answer])


@pytest.mark.parametrize("send", [send_one, send_in_a_batch])
@pytest.mark.parametrize("then", ["identity", "deflate"])
@pytest.mark.parametrize("full", [False, True], ids=["waits for its turn", "waits for room"])
async def test_what_is_chosen_while_the_first_message_waits_counts(
    full: bool, then: str, send: Callable[[ServerCall, Observation], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is compressed already would go out as if it were something else."""
    calls: list[ServerCall] = []

    def choose() -> bool:
        """Return whether there is a message that waits; from the second time on there is none."""
        if not calls:
            return False
        calls.pop().set_compression(then)
        return True

    async def wait_taken(_: Http2ServerCall) -> None:
        choose()
        await trio.lowlevel.checkpoint()

    async def packed(call: ServerCall) -> None:
        call.set_compression("gzip")
        request = await call.receive()
        calls.append(call)
        await send(call, Observation(tick_id=request.tick_id, content=request.content))

    if full:
        monkeypatch.setattr(SendQueue, "has_room", lambda *_: not calls)
        monkeypatch.setattr(Http2ServerCall, "_wait_taken", wait_taken)
    else:
        monkeypatch.setattr(Connection, "turn_is_over", lambda _: choose())
    service = Service("test.Packed")
    service.add_method("Packed", packed, RPCSignature(PACKED.cardinality, Action, Observation))
    async with raw_client([service]) as peer:
        accepted = b"gzip,deflate"
        await peer.send(peer.headers(1, request_headers(b"/test.Packed/Packed", grpc_accept_encoding=accepted)))
        payload = await peer.echo(1, BYTES)
        answer = peer.answer(1)
    assert not calls
    assert answer.data[0] == (then != "identity")
    assert answer.field(b"grpc-encoding") == (None if then == "identity" else then.encode())
    assert (zlib.decompress(payload) if then == "deflate" else payload) == ANSWER.SerializeToString()


# --- a raw server ---


async def answer_with(headers: list[tuple[bytes, bytes]], body: bytes, **options: Any) -> tuple[Any, RawPeer]:
    """Call a server that answers so; return what `receive` does, and what the server saw."""
    results: list[Any] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            ours, theirs = trio.testing.memory_stream_pair()
            server = RawPeer(theirs)

            async def connect() -> trio.abc.Stream:
                return ours

            async def run() -> None:
                await server.send(settings_frame())
                await server.until(lambda: bool(server.answer(1).data))
                await server.send(
                    server.headers(1, [(b":status", b"200"), (b"content-type", b"application/grpc"), *headers]),
                    frame(DATA, 0, 1, body),
                    frame(HEADERS, END_HEADERS | 1, 1, server.encoder.encode([(b"grpc-status", b"0")])),
                )

            nursery.start_soon(run)
            channel = Channel.over(connect, config=RpcConfig(max_receive_message_bytes=10_000), **options)
            async with channel, channel.call(ECHO) as call:
                await call.send(PLAIN)
                await call.done_sending()
                try:
                    results.append(await call.receive())
                except RpcError as error:
                    results.append(error)
            await trio.aclose_forcefully(theirs)
            nursery.cancel_scope.cancel()
    return results[0], server


@pytest.mark.parametrize("name", NAMES)
async def test_client_reads_and_writes_it(name: str) -> None:
    body = message(COMPRESSORS[name](ANSWER.SerializeToString()), 1)
    result, server = await answer_with([(b"grpc-encoding", name.encode())], body, compression=name)
    assert result == ANSWER
    asked = server.answer(1)
    assert asked.field(b"grpc-encoding") == name.encode()
    assert asked.field(b"grpc-accept-encoding") == b"identity,deflate,gzip"
    assert asked.data[0] == 1
    assert decompress(name, bytes(asked.data[5:]), 10_000) == BYTES


@pytest.mark.parametrize(
    ("encoding", "body", "code"),
    [
        (b"gzip", message(gzip.compress(bytes(1_000_000)), 1), StatusCode.RESOURCE_EXHAUSTED),
        (b"gzip", message(b"garbage", 1), StatusCode.INTERNAL),
        (b"snappy", message(b"garbage", 1), StatusCode.INTERNAL),
        (b"\xff", message(b"garbage", 1), StatusCode.INTERNAL),
        (b"identity", message(b"garbage", 1), StatusCode.INTERNAL),
    ],
)
async def test_bad_compressed_response_ends_the_call(encoding: bytes, body: bytes, code: StatusCode) -> None:
    result, server = await answer_with([(b"grpc-encoding", encoding)], body)
    assert isinstance(result, RpcError)
    assert result.code is code
    assert server.answer(1).field(b"grpc-encoding") is None


async def test_encodings_that_do_not_exist_are_mistakes() -> None:
    async with InProcessChannel() as inside, Channel("127.0.0.1", 1) as outside:
        for channel in (inside, outside):
            with pytest.raises(ValueError, match="compression: expected one of"):
                channel.call(ECHO, compression="zip")
    with pytest.raises(ValueError, match="compression: expected one of"):
        Channel("127.0.0.1", 1, compression="zip")


@pytest.mark.parametrize("default", [None, "gzip"])
@pytest.mark.parametrize("own", [None, "identity", "deflate"])
async def test_a_calls_own_choice_counts(default: str | None, own: str | None) -> None:
    seen: list[Any] = []

    async def handler(call: Any) -> None:
        seen.append(call._stream.encoding)
        await call.send(Observation(content=(await call.receive()).content))

    service = Service("test.Packed")
    service.add_method("Packed", handler, RPCSignature(PACKED.cardinality, Action, Observation))
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service], await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port, compression=default) as channel:
            reply = await channel.unary(PACKED, PLAIN, compression=own)
            assert reply.content == PLAIN.content
        nursery.cancel_scope.cancel()
    assert seen == [(own or default or "identity").encode()]


async def test_consumer_gets_decompressed_messages() -> None:
    collector = Collector()
    async with trio.open_nursery() as nursery:
        services = [packing_service("deflate")]
        serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        async with Channel("127.0.0.1", serving.port, compression="gzip") as channel:
            call: ClientCall
            async with channel.call(PACKED) as call:
                call.set_consumer(collector)
                for _ in range(10):
                    await call.send(PLAIN)
                await call.done_sending()
                await collector.wait_for(lambda: bool(collector.ends))
        nursery.cancel_scope.cancel()
    assert collector.messages == [ANSWER] * 10
    assert collector.ends == [None]


# --- grpcio ---

GRPCIO = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}


@pytest.mark.parametrize("name", NAMES)
async def test_grpcio_client_with_our_server(name: str) -> None:
    def run(port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}", compression=GRPCIO[name]) as channel:
            both = channel.stream_stream(PACKED.path, Action.SerializeToString, Observation.FromString)
            assert list(both(iter([PLAIN] * 20), timeout=30)) == [ANSWER] * 20
            unary = channel.unary_unary(ECHO_ONE.path, Action.SerializeToString, Observation.FromString)
            assert unary(PLAIN, timeout=30).content == PLAIN.content

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            services = [packing_service(name), CheckService().service()]
            serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
            await trio.to_thread.run_sync(run, serving.port)
            nursery.cancel_scope.cancel()


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio ships no types
    def service(self, details: Any) -> Any:
        def echo(requests: Iterator[Action], context: Any) -> Iterator[Observation]:
            for request in requests:
                yield Observation(tick_id=request.tick_id, content=request.content)

        return grpc.stream_stream_rpc_method_handler(echo, Action.FromString, Observation.SerializeToString)


@contextmanager
def grpcio_server(compression: Any) -> Iterator[int]:
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, compression=compression)
        server.add_generic_rpc_handlers((_Handler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


@pytest.mark.parametrize("name", NAMES)
async def test_our_client_with_grpcio_server(name: str) -> None:
    with trio.fail_after(60), grpcio_server(GRPCIO[name]) as port:
        async with Channel("127.0.0.1", port, compression=name) as channel, channel.call(PACKED) as call:
            for _ in range(20):
                await call.send(PLAIN)
            await call.done_sending()
            assert [reply async for reply in call] == [ANSWER] * 20
