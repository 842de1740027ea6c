"""Length-prefixed messages: any bytes in any split are messages, or a `BadMessageError` at the same place."""

from __future__ import annotations

from tests.fuzz import _run

with _run.instrumented_imports():
    from tests.fuzz._script import chunks
    from trio_cogment.rpc._streams import BadMessageError, Stream


def check(data: bytes) -> None:
    encoding, data = data[:1], data[1:]
    results = []
    for pieces in ([data], chunks(data), [data[at : at + 1] for at in range(len(data))]):
        stream = Stream(1, recv_window=1000, send_window=1000, max_message=70_000)
        if encoding > b"\x80":
            stream.encoding = b"gzip"
        messages: list[bytes] = []
        error = None
        try:
            for piece in pieces:
                # As in the parser: a piece lies somewhere in what was received.
                stream.feed(b"//" + piece + b"//", 2, 2 + len(piece), messages)
        except BadMessageError as bad:
            error = (bad.code, bad.message)
        results.append((messages, error, error is None and stream.inside_message))
    assert results[0] == results[1] == results[2], "the split made a difference"


if __name__ == "__main__":
    _run.run(check)
