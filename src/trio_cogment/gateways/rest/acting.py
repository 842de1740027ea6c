"""Requests of an actor: its action, and with it rewards and messages; and the answer to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.rest.fields import fields_of, integer, items, number, text
from trio_cogment.gateways.rest.messages import any_from_json, any_to_json, payload_from_json
from trio_cogment.sdk import RecvMessage, RecvReward, Reward
from trio_cogment.sdk.spec import Payload, Spec
from trio_cogment.web.json_text import name_of, shortest

#: The tick of a reward that names none: the present one.
_PRESENT = -1


@dataclass(frozen=True, slots=True)
class Act:
    """What an actor does in one tick.

    Attributes:
        action: of the type that its class declares.
        rewards: to other actors.
        messages: to other participants; each with its receiver.
    """

    action: Payload
    rewards: tuple[Reward, ...] = ()
    messages: tuple[tuple[Message, str], ...] = ()


def default_act(kind: type[Message] | None) -> Act:
    """Return the action of which nothing is said."""
    return Act(b"" if kind is None else kind())


def act_from_json(body: Any, kind: type[Message] | None, spec: Spec) -> Act:
    """Return what the body of a request says.

    Args:
        body: as JSON.
        kind: of the action; None: bytes.
        spec: the project.

    Raises:
        InvalidArgumentError: a field is missing or makes no sense; the text names it.
    """
    fields = fields_of(body, ("action", "rewards", "messages"), "")
    if fields.get("action") is None:
        raise InvalidArgumentError("action: expected one; GET of this path acts with the default action")
    return Act(
        payload_from_json(fields["action"], kind, "action"),
        tuple(_reward(item, f"rewards[{at}]", spec) for at, item in enumerate(items(fields, "rewards"))),
        tuple(_message(item, f"messages[{at}]", spec) for at, item in enumerate(items(fields, "messages"))),
    )


def _reward(item: Any, where: str, spec: Spec) -> Reward:
    fields = fields_of(item, ("tick_id", "receiver", "value", "confidence", "user_data"), where)
    user_data = fields.get("user_data")
    return Reward(
        _receiver(fields, where),
        number(fields, "value", 0.0, where),
        number(fields, "confidence", 1.0, where),
        integer(fields, "tick_id", _PRESENT, where),
        None if user_data is None else any_from_json(user_data, spec.messages, f"{where}.user_data"),
    )


def _message(item: Any, where: str, spec: Spec) -> tuple[Message, str]:
    fields = fields_of(item, ("receiver", "payload"), where)
    payload = any_from_json(fields.get("payload"), spec.messages, f"{where}.payload")
    return payload, _receiver(fields, where)


def _receiver(fields: Mapping[str, Any], where: str) -> str:
    receiver = text(fields, "receiver", where)
    if not receiver:
        raise InvalidArgumentError(f"{where}.receiver: expected a name, or *, or CLASS.*")
    return receiver


def reward_to_json(reward: RecvReward, spec: Spec) -> dict[str, Any]:
    """Return a reward that an actor has received."""
    return {
        "tick_id": str(reward.tick_id),
        "value": _number(reward.value),
        "sources": [
            {
                "sender": source.sender_name,
                "value": _number(source.value),
                "confidence": _number(source.confidence),
                **({"user_data": any_to_json(source.user_data, spec.messages)} if source.HasField("user_data") else {}),
            }
            for source in reward.sources
        ],
    }


def message_to_json(message: RecvMessage, spec: Spec) -> dict[str, Any]:
    """Return a message that an actor has received."""
    return {
        "tick_id": str(message.tick_id),
        "sender": message.sender_name,
        "receiver": message.receiver_name,
        "payload": any_to_json(message.payload, spec.messages),
    }


def _number(value: float) -> float | str:
    """Return a number as JSON has it; what it has not are texts, as in protobuf's own form."""
    return shortest(value) if math.isfinite(value) else name_of(value)
