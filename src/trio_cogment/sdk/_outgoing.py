"""Outgoing rewards and messages of participants, checked and made into messages of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.shared_message import SharedReward

#: What a participant writes for the tick under way.
CURRENT_TICK = -1


class Reward(NamedTuple):
    """A reward that leaves together with an observation set.

    Attributes:
        to: names of actors, `"*"` for all, `"class.*"` for a class.
        value: the reward.
        confidence: its weight in the mean; sources with zero or less are reported but have no weight.
        tick_id: the tick that is rewarded; -1 for the one that the observation set ends.
        user_data: delivered to the receiver with the reward.
    """

    to: Iterable[str] | str
    value: float
    confidence: float = 1.0
    tick_id: int = -1
    user_data: Message | None = None


def rewards(output_type: type[Any], given: Reward, where: Callable[[], str]) -> list[SharedReward]:
    """Return the outputs with a reward, one for each receiver.

    Args:
        output_type: of the participant.
        given: the reward.
        where: tells the participant and what it does, for errors.

    Raises:
        InvalidArgumentError: the value or the confidence is not a number, the receivers are not names, or the user data
            is not a protobuf message.
    """
    to, value, confidence, tick_id, user_data = given
    packed = None if user_data is None else _packed(user_data, f"{where()}: user_data")
    if tick_id != CURRENT_TICK:
        tick_id = common_pb2.Reward(tick_id=tick_id).tick_id  # refuses what is not a number of a tick
    outputs = []
    for receiver in (to,) if type(to) is str else _receivers(to, where()):
        if not receiver.isascii():
            receiver.encode()  # refuses what no message can have
        # Setting fields costs half of what keyword arguments do.
        source = RewardSource()
        try:
            source.value = value
            source.confidence = confidence
        except TypeError:
            raise InvalidArgumentError(
                f"{where()}: expected numbers as value and confidence, got {value!r} and {confidence!r}"
            ) from None
        if packed is not None:
            source.user_data.CopyFrom(packed)
        outputs.append(SharedReward(output_type, tick_id, receiver, source.value, [source]))
    return outputs


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
