"""Frames and base64, whole, in pieces of any size, and broken."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.web.frames import FrameReader, TextReader, fields_frame, message_frame

MESSAGES = st.lists(st.binary(max_size=40), max_size=6)
CUTS = st.lists(st.integers(1, 9), min_size=1)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    found, at, index = [], 0, 0
    while at < len(data):
        size = cuts[index % len(cuts)]
        found.append(data[at : at + size])
        at, index = at + size, index + 1
    return found


@given(MESSAGES, CUTS)
def test_frames_in_pieces(messages: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(1000)
    data = b"".join(map(message_frame, messages))
    assert [one for piece in pieces(data, cuts) for one in reader.receive(piece)] == messages
    reader.end()
    assert list(FrameReader(1000).receive(data)) == messages


@given(MESSAGES, CUTS, st.integers(1, 7))
def test_text_in_pieces_with_padding_anywhere(messages: list[bytes], cuts: list[int], segment: int) -> None:
    data = b"".join(map(message_frame, messages))
    text = b"".join(base64.b64encode(piece) for piece in pieces(data, [segment]))
    reader = TextReader()
    assert b"".join(map(reader.receive, pieces(text, cuts))) == data
    reader.end()


@given(st.binary(max_size=60), CUTS)
def test_anything_is_taken_or_refused(data: bytes, cuts: list[int]) -> None:
    frames, text = FrameReader(20), TextReader()
    codes = set()
    try:
        for piece in pieces(data, cuts):
            assert all(len(message) <= 20 for message in frames.receive(piece))
    except RpcError as error:
        codes.add(error.code)
    assert codes <= {StatusCode.INTERNAL, StatusCode.UNIMPLEMENTED, StatusCode.RESOURCE_EXHAUSTED}
    assert decoded(text, pieces(data, cuts)) in (None, StatusCode.INTERNAL)


def decoded(reader: TextReader, texts: list[bytes]) -> StatusCode | None:
    try:
        for text in texts:
            reader.receive(text)
        reader.end()
    except RpcError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x80\x00\x00\x00\x00", StatusCode.INTERNAL),
        (b"\x01\x00\x00\x00\x00", StatusCode.UNIMPLEMENTED),
        (b"\x02\x00\x00\x00\x00", StatusCode.INTERNAL),
        (b"\x00\xff\xff\xff\xff", StatusCode.RESOURCE_EXHAUSTED),
        (b"\x00\x00\x00\x00\x65", StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_frames_that_are_refused_from_their_prefix(data: bytes, code: StatusCode) -> None:
    reader = FrameReader(100)
    for index in range(len(data) - 1):
        assert not list(reader.receive(data[index : index + 1]))
    with pytest.raises(RpcError) as caught:
        list(reader.receive(data[-1:]))
    assert caught.value.code is code


@pytest.mark.parametrize("text", [b"A===", b"=AAA", b"A=AA", b"AA=A", b"AAA\n", b"\xff\xff\xff\xff", b"AA==="])
def test_what_is_not_base64(text: bytes) -> None:
    for cut in range(len(text)):
        assert decoded(TextReader(), [text[:cut], text[cut:]]) is StatusCode.INTERNAL


def test_an_end_in_the_middle() -> None:
    frames, text = FrameReader(100), TextReader()
    frames.receive(b"\x00\x00")
    text.receive(b"AA")
    for reader in (frames, text):
        with pytest.raises(RpcError):
            reader.end()


def test_a_frame_of_fields() -> None:
    frame = fields_frame([(b"grpc-status", b"0"), (b"a", b"b")])
    assert frame == b"\x80\x00\x00\x00\x16grpc-status: 0\r\na: b\r\n"


def test_what_is_known_to_follow_of_a_frame() -> None:
    reader = FrameReader(100)
    frame = message_frame(bytes(20))
    expected = {0: 0, 4: 0, 5: 20, 6: 19, 24: 1}  # nobody knows before the length has come
    for size, missing in expected.items():
        assert list(reader.receive(frame[reader.begun : size])) == []
        assert (reader.begun, reader.missing) == (size, missing)
    assert list(reader.receive(frame[24:])) == [bytes(20)]
    assert (reader.begun, reader.missing) == (0, 0)
