"""Header blocks: what is cut off HEADERS, and how CONTINUATION goes on."""

from __future__ import annotations

import pytest

from tests.rpc.raw_peer import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PADDED, frame
from trio_cogment.rpc._frames import PRIORITIZED, ConnectionFaultError, ErrorCode
from trio_cogment.rpc._header_blocks import HeaderBlocks


def begin(blocks: HeaderBlocks, flags: int, payload: bytes) -> bytes | None:
    return blocks.begin(frame(HEADERS, flags, 1, payload), flags, 1)


def go_on(blocks: HeaderBlocks, flags: int, payload: bytes) -> bytes | None:
    return blocks.go_on(frame(CONTINUATION, flags, 1, payload), flags)


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        (0, b"block"),
        (PADDED, b"\2block\0\0"),
        (PADDED, b"\0block"),
        (PRIORITIZED, bytes(5) + b"block"),
        (PADDED | PRIORITIZED, b"\3" + bytes(5) + b"block" + bytes(3)),
    ],
)
def test_padding_and_priority_are_cut_off(flags: int, payload: bytes) -> None:
    blocks = HeaderBlocks(1000)
    assert begin(blocks, flags | END_HEADERS, payload) == b"block"
    assert blocks.unfinished == 0


def test_continuations_are_joined() -> None:
    blocks = HeaderBlocks(1000)
    assert begin(blocks, END_STREAM, b"a") is None
    assert (blocks.unfinished, blocks.ends_stream) == (1, True)
    assert go_on(blocks, 0, b"b") is None
    assert go_on(blocks, END_HEADERS, b"c") == b"abc"
    assert blocks.unfinished == 0
    assert begin(blocks, END_HEADERS, b"d") == b"d"
    assert not blocks.ends_stream


@pytest.mark.parametrize(
    ("flags", "payload", "code"),
    [
        (PADDED, b"", ErrorCode.FRAME_SIZE_ERROR),
        (PRIORITIZED, bytes(4), ErrorCode.FRAME_SIZE_ERROR),
        (PADDED, b"\6block", ErrorCode.PROTOCOL_ERROR),
        (PADDED | PRIORITIZED, b"\1" + bytes(5), ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_malformed_headers_are_refused(flags: int, payload: bytes, code: ErrorCode) -> None:
    with pytest.raises(ConnectionFaultError) as raised:
        begin(HeaderBlocks(1000), flags, payload)
    assert raised.value.code == code


def test_a_block_without_end_is_refused() -> None:
    blocks = HeaderBlocks(1000)
    begin(blocks, 0, bytes(500))
    go_on(blocks, 0, bytes(500))
    with pytest.raises(ConnectionFaultError) as raised:
        go_on(blocks, END_HEADERS, b"x")
    assert raised.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_a_continuation_needs_a_beginning() -> None:
    with pytest.raises(ConnectionFaultError):
        go_on(HeaderBlocks(1000), END_HEADERS, b"x")


def test_nothing_is_kept_of_a_block_that_is_whole() -> None:
    blocks = HeaderBlocks(1000)
    begin(blocks, 0, b"a")
    go_on(blocks, 0, b"b")
    assert blocks._pieces
    go_on(blocks, END_HEADERS, b"c")
    assert not blocks._pieces
