"""Relayed contents are kept once, and each receiver's envelope is what it was when every receiver had a copy."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyPayload

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState, Message
from trio_cogment.api.environment_pb2 import EnvRunTrialInput
from trio_cogment.trial import ENVIRONMENT, Relay
from trio_cogment.trial._relayed import Said


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000, 3_000_000])
@pytest.mark.parametrize(("participant", "kind"), [(0, ActorRunTrialInput), (ENVIRONMENT, EnvRunTrialInput)])
@pytest.mark.parametrize("name", ["a", "n" * 300])
def test_an_envelope_is_that_of_the_message_on_its_own(size: int, participant: int, kind: Any, name: str) -> None:
    message = Message(tick_id=-1, sender_name="s", receiver_name="*")
    message.payload.CopyFrom(AnyPayload(type_url="type.googleapis.com/x.Y", value=b"v" * size))
    relay = Relay(participant, name, Said(message, 70_000))
    expected = kind(state=CommunicationState.NORMAL)
    expected.message.CopyFrom(message)
    expected.message.tick_id = 70_000
    expected.message.receiver_name = name
    assert relay.message == expected
    assert relay.size == expected.ByteSize() == len(relay.head) + len(relay.said.tail)


def test_a_message_without_payload_has_none() -> None:
    relay = Relay(0, "a", Said(Message(sender_name="s"), 0))
    assert not relay.message.message.HasField("payload")
    assert relay.said.tail == b""
    empty = Message(sender_name="s")
    empty.payload.SetInParent()
    assert Relay(0, "a", Said(empty, 0)).message.message.HasField("payload")


def test_all_receivers_have_the_same_bytes_and_a_later_change_of_the_message_none_of_them() -> None:
    message = Message(sender_name="s")
    message.payload.value = b"said"
    said = Said(message, 0)
    relays = [Relay(index, f"a{index}", said) for index in range(3)]
    message.payload.value = b"changed"
    assert {id(relay.said.tail) for relay in relays} == {id(said.tail)}
    assert [relay.message.message.payload.value for relay in relays] == [b"said"] * 3
