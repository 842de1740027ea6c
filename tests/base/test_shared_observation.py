"""An observation that several see is, on the wire and in process, what a message of its own would be."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import (
    Action,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    Reward,
    RewardSource,
)
from trio_cogment.api.environment_pb2 import ActionSet, EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from trio_cogment.base.shared_message import (
    _LARGE_BYTES,
    ObjectPayload,
    SharedAction,
    SharedActionSet,
    SharedMessage,
    SharedObservation,
    SharedObservationSet,
    SharedReward,
)

NORMAL = CommunicationState.NORMAL

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


class Told(ObjectPayload):
    """A payload that counts how often it is encoded."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.encoded = 0

    def encode(self) -> bytes:
        self.encoded += 1
        return str(self.value).encode()


def test_an_object_is_encoded_once_and_only_for_who_needs_bytes() -> None:
    told = Told("seen")
    messages: list[tuple[SharedMessage, Any]] = [
        (SharedObservation(1, 2, told), of_its_own(1, 2, b"seen")),
        (
            SharedAction(1, 2, told),
            ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=1, timestamp=2, content=b"seen")),
        ),
        (
            SharedActionSet(1, 2, [told, b"", b"x"], [1]),
            EnvRunTrialInput(
                state=NORMAL,
                action_set=ActionSet(tick_id=1, timestamp=2, actions=[b"seen", b"", b"x"], unavailable_actors=[1]),
            ),
        ),
        (
            SharedObservationSet(-1, 2, [told, b"x"], [0, 1, 0]),
            EnvRunTrialOutput(
                state=NORMAL,
                observation_set=ObservationSet(
                    tick_id=-1, timestamp=2, observations=[b"seen", b"x"], actors_map=[0, 1, 0]
                ),
            ),
        ),
    ]
    assert told.encoded == 0
    for message, expected in messages:
        assert type(expected) is message.kind
        assert message.whole() == expected
        assert message.payload() == expected.SerializeToString() == b"".join((message.head, *message.tails))
        assert message.ByteSize() == expected.ByteSize()
        assert message.whole() is not message.whole(), "it belongs to who asked for it"
    assert (told.encoded, len(told), bytes(told)) == (1, 4, b"seen")
    assert pickle.loads(pickle.dumps(told)) == b"seen", "in another process it is bytes"


@pytest.mark.parametrize("kind", [ActorRunTrialOutput, EnvRunTrialOutput, ActorRunTrialInput])
def test_a_reward_is_what_a_message_of_its_own_would_be(kind: type[Any]) -> None:
    sources = [RewardSource(sender_name="me", value=0.1, confidence=0.5), RewardSource(value=3)]
    sources[1].user_data.value = b"why"
    shared = SharedReward(kind, 7, "ann", sources[0].value, sources)
    expected = kind(state=NORMAL, reward=Reward(tick_id=7, receiver_name="ann", value=0.1, sources=sources))
    assert shared.whole() == expected
    assert shared.payload() == expected.SerializeToString()
    sources[0].sender_name = "else"
    assert shared.payload() == expected.SerializeToString(), "it is encoded once"
