"""The frames of a WebSocket: any bytes in any split are messages, or break it at the same place.

With a first byte of 0x80 or more what follows is a script instead, whose frames have right lengths and masks: that
reaches what bytes alone hardly find. Its messages are then those of wsproto.
"""

from __future__ import annotations

from typing import Any

from tests.fuzz import _run

with _run.instrumented_imports():
    from tests.fuzz._script import chunks
    from trio_cogment.web.requests import Request
    from trio_cogment.web.websockets import Alive, Answer, BrokenSocketError, Closed, WebSocket

_MAX_BYTES = 500
_SCRIPT = 0x80
_REQUEST = Request(
    "GET",
    "/",
    "",
    (
        (b"host", b"localhost"),
        (b"connection", b"upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-version", b"13"),
        (b"sec-websocket-protocol", b"grpc-websockets"),
        (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    ),
)


def check(data: bytes) -> None:
    if data and data[0] >= _SCRIPT:
        data = _frames(data[1:])
    splits = ([data], chunks(data), [data[at : at + 1] for at in range(len(data))])
    results = [_outcome(pieces) for pieces in splits]
    assert results[0] == results[1] == results[2], "the split made a difference"


def _frames(script: bytes) -> bytes:
    """Return frames: of four bytes, the first, the size, the mask's first, and how the length is written."""
    frames = []
    for at in range(0, len(script) - 3, 4):
        first, size, mask, form = script[at : at + 4]
        if form % 5 == 1:
            size *= 3  # above what one byte says
        key = bytes([mask, 0, mask, 255])
        content = bytes((number * 7) & 0x7F for number in range(size))
        masked = bytes(one ^ key[index % 4] for index, one in enumerate(content))
        if form % 5 == 2:
            head = bytes([first, 0x80 | 127]) + size.to_bytes(8, "big")  # longer than it has to be
        elif size > 125:
            head = bytes([first, 0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head = bytes([first, 0x80 | size])
        frames.append(head + key + masked)
    return b"".join(frames)


def _outcome(pieces: list[bytes]) -> tuple[list[Any], int | None]:
    socket = WebSocket(_REQUEST, _MAX_BYTES)
    socket.accept("grpc-websockets")
    seen: list[Any] = []
    try:
        for piece in pieces:
            for one in socket.receive(piece):
                assert isinstance(one, bytes | Answer | Alive | Closed)
                assert not isinstance(one, bytes) or len(one) <= _MAX_BYTES
                seen.append(one)
                if isinstance(one, Closed):
                    socket.close()
                    return seen, None
    except BrokenSocketError as error:
        socket.close(error.code, str(error))
        return seen, error.code
    return seen, None


if __name__ == "__main__":
    _run.run(check)
