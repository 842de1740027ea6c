"""Output cut into lines: the same lines, however it arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.cli.launching._launcher import MAX_LINE_BYTES, LineSplitter


def split(*pieces: bytes, most: int = MAX_LINE_BYTES) -> list[bytes]:
    splitter = LineSplitter(most)
    found = [line for piece in pieces for line in splitter.feed(piece)]
    return found + splitter.end()


def test_lines() -> None:
    assert split() == []
    assert split(b"one\ntwo\r\n\nlast") == [b"one", b"two", b"", b"last"]
    assert split(b"o", b"ne\nt", b"wo") == [b"one", b"two"]
    assert split(b"\xff\x00\n") == [b"\xff\x00"]


def test_a_line_is_there_as_soon_as_it_ends() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a\nb") == [b"a"]
    assert splitter.feed(b"\n") == [b"b"]


def test_long_lines_are_cut() -> None:
    assert split(b"abcdefg\n", b"hi\n", most=3) == [b"abc", b"def", b"g", b"hi"]
    assert split(b"abc", b"def", b"\n", b"\n", most=3) == [b"abc", b"def", b""]


@given(st.lists(st.binary(max_size=12)), st.integers(1, 8))
def test_nothing_is_lost_and_nothing_is_too_long(pieces: list[bytes], most: int) -> None:
    pieces = [piece.replace(b"\r", b"") for piece in pieces]
    lines = split(*pieces, most=most)
    assert b"".join(lines) == b"".join(pieces).replace(b"\n", b"")
    assert all(len(line) <= most for line in lines)


@given(st.lists(st.binary(max_size=20)))
def test_the_pieces_do_not_matter(pieces: list[bytes]) -> None:
    assert split(*pieces) == split(b"".join(pieces))


@given(st.lists(st.binary(max_size=9)), st.integers(1, 8))
def test_what_is_kept_is_bounded(pieces: list[bytes], most: int) -> None:
    splitter = LineSplitter(most)
    for piece in pieces:
        splitter.feed(piece)
        assert len(splitter._rest) <= most
