"""Seeds for each fuzzing program: valid traffic, and a few things that are nearly so.

`python -m tests.fuzz.corpus FOLDER` writes them to ``FOLDER/<program>/``.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import hpack

from tests.fuzz import _script
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._frames import PREFACE, Kind
from trio_cogment.rpc.metadata import Metadata

RAW, SCRIPT = bytes([_script.RAW]), bytes([_script.SCRIPT])


def conversations() -> tuple[list[bytes], list[bytes]]:
    """Return what clients and what servers of ours send in calls of every kind."""
    to_server, to_client = [], []
    plans: list[tuple[list[int], Metadata, float | None, StatusCode]] = [
        ([3], Metadata(), None, StatusCode.OK),
        ([0, 100, 5], Metadata([("trial-id", "one"), ("x-bin", b"\0\1")]), 0.25, StatusCode.OK),
        ([290, 400, 1500], Metadata(), None, StatusCode.NOT_FOUND),
        ([], Metadata([("a", "b")]), 1000.0, StatusCode.UNKNOWN),
    ]
    for sizes, metadata, timeout, code in plans:
        client, server = (Engine(client_side=side, config=_script.SMALL) for side in (True, False))
        headers = _grpc_headers.request_headers(
            "/a/b", scheme="http", authority="x", timeout=timeout, metadata=metadata
        )
        stream = client.open_request(headers)
        for size in sizes:
            client.send_message(stream, bytes(size))
        client.end(stream, [])
        sent: tuple[list[bytes], list[bytes]] = ([], [])
        for _ in range(20):
            sent[0].append(client.take_output())
            for kind, at_server, value in server.receive_data(sent[0][-1]):
                if kind is Kind.REQUEST:
                    server.send_headers(at_server, [*_grpc_headers.RESPONSE_HEADERS, (b"x", b"y")])
                elif kind is Kind.MESSAGE:
                    server.consumed(at_server, len(value))
                    server.send_message(at_server, value)
                elif kind is Kind.HALF_CLOSED:
                    server.end(at_server, _grpc_headers.trailer_headers(code, "why not: ü", metadata))
            sent[1].append(server.take_output())
            for kind, at_client, value in client.receive_data(sent[1][-1]):
                if kind is Kind.MESSAGE:
                    client.consumed(at_client, len(value))
        client.go_away(0)
        server.go_away(0)
        to_server.append(b"".join([*sent[0], client.take_output()]))
        to_client.append(b"".join([*sent[1], server.take_output()]))
    return to_server, to_client


def scripts() -> list[bytes]:
    """Every frame type and every operation, good calls first."""
    request, answer, ok = (bytes([0x21, 4, 1 | number << 3, 0]) for number in (0, 1, 2))
    message, last = bytes([0, 0, 9, 20]), bytes([0, 1, 9, 20])
    own = [bytes([0x80 | what, 0, 1, 44]) for what in range(14)]
    opened, output = own[0], own[1]
    good = [request, message, own[6], own[7], message, own[8], last, own[11], output]
    calls = [opened, opened, bytes([0x21, 4, 1 | 1 << 3, 0]), message, own[7], own[11], bytes([0x21, 5, 1 | 2 << 3, 0])]
    seeds = [b"".join(good), b"".join(calls), b"".join([*calls, output, *own]), b"".join([*good, *own, output])]
    for kind in range(12):
        for flags, choice in ((0, 1), (1, 9), (4, 0x41), (9, 0x81), (0x2C, 0xC1)):
            frame = bytes([kind, flags, choice, 8])
            for start in ([request], [opened, answer, own[6], own[7], own[7]]):
                seeds.append(b"".join([*start, frame, message, output]))
    for number in range(len(_script.LISTS)):
        for flags in (4, 5):
            seeds.append(bytes([0x21, flags, 1 | number << 3, 0, 0x21, flags, 1 | number << 3, 0]) + message)
            seeds.append(opened + bytes([0x21, flags, 1 | number << 3, 0]) + answer + message + ok)
        piece = bytes([0x31, 0, 1 | number << 3, 10])
        seeds.append(piece + bytes([9, 0, 1, 4, 9, 4, 1, 4]))
    shrink = bytes([4, 0, 4, 200])
    part, rest = bytes([0x40, 0, 0x19, 240]), bytes([0, 0, 0x81, 80])
    more, more_for_all = bytes([8, 0, 1 | 3 << 3, 60]), bytes([8, 0, 5 << 3, 200])
    queue = [bytes([0x87, 1, 1, 200])] * 6
    for turn in range(4):
        both = [request, bytes([0x21, 4, 2, 0]), own[6], bytes([0x86, 1, 0, 0]), *queue, bytes([0x87, 2, 1, 100])]
        seeds.append(b"".join([shrink, *both, more, more_for_all, output, more, own[11], output][turn:]))
        seeds.append(b"".join([request, bytes([0x21, 4, 2, 0]), *([part, rest] * (turn + 1)), rest, rest, output]))
        seeds.append(b"".join([*both, shrink, *queue, own[3], own[4], more, output, own[13], *queue, own[12]][turn:]))
    begun = [bytes([0x40, 0, 0x18 | number, 240]) for number in (1, 2, 3)]
    three = [bytes([0x21, 4, number, 0]) for number in (1, 2, 3)]
    filled = [bytes([0x40, 0, 0x80 | number, 255]) for number in (1, 2, 3)]
    for after in ([own[13]], [bytes([0x8D, 1, 0, 0])], [bytes([3, 0, 1, 8])], [bytes([3, 0, 2, 8])], filled * 10):
        seeds.append(b"".join([*three, *begun, output, *after, output, *filled, *filled, output]))
    large = bytes([0, 0, 0x89, 100])
    seeds.append(
        b"".join([request, own[6], *([bytes([0x87, 1, 15, 200])] * 8), bytes([8, 0, 0x81 - 0x80, 100]), large])
    )
    seeds.append(b"".join([request, bytes([0x40, 0, 9, 200]), bytes([0x40, 0, 9, 200]), large, large]))
    return seeds


def framings() -> list[bytes]:
    def message(size: int, flag: int = 0) -> bytes:
        return bytes([flag]) + size.to_bytes(4, "big") + bytes(size)

    good = [message(0), message(1), message(300) + message(2), message(10, 1), message(10)[:-2], message(17_000)]
    return [kind + seed for kind in (b"\0", b"\xff") for seed in [*good, b"\0\x7f\xff\xff\xff", message(3, 2)]]


def header_seeds() -> list[bytes]:
    seeds = [b"\n".join(name + b"=" + value for name, value in headers) for headers in _script.LISTS]
    seeds += [
        b"grpc-timeout=%d%b" % (value, unit)
        for value in (1, 99_999_999)
        for unit in (b"H", b"M", b"S", b"m", b"u", b"n")
    ]
    encoder = hpack.Encoder()
    blocks = [bytes(encoder.encode(headers, huffman=bool(number % 2))) for number, headers in enumerate(_script.LISTS)]
    return [*seeds, b"b" + b"//".join(blocks), b"b" + b"//".join(blocks[:3]), b"b" + b"\x3f\x09" + blocks[0]]


def endpoints() -> list[bytes]:
    texts = [
        "",
        "client",
        "grpc://localhost:9000",
        "grpc://[::1]:1",
        "cogment://client",
        "cogment://discover?a=b&a=%20",
    ]
    return [text.encode() for text in [*texts, "cogment://discover/actor?__id=1", "grpc://a:b", "http://x"]]


def web_requests() -> list[bytes]:
    """Return requests of browsers, and some that are nearly so."""

    def request(line: str, *fields: str, body: bytes = b"") -> bytes:
        return "\r\n".join([line, "Host: localhost:9000", *fields, "", ""]).encode() + body

    frame = b"\0\0\0\0\x02\x08\x05"
    call = "POST /cogmentAPI.TrialLifecycleSP/Version HTTP/1.1"
    kind, length = "Content-Type: application/grpc-web+proto", f"Content-Length: {len(frame)}"
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    good = [
        request("GET / HTTP/1.1"),
        request("HEAD /?a=b HTTP/1.1", "Origin: http://localhost:9000"),
        request(call, kind, length, "grpc-timeout: 20m", "trial-id: a, b", "x-bin: AAEC", body=frame),
        request(call, kind, "Transfer-Encoding: chunked", body=b"7\r\n%b\r\n0\r\n\r\n" % frame),
        request(call, kind, length, "Expect: 100-continue", body=frame),
        request("OPTIONS /a/b HTTP/1.1", "Origin: https://app.example.org", "Access-Control-Request-Method: POST"),
        request("GET /a/b HTTP/1.1", *upgrade, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
        request("GET /a/b HTTP/1.1", *upgrade, "Sec-WebSocket-Key: x", "Sec-WebSocket-Protocol: grpc-websockets"),
    ]
    bad = [
        request("GET / HTTP/1.0"),
        request("GET / HTTP/3.0"),
        request("GET http://localhost/ HTTP/1.1"),
        request("GET / HTTP/1.1", "Host: again"),
        request("GET / HTTP/1.1", " folded: x"),
        request(call, kind, "Content-Length: 1", "Content-Length: 2"),
        request(call, kind, "Transfer-Encoding: gzip"),
        request(call, kind, "Transfer-Encoding: chunked", body=b"-1\r\n"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01",
    ]
    return [*good, *bad, good[0] * 3, good[2] * 2, good[2] + bad[0], good[0][:-1], good[3][:-2]]


def web_sockets() -> list[bytes]:
    frames = [bytes([0x82, 5, 1, 0]), bytes([0x82, 200, 1, 0]), bytes([0x82, 250, 1, 1]), bytes([0x89, 3, 1, 0])]
    pieces = bytes([0x02, 9, 1, 0]) + frames[3] + bytes([0x00, 9, 1, 0, 0x80, 9, 1, 0])
    closing = bytes([0x88, 2, 1, 0])
    scripts = [*frames, pieces, b"".join(frames) + closing, frames[0] + bytes([0x81, 4, 1, 0]), closing + frames[0]]
    scripts += [bytes([0x82, 9, 1, 2]), bytes([0xC2, 9, 1, 0]), bytes([0x80, 9, 1, 0]), bytes([0x8A, 0, 0, 0])]
    raw = [b"\x02\x00", b"\x02\xff\0\0\0\0\0\0\0\x01", b"\x02\xfe\xff\xff", b"\x02\x85abcdefghi"]
    return [b"\xff" + script for script in scripts] + raw


def web_frames() -> list[bytes]:
    frames = [bytes([flags]) + size.to_bytes(4, "big") + bytes(size) for flags, size in ((0, 0), (0, 9), (0, 90))]
    frames += [frames[1] * 3, frames[1][:-1], bytes([0x80, 0, 0, 0, 0]), bytes([1, 0, 0, 0, 0]), b"\0\xff\xff\xff\xff"]
    texts = [base64.b64encode(one) for one in frames]
    texts += [texts[1] + texts[0], base64.b64encode(frames[1][:4]) + base64.b64encode(frames[1][4:]), b"A", b"!!!!"]
    block = b"content-type: application/grpc-web+proto\r\nx-grpc-web: 1\r\ngrpc-timeout: 5S\r\nx-bin: AAEC\r\n"
    return [b"\0" + one for one in [*frames, block, block[:-1]]] + [b"\xff" + one for one in texts]


def seeds() -> dict[str, list[bytes]]:
    """Return the seeds of each program by its name."""
    to_server, to_client = conversations()
    large = RpcConfig()
    hello = [Engine(client_side=side, config=large).take_output() for side in (True, False)]
    return {
        "engine_server": [RAW + one for one in [*to_server, hello[0], PREFACE]] + [SCRIPT + one for one in scripts()],
        "engine_client": [RAW + one for one in [*to_client, hello[1]]] + [SCRIPT + one for one in scripts()],
        "framing": framings(),
        "headers": header_seeds(),
        "endpoints": endpoints(),
        "web_http1": web_requests(),
        "web_socket": web_sockets(),
        "web_frames": web_frames(),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    for name, found in seeds().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed in found:
            (folder / name / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    main()
