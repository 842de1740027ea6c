"""HPACK that remembers says what HPACK says: across table changes in both directions, and bounded."""

from __future__ import annotations

import re
import time
from typing import Any

import hpack
import hypothesis
import hypothesis.strategies as st
import pytest
from hpack.exceptions import InvalidTableSizeError

from trio_cogment.rpc._control import ControlPlane
from trio_cogment.rpc._frames import ConnectionFaultError, ErrorCode
from trio_cogment.rpc._hpack import Decoder, Encoder, RawHeaders, _integer, unindexed

names = st.sampled_from([b":status", b"content-type", b"grpc-status", b"a", b"b", b"c"])
values = st.sampled_from([b"", b"0", b"200", b"application/grpc", b"x" * 50, b"y" * 3000])
lists = st.lists(st.tuples(names, values), min_size=1, max_size=6)
sizes = st.sampled_from([0, 40, 100, 4096])
LONG_INTEGER = re.compile(rb"[\x80-\xff]{5}")


def decoded(decoder: hpack.Decoder, block: bytes) -> RawHeaders:
    return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]


@hypothesis.given(st.lists(st.one_of(lists, sizes), max_size=30))
@hypothesis.settings(deadline=None)
def test_what_is_encoded_is_decoded_again(plan: list[RawHeaders | int]) -> None:
    ours, plain = Encoder(), hpack.Encoder()
    ours_read, plain_read = hpack.Decoder(), Decoder(2**20)
    for step in plan:
        if isinstance(step, int):
            ours.header_table_size = step
            if step != plain.header_table_size:  # hpack would forget to announce an earlier change
                plain.header_table_size = step
            continue
        for _ in range(3):
            assert decoded(ours_read, ours.encode(step)) == step
            assert plain_read.decode(plain.encode(step)) == step


def test_a_repeated_list_costs_nothing_and_takes_part_in_compression() -> None:
    encoder = Encoder()
    headers = [(b":path", b"/a.long.name/of.a.method"), (b"te", b"trailers")]
    first, second, third = (encoder.encode(headers) for _ in range(3))
    assert len(second) == 2 < len(first)
    assert second == third
    block = hpack.Encoder().encode(headers)
    decoder = Decoder(2**20)
    decoder.decode(block)
    assert decoder.decode(second) is decoder.decode(bytes(bytearray(second)))


def test_what_changes_every_time_stays_out_of_the_table() -> None:
    encoder = Encoder()
    headers = [(b":path", b"/a/b"), (b"te", b"trailers")]
    encoder.encode(headers)
    block = encoder.encode(headers)
    for number in range(1000):
        encoder.encode([*headers, unindexed(b"grpc-timeout", b"%du" % number)])
    assert encoder.encode(headers) == block


def test_metadata_that_varies_stays_out_of_the_table_from_its_second_value_on() -> None:
    encoder, decoder = Encoder(), hpack.Decoder()
    for number in range(5):
        fields = [(b":path", b"/a/b"), (b"te", b"trailers"), (b"trial-id", b"%d" % number)]
        for _ in range(2):
            assert decoded(decoder, encoder.encode(fields)) == fields
    assert encoder.header_table.changes == 3  # one for each name
    assert len(encoder.encode([(b":path", b"/a/b"), (b"te", b"trailers")])) == 2


def test_so_many_names_are_not_remembered() -> None:
    encoder, decoder = Encoder(), hpack.Decoder()
    for number in range(1000):
        fields = [(b"name-%d" % number, b"value")]
        assert decoded(decoder, encoder.encode(fields)) == fields
    assert len(encoder._first_values) == 64


def test_what_a_peer_chooses_is_not_kept_without_bound() -> None:
    decoder = Decoder(2**20)
    plain = hpack.Encoder()
    blocks = [plain.encode([(b"x", b"%d" % number, True)]) for number in range(1000)]
    large = plain.encode([(b"x", bytes(1000), True)], huffman=False)
    for block in blocks:
        assert decoder.decode(block) == decoder.decode(block)
    assert decoder.decode(large) is not decoder.decode(large)


pieces = st.lists(
    st.sampled_from(
        [
            b"\x82",
            b"\xbe",
            b"\xbf",
            b"\x20",
            b"\x3f\xe1\x1f",
            b"\x40\1a\1b",
            b"\x7e\2xy",
            b"\0\1a\x81\x1f",
            b"\x1f\0\1b",
        ]
    ),
    max_size=12,
).map(b"".join)


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (b"\xff\xff\xff\xff", ErrorCode.COMPRESSION_ERROR),  # an index cut off
        (b"\xff" + b"\x80" * 8000 + b"\x01", ErrorCode.COMPRESSION_ERROR),  # a number too long even to be printed
        (b"\xfe", ErrorCode.COMPRESSION_ERROR),  # no such entry
        (b"\x3f\xe1\xff\x03", ErrorCode.COMPRESSION_ERROR),  # a table larger than allowed
        (b"\x3f\xe2\x1f", ErrorCode.COMPRESSION_ERROR),  # larger by one
        (b"\x00\x05ab", ErrorCode.COMPRESSION_ERROR),  # a name cut off
        (b"\x40\x01a\x7f\xa1\x1e" + bytes(4000) + b"\xbe" * 500, ErrorCode.ENHANCE_YOUR_CALM),  # a bomb
    ],
)
def test_broken_blocks_end_the_connection(block: bytes, code: ErrorCode) -> None:
    with pytest.raises(ConnectionFaultError) as caught:
        ControlPlane(client_side=False).decode(block)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\0\x7f" + b"\x80" * 5 + b"\1", "integer too long"),
        (b"\x82\x20", "table size update out of place"),
        (b"\x20" * 65, "table size update out of place"),
        (b"\0\5ab", "truncated header block"),
        (b"\x3f\xe2\x1f", "table larger than allowed"),
        (b"\0\1a\x7f\xd1\x0e" + bytes(2000), "header list larger than 2000"),
    ],
)
def test_what_is_wrong_with_a_block_is_said(block: bytes, text: str) -> None:
    with pytest.raises(hpack.HPACKDecodingError, match=text):
        Decoder(2000).decode(block)


def test_a_header_list_may_be_as_large_as_the_limit() -> None:
    """With 32 bytes more for each field (RFC 9113, 10.5.1), however it is coded."""
    fields = [(b":method", b"GET"), (b"name", b"value"), (b"name", b"value")]
    size = sum(len(name) + len(value) + 32 for name, value in fields)
    block = b"\x82\x40\4name\5value\xbe"
    assert Decoder(size).decode(block) == fields
    with pytest.raises(hpack.OversizedHeaderListError):
        Decoder(size - 1).decode(block)


ENDLESS = [bytes([first]) + b"\xff" * 65_000 + b"\1" for first in (0xFF, 0x3F, 0x7F, 0x0F, 0x1F)]
ENDLESS += [b"\x00\x7f" + b"\xff" * 65_000 + b"\1", b"\x00\x01a\xff" + b"\xff" * 65_000 + b"\1"]


def test_endless_integers_are_cheap_to_refuse() -> None:
    """Each took a third of a second when it was read to its end."""
    began = time.process_time()
    for _ in range(20):
        for block in ENDLESS:
            with pytest.raises(ConnectionFaultError) as caught:
                ControlPlane(client_side=False).decode(block)
            assert caught.value.code == ErrorCode.COMPRESSION_ERROR
    assert time.process_time() - began < 10


def test_an_integer_has_35_bits_beside_its_prefix_and_no_more() -> None:
    """RFC 7541, 5.1."""
    assert _integer(b"\x0a", 0, 5) == (10, 1)
    assert _integer(b"\x1f\x9a\x0a", 0, 5) == (1337, 3)
    assert _integer(b"_\x1f" + b"\xff" * 4 + b"\x7f", 1, 5) == (2**35 - 1 + 31, 7)
    with pytest.raises(hpack.HPACKDecodingError, match="too long"):
        _integer(b"\x1f" + b"\x80" * 5 + b"\x00", 0, 5)


def test_table_sizes_without_end_are_refused() -> None:
    control = ControlPlane(client_side=False)
    assert control.decode(b"\x20\x3f\xe1\x1f" * 10 + b"\x82") == [(b":method", b"GET")]
    assert control.decode(b"\x20" * 64 + b"\x82") == [(b":method", b"GET")]
    for number in (65, 65_000):
        with pytest.raises(ConnectionFaultError):
            ControlPlane(client_side=False).decode(b"\x20" * number + b"\x82")


def by(decoder: Decoder | hpack.Decoder, block: bytes) -> object:
    """Return what a decoder makes of a block, None where it fails."""
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except (hpack.HPACKError, IndexError, TypeError, ValueError):
        return None


@hypothesis.given(st.lists(st.binary(max_size=30) | pieces, max_size=20))
@hypothesis.settings(deadline=None, max_examples=500)
def test_any_block_is_decoded_as_by_hpack(blocks: list[bytes]) -> None:
    ours, theirs = Decoder(2000), hpack.Decoder(max_header_list_size=2000)
    for block in blocks:
        hypothesis.assume(not LONG_INTEGER.search(block))  # hpack takes any
        expected = by(theirs, block)
        assert by(ours, block) == expected
        if expected is None:
            return  # and so the connection is over


def test_large_header_lists_are_cut_into_frames() -> None:
    headers = [(b"x", bytes([65 + number]) * 20_000) for number in range(3)]
    data = ControlPlane(client_side=False).send_headers(1, headers, end_stream=True)
    frames = []
    while data:
        size = int.from_bytes(data[:3], "big")
        frames.append((data[3], data[4], data[9 : 9 + size]))
        data = data[9 + size :]
    assert [kind for kind, _, _ in frames] == [1, *[9] * (len(frames) - 1)]
    assert [flags for _, flags, _ in frames] == [1, *[0] * (len(frames) - 2), 4]
    assert all(len(payload) <= 16384 for _, _, payload in frames)
    assert decoded(hpack.Decoder(), b"".join(payload for _, _, payload in frames)) == headers


def test_a_field_that_comes_again_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that may not be indexed is, and is not kept."""
    encoded: list[Any] = []
    encode = hpack.Encoder.encode

    def noting(self: hpack.Encoder, headers: list[Any], huffman: bool = True) -> bytes:
        encoded.extend(headers)
        code: bytes = encode(self, headers, huffman)
        return code

    monkeypatch.setattr(hpack.Encoder, "encode", noting)
    encoder, decoder = Encoder(), hpack.Decoder()
    plain, secret = [(b":status", b"200"), (b"x", b"1")], hpack.NeverIndexedHeaderTuple(b"authorization", b"me")
    for _ in range(4):
        assert decoder.decode(encoder.encode([*plain, secret]), raw=True) == [*plain, secret]
    # The first time changes the table, which the second time finds changed.
    assert encoded == [*plain, secret, *plain, secret, secret, secret]


def test_a_table_that_the_peer_makes_smaller_has_less_in_it() -> None:
    """Each entry takes 34 bytes: of two, a table of this many keeps the second."""
    decoder = Decoder(2000)
    first, second = (b"a", b"b"), (b"c", b"d")
    assert decoder.decode(b"\x40\1a\1b\x40\1c\1d") == [first, second]
    assert decoder.decode(b"\xbe\xbf") == [second, first]
    assert decoder.decode(b"\x3f\x03\xbe") == [second]  # 34
    assert by(decoder, b"\xbf") is None
    assert decoder.decode(b"\x3f\xe1\x1f\x40\1a\1b") == [first]  # 4096 again
    assert decoder.decode(b"\xbe\xbf") == [first, second]
    assert by(decoder, b"\x20\xbe") is None


def test_a_table_that_has_to_become_smaller_is_made_so_by_the_next_block() -> None:
    for update, allowed in ((b"", False), (b"\x3f\x46", False), (b"\x3f\x45", True), (b"\x20", True)):
        decoder = Decoder(2000)
        decoder.max_allowed_table_size = 100
        if allowed:
            assert decoder.decode(update + b"\x82") == [(b":method", b"GET")]
        else:
            with pytest.raises(InvalidTableSizeError):
                decoder.decode(update + b"\x82")


def test_64_blocks_that_come_in_turn_are_remembered_and_more_are_not() -> None:
    decoder, plain = Decoder(2000), hpack.Encoder()
    blocks = [plain.encode([(b"x", b"%d" % number, True)]) for number in range(65)]
    for number, remembered in ((1, True), (2, True), (64, True), (65, False)):
        first = [decoder.decode(block) for block in blocks[:number]]
        again = [decoder.decode(block) for block in blocks[:number]]
        assert all(one is other for one, other in zip(first, again, strict=True)) is remembered
        assert len(decoder._known) <= 64
    decoder.decode(b"\x40\1a\1b")  # the table has changed
    assert decoder.decode(blocks[0]) == first[0]
    assert decoder.decode(blocks[0]) is not first[0]


@pytest.mark.parametrize(("size", "remembered"), [(512, True), (513, False)])
def test_only_short_blocks_are_remembered(size: int, remembered: bool) -> None:
    """What is long is hardly worth it, and a peer chooses what it sends."""
    decoder = Decoder(2000)
    value = bytes(size - 7)
    block = b"\x10\x01x\x7f" + bytes([0x80 | (len(value) - 127) % 128, (len(value) - 127) // 128]) + value
    assert len(block) == size - 1
    block += b"\x82"
    assert decoder.decode(block) == [(b"x", value), (b":method", b"GET")]
    assert (decoder.decode(block) is decoder.decode(block)) is remembered


def test_fields_that_come_in_turn_are_encoded_once_as_long_as_there_are_64_of_them() -> None:
    for number, remembered in ((1, True), (64, True), (65, False)):
        encoder, decoder = Encoder(), hpack.Decoder()
        fields = [(b":path", b"/%d" % index) for index in range(number)]
        encoder.header_table_size = 0  # nothing is indexed, so that the table does not change
        for _ in range(3):
            assert decoded(decoder, encoder.encode(fields)) == fields
            assert len(encoder._known) <= 64
        assert (len(encoder._known) == number) is remembered


@pytest.mark.parametrize(("size", "is_short"), [(63, True), (64, False)])
def test_long_values_are_not_coded_bit_by_bit(size: int, is_short: bool) -> None:
    """Huffman's code would save a fifth of a token, and take longer than all else of a call."""
    block = Encoder().encode([(b"x-token", b"a" * size)])
    assert (b"a" * size in block) is not is_short
