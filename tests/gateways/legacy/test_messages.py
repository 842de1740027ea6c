"""Messages, both ways."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.legacy.common_pb2 import Message
from trio_cogment.gateways.legacy.actor_ids import ActorIds
from trio_cogment.gateways.legacy.messages import legacy_message, message_of

IDS = ActorIds(("a", "b"), [("beta", "b"), ("alpha", "a")], "world")
PAYLOAD = AnyMessage(type_url="type.googleapis.com/project.Thing", value=b"\x01\x02")


@pytest.mark.parametrize(("name", "number"), [("alpha", 0), ("beta", 1), ("world", -1)])
def test_ids_become_names_and_names_ids(name: str, number: int) -> None:
    message = legacy_message(PAYLOAD, name, 1, IDS)
    assert message is not None
    assert (message.sender_id, message.receiver_id) == (number, 1)
    assert (message.payload.type_url, message.payload.value) == (PAYLOAD.type_url, PAYLOAD.value)
    message.receiver_id = number
    assert message_of(message, IDS) == (PAYLOAD, name)


def test_a_sender_without_an_id() -> None:
    assert legacy_message(PAYLOAD, "stranger", 0, IDS) is None


@pytest.mark.parametrize("number", [2, -2, 2**31 - 1])
def test_a_receiver_that_the_trial_does_not_have(number: int) -> None:
    reason = message_of(Message(receiver_id=number), IDS)
    assert reason == f"a message to {number}, whom the trial does not have"


def test_an_environment_without_a_name_gets_nothing() -> None:
    assert message_of(Message(receiver_id=-1), ActorIds("a", [])) == "a message to -1, whom the trial does not have"
