"""grpcio and its asyncio interface as peers, in an environment of their own.

`python grpcio_peer.py client sync PORT` plays its rows against a server and prints what came of each;
`python grpcio_peer.py server aio` prints its ports, as it is by default and with a hostile keepalive, and ends with its
standard input. The same with `sync` and `aio` each. Messages are bytes: what is tested is what is around them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

LARGE = b"\x1a\x80\xa8\x12" + bytes(300_032)  # the field "content", with its length
PUSHBACK = "grpc-retry-pushback-ms"
HOSTILE_CLIENT = [
    ("grpc.keepalive_time_ms", 10),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
HOSTILE_SERVER = [("grpc.keepalive_time_ms", 10), ("grpc.keepalive_permit_without_calls", 1)]
SECONDS = 20
PINGING_SECONDS = 6


def same(value: bytes) -> bytes:
    return value


# --- the server ---

HANDLERS = {"Echo": "unary_unary", "Chat": "stream_stream", "First": "stream_unary", "Refuse": "unary_unary"}


def first_of(requests: Any) -> Any:
    return next(iter(requests))


#: How often a call with each pushback has come.
attempts = Counter[bytes]()


def refusal(request: bytes) -> tuple[tuple[str, str], ...]:
    """Return the trailers that ask for a pushback, and say how often it has been asked for: once, if nobody retries."""
    attempts[request] += 1
    return (PUSHBACK, request[2:].decode()), ("attempts", str(attempts[request]))  # the content of a message


def refuse(request: bytes, context: Any) -> bytes:
    """Say that there is no room, with the pushback that was asked for."""
    context.set_trailing_metadata(refusal(request))
    context.abort(grpc.StatusCode.UNAVAILABLE, "full")
    raise AssertionError


SYNC = {
    "Echo": lambda request, _: request,
    "Chat": lambda requests, _: iter(requests),
    "First": lambda requests, _: first_of(requests),
    "Refuse": refuse,
}


async def _echo(request: bytes, _: Any) -> bytes:
    return request


async def _chat(requests: Any, _: Any) -> Any:
    async for request in requests:
        yield request


async def _first(requests: Any, _: Any) -> Any:
    return await anext(aiter(requests))


async def _refuse(request: bytes, context: Any) -> None:
    context.set_trailing_metadata(refusal(request))
    await context.abort(grpc.StatusCode.UNAVAILABLE, "full")


AIO = {"Echo": _echo, "Chat": _chat, "First": _first, "Refuse": _refuse}


def handler_of(functions: dict[str, Any]) -> Any:
    handlers = {
        name: getattr(grpc, f"{kind}_rpc_method_handler")(functions[name], same, same)
        for name, kind in HANDLERS.items()
    }
    return grpc.method_handlers_generic_handler("peers.Peers", handlers)


def serve_sync() -> None:
    ports = []
    servers = [grpc.server(ThreadPoolExecutor(4), options=options) for options in ([], HOSTILE_SERVER)]
    for server in servers:
        server.add_generic_rpc_handlers((handler_of(SYNC),))
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        server.start()
    print(*ports, flush=True)
    sys.stdin.read()
    for server in servers:
        server.stop(0).wait()


async def serve_aio() -> None:
    ports = []
    servers = [grpc.aio.server(options=options) for options in ([], HOSTILE_SERVER)]
    for server in servers:
        server.add_generic_rpc_handlers((handler_of(AIO),))
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
    print(*ports, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        await server.stop(0)


# --- the client ---


def status_of(call: Any) -> str:
    try:
        call()
    except grpc.RpcError as error:
        pushed = " with a pushback" if PUSHBACK in dict(error.trailing_metadata() or ()) else ""
        return f"{error.code().name}{pushed}"
    return "OK"


def notes(count: int) -> Any:
    return (b"\x08\x02" for _ in range(count))


def unending(over: threading.Event) -> Any:
    """Send one message, and never say that it was the last."""
    yield b"\x08\x02"
    over.wait(SECONDS)


def play_sync(port: str) -> dict[str, str]:
    target, found = f"127.0.0.1:{port}", {}
    with grpc.insecure_channel(target) as channel:
        echo = channel.unary_unary("/peers.Peers/Echo", same, same)
        chat = channel.stream_stream("/peers.Peers/Chat", same, same)
        first = channel.stream_unary("/peers.Peers/First", same, same)
        refuse = channel.unary_unary("/peers.Peers/Refuse", same, same)
        over = threading.Event()

        def chatted() -> None:
            assert len(list(chat(notes(300), timeout=SECONDS))) == 300

        def large() -> None:
            assert echo(LARGE, timeout=SECONDS) == LARGE

        found["one message each way"] = status_of(lambda: echo(b"\x08\x02", timeout=SECONDS))
        found["300 messages each way"] = status_of(chatted)
        found["300,000 bytes each way"] = status_of(large)
        found["the answer before the last request"] = status_of(lambda: first(unending(over), timeout=SECONDS))
        over.set()
        found["the server is full"] = status_of(lambda: refuse(b"", timeout=SECONDS))
        time.sleep(1)
        found["a call after a pause"] = status_of(lambda: echo(b"", timeout=SECONDS))
    with grpc.insecure_channel(target, HOSTILE_CLIENT) as channel:
        wait = channel.unary_unary("/peers.Peers/Wait", same, same)
        found["a PING every 10 ms"] = status_of(lambda: wait(b"", timeout=PINGING_SECONDS))
        found["a call after that"] = status_of(
            lambda: channel.unary_unary("/peers.Peers/Echo", same, same)(b"", timeout=SECONDS, wait_for_ready=True)
        )
    return found


async def aio_status_of(call: Any) -> str:
    try:
        await call
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


async def play_aio(port: str) -> dict[str, str]:
    target, found = f"127.0.0.1:{port}", {}
    async with grpc.aio.insecure_channel(target) as channel:
        echo = channel.unary_unary("/peers.Peers/Echo", same, same)
        chat = channel.stream_stream("/peers.Peers/Chat", same, same)
        first = channel.stream_unary("/peers.Peers/First", same, same)
        refuse = channel.unary_unary("/peers.Peers/Refuse", same, same)

        async def unending() -> Any:
            yield b"\x08\x02"
            await asyncio.sleep(SECONDS)

        async def chatted() -> None:
            assert len([answer async for answer in chat(notes(300), timeout=SECONDS)]) == 300

        async def large() -> None:
            assert await echo(LARGE, timeout=SECONDS) == LARGE

        found["one message each way"] = await aio_status_of(echo(b"\x08\x02", timeout=SECONDS))
        found["300 messages each way"] = await aio_status_of(chatted())
        found["300,000 bytes each way"] = await aio_status_of(large())
        found["the answer before the last request"] = await aio_status_of(first(unending(), timeout=SECONDS))
        found["the server is full"] = await aio_status_of(refuse(b"", timeout=SECONDS))
        await asyncio.sleep(1)
        found["a call after a pause"] = await aio_status_of(echo(b"", timeout=SECONDS))
    async with grpc.aio.insecure_channel(target, options=HOSTILE_CLIENT) as channel:
        wait = channel.unary_unary("/peers.Peers/Wait", same, same)
        found["a PING every 10 ms"] = await aio_status_of(wait(b"", timeout=PINGING_SECONDS))
        echo = channel.unary_unary("/peers.Peers/Echo", same, same)
        found["a call after that"] = await aio_status_of(echo(b"", timeout=SECONDS, wait_for_ready=True))
    return found


def main() -> None:
    what, kind, *port = sys.argv[1:]
    if what == "server":
        asyncio.run(serve_aio()) if kind == "aio" else serve_sync()
    else:
        print(json.dumps(asyncio.run(play_aio(*port)) if kind == "aio" else play_sync(*port)))


if __name__ == "__main__":
    main()
