"""The frames of gRPC-Web, as bytes or as base64, and blocks of fields: taken in any split, or refused."""

from __future__ import annotations

from tests.fuzz import _run

with _run.instrumented_imports():
    from tests.fuzz._script import chunks
    from trio_cogment.base.errors import RpcError
    from trio_cogment.web.frames import FrameReader, TextReader, fields_frame
    from trio_cogment.web.requests import call_head, lines

_MAX_BYTES = 2000


def check(data: bytes) -> None:
    form, data = data[:1], data[1:]
    results = []
    for pieces in ([data], chunks(data), [data[at : at + 1] for at in range(len(data))]):
        results.append(_messages(pieces, text=form > b"\x80"))
    assert results[0] == results[1] == results[2], "the split made a difference"
    try:
        fields = lines(data)
        call_head(fields, 1000)
    except RpcError:
        return
    assert lines(fields_frame(fields)[5:]) == fields


def _messages(pieces: list[bytes], *, text: bool) -> list[bytes] | None:
    frames, plain = FrameReader(_MAX_BYTES), TextReader()
    found: list[bytes] = []
    try:
        for piece in pieces:
            found += frames.receive(plain.receive(piece) if text else piece)
        plain.end()
        frames.end()
    except RpcError:
        # Of several errors the split says which is seen first, and how many messages came before.
        return None
    return found


if __name__ == "__main__":
    _run.run(check)
