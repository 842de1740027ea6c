"""Calls to old servers, messages of participants by the ids of the legacy API and by names, and observations."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.gateways.legacy.actor_ids import ActorIds
from trio_cogment.sdk import RecvObservation
from trio_cogment.sdk.spec import encode


class CallOut(NamedTuple):
    """A call to an old server: its method and its request."""

    method: str
    request: Message


def legacy_message(payload: AnyMessage, sender: str, receiver_id: int, ids: ActorIds) -> legacy.Message | None:
    """Return a message to an old participant; None if its sender has no id.

    Args:
        payload: of the message.
        sender: the name of who has sent it.
        receiver_id: the id of who gets it.
        ids: of the trial.
    """
    sender_id = ids.id_of(sender)
    if sender_id is None:
        return None
    message = legacy.Message(sender_id=sender_id, receiver_id=receiver_id)
    # By fields: the class of another descriptor pool is another class.
    message.payload.type_url, message.payload.value = payload.type_url, payload.value
    return message


def legacy_observation(received: RecvObservation[Any]) -> legacy.Observation:
    """Return an observation as an old participant gets it."""
    observation = legacy.Observation(tick_id=received.tick_id, timestamp=received.timestamp)
    observation.data.content = encode(received.payload, None, "observation")
    observation.data.snapshot = True
    return observation


def message_of(message: legacy.Message, ids: ActorIds) -> tuple[AnyMessage, str] | str:
    """Return the payload and the receiver's name of a message from an old participant; or why it has none, in words.

    Its sender is not looked at: an old participant speaks for itself alone.
    """
    receiver = ids.name_of(message.receiver_id)
    if not receiver:
        return f"a message to {message.receiver_id}, whom the trial does not have"
    return AnyMessage(type_url=message.payload.type_url, value=message.payload.value), receiver
