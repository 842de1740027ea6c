"""HPACK that remembers says what HPACK says: across table changes in both directions, and bounded."""

from __future__ import annotations

import hpack
import hypothesis
import hypothesis.strategies as st
import pytest

from trio_cogment.rpc._control import ControlPlane
from trio_cogment.rpc._frames import ConnectionFaultError, ErrorCode
from trio_cogment.rpc._hpack import Decoder, Encoder, RawHeaders, unindexed

names = st.sampled_from([b":status", b"content-type", b"grpc-status", b"a", b"b", b"c"])
values = st.sampled_from([b"", b"0", b"200", b"application/grpc", b"x" * 50, b"y" * 3000])
lists = st.lists(st.tuples(names, values), min_size=1, max_size=6)
sizes = st.sampled_from([0, 40, 100, 4096])


def decoded(decoder: hpack.Decoder, block: bytes) -> RawHeaders:
    return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]


@hypothesis.given(st.lists(st.one_of(lists, sizes), max_size=30))
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


def test_what_a_peer_chooses_is_not_kept_without_bound() -> None:
    decoder = Decoder(2**20)
    plain = hpack.Encoder()
    blocks = [plain.encode([(b"x", b"%d" % number, True)]) for number in range(1000)]
    large = plain.encode([(b"x", bytes(1000), True)], huffman=False)
    for block in blocks:
        assert decoder.decode(block) == decoder.decode(block)
    assert decoder.decode(large) is not decoder.decode(large)


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (b"\xff\xff\xff\xff", ErrorCode.COMPRESSION_ERROR),  # an index cut off
        (b"\xff" + b"\x80" * 8000 + b"\x01", ErrorCode.COMPRESSION_ERROR),  # a number too long even to be printed
        (b"\xfe", ErrorCode.COMPRESSION_ERROR),  # no such entry
        (b"\x3f\xe1\xff\x03", ErrorCode.COMPRESSION_ERROR),  # a table larger than allowed
        (b"\x00\x05ab", ErrorCode.COMPRESSION_ERROR),  # a name cut off
        (b"\x40\x01a\x7f\xa1\x1e" + bytes(4000) + b"\xbe" * 500, ErrorCode.ENHANCE_YOUR_CALM),  # a bomb
    ],
)
def test_broken_blocks_end_the_connection(block: bytes, code: ErrorCode) -> None:
    with pytest.raises(ConnectionFaultError) as caught:
        ControlPlane(client_side=False).decode(block)
    assert caught.value.code == code


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
