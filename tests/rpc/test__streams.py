"""Streams with a message that has not come whole: few objects, and no whole read for a few bytes of it."""

from __future__ import annotations

import pytest

from trio_cogment.rpc._compressed_message import CompressedMessage
from trio_cogment.rpc._streams import Stream

KIB = 1024


def begun(length: int) -> Stream:
    """A stream with a message of which nothing but its prefix has come."""
    stream = Stream(1, recv_window=0, send_window=0, max_message=2**20)
    stream.feed(b"\0" + length.to_bytes(4, "big"), 0, 5, [])
    return stream


@pytest.mark.parametrize(("size", "pieces"), [(1, 1), (KIB - 1, 1), (KIB, 40)])
def test_crumbs_are_put_together_at_once(size: int, pieces: int) -> None:
    stream, messages = begun(50 * size), list[bytes]()
    for number in range(40):
        stream.feed(bytes([number]) * size, 0, size, messages)
    assert len(stream.chunks) == pieces
    assert stream.piece_size() == 40 * size + 5
    for number in range(40, 50):
        stream.feed(bytes([number]) * size, 0, size, messages)
    assert messages == [b"".join(bytes([number]) * size for number in range(50))]
    assert (stream.chunks, stream.inside_message) == ([], False)


@pytest.mark.parametrize(
    ("size", "around", "is_view"),
    [
        (16 * KIB - 1, 0, False),
        (16 * KIB, 0, True),
        (16 * KIB, 16 * KIB, True),  # half of what was read
        (16 * KIB, 16 * KIB + 1, False),
        (100 * KIB, 50 * KIB, True),
    ],
)
def test_only_what_is_most_of_a_read_is_kept_without_a_copy(size: int, around: int, is_view: bool) -> None:
    stream = begun(2**19)
    read = bytes(around) + b"x" * size
    stream.feed(read, around, len(read), [])
    (chunk,) = stream.chunks
    assert isinstance(chunk, memoryview) is is_view
    assert bytes(chunk) == b"x" * size


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("payload", [b"", b"xyz"])
@pytest.mark.parametrize("split", [1, 3, 100])
def test_what_is_compressed_is_told_however_it_comes(flag: int, payload: bytes, split: int) -> None:
    stream, messages = Stream(1, recv_window=0, send_window=0, max_message=2**20), list[bytes]()
    stream.encoding = b"gzip"
    data = (bytes([flag]) + len(payload).to_bytes(4, "big") + payload) * 2
    for start in range(0, len(data), split):
        piece = data[start : start + split]
        stream.feed(piece, 0, len(piece), messages)
    assert messages == [payload] * 2
    assert [isinstance(message, CompressedMessage) for message in messages] == [bool(flag)] * 2
