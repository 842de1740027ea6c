"""Peers that pad their DATA frames (RFC 9113, 6.1): what they send arrives, whatever the windows are."""

from __future__ import annotations

from collections import deque

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.rpc.padding_peer import PaddingPeer
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc._streams import Stream

MIB = 2**20
SIDES = pytest.mark.parametrize("client_side", [False, True], ids=["server", "client"])
#: Around the window that a stream begins with, what a frame holds, and where a message needs more than its window.
SIZES = [0, 1, 250, 251, 252, 256, 16_127, 16_128, 16_384, 65_274, 65_275, 65_530, 65_531, 65_536, 300_000, MIB - 5]


def config_of(window: int) -> RpcConfig:
    return RpcConfig(stream_window_bytes=window, connection_memory_bytes=2 * MIB)


@SIDES
@pytest.mark.parametrize("padding", [0, 1, 255])
@pytest.mark.parametrize("window", [257, 260, 261, 300, 512, 1000, 16_384, 65_535, 65_536, 300_000, MIB])
def test_messages_of_all_sizes_arrive_in_padded_frames(window: int, padding: int, client_side: bool) -> None:
    peer = PaddingPeer(config_of(window), client_side=client_side, paddings=[padding])
    number = peer.open()
    sizes = [size for size in SIZES if window > 1000 or size < 20_000]
    for size in sizes:
        peer.send(number, size)
        assert peer.left == 0
    assert peer.came[number] == sizes
    assert peer.engine.window.granted == 0


@SIDES
def test_a_padded_frame_is_not_answered_one_by_one(client_side: bool) -> None:
    peer = PaddingPeer(config_of(65_535), client_side=client_side, paddings=[255])
    number = peer.open()
    before = peer.updates
    peer.send(number, MIB)
    frames = MIB // (2**14 - 256)
    assert peer.left == 0
    assert peer.updates - before < frames


@SIDES
def test_unread_messages_hold_back_a_peer_that_pads(client_side: bool) -> None:
    """Room for padding is not a way around the window: it is there again when something has been taken."""
    unread: deque[tuple[Stream, int]] = deque()
    peer = PaddingPeer(
        config_of(65_535),
        client_side=client_side,
        paddings=[255],
        on_message=lambda stream, payload: unread.append((stream, len(payload))),
    )
    number = peer.open()
    for _ in range(100):
        peer.send(number, 10_000)
    stream = peer.engine.streams[number]
    most = stream.held
    assert most <= 65_535 + 10_005 + 4096  # one message may be let through whole
    while unread:
        stream, size = unread.popleft()
        peer.engine.consumed(stream, size)
        peer.go_on()
    assert peer.left == 0
    assert len(peer.came[number]) == 100


@hypothesis.given(
    st.sampled_from([257, 300, 1000, 5000, 65_535, 200_000]),
    st.lists(st.integers(0, 255), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([*SIZES, 90_000])), max_size=25),
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.booleans(),
)
@hypothesis.settings(max_examples=60)
def test_several_calls_with_frames_of_any_padding(
    window: int, paddings: list[int], sends: list[tuple[int, int]], takes: list[bool], client_side: bool
) -> None:
    config = RpcConfig(stream_window_bytes=window, connection_window_bytes=65_535, connection_memory_bytes=65_536)
    unread: deque[tuple[Stream, int]] = deque()
    peer = PaddingPeer(
        config,
        client_side=client_side,
        paddings=paddings,
        on_message=lambda stream, payload: unread.append((stream, len(payload))),
    )
    numbers = [peer.open() for _ in range(4)]
    for at, (which, size) in enumerate(sends):
        peer.send(numbers[which], size)
        if unread and takes[at % len(takes)]:
            stream, taken = unread.popleft()
            peer.engine.consumed(stream, taken)
    peer.go_on()
    while unread:
        stream, taken = unread.popleft()
        peer.engine.consumed(stream, taken)
        peer.go_on()
    assert peer.left == 0
    for index, number in enumerate(numbers):
        assert peer.came[number] == [size for which, size in sends if which == index]
    assert peer.engine.window.granted == 0
    assert all(stream.held == 0 for stream in peer.engine.streams.values())
