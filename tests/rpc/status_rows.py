"""Peers that answer, or ask, in every way for which gRPC's documents name a status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.rpc.raw_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST,
    Headers,
    RawPeer,
    frame,
    message,
    request_headers,
    settings,
)
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import StatusCode

PAGE = Path(__file__).parents[2] / "docs" / "grpc-statuses.md"
OPENING: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
ANSWER = message(Observation(tick_id=1).SerializeToString())

#: What a server sends after a request on this stream: frames, or None to close the connection.
Answering = Callable[[int], bytes | None]


def block(stream: int, *fields: tuple[bytes, bytes], end: bool = False) -> bytes:
    # Nothing of it may be indexed: a connection's calls come in any order.
    payload = b"".join(
        b"\0" + len(name).to_bytes(1, "big") + name + len(value).to_bytes(1, "big") + value for name, value in fields
    )
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, payload)


def http(status: bytes, *more: tuple[bytes, bytes]) -> Answering:
    return lambda stream: block(stream, (b":status", status), (b"content-type", b"text/plain"), *more, end=True)


def only(*fields: tuple[bytes, bytes]) -> Answering:
    return lambda stream: block(stream, *OPENING, *fields, end=True)


def data(payload: bytes, *trailers: tuple[bytes, bytes], end: bool = True, encoding: bytes = b"") -> Answering:
    more = [(b"grpc-encoding", encoding)] if encoding else []

    def frames(stream: int) -> bytes:
        start = block(stream, *OPENING, *more)
        if not trailers:
            return start + frame(DATA, END_STREAM if end else 0, stream, payload)
        return start + frame(DATA, 0, stream, payload) + block(stream, *trailers, end=True)

    return frames


def reset(code: int, before: Answering | None = None) -> Answering:
    return lambda stream: ((before(stream) or b"") if before else b"") + frame(RST, 0, stream, code.to_bytes(4, "big"))


def close(stream: int) -> None:
    return None


OK = (b"grpc-status", b"0")


def _body(fields: list[tuple[bytes, bytes]]) -> Answering:
    return lambda stream: block(stream, *fields) + frame(DATA, END_STREAM, stream, b"<html>")


def _labelled(content_type: bytes) -> Answering:
    opening = [(b":status", b"200"), (b"content-type", content_type)]
    return lambda stream: block(stream, *opening) + frame(DATA, 0, stream, ANSWER) + block(stream, OK, end=True)


RESETS = [
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED"),
    *("FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"),
    *("INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"),
]
#: Answers to a call with one request and one response, by the words of the page.
RESPONSES: dict[str, Answering] = {
    **{f"HTTP status {status}": http(b"%d" % status) for status in (400, 401, 403, 404, 429, 431, 502, 503, 504)},
    "any other HTTP status, such as 418": http(b"418"),
    "a response that is only headers, without `grpc-status`": only(),
    "a response that ends with DATA": data(ANSWER),
    "trailers without `grpc-status`": data(ANSWER, (b"x", b"1")),
    "a page of HTML, with HTTP status 200": _body([(b":status", b"200"), (b"content-type", b"text/html")]),
    "the content type `application/grpc+json`": _labelled(b"application/grpc+json"),
    "HTTP status 503 with `grpc-status: 7`": http(b"503", (b"grpc-status", b"7")),
    "HTTP status 503, and `grpc-status: 7` in trailers": lambda stream: (
        block(stream, (b":status", b"503"), OPENING[1]) + block(stream, (b"grpc-status", b"7"), end=True)
    ),
    "HTTP status 100, then a good response": lambda stream: (
        block(stream, (b":status", b"100")) + (data(ANSWER, OK)(stream) or b"")
    ),
    **{f"RST_STREAM with {name}": reset(code) for code, name in enumerate(RESETS)},
    "RST_STREAM with an unknown code": reset(99),
    "RST_STREAM with NO_ERROR after the message": reset(0, data(ANSWER, end=False)),
    "GOAWAY that refuses the call": lambda stream: frame(GOAWAY, 0, 0, bytes(8)),
    "the connection closes": close,
    "nothing, until the deadline": lambda stream: b"",
    "a `grpc-status` that is not a number": only((b"grpc-status", b"abc")),
    "a `grpc-status` that nobody knows, 99": only((b"grpc-status", b"99")),
    "a `grpc-status` with a leading zero, 05": only((b"grpc-status", b"05")),
    "binary metadata that is not base64, with `grpc-status: 5`": only((b"grpc-status", b"5"), (b"x-bin", b"*")),
    "a message that is not protobuf": data(message(b"\xff\xff"), OK),
    "a message above the limit": data(b"\0\x7f\0\0\0", OK),
    "a compressed message that is not gzip": data(message(b"xx", 1), OK, encoding=b"gzip"),
    "a compressed message of an unknown encoding": data(message(b"xx", 1), OK, encoding=b"snappy"),
    "a compressed message without `grpc-encoding`": data(message(b"xx", 1), OK),
    "no message, and OK": data(b"", OK),
    "two messages, and OK": data(ANSWER * 2, OK),
    "a message that is cut off, and OK": data(ANSWER[:-1], OK),
    "a message that is cut off, and `grpc-status: 5`": data(ANSWER[:-1], (b"grpc-status", b"5")),
}


GOOD = message(Action(tick_id=3).SerializeToString())
ECHO_PATH = b"/rows.Rows/Echo"


def _request(body: bytes = GOOD, *, path: bytes = ECHO_PATH, **changes: bytes | None) -> tuple[Headers, bytes]:
    return request_headers(path, **changes), body


#: Requests of a method with one request and one response, by the words of the page: headers, and all that follows.
REQUESTS: dict[str, tuple[Headers, bytes]] = {
    "a good request": _request(),
    "the content type `application/grpc+proto`": _request(content_type=b"application/grpc+proto"),
    "the content type `application/grpc+json`": _request(content_type=b"application/grpc+json"),
    "the content type `application/json`": _request(content_type=b"application/json"),
    "a method that the service does not have": _request(path=b"/rows.Rows/Nothing"),
    "a service that is not there": _request(path=b"/rows.Nobody/Echo"),
    "a handler that raises": _request(path=b"/rows.Rows/Raise"),
    "a deadline that passes": _request(path=b"/rows.Rows/Wait", grpc_timeout=b"50m"),
    "a `grpc-timeout` that is none": _request(grpc_timeout=b"soon"),
    "binary metadata that is not base64": _request(x_bin=b"*"),
    "no message": _request(b""),
    "two messages": _request(GOOD * 2),
    "a message that is not protobuf": _request(message(b"\xff\xff")),
    "a message above the limit": _request(b"\0\x7f\0\0\0"),
    "a message that is cut off": _request(GOOD[:-1]),
    "a compressed message that is not gzip": _request(message(b"xx", 1), grpc_encoding=b"gzip"),
    "a compressed message of an unknown encoding": _request(message(b"xx", 1), grpc_encoding=b"snappy"),
    "a compressed message without `grpc-encoding`": _request(message(b"xx", 1)),
    "the method GET": _request(method=b"GET"),
    "no `te: trailers`": _request(te=None),
}


def documented(title: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table of `docs/grpc-statuses.md`, by their first cells: what each column says."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if line[:1] == "|"]
    names = rows[0]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows[2:]}


async def statuses_of(port: int) -> dict[str, str]:
    """Send each of `REQUESTS` to a server; return what it answered, as the page says it."""
    return {name: await _asked(port, *request) for name, request in REQUESTS.items()}


async def _asked(port: int, headers: Headers, body: bytes) -> str:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    try:
        peer = RawPeer(stream)
        await peer.send(PREFACE, settings(), peer.headers(1, headers), frame(DATA, END_STREAM, 1, body))
        answer = await peer.until_over(1)
    finally:
        await trio.aclose_forcefully(stream)
    found = [] if answer.status is None else [StatusCode(answer.status).name]
    http_status = dict(answer.headers[0])[b":status"].decode() if answer.headers else "200"
    if http_status != "200":
        found.insert(0, f"HTTP {http_status}")
    if not found and answer.reset is not None:
        found.append(f"RST_STREAM with {RESETS[answer.reset]}")
    return ", ".join(found)


@asynccontextmanager
async def answering(rows: dict[str, Answering]) -> AsyncIterator[int]:
    """Serve a method for each row, `/rows/NUMBER`; return the port."""
    listed = list(rows.values())

    async def serve(stream: trio.SocketStream) -> None:
        peer = RawPeer(stream)
        done: set[int] = set()
        await peer.send(settings())
        try:
            while not peer.eof:
                await peer.pump()
                for number, answer in list(peer.answers.items()):
                    if answer.ended and number not in done:
                        done.add(number)
                        path = answer.field(b":path") or b""
                        sent = listed[int(path.rpartition(b"/")[2])](number)
                        if sent is None:
                            return
                        await peer.send(sent)
        except trio.BrokenResourceError:
            pass
        finally:
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()
