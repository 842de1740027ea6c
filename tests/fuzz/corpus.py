"""Seeds for each fuzzing program: valid traffic, and a few things that are nearly so.

`python -m tests.fuzz.corpus FOLDER` writes them to ``FOLDER/<program>/``.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import hpack

from tests.fuzz import _script
from trio_cogment.config import RpcConfig
from trio_cogment.errors import StatusCode
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
    }


def main() -> None:
    folder = Path(sys.argv[1])
    for name, found in seeds().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed in found:
            (folder / name / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    main()
