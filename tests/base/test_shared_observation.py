"""An observation that several see is, on the wire and in process, what a message of its own would be."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState
from trio_cogment.base.shared_observation import _LARGE_BYTES, SharedObservation

#: One that is sent in one piece, one whose content is a piece of its own, and those where a length takes a byte more.
SIZES = st.sampled_from([0, 1, 100, 120, 127, 128, _LARGE_BYTES - 1, _LARGE_BYTES, 2**21 - 1, 2**21])
ANY_64_BITS = st.integers(min_value=0, max_value=2**64 - 1)


def of_its_own(tick_id: int, timestamp: int, content: bytes) -> ActorRunTrialInput:
    message = ActorRunTrialInput(state=CommunicationState.NORMAL)
    message.observation.tick_id = tick_id
    message.observation.timestamp = timestamp
    message.observation.content = content
    return message


@given(ANY_64_BITS, ANY_64_BITS, st.binary(max_size=200) | SIZES.map(bytes))
@example(0, 0, b"")
@example(0, 0, bytes(_LARGE_BYTES))
def test_its_bytes_are_those_of_a_message_of_its_own(tick_id: int, timestamp: int, content: bytes) -> None:
    shared = SharedObservation(tick_id, timestamp, content)
    expected = of_its_own(tick_id, timestamp, content)
    assert shared.kind is ActorRunTrialInput
    assert shared.ByteSize() == expected.ByteSize()
    assert shared.payload() == b"".join((shared.head, *shared.tails)) == expected.SerializeToString()
    assert shared.whole() == expected


def test_each_whole_message_belongs_to_who_asked_for_it() -> None:
    shared = SharedObservation(1, 2, b"seen")
    shared.whole().MergeFrom(of_its_own(7, 7, b"changed"))
    assert shared.whole() == of_its_own(1, 2, b"seen")


def test_a_large_content_is_never_copied_and_a_small_one_encoded_once() -> None:
    large, small = (SharedObservation(1, 2, bytes(size)) for size in (_LARGE_BYTES, _LARGE_BYTES - 1))
    assert large.tails[0] is large.content
    assert len(large.head) < 64
    assert small.tails[0] is small.payload() is small.payload()
    assert small.head == b""
