"""What participants say to one another, checked and made into messages of the API: rewards and messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.errors import InvalidArgumentError


def rewards(
    who: str, value: float, confidence: float, to: Iterable[str] | str, tick_id: int, user_data: Message | None
) -> Iterator[common_pb2.Reward]:
    """Return a reward, once for each receiver.

    Raises:
        InvalidArgumentError: the value or the confidence is no number, the receivers are not names, or the user data is
            not a protobuf message.
    """
    try:
        source = RewardSource(value=value, confidence=confidence)
    except TypeError:
        raise InvalidArgumentError(
            f"{who}: add_reward: expected numbers as value and confidence, got {value!r} and {confidence!r}"
        ) from None
    if user_data is not None:
        source.user_data.CopyFrom(_packed(user_data, f"{who}: add_reward: user_data"))
    for receiver in _receivers(to, f"{who}: add_reward"):
        yield common_pb2.Reward(tick_id=tick_id, receiver_name=receiver, value=value, sources=[source])


def messages(who: str, payload: Message, to: Iterable[str] | str) -> Iterator[common_pb2.Message]:
    """Return a message, once for each receiver.

    Raises:
        InvalidArgumentError: the payload is not a protobuf message, or the receivers are not names.
    """
    packed = _packed(payload, f"{who}: send_message")
    for receiver in _receivers(to, f"{who}: send_message"):
        yield common_pb2.Message(tick_id=-1, receiver_name=receiver, payload=packed)


def _packed(payload: object, where: str) -> AnyMessage:
    if isinstance(payload, AnyMessage):
        return payload
    if not isinstance(payload, Message):
        got = type(payload).__name__
        raise InvalidArgumentError(
            f"{where}: expected a protobuf message, got {got}; put it into one, such as "
            "google.protobuf.wrappers_pb2.StringValue"
        )
    if payload.DESCRIPTOR.full_name == AnyMessage.DESCRIPTOR.full_name:
        # From a field of a message whose spec was loaded from files: there it has a class of its own.
        return AnyMessage.FromString(payload.SerializeToString())
    packed = AnyMessage()
    packed.Pack(payload)
    return packed


def _receivers(to: Iterable[str] | str, where: str) -> list[str]:
    if isinstance(to, str):
        return [to]
    found = list(to) if isinstance(to, Iterable) else [to]
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgumentError(f'{where}: expected names as receivers (or "*", or "class.*"), got {to!r}')
    return found
