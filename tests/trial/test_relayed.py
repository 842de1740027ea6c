"""Relayed contents are kept once, and each receiver's envelope is what it was when every receiver had a copy."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyPayload
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState, Message, Reward, RewardSource
from trio_cogment.api.environment_pb2 import EnvRunTrialInput
from trio_cogment.base.rewards import mean_reward
from trio_cogment.trial import ENVIRONMENT, SendShared
from trio_cogment.trial._relayed import _LARGE_BYTES, Given, Said, relay, reward


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000, 3_000_000])
@pytest.mark.parametrize(("participant", "kind"), [(0, ActorRunTrialInput), (ENVIRONMENT, EnvRunTrialInput)])
@pytest.mark.parametrize("name", ["a", "n" * 300])
def test_an_envelope_is_that_of_the_message_on_its_own(size: int, participant: int, kind: Any, name: str) -> None:
    message = Message(tick_id=-1, sender_name="s", receiver_name="*")
    message.payload.CopyFrom(AnyPayload(type_url="type.googleapis.com/x.Y", value=b"v" * size))
    relayed = relay(participant, name, Said(message, 70_000))
    expected = kind(state=CommunicationState.NORMAL)
    expected.message.CopyFrom(message)
    expected.message.tick_id = 70_000
    expected.message.receiver_name = name
    assert relayed.message == expected
    assert relayed.shared.ByteSize() == expected.ByteSize() == len(relayed.shared.payload())


def test_a_message_without_payload_has_none() -> None:
    relayed = relay(0, "a", Said(Message(sender_name="s"), 0))
    assert not relayed.message.message.HasField("payload")
    assert relayed.shared.tails == (b"",)
    empty = Message(sender_name="s")
    empty.payload.SetInParent()
    assert relay(0, "a", Said(empty, 0)).message.message.HasField("payload")


def test_all_receivers_have_the_same_bytes_and_a_later_change_of_the_message_none_of_them() -> None:
    message = Message(sender_name="s")
    message.payload.value = b"said"
    said = Said(message, 0)
    relays = [relay(index, f"a{index}", said) for index in range(3)]
    message.payload.value = b"changed"
    assert {id(each.shared.tails[0]) for each in relays} == {id(said.tail)}
    assert [each.message.message.payload.value for each in relays] == [b"said"] * 3


def source(value: float, size: int) -> RewardSource:
    made = RewardSource(sender_name="s", value=value, confidence=0.5)
    made.user_data.value = bytes(size)
    return made


@given(st.lists(st.lists(st.sampled_from([0, 1, 200, _LARGE_BYTES]), min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_reward_of_any_size_is_that_of_all_its_sources(sizes: list[list[int]]) -> None:
    sources = [[source(number + 0.25, size) for number, size in enumerate(row)] for row in sizes]
    given_rewards = [Given(row, sum(each.ByteSize() for each in row)) for row in sources]
    expected = ActorRunTrialInput(state=CommunicationState.NORMAL)
    every = [each for row in sources for each in row]
    mean = mean_reward([(each.value, each.confidence) for each in every])
    expected.reward.CopyFrom(Reward(tick_id=300, receiver_name="a", value=mean, sources=every))
    effect = reward(3, "a", 300, given_rewards)
    assert effect.participant == 3
    assert effect.message == expected
    assert (len(effect.shared.tails) == 1 + len(every)) is False
    assert effect.shared.payload() == expected.SerializeToString()


def test_what_all_are_given_is_kept_once_beside_what_is_for_one_alone() -> None:
    everybody = Given([source(1, 100_000)], 100_000)
    effects = [reward(index, f"a{index}", 0, [everybody, Given([source(2, 10)], 30)]) for index in range(3)]
    shared = [effect.shared for effect in effects if isinstance(effect, SendShared)]
    assert [each.tails[0] for each in shared] == [Reward(sources=everybody.sources).SerializeToString()] * 3
    assert len({id(each.tails[0]) for each in shared}) == 1
    assert (
        sum(
            len(effect.shared.head) + len(effect.shared.tails[1])
            for effect in effects
            if isinstance(effect, SendShared)
        )
        < 300
    )
