"""Libraries of gRPC and HTTP/2 as peers of our server and client: the tables of `docs/peers.md` are what they do."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.docs.measured_tables import cells, require_table
from tests.interop.browser.programs import installed
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, ServerCall, bind, methods_of, open_listeners, serve
from trio_cogment.web import WebSide

pytestmark = pytest.mark.interop

HERE = Path(__file__).parent / "grpc_peers"
PATIENCE_SECONDS = 90
#: As the Python programs have it.
PAUSE_SECONDS = 1.0
NOT_POSSIBLE = "-"


def service_of() -> ServiceDescriptor:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="peers.proto", package="peers", syntax="proto3")
    note = file.message_type.add(name="Note")
    note.field.add(name="tick", number=1, type=field.TYPE_SINT64, label=field.LABEL_OPTIONAL)
    note.field.add(name="content", number=3, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    service = file.service.add(name="Peers")
    for name, asks_often, answers_often in [
        *(("Echo", False, False), ("Chat", True, True), ("First", True, False), ("Refuse", False, False)),
        # What h2 does as a server, and nobody else.
        *((name, False, False) for name in ("Wait", "Cut", "EndsWithData", "Reset", "ResetAfterMessage")),
        *((name, False, False) for name in ("Text", "Huge", "Negative", "Units", "Padded")),
        ("PaddedNotes", True, True),
    ]:
        service.method.add(
            name=name,
            input_type=".peers.Note",
            output_type=".peers.Note",
            client_streaming=asks_often,
            server_streaming=answers_often,
        )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName("peers.Peers")


SERVICE = service_of()
METHODS = methods_of(SERVICE)
Note: Callable[..., Message] = GetMessageClass(SERVICE.file.message_types_by_name["Note"])
LARGE = Note(content=bytes(300_032))


class Peers:
    """The handlers, as users write them."""

    async def Echo(self, request: Any, call: ServerCall) -> Any:
        return request

    async def Chat(self, call: ServerCall) -> None:
        async for request in call:
            await call.send(request)

    async def First(self, call: ServerCall) -> Any:
        return await call.receive()

    async def Refuse(self, request: Any, call: ServerCall) -> Any:
        raise RpcError(StatusCode.UNAVAILABLE, "full")

    async def Wait(self, request: Any, call: ServerCall) -> Any:
        await trio.sleep_forever()

    async def _not_ours(self, request: Any, call: ServerCall) -> Any:
        raise RpcError(StatusCode.UNIMPLEMENTED, "of peers")

    Cut = EndsWithData = Reset = ResetAfterMessage = Text = Huge = Negative = Units = Padded = _not_ours

    async def PaddedNotes(self, call: ServerCall) -> None:
        raise RpcError(StatusCode.UNIMPLEMENTED, "of peers")


def python() -> str:
    found = os.environ.get("TRIO_COGMENT_GRPC_PEERS_PYTHON")
    if found is None:
        pytest.fail("TRIO_COGMENT_GRPC_PEERS_PYTHON is not set; `nox -s interop` makes that environment and sets it")
    return found


def node(peer: str, what: str, *port: str) -> list[str]:
    return ["node", str(HERE / "node_peer.mjs"), str(installed()), peer, what, *port]


def grpcio(kind: str, what: str, *port: str) -> list[str]:
    return [python(), str(HERE / "grpcio_peer.py"), what, kind, *port]


def h2(what: str, *port: str) -> list[str]:
    return [python(), str(HERE / "h2_peer.py"), what, *port]


# --- our server ---

SERVER_ROWS = [
    "one message each way",
    "300 messages each way",
    "300,000 bytes each way",
    "300 messages, each padded",
    "the same, padded",
    "the answer before the last request",
    "END_STREAM on empty DATA",
    "no message, and END_STREAM on empty DATA",
    "a message that is cut off",
    "a call after a reset with NO_ERROR",
    "the server is full",
    "a call after a pause",
    "a PING every 10 ms",
    "a call after that",
]
CLIENTS = [
    *("grpcio", "grpc.aio", "grpc-js", "connect, HTTP/2", "connect, gRPC-Web, HTTP/2", "connect, gRPC-Web, HTTP/1.1"),
    *("h2", "nghttp"),
]


async def seen(command: list[str]) -> dict[str, Any]:
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def by_nghttp(port: str, folder: Path) -> dict[str, str]:
    """Ask with nghttp, which sends what is in a file, and prints the fields that come."""
    note = b"\0\0\0\0\2\x08\x02"
    rows = {
        "one message each way": ("Echo", note, []),
        "300 messages each way": ("Chat", note * 300, []),
        "300,000 bytes each way": ("Chat", b"\0" + (300_036).to_bytes(4, "big") + LARGE.SerializeToString(), []),
        "the same, padded": ("Chat", b"\0" + (300_036).to_bytes(4, "big") + LARGE.SerializeToString(), ["-b", "255"]),
        "a message that is cut off": ("Echo", note[:-1], []),
        "the server is full": ("Refuse", b"\0\0\0\0\0", []),
    }
    found = {}
    for row, (method, body, options) in rows.items():
        file = folder / "body"
        file.write_bytes(body)
        fields = ["-H", "content-type: application/grpc", "-H", "te: trailers", "-H", ":method: POST"]
        address = f"http://127.0.0.1:{port}/peers.Peers/{method}"
        done = await trio.run_process(
            ["nghttp", "-nv", *options, *fields, "-d", str(file), address], capture_stdout=True
        )
        statuses = [line.split(b"grpc-status:")[1] for line in done.stdout.splitlines() if b"grpc-status:" in line]
        found[row] = StatusCode(int(statuses[0])).name if statuses else "no status"
    return found


@asynccontextmanager
async def our_server() -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        services, listeners = [bind(SERVICE, Peers())], await open_listeners("127.0.0.1")
        serving = await nursery.start(partial(serve, web=WebSide()), services, listeners)
        yield str(serving.port)
        nursery.cancel_scope.cancel()


async def test_our_server_and_their_clients(tmp_path: Path) -> None:
    found: dict[str, dict[str, str]] = {}

    async def note(name: str, command: list[str]) -> None:
        answers = await seen(command)
        # Connect's program has rows for each of its ways.
        found.update(answers if name == "connect" else {name: answers})

    async def note_nghttp(port: str) -> None:
        found["nghttp"] = await by_nghttp(port, tmp_path)

    with trio.fail_after(PATIENCE_SECONDS):
        async with our_server() as port, trio.open_nursery() as nursery:
            # Side by side: who PINGs too often must not be noticed by the others.
            nursery.start_soon(note, "grpcio", grpcio("sync", "client", port))
            nursery.start_soon(note, "grpc.aio", grpcio("aio", "client", port))
            nursery.start_soon(note, "grpc-js", node("grpc-js", "client", port))
            nursery.start_soon(note, "connect", node("connect", "client", port))
            nursery.start_soon(note, "h2", h2("client", port))
            nursery.start_soon(note_nghttp, port)
    assert {row for rows in found.values() for row in rows} == set(SERVER_ROWS)
    lines = [cells("at our server", *CLIENTS), cells(*["---"] * (len(CLIENTS) + 1))]
    lines += [cells(row, *(found[name].get(row, NOT_POSSIBLE) for name in CLIENTS)) for row in SERVER_ROWS]
    require_table("peers.md", "clients of gRPC", lines)


# --- our client ---

SERVERS = ["grpcio", "grpc.aio", "grpc-js", "connect", "h2"]
OURS_BY_DEFAULT = RpcConfig()
#: PINGs in a hundredth of a second where there is no sign of life, which no server asks for.
OURS_HOSTILE = RpcConfig(keepalive_seconds=0.01, client_keepalive_seconds=0.01)


async def outcome(call: Callable[[], Awaitable[None]]) -> str:
    try:
        await call()
    except RpcError as error:
        return error.code.name
    return "OK"


class Asking:
    """Calls of our client at somebody's server; each returns the row's cell.

    Args:
        ports: of the server as it is by default, and of another kind of it.
    """

    def __init__(self, ports: list[int]) -> None:
        self._port, self.other = ports[0], ports[-1]

    @asynccontextmanager
    async def channel(self, port: int = 0, config: RpcConfig = OURS_BY_DEFAULT) -> AsyncIterator[Channel]:
        async with Channel("127.0.0.1", port or self._port, config=config) as channel:
            yield channel

    async def unary(self, name: str = "Echo", message: Message | None = None) -> str:
        async def call() -> None:
            async with self.channel() as channel:
                reply = await channel.unary(METHODS[name], message or Note(tick=1), timeout=20)
                assert reply == (message or Note(tick=1))

        return await outcome(call)

    async def streamed(
        self, name: str = "Chat", port: int = 0, message: Message | None = None, count: int = 300
    ) -> str:
        async def call() -> None:
            async with self.channel(port) as channel, channel.call(METHODS[name], timeout=20) as call:
                for _ in range(count):
                    await call.send(message or Note(tick=1))
                await call.done_sending()
                assert len([reply async for reply in call]) == count

        return await outcome(call)

    async def early(self) -> str:
        async def call() -> None:
            async with self.channel() as channel, channel.call(METHODS["First"], timeout=20) as call:
                await call.send(Note(tick=1))
                assert await call.receive() == Note(tick=1)
                assert await call.receive() is None

        return await outcome(call)

    async def pushed_back(self, value: str = "", name: str = "Refuse") -> str:
        """Return the status of a call whose answer says when to retry it; the server counts how often it comes."""
        with pytest.raises(RpcError) as refused:
            async with self.channel() as channel:
                await channel.unary(METHODS[name], Note(content=value.encode()), timeout=20)
        assert dict(refused.value.trailing_metadata)["attempts"] == "1"
        return refused.value.code.name

    async def after_a_pause(self, port: int = 0, config: RpcConfig = OURS_BY_DEFAULT) -> str:
        """Return what a call is told that a server has not answered for a while, and the one after it."""
        found = []

        async def chat() -> None:
            async with channel.call(METHODS["Chat"], timeout=20) as call:
                await trio.sleep(PAUSE_SECONDS)
                await call.send(Note(tick=1))
                await call.receive()

        async def echo() -> None:
            await channel.unary(METHODS["Echo"], Note(tick=1), timeout=20, wait_for_ready=True)

        async with self.channel(port, config) as channel:
            for call in (chat, echo):
                found.append(await outcome(call))
        return ", then ".join(dict.fromkeys(found))

    async def hostile_server(self) -> str:
        return await self.after_a_pause(self.other)

    async def hostile_client(self) -> str:
        return await self.after_a_pause(config=OURS_HOSTILE)


Ask = Callable[[Asking], Awaitable[str]]
ALL = frozenset(SERVERS)
WITH_KEEPALIVE = frozenset({"grpcio", "grpc.aio", "grpc-js"})
WITH_HANDLERS = ALL - {"h2"}
H2 = frozenset({"h2"})
CONNECT = frozenset({"connect"})
CLIENT_ROWS: list[tuple[str, list[tuple[frozenset[str], Ask]]]] = [
    ("one message each way", [(ALL, lambda to: to.unary())]),
    ("300 messages each way", [(ALL, lambda to: to.streamed())]),
    ("300,000 bytes each way", [(ALL, lambda to: to.unary(message=LARGE))]),
    (
        "300 messages, each padded in the answer",
        [(H2, lambda to: to.streamed("PaddedNotes")), (CONNECT, lambda to: to.streamed(port=to.other))],
    ),
    (
        "300,000 bytes, padded in the answer",
        [
            (H2, lambda to: to.unary("Padded", LARGE)),
            (CONNECT, lambda to: to.streamed(port=to.other, message=LARGE, count=1)),
        ],
    ),
    ("the answer before the last request (a reset with NO_ERROR)", [(ALL, lambda to: to.early())]),
    (
        "UNAVAILABLE with a pushback that is no number",
        [(H2, lambda to: to.pushed_back(name="Text")), (WITH_HANDLERS, lambda to: to.pushed_back("abc"))],
    ),
    (
        "with one of weeks",
        [(H2, lambda to: to.pushed_back(name="Huge")), (WITH_HANDLERS, lambda to: to.pushed_back("3000000000"))],
    ),
    (
        "with one that is negative",
        [(H2, lambda to: to.pushed_back(name="Negative")), (WITH_HANDLERS, lambda to: to.pushed_back("-1"))],
    ),
    (
        "with one of `300ms`",
        [(H2, lambda to: to.pushed_back(name="Units")), (WITH_HANDLERS, lambda to: to.pushed_back("300ms"))],
    ),
    ("a reset with NO_ERROR and nothing else", [(H2, lambda to: to.unary("Reset"))]),
    ("a reset with NO_ERROR after the message", [(H2, lambda to: to.unary("ResetAfterMessage"))]),
    ("END_STREAM on DATA, without a status", [(H2, lambda to: to.unary("EndsWithData"))]),
    ("a message that is cut off, and OK", [(H2, lambda to: to.unary("Cut"))]),
    ("a call with a pause, and one after it", [(WITH_HANDLERS, lambda to: to.after_a_pause())]),
    ("the same, with our PING every 10 ms", [(WITH_HANDLERS, lambda to: to.hostile_client())]),
    ("the same, with the server's PING every 10 ms", [(WITH_KEEPALIVE, lambda to: to.hostile_server())]),
]


@asynccontextmanager
async def their_server(command: list[str]) -> AsyncIterator[list[int]]:
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        yield [int(port) for port in (await process.stdout.receive_some()).split()]
        await process.stdin.aclose()
        await process.wait()
    finally:
        process.kill()


async def test_our_client_and_their_servers() -> None:
    commands = {
        "grpcio": grpcio("sync", "server"),
        "grpc.aio": grpcio("aio", "server"),
        "grpc-js": node("grpc-js", "server"),
        "connect": node("connect", "server"),
        "h2": h2("server"),
    }
    found: dict[str, dict[str, str]] = {}

    async def ask(name: str) -> None:
        answers = found[name] = {}
        async with their_server(commands[name]) as ports:
            to = Asking(ports)
            for row, ways in CLIENT_ROWS:
                for peers, way in ways:
                    if name in peers:
                        answers[row] = await way(to)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for name in commands:
                nursery.start_soon(ask, name)
    lines = [cells("of our client", *SERVERS), cells(*["---"] * (len(SERVERS) + 1))]
    lines += [cells(row, *(found[name].get(row, NOT_POSSIBLE) for name in SERVERS)) for row, _ in CLIENT_ROWS]
    require_table("peers.md", "servers of gRPC", lines)
